"""Settings that follow the file: what happens if one part takes a change up and another does not."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import pytest

from palyra.actors.session.registry import ActorRegistry
from palyra.config.load import Config, load
from palyra.errors import InvalidParams, PalyraError, Unavailable
from palyra.wiring.live_settings import LiveSettings

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Part:
    """A part that notes what it took up, or fails."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self.failure: PalyraError | None = None

    async def apply(self, config: Config) -> None:
        """Note the default model."""
        if self.failure is not None:
            raise self.failure
        self.models.append(config.models.default)


async def run_inline(fn: Callable[[*Args], T], /, *args: *Args) -> T:  # noqa: RUF029 - the port's signature
    """Run it here."""
    return fn(*args)


def write(path: Path, model: str) -> None:
    """Have the file name a default model."""
    path.write_text(f'[models]\ndefault = "{model}"\n', encoding="utf-8")


@pytest.mark.parametrize("failure", [Unavailable("busy"), InvalidParams("no", field="models")])
async def test_a_change_that_is_taken_back_is_taken_back_everywhere(
    tmp_path: Path, failure: PalyraError
) -> None:
    """A part that took up a change which another refused gets the earlier one again."""
    path = tmp_path / "palyra.toml"
    write(path, "a")
    running, (first, second) = load(path, environ={}), (Part(), Part())
    settings = LiveSettings(
        running,
        lambda text: (text, False),
        lambda _config: None,
        ActorRegistry(),
        run_inline,
        parts=[first, second],
    )
    second.failure = failure
    write(path, "other")
    assert failure.message == await settings.refresh()
    assert (["other"], []) == (first.models, second.models)
    second.failure = None
    write(path, "a")
    assert not await settings.refresh()
    assert ("a", "a") == (first.models[-1], second.models[-1])
    assert "a" == settings.in_force.models.default
