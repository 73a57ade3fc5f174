"""Names that people read in lists hide nothing."""

from typing import Any

import msgspec
import pytest

from palyra.net.api.methods.task import ScheduleAdd
from palyra.net.api.methods.token import TokenCreate
from tests.rows import every_row

CREATED: tuple[tuple[type[msgspec.Struct], dict[str, Any]], ...] = (
    (ScheduleAdd, {"every_ms": 60_000, "payload": {}}),
    (TokenCreate, {"role": "client", "principal": "ann"}),
)
HIDDEN = "\u202e \u2066 \u200b \u200f \u061c \ufeff \u2060 \u00ad \u3164 \u2028 \x85 \x1b \x7f \ufe0f \U000e0041"


@pytest.mark.parametrize(("kind", "fields"), CREATED)
@pytest.mark.parametrize("char", HIDDEN.split(" "), ids=ascii)
def test_a_name_with_a_hidden_character_is_refused(
    kind: type[msgspec.Struct], fields: dict[str, Any], char: str
) -> None:
    """Bidirectional, zero-width, blank, tag and control characters, wherever they are."""
    for name in (f"ab{char}cd", f"{char}ab", f"ab{char}"):
        with pytest.raises(msgspec.ValidationError, match="name"):
            msgspec.convert({**fields, "name": name}, kind)


@every_row(("kind", "fields"), CREATED)
@every_row("name", ["nightly", "Nächtlich, 2", "毎晩の掃除", "لیلي", "🌙 tidy"])
def test_control_a_name_in_any_script_is_taken(
    kind: type[msgspec.Struct], fields: dict[str, Any], name: str
) -> None:
    """Letters, accents, digits, punctuation and pictures stay as they are."""
    assert name == msgspec.convert({**fields, "name": name}, kind).name  # type: ignore[attr-defined]  # both have it
