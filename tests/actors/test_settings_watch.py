"""The watch of other settings: an incident says that a change of the file is not in force."""

from functools import partial

import trio
from trio.testing import MockClock

from palyra.actors.config_watch import POLL_S, settings_watch
from palyra.core.incident.kinds import SETTINGS
from tests.actors.fake_alarms import FakeAlarms


class FakeSettings:
    """A file whose problem a test decides."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    async def refresh(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.problem


async def look(settings: FakeSettings, alarms: FakeAlarms) -> None:
    """Let a new watch look twice, and end it."""
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(settings_watch, settings, alarms))
        await trio.sleep(POLL_S * 1.5)
        nursery.cancel_scope.cancel()


async def test_an_incident_ends_with_its_problem(autojump_clock: MockClock) -> None:
    """Another incarnation of the watch clears what the first one reported; one problem is one report."""
    settings, alarms = FakeSettings("a typing error"), FakeAlarms()
    await look(settings, alarms)
    assert alarms.is_reported(SETTINGS)
    assert 1 == len(alarms.raised)
    settings.problem = ""
    await look(settings, alarms)
    assert not alarms.is_reported(SETTINGS)
