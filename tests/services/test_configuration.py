"""Changes of the configuration: what is in force on return."""

import pytest
import trio

from palyra.core.configuration import ConfigChange, ConfigChanged, ConfigEffect, ConfigView
from palyra.errors import Unavailable
from palyra.services.upkeep.configuration import Configuration
from tests.actors.run.office_kit import OPERATOR, inline_blocking


class FakeFile:
    """A file that takes each change, whose effect a test decides."""

    def __init__(self, effect: ConfigEffect) -> None:
        self.effect = effect

    def read(self) -> ConfigView:
        return ConfigView(entries=(), config_file="f", digest="")

    def change(self, change: ConfigChange) -> ConfigChanged:
        return ConfigChanged(
            key=change.key, value=change.value, effect=self.effect, source="file", digest="d",
            config_file="f",
        )  # fmt: skip


async def busy() -> str:
    """Return what keeps the file from being in force."""
    await trio.lowlevel.checkpoint()
    return "a part is busy"


async def test_a_change_that_is_not_in_force_is_an_error() -> None:
    """The message says that the file has it; a key of the next start needs nothing to be in force."""
    change = ConfigChange(key="notify.after_s", value=3)
    live = Configuration(FakeFile("now"), inline_blocking, busy)
    with pytest.raises(Unavailable, match="in the file, and not in force yet: a part is busy"):
        await live.change(OPERATOR, change)
    assert "a part is busy" == (await live.read(OPERATOR)).problem
    later = Configuration(FakeFile("restart"), inline_blocking, busy)
    assert "restart" == (await later.change(OPERATOR, change)).effect
