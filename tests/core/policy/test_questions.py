"""Questions of the model: forms that can be answered, and the answers that a person types."""

from typing import Any

import pytest

from palyra.core.policy.questions import (
    ANSWER_BYTES,
    Field,
    find_defect,
    find_words,
    list_fields,
    read_field,
)
from palyra.core.tape.events import ApprovalRequested
from palyra.errors import InvalidParams


def asking(*choices: str) -> ApprovalRequested:
    """A question with these choices."""
    return ApprovalRequested(
        approval_id="apr_1", call_id="c1", tool="ask_user", arguments={"choices": [*choices]}, digest="",
        scopes=("once",), risk="low", summary="", policy_reason="", expires_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("choices", "line", "words"),
    [
        (("red", "blue"), "2", "blue"),
        (("red", "blue"), "0", ""),
        (("red", "blue"), "3", ""),
        (("red", "blue"), "Blue", "blue"),
        (("red", "blue"), "9" * 5_000, ""),
        (("red", "blue"), "²", ""),
        (("3", "2", "1"), "3", "3"),
        (("10", "20"), "2", "20"),
        ((), "9" * 5_000, "9" * 5_000),
    ],
)
def test_a_line_is_a_number_or_a_choice(choices: tuple[str, ...], line: str, words: str) -> None:
    """A choice that is a number itself comes before the number of another one."""
    assert words == find_words(asking(*choices), line)
    if choices:
        rule = {"type": "string", "enum": list(choices)}
        field = Field("f", rule, is_required=True)
        assert not words or words == read_field(field, line)


def test_a_line_for_a_number_is_never_a_fault() -> None:
    """Brackets without an end are no number either."""
    with pytest.raises(InvalidParams, match="a whole number"):
        read_field(Field("f", {"type": "integer"}, is_required=True), "[" * 5_000)


@pytest.mark.parametrize(
    ("rule", "defect"),
    [
        ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "no whole number"),
        ({"type": "integer", "minimum": 0.2, "maximum": 1}, ""),
        ({"type": "integer", "minimum": 0.2}, ""),
        ({"type": "integer", "maximum": 0.8}, ""),
        ({"type": "number", "minimum": 0.2, "maximum": 0.8}, ""),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "minimum is above maximum"),
        ({"type": "string", "minLength": ANSWER_BYTES}, "at most"),
        ({"type": "string", "minLength": ANSWER_BYTES // 2}, ""),
        ({"type": "string", "enum": ["a", 1]}, "enum does not fit"),
        ({"type": "boolean", "enum": [True]}, "has no enum"),
    ],
)
def test_a_form_that_nobody_could_fill_in_is_defective(rule: dict[str, Any], defect: str) -> None:
    """The bounds of a required field leave a value that an answer has room for."""
    form = {"type": "object", "properties": {"f": rule}, "required": ["f"]}
    found = find_defect({"question": "?", "form": form})
    assert (defect in found) if defect else not found


def test_an_optional_field_may_be_left_out() -> None:
    """So its bounds make no form defective."""
    form = {"properties": {"f": {"type": "string", "minLength": ANSWER_BYTES}}}
    assert not find_defect({"form": form})
    assert [False] == [field.is_required for field in list_fields({"form": form})]
