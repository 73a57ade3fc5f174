"""A session whose actor crashes again and again is set aside, named, and revived; its siblings live."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.session import actor as session_actor
from palyra.core.healing.rules import calm_s
from palyra.core.supervision import CHILD_INTENSITY
from palyra.errors import IllegalState, PalyraError
from tests.actors.healing_kit import SWEEP_S, Desk, elapse, watching
from tests.actors.run.office_kit import OPERATOR, say

POISON = "poison"


pytestmark = pytest.mark.usefixtures("poison")


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each session actor crash on a message with that text."""
    submit = session_actor._SessionActor._submit

    def fragile(self: Any, message: Any) -> None:
        if message.command.text == POISON:
            raise ValueError("a bug")
        submit(self, message)

    monkeypatch.setattr(session_actor._SessionActor, "_submit", fragile)


async def send(desk: Desk, text: str) -> str:
    """Send a message to the session with the key `ill`; return the error of a refused one."""
    try:
        await desk.kit.start(text, session_key="ill")
    except PalyraError as error:
        return type(error).__name__
    return ""


async def crash(desk: Desk, times: int = CHILD_INTENSITY + 1) -> None:
    """Have the actor of that session crash, within some seconds."""
    with capture_logs():
        for _ in range(times):
            desk.nursery.start_soon(send, desk, POISON)
            await wait_all_tasks_blocked()
            await elapse(1.1)


def find(desk: Desk) -> Any:
    (found,) = [each for each in desk.incidents() if each.key.startswith("session_set_aside:")]
    return found


async def test_siblings_live_on(autojump_clock: MockClock) -> None:
    """Runs of other sessions end, runs of that session go on, and its messages are refused with the remedy."""
    gate = trio.Event()
    async with watching("observe_only") as desk:
        desk.kit.model.turns = [gate, say("other"), say("mine")]
        own = await desk.kit.start("work", session_key="ill")
        other = await desk.kit.start("work")
        await crash(desk)
        assert "IllegalState" == await send(desk, "hello")
        gate.set()
        await elapse(1)
        assert "done" == await desk.kit.end(other)
        assert ["done", "done"] == [
            (await desk.kit.gateway.get_run(OPERATOR, each)).state for each in (own, other)
        ]
        await elapse(2 * SWEEP_S)
        found = find(desk)
        assert ("open", "critical", "run", "revive_session") == (
            found.state,
            found.severity,
            found.domain,
            found.remedy,
        )
        assert "ValueError('a bug')" == found.evidence["error"]
        assert 1 == desk.kit.work._incarnation


async def test_fewer_crashes_only_cost_their_messages(autojump_clock: MockClock) -> None:
    """The actor comes back after a pause, with its state."""
    async with watching("auto") as desk:
        await crash(desk, CHILD_INTENSITY)
        assert not await send(desk, "hello")
        assert [] == desk.incidents()


async def test_resolving_the_incident_revives_the_session(autojump_clock: MockClock) -> None:
    """Runs that ended meanwhile are gone from it, and those that waited go on."""
    gate = trio.Event()
    async with watching("observe_only") as desk:
        desk.kit.model.turns = [gate, say("one"), say("two")]
        first = await desk.kit.start("work", session_key="ill")
        second = await desk.kit.start("more", session_key="ill", queue_mode="followup")
        await crash(desk)
        gate.set()
        await elapse(1)
        found = find(desk)
        with pytest.raises(IllegalState, match="palyra incidents"):
            await desk.kit.start("hello", session_key="ill")
        await desk.kit.incidents.resolve(OPERATOR, found.incident_id, "mended")
        assert ["done", "done"] == [await desk.kit.end(each) for each in (first, second)]
        assert not await send(desk, "hello")
        await elapse(10)
        assert ({}, {}) == (desk.kit.registry.set_aside, desk.kit.registry.runs)
        await elapse(120)
        assert "resolved" == find(desk).state


async def test_auto_revives_it_thrice_and_then_asks_a_person(autojump_clock: MockClock) -> None:
    """Each time it crashes again its attempts go on; once it stays well the incident ends."""
    async with watching("auto") as desk:
        assert not await send(desk, "hello")
        for attempts in range(1, 4):
            await crash(desk)
            await elapse(400)
            assert ["revive_session"] * attempts == desk.remedies
            assert {} == desk.kit.registry.set_aside
        await crash(desk)
        await elapse(400)
        assert 3 == len(desk.remedies)
        last = desk.incidents()[-1]
        assert ("escalated", 3) == (last.state, last.attempts)
        await desk.kit.incidents.resolve(OPERATOR, last.incident_id, "mended")
        assert not await send(desk, "hello")


async def test_a_revived_session_must_stay_well(autojump_clock: MockClock) -> None:
    """A new actor alone is no recovery."""
    async with watching("auto") as desk:
        await crash(desk)
        await elapse(SWEEP_S)
        assert ["revive_session"] == desk.remedies
        await elapse(SWEEP_S)
        assert "open" == find(desk).state
        modes = desk.watchdog.modes
        await elapse(calm_s(modes.stuck_s, modes.sweep_s) + SWEEP_S)
        assert "resolved" == find(desk).state
