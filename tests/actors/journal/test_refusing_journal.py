"""Runs whose journal refuses what they write, again and again, on virtual time."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.journal.write_retry import PROBE_S
from palyra.actors.session.actor import MAX_CRASHES
from palyra.core.incident.incident import UNRESOLVED
from palyra.core.journal.changes import Change, IncidentFilter
from palyra.core.tape.events import RunRecovered, TurnCompleted
from palyra.errors import Unavailable
from tests.actors.run.office_kit import OPERATOR, InlineTicket, Kit, running
from tests.store.memory.journal import MemoryJournal

ROUNDS = (
    2 * MAX_CRASHES
)  # more lives than a run that crashes has, and than one that gets no further


class NearlyFull:
    """A disk with room for small changes only: it refuses whole answers of a model, `times`."""

    def __init__(
        self, kit: Kit, times: int, *, has_room: bool = False, is_to_blame: bool = True
    ) -> None:
        self._journal, self._append = kit.journal, kit.journal.append
        self.left, self.is_to_blame = times, is_to_blame
        self.has_room = has_room  # a probe is taken right after each refusal

    def append(self, change: Change) -> InlineTicket:
        if self.left == 0 or all(row.kind != TurnCompleted.KIND for row in change.rows):
            return self._append(change)
        self.left -= 1
        self._journal.is_writable = self.has_room
        self._journal.fail_with = Unavailable("no room")
        try:
            return self._append(change)
        finally:
            self._journal.fail_with = None
            if not self.is_to_blame:
                self._journal.refusals = 0

    async def find_room(self) -> None:
        """A probe now and then, which is taken."""
        while True:
            await trio.sleep(PROBE_S)
            self._journal.is_writable = True


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


@pytest.mark.parametrize("has_room", [False, True])
async def test_a_run_survives_repeated_refusals_of_the_journal(
    store: MemoryJournal,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    has_room: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Refusals count neither against its actor nor against the run, which continues in the end."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        disk = NearlyFull(kit, ROUNDS, has_room=has_room)
        monkeypatch.setattr(kit.journal, "append", disk.append)
        nursery.start_soon(disk.find_room)
        with capture_logs() as logs:
            run_id = await kit.start()
            assert "done" == await kit.end(run_id)
        assert (0, {}) == (disk.left, kit.registry.stranded)
        recovered = kit.events(run_id, RunRecovered.KIND)
        assert [0] * ROUNDS == [event.attempt for event in recovered]
        found = await kit.incidents.list_page(OPERATOR, IncidentFilter(states=UNRESOLVED))
        assert [] == found[0]
        reasons = {
            entry["reason"]
            for entry in logs
            if "run suspended: the journal is unavailable" in entry["event"]
        }
        assert {"no room"} == reasons
        assert (await kit.gateway.replay_run(OPERATOR, run_id, strict=True)).matched
        nursery.cancel_scope.cancel()


async def test_control_a_journal_that_is_not_to_blame(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same losses while the journal works are the run's own, and counted."""
    async with running(store) as kit:
        disk = NearlyFull(kit, ROUNDS, has_room=True, is_to_blame=False)
        monkeypatch.setattr(kit.journal, "append", disk.append)
        run_id = await kit.start()
        assert "failed" == await kit.end(run_id)
        (failed,) = kit.events(run_id, "run.failed")
        assert "recovery_exhausted" == failed.failure_class
