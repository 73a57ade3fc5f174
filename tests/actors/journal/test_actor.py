"""The journal actor: order, batches, refusals, failures of the store, and its own end."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio
from msgspec import Raw
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.hub import Hub
from palyra.actors.journal import actor as module
from palyra.actors.journal.actor import JournalHandle, PendingCommit, child_spec
from palyra.actors.journal.write_retry import PROBE_LIMIT_S, QUIET_S, Probe
from palyra.actors.kernel.supervisor import Supervisor
from palyra.core.incident.kinds import JOURNAL
from palyra.core.journal.changes import (
    ChainViolation,
    Change,
    IncidentFilter,
    OpenReport,
    VerifyReport,
)
from palyra.core.journal.records import IdempotencyRecord
from palyra.core.ports import JournalStore
from palyra.core.redaction.redactor import Redactor
from palyra.errors import ActorGone, InvariantBroken, Overloaded, PalyraError, TooLarge, Unavailable
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.services.upkeep.incidents import Incidents, report_opened, report_writing
from palyra.wiring.host import new_id
from tests.actors.run.office_kit import OPERATOR
from tests.store.kit import row, rows, seqs, sqlite_journal
from tests.store.memory.journal import MemoryJournal

T = TypeVar("T")


def size(changes: Sequence[Change]) -> int:
    """Bytes of payloads and records, with a page for each change."""
    payloads = sum(len(row.data) for change in changes for row in change.rows)
    records = sum(len(msgspec.json.encode(change.records)) for change in changes)
    return payloads + records + 4_096 * len(changes)


class Store(MemoryJournal):
    """A store that records its calls and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[Change]] = []
        self.seals_s: list[float] = []
        self.probes_s: list[float] = []
        self.fail_with: Exception | None = None
        self.room_bytes: int | None = None  # a commit of more fails
        self.fail_seal = False
        self.leftovers = 0  # seals until the files have no removed content

    @property
    def has_leftovers(self) -> bool:
        return self.leftovers > 0

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        if any(change.rows for change in changes):
            self.batches.append(list(changes))
        else:
            self.probes_s.append(trio.current_time())
        if self.fail_with is not None:
            raise self.fail_with
        if self.room_bytes is not None and size(changes) > self.room_bytes:
            raise Unavailable("journal: commit: disk full")
        return super().commit(changes)

    def seal(self) -> bool:
        self.seals_s.append(trio.current_time())
        if self.fail_seal:
            raise Unavailable("journal: seal: disk full")
        self.leftovers -= 1
        return super().seal()


class Thread:
    """A thread that is none: calls happen in place, when the gate is open."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.gate.set()
        self.is_closed = False

    async def call(self, fn: Callable[..., T], *args: object) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True):  # like a real call: nobody can interrupt it
            await self.gate.wait()
            await trio.lowlevel.cancel_shielded_checkpoint()
        return fn(*args)

    def close(self) -> None:
        self.is_closed = True

    def shut(self) -> None:
        """Let calls wait until `gate` is set."""
        self.gate = trio.Event()


async def call_inline(fn: Callable[..., T], *args: object) -> T:
    await trio.lowlevel.checkpoint()
    return fn(*args)


class Kit:
    """A journal actor with everything in the test's hands."""

    def __init__(self, store: JournalStore) -> None:
        self.handle = JournalHandle(store, run_blocking=call_inline)
        self.thread, self.lookups = Thread(), Thread()
        self.heads: list[list[tuple[str, int]]] = []
        self.reports: list[OpenReport] = []
        self.writing: list[str | None] = []  # why it refused, None: it works again
        self.on_writing: module.OnWriting = lambda _: None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        await module.journal(
            self.handle,
            on_committed=self.heads.append,
            on_opened=self.reports.append,
            on_writing=self.note_writing,
            new_thread=lambda name: self.thread if name == "journal" else self.lookups,
            task_status=task_status,
        )

    def note_writing(self, why: Unavailable | None) -> None:
        self.writing.append(why.message if why else None)
        self.on_writing(why)


@asynccontextmanager
async def running(store: JournalStore) -> AsyncGenerator[Kit, None]:
    kit = Kit(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(kit.run)
        try:
            yield kit
        finally:
            nursery.cancel_scope.cancel()


@pytest.fixture
def store() -> Store:
    return Store()


async def outcome(ticket: PendingCommit) -> type[PalyraError] | None:
    """The exception that waiting for the ticket raises."""
    try:
        await ticket.wait()
    except PalyraError as error:
        return type(error)
    return None


async def outcomes(tickets: Sequence[PendingCommit]) -> list[type[PalyraError] | None]:
    return [await outcome(ticket) for ticket in tickets]


# --- commits -------------------------------------------------------------------------------------


async def test_a_ticket_resolves_with_the_commit_of_its_change(
    store: Store, autojump_clock: MockClock
) -> None:
    """It resolves only after the commit, and then the rows exist."""
    async with running(store) as kit:
        ticket = kit.handle.append(rows("run_a", 0, 2))
        before = ticket.is_committed
        await ticket.wait()
        await ticket.wait()
        assert (False, True) == (before, ticket.is_committed)
        assert [0, 1] == seqs(store, "run_a")


async def test_appends_are_committed_in_the_order_of_the_calls(
    store: Store, autojump_clock: MockClock
) -> None:
    """An earlier append has the earlier position in the journal."""
    async with running(store) as kit:
        names = [f"run_{n}" for n in (3, 1, 2)]
        tickets = [kit.handle.append(rows(name, 0, 1)) for name in names]
        assert [None] * 3 == await outcomes(tickets)
        links = [store.read_chain(name, after_seq=-1, limit=1)[0] for name in names]
        assert [1, 2, 3] == [link.position for link in links]


async def test_changes_during_a_commit_are_the_next_batch(
    store: Store, autojump_clock: MockClock
) -> None:
    """There is one commit at a time; all waiting changes share the next one."""
    async with running(store) as kit:
        kit.thread.shut()
        tickets = [kit.handle.append(rows("run_a", 0, 1))]
        await wait_all_tasks_blocked()
        tickets += [kit.handle.append(rows("run_a", seq, 1)) for seq in (1, 2, 3)]
        await wait_all_tasks_blocked()
        kit.thread.gate.set()
        assert [None] * 4 == await outcomes(tickets)
        assert [1, 3] == [len(batch) for batch in store.batches]


async def test_those_who_run_at_the_same_time_share_a_batch(
    store: Store, autojump_clock: MockClock
) -> None:
    """Appends of tasks that were woken together become one commit."""
    async with running(store) as kit:
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(kit.handle.commit, rows(f"run_{n}", 0, 1))
        assert [20] == [len(batch) for batch in store.batches]


async def test_a_long_queue_is_cut_into_batches(
    store: Store, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction grows without bound."""
    monkeypatch.setattr(module, "MAX_BATCH", 4)
    async with running(store) as kit:
        tickets = [kit.handle.append(rows("run_a", seq, 1)) for seq in range(10)]
        assert [None] * 10 == await outcomes(tickets)
        assert [4, 4, 2] == [len(batch) for batch in store.batches]


async def test_a_refused_change_fails_its_own_ticket(
    store: Store, autojump_clock: MockClock
) -> None:
    """The error of one change reaches its own caller and no other."""
    async with running(store) as kit:
        tickets = [
            kit.handle.append(change)
            for change in (
                rows("run_a", 0, 1),
                rows("run_b", 7, 1),
                Change(rows=(row("run_c", 0, data=b"x" * 800_000),)),
                rows("run_a", 1, 1),
            )
        ]
        assert [None, InvariantBroken, TooLarge, None] == await outcomes(tickets)
        assert [True, False, False, True] == [ticket.is_committed for ticket in tickets]


async def test_the_hub_is_notified_before_the_tickets(
    store: Store, autojump_clock: MockClock
) -> None:
    """Heads are passed on once a batch, for committed rows only, before any waiter wakes."""
    async with running(store) as kit:
        heard: list[Any] = []

        async def append(change: Change) -> None:
            ticket = kit.handle.append(change)
            await outcome(ticket)
            heard.append(list(kit.heads))

        async with trio.open_nursery() as nursery:
            for change in (rows("run_a", 0, 2), rows("run_b", 3, 1), Change()):
                nursery.start_soon(append, change)
        assert [[[("run_a", 1)]]] * 3 == heard


async def test_reads_see_committed_rows(store: Store, autojump_clock: MockClock) -> None:
    """A query runs on the store itself, also during a commit."""
    async with running(store) as kit:
        await kit.handle.commit(rows("run_a", 0, 2))
        kit.thread.shut()
        kit.handle.append(rows("run_a", 2, 1))
        assert [0, 1] == await kit.handle.read(lambda store: seqs(store, "run_a"))
        assert [0, 1] == await kit.handle.find(lambda store: seqs(store, "run_a"))
        kit.thread.gate.set()


async def test_nothing_is_found_in_a_closed_journal(
    store: Store, autojump_clock: MockClock
) -> None:
    """Look-ups of a journal that does not run are refused, not queued."""
    async with running(store) as kit:
        pass
    with pytest.raises(Unavailable, match="closed"):
        await kit.handle.find(lambda store: seqs(store, "run_a"))


async def test_changes_in_quick_succession_share_a_commit(
    store: Store, autojump_clock: MockClock
) -> None:
    """Changes within a few turns of the loop are one batch; a later one is the next."""
    async with running(store) as kit:
        kit.handle.append(rows("run_a", 0, 1))
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        await kit.handle.append(rows("run_b", 0, 1)).wait()
        await kit.handle.append(rows("run_c", 0, 1)).wait()
        assert [[("run_a", 0), ("run_b", 0)], [("run_c", 0)]] == kit.heads


async def test_the_backlog_counts_waiting_rows(store: Store, autojump_clock: MockClock) -> None:
    """Rows count from their append to their commit, whether refused or not."""
    async with running(store) as kit:
        kit.thread.shut()
        first = kit.handle.append(rows("run_a", 0, 2))
        await wait_all_tasks_blocked()
        second = kit.handle.append(rows("run_b", 9, 3))
        assert 5 == kit.handle.backlog
        kit.thread.gate.set()
        assert [None, InvariantBroken] == await outcomes([first, second])
        assert 0 == kit.handle.backlog


async def test_too_many_waiting_changes_are_refused(
    store: Store, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit the caller gets Overloaded at once, and the queue does not grow."""
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    async with running(store) as kit:
        tickets = [kit.handle.append(rows(f"run_{n}", 0, 1)) for n in range(3)]
        assert 2 == kit.handle.backlog
        assert [None, None, Overloaded] == await outcomes(tickets)


async def test_a_cancelled_waiter_takes_nothing_back(
    store: Store, autojump_clock: MockClock
) -> None:
    """The change is committed all the same, and others who wait for it are woken."""
    async with running(store) as kit:
        kit.thread.shut()
        ticket = kit.handle.append(rows("run_a", 0, 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticket.wait)
            with trio.move_on_after(1) as impatient:
                await ticket.wait()
            kit.thread.gate.set()
        assert (True, True) == (impatient.cancelled_caught, ticket.is_committed)


# --- roots ---------------------------------------------------------------------------------------


async def test_new_events_are_signed_within_ten_seconds(
    store: Store, autojump_clock: MockClock
) -> None:
    """A root follows ten seconds after the first event it covers, not after the last."""
    async with running(store) as kit:
        start_s = trio.current_time()
        for seq in range(4):
            await kit.handle.commit(rows("run_a", seq, 1))
            await trio.sleep_until(start_s + 3 * (seq + 1))
        await trio.sleep_until(start_s + 100)
        assert [start_s + 10] == store.seals_s
        assert 4 == store.verify().signed_through_position


async def test_removed_content_is_overwritten_within_seconds(
    store: Store, autojump_clock: MockClock
) -> None:
    """Seals follow each other by a second until the files have nothing that was removed."""
    async with running(store) as kit:
        start_s = trio.current_time()
        await kit.handle.commit(rows("run_a", 0, 1))
        await trio.sleep_until(start_s + 3)
        store.leftovers = 2
        await kit.handle.commit(rows("run_a", 1, 1))
        await trio.sleep_until(start_s + 100)
        assert [start_s + 4, start_s + 5] == store.seals_s


async def test_the_next_incarnation_signs_unsigned_events(
    store: Store, autojump_clock: MockClock
) -> None:
    """Repeated kills leave no more unsigned events than one of them may."""
    store.open()
    store.commit([rows("run_a", 0, 3)])
    assert 0 == store.verify().signed_through_position
    async with running(store):
        await wait_all_tasks_blocked()
        assert 3 == store.verify().signed_through_position


async def test_many_events_are_signed_at_once(
    store: Store, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full load of events is signed right behind the batch that completes it."""
    monkeypatch.setattr(module, "SEAL_ROWS", 5)
    async with running(store) as kit:
        start_s = trio.current_time()
        for seq in range(0, 12, 2):
            await kit.handle.commit(rows("run_a", seq, 2))
        await wait_all_tasks_blocked()
        assert [start_s, start_s] == store.seals_s


async def test_a_failed_root_is_retried(store: Store, autojump_clock: MockClock) -> None:
    """Commits continue meanwhile, because a root is proof, not durability."""
    async with running(store) as kit:
        store.fail_seal = True
        start_s = trio.current_time()
        await kit.handle.commit(rows("run_a", 0, 1))
        await trio.sleep_until(start_s + 11)
        await kit.handle.commit(rows("run_a", 1, 1))
        assert kit.handle.is_writable
        store.fail_seal = False
        await trio.sleep_until(start_s + 21)
        assert [start_s + 10, start_s + 20] == store.seals_s
        assert 2 == store.verify().signed_through_position


# --- a store that fails --------------------------------------------------------------------------


async def test_a_full_disk_fails_the_whole_batch_and_no_more(
    store: Store, autojump_clock: MockClock
) -> None:
    """Every ticket of the batch fails; reads continue; the actor lives."""
    async with running(store) as kit:
        await kit.handle.commit(rows("run_a", 0, 1))
        store.fail_with = Unavailable("journal: commit: disk full")
        tickets = [kit.handle.append(rows(name, 1, 1)) for name in ("run_a", "run_b")]
        assert [Unavailable, Unavailable] == await outcomes(tickets)
        assert (False, 0) == (kit.handle.is_writable, kit.handle.backlog)
        assert [0] == await kit.handle.read(lambda store: seqs(store, "run_a"))
        assert [[("run_a", 0)]] == kit.heads


async def test_changes_after_a_refused_one_are_refused(
    store: Store, autojump_clock: MockClock
) -> None:
    """Later changes of the run are refused as Unavailable until it learns of the refusal."""
    async with running(store) as kit:
        store.fail_with = Unavailable("journal: commit: disk full")
        assert [Unavailable] == await outcomes([kit.handle.append(rows("run_a", 0, 2))])
        store.fail_with = None
        assert [Unavailable] == await outcomes([kit.handle.append(rows("run_a", 2, 1))])
        assert [None] == await outcomes([kit.handle.append(rows("run_a", 0, 1))])
        assert [InvariantBroken] == await outcomes([kit.handle.append(rows("run_a", 2, 1))])


async def test_few_torn_runs_are_remembered(
    store: Store, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    async with running(store) as kit:
        store.fail_with = Unavailable("journal: commit: disk full")
        for name in ("run_a", "run_b", "run_c"):
            assert [Unavailable] == await outcomes([kit.handle.append(rows(name, 0, 1))])
        store.fail_with = None
        assert [InvariantBroken] == await outcomes([kit.handle.append(rows("run_a", 1, 1))])
        assert [Unavailable] == await outcomes([kit.handle.append(rows("run_c", 1, 1))])


async def test_a_failed_store_is_tried_again_by_itself(
    store: Store, autojump_clock: MockClock
) -> None:
    """Probes come at growing distances until one is taken, and a last one after a quiet time."""
    async with running(store) as kit:
        store.fail_with = Unavailable("journal: commit: disk full")
        start_s = trio.current_time()
        with pytest.raises(Unavailable, match="disk full"):
            await kit.handle.commit(rows("run_a", 0, 1))
        await trio.sleep_until(start_s + 14)
        store.fail_with = None
        await trio.sleep_until(start_s + 47)
        assert (True, False) == (kit.handle.has_room, kit.handle.is_writable)
        await trio.sleep_until(start_s + 120)
        assert [0.5, 1.5, 3.5, 7.5, 12.5, 17.5, 47.5] == [at_s - start_s for at_s in store.probes_s]
        assert kit.handle.is_writable
        await kit.handle.commit(rows("run_a", 0, 1))


async def test_each_failure_restarts_the_probe_intervals(
    store: Store, autojump_clock: MockClock
) -> None:
    """After a recovery the next failure is probed as soon as the first one was."""
    async with running(store) as kit:
        for seq in range(2):
            store.fail_with = Unavailable("journal: commit: disk full")
            assert [Unavailable] == await outcomes([kit.handle.append(rows("run_a", seq, 1))])
            failed_s = trio.current_time()
            await trio.sleep_until(failed_s + 1)
            assert [0.5] == [at_s - failed_s for at_s in store.probes_s if at_s > failed_s]
            store.fail_with = None
            await kit.handle.commit(rows("run_a", seq, 1))
            await trio.sleep(PROBE_LIMIT_S + QUIET_S)
            assert kit.handle.is_writable


async def test_a_store_that_refuses_every_other_commit_is_not_writable(
    store: Store, autojump_clock: MockClock
) -> None:
    """One incident for all of it, counted, which ends once nothing was refused for a while."""
    async with running(store) as kit:
        book = Incidents(
            kit.handle, Hub(encode_notification), Redactor([]), now_ms=lambda: 1, new_id=new_id
        )
        kit.on_writing = partial(report_writing, book)
        large = Change(rows=tuple(row("run_a", seq, data=b"x" * 30_000) for seq in range(10)))
        store.room_bytes = 300_000
        for seq in range(20):
            assert [Unavailable] == await outcomes([kit.handle.append(large)])
            await kit.handle.commit(rows("run_b", seq, 1))
            assert not kit.handle.is_writable
            await trio.sleep_until(trio.current_time() + 1)
        store.room_bytes = None
        await trio.sleep(QUIET_S)
        assert (True, False) == (kit.handle.has_room, kit.handle.is_writable)
        (incident,) = (await book.list_page(OPERATOR, IncidentFilter()))[0]
        assert ("open", 20) == (incident.state, incident.count)
        await trio.sleep(PROBE_LIMIT_S + 1)
        (incident,) = (await book.list_page(OPERATOR, IncidentFilter()))[0]
        assert ("resolved", True) == (incident.state, kit.handle.is_writable)


async def test_a_refusal_in_the_quiet_time_restarts_it(
    store: Store, autojump_clock: MockClock
) -> None:
    """A disk that is full again within the quiet time does not count as recovered."""
    async with running(store) as kit:
        refusal = Unavailable("journal: commit: disk full")
        for _ in range(2):
            store.fail_with = refusal
            assert [Unavailable] == await outcomes([kit.handle.append(rows("run_a", 0, 1))])
            store.fail_with = None
            await trio.sleep(QUIET_S - 1)
            assert (True, False) == (kit.handle.has_room, kit.handle.is_writable)
        await trio.sleep_until(trio.current_time() + 3)
        assert kit.handle.is_writable


async def test_a_probe_writes_as_much_as_was_refused_in_all(
    store: Store, autojump_clock: MockClock
) -> None:
    """Room for one of many is not room."""
    async with running(store) as kit:
        store.room_bytes = 200_000
        large = Change(rows=tuple(row("run_a", seq, data=b"x" * 30_000) for seq in range(10)))
        for _ in range(4):
            assert [Unavailable] == await outcomes([kit.handle.append(large)])
        store.room_bytes = 400_000
        await trio.sleep_until(trio.current_time() + 60)
        assert not kit.handle.has_room
        store.room_bytes = 1_500_000
        await trio.sleep(PROBE_LIMIT_S)
        assert kit.handle.has_room


async def test_a_refusal_has_the_time_until_the_next_probe(
    store: Store, autojump_clock: MockClock
) -> None:
    """The interval grows, and further refusals do not extend it."""
    async with running(store) as kit:
        waits_ms = []
        for _ in range(3):
            store.fail_with = Unavailable("journal: commit: disk full")
            with pytest.raises(Unavailable) as refused:
                await kit.handle.commit(rows("run_a", 0, 1))
            waits_ms.append(refused.value.retry_after_ms)
            await trio.sleep_until(trio.current_time() + 0.375)
        assert [500, 125, 750] == waits_ms


async def test_refusals_and_their_end_are_reported(store: Store, autojump_clock: MockClock) -> None:
    """Each refused commit is reported, refused probes are not, and the recovery is reported once."""
    async with running(store) as kit:
        await kit.handle.commit(rows("run_a", 0, 1))
        assert [] == kit.writing
        store.fail_with = Unavailable("journal: commit: disk full")
        for _ in range(3):
            await outcomes([kit.handle.append(rows("run_a", 1, 1))])
            await trio.sleep(PROBE_LIMIT_S)
        refusals = ["journal: commit: disk full"] * 3
        assert refusals == kit.writing
        store.fail_with = None
        await trio.sleep(PROBE_LIMIT_S)
        assert refusals == kit.writing
        await trio.sleep(QUIET_S)
        assert [*refusals, None] == kit.writing
        await kit.handle.commit(rows("run_a", 1, 1))
        assert 4 == len(kit.writing)


async def test_a_nearly_full_disk_is_not_writable(store: Store, autojump_clock: MockClock) -> None:
    """A commit that finds room proves nothing for a larger one that was refused."""
    async with running(store) as kit:
        store.room_bytes = 200_000
        large = Change(rows=tuple(row("run_a", seq, data=b"x" * 30_000) for seq in range(10)))
        assert [Unavailable] == await outcomes([kit.handle.append(large)])
        assert not kit.handle.is_writable
        await kit.handle.commit(rows("run_b", 0, 1))
        assert not kit.handle.is_writable
        await trio.sleep_until(trio.current_time() + 30)
        assert len(store.probes_s) > 3
        assert not kit.handle.is_writable
        store.room_bytes = 400_000
        await trio.sleep_until(trio.current_time() + PROBE_LIMIT_S + QUIET_S + 1)
        writable = kit.handle.is_writable
        await kit.handle.commit(large)
        assert (True, True) == (writable, kit.handle.is_writable)


async def test_a_probe_of_an_earlier_life_is_no_obstacle(
    store: Store, autojump_clock: MockClock
) -> None:
    """A daemon that died after its probe had been committed is followed by one that probes."""
    for seq in range(2):
        async with running(store) as kit:
            store.room_bytes = 10
            refused = kit.handle.append(rows("run_a", 0, 100 + seq))
            assert [Unavailable] == await outcomes([refused])
            store.room_bytes = None
            store.probes_s.clear()
            await trio.sleep_until(trio.current_time() + QUIET_S + 1)
            assert kit.handle.is_writable
            assert 2 == len(store.probes_s)


async def test_a_probe_that_is_refused_is_not_repeated_at_once(
    store: Store, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the store has against a probe: the next one comes after the pause."""
    taken = IdempotencyRecord(
        principal="", key="taken", body_sha256="a", result=Raw(b"1"), created_ms=0
    )
    other = msgspec.structs.replace(taken, body_sha256="b")
    monkeypatch.setattr(Probe, "padding", lambda _: Change(records=(other,)))
    async with running(store) as kit:
        await kit.handle.commit(Change(records=(taken,)))
        store.probes_s.clear()
        store.room_bytes = 10
        assert [Unavailable] == await outcomes([kit.handle.append(rows("run_a", 0, 100))])
        store.room_bytes = None
        start_s = trio.current_time()
        await trio.sleep_until(start_s + 4)
        assert not kit.handle.is_writable
        assert [0.5, 1.5, 3.5] == [at_s - start_s for at_s in store.probes_s]


# --- the end -------------------------------------------------------------------------------------


async def test_without_an_actor_nothing_is_promised(
    store: Store, autojump_clock: MockClock
) -> None:
    """Before its start and after its end appends fail at once, and nothing is queued."""
    async with running(store) as kit:
        pass
    fresh = JournalHandle(store)
    for handle in (kit.handle, fresh):
        assert [ActorGone] == await outcomes([handle.append(rows("run_a", 0, 1))])
        assert (False, 0, 0) == (handle.is_writable, handle.backlog, handle.inbox.depth)
    with pytest.raises(Unavailable, match="closed"):
        await kit.handle.read(lambda store: store.list_tokens())


@asynccontextmanager
async def supervised(kit: Kit) -> AsyncGenerator[tuple[Supervisor, trio.CancelScope], None]:
    """The journal as its supervisor runs it; the scope ends the supervisor at once."""
    spec = child_spec(
        kit.handle,
        on_committed=kit.heads.append,
        on_opened=kit.reports.append,
        new_thread=lambda _name: kit.thread,
    )
    tree = Supervisor("test", [spec], strategy="rest_for_one")
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)
        try:
            yield tree, nursery.cancel_scope
        finally:
            nursery.cancel_scope.cancel()


async def test_a_stopped_journal_writes_what_was_queued(
    store: Store, autojump_clock: MockClock
) -> None:
    """An orderly stop commits what was appended before it, signs it and closes cleanly."""
    kit = Kit(store)
    async with supervised(kit) as (_, scope):
        tickets = [kit.handle.append(rows("run_a", seq, 1)) for seq in range(3)]
        scope.cancel()
    assert [True] * 3 == [ticket.is_committed for ticket in tickets]
    assert kit.thread.is_closed
    report = store.open()
    assert (True, 3, 3) == (
        report.was_clean,
        report.head_position,
        report.verification.signed_through_position,
    )


async def test_changes_after_the_stop_are_refused(store: Store, autojump_clock: MockClock) -> None:
    """A batch that starts after the stop is not committed, and its tickets fail."""
    async with running(store) as kit:
        kit.thread.shut()
        first = kit.handle.append(rows("run_a", 0, 1))
        await wait_all_tasks_blocked()
        await kit.handle.inbox.stop("drain")
        late = kit.handle.append(rows("run_a", 1, 1))
        kit.thread.gate.set()
        assert [None, ActorGone] == await outcomes([first, late])
    assert [1] == [len(batch) for batch in store.batches]


async def test_a_cancelled_journal_finishes_its_batch(
    store: Store, autojump_clock: MockClock
) -> None:
    """Cancelled without a drain, it finishes what is being written and refuses the rest."""
    async with running(store) as kit:
        kit.thread.shut()
        first = kit.handle.append(rows("run_a", 0, 1))
        await wait_all_tasks_blocked()
        second = kit.handle.append(rows("run_a", 1, 1))
        gate = kit.thread.gate
        trio.lowlevel.current_trio_token().run_sync_soon(gate.set)
    assert [True, False] == [ticket.is_committed for ticket in (first, second)]
    assert [ActorGone] == await outcomes([second])
    store.open()
    assert [0] == seqs(store, "run_a")


@pytest.mark.parametrize("steps", range(8))
async def test_whenever_it_is_cancelled_no_ticket_is_forgotten(
    store: Store, autojump_clock: MockClock, steps: int
) -> None:
    """A change is committed or refused, wherever on its way the journal was cancelled."""
    async with running(store) as kit:
        await wait_all_tasks_blocked()
        ticket = kit.handle.append(rows("run_a", 0, 1))
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
    with trio.fail_after(1):
        found = await outcome(ticket)
    store.open()
    assert (None if seqs(store, "run_a") else ActorGone) == found


async def test_a_crash_fails_all_pending_changes(store: Store, autojump_clock: MockClock) -> None:
    """The crashed batch and the queue behind it fail; the next incarnation serves."""
    kit = Kit(store)
    async with supervised(kit) as (tree, scope):
        kit.thread.shut()
        store.fail_with = InvariantBroken("a bug")
        tickets = [kit.handle.append(rows("run_a", 0, 1))]
        await wait_all_tasks_blocked()
        tickets.append(kit.handle.append(rows("run_a", 1, 1)))
        kit.thread.gate.set()
        assert [ActorGone, ActorGone] == await outcomes(tickets)
        store.fail_with = None
        await wait_all_tasks_blocked()
        assert (2, True, 0) == (
            tree.snapshot().children[0].incarnation,
            kit.handle.is_writable,
            kit.handle.backlog,
        )
        assert [] == await kit.handle.read(lambda store: seqs(store, "run_a"))
        await kit.handle.commit(rows("run_a", 0, 2))
        assert [1, 2] == [report.owner_epoch for report in kit.reports]
        scope.cancel()


async def test_a_store_that_cannot_be_opened_fails_the_start(autojump_clock: MockClock) -> None:
    """The starter learns why, and nothing is left running."""

    class Locked(MemoryJournal):
        def open(self) -> OpenReport:
            raise Unavailable("journal: it is in use by another process")

    kit = Kit(Locked())
    with pytest.RaisesGroup(pytest.RaisesExc(Unavailable, match="in use")):
        async with trio.open_nursery() as nursery:
            await nursery.start(kit.run)
    assert kit.thread.is_closed
    assert not kit.handle.is_writable


async def test_a_store_that_cannot_be_closed_does_not_hang_the_end(
    autojump_clock: MockClock,
) -> None:
    """A disk that fails at the last moment is logged; the next opening finds it unclean."""

    class Failing(MemoryJournal):
        def close(self) -> None:
            raise Unavailable("journal: close: disk full")

    store = Failing()
    async with running(store) as kit:
        await kit.handle.commit(rows("run_a", 0, 1))
    assert kit.thread.is_closed
    assert not store.open().was_clean


def test_findings_at_opening_are_reported() -> None:
    """A break in the chain is an incident, a repair a warning, the rest a log line."""
    broken = ChainViolation(
        kind="edited", position=1, run_id="run_a", seq=0, detail="it does not fit"
    )
    report = OpenReport(
        schema_version=2,
        migrated_from=1,
        owner_epoch=3,
        was_clean=False,
        head_position=9,
        verification=VerifyReport(
            checked_events=9,
            checked_roots=1,
            through_position=9,
            signed_through_position=8,
            first_break=broken,
            breaks=1,
        ),
        notes=("a torn line was cut off",),
    )
    whole = msgspec.structs.replace(
        report, verification=msgspec.structs.replace(report.verification, first_break=None)
    )
    handle = JournalHandle(MemoryJournal())
    book = Incidents(
        handle, Hub(encode_notification), Redactor([]), now_ms=lambda: 1, new_id=new_id
    )
    with capture_logs() as logged:
        report_opened(book, report)
        report_opened(book, whole)
        report_writing(book, Unavailable("disk full"))
        report_writing(book, None)
    levels = ["info", "warning", "critical", "info", "warning", "critical", "info"]
    assert levels == [entry["log_level"] for entry in logged]
    assert ("chain_broken:edited:1", "it does not fit") == (
        logged[2]["key"],
        logged[2]["evidence"]["detail"],
    )
    assert [JOURNAL] * 2 == [entry["key"] for entry in logged[5:]]
    assert 1 == book.open_count


# --- the real thing ------------------------------------------------------------------------------


@pytest.mark.real
async def test_many_writers_on_a_real_disk(tmp_path: Path) -> None:
    """Fifty tasks append concurrently with readers; every tape is complete."""
    store = sqlite_journal(tmp_path)
    handle = JournalHandle(store)
    spec = child_spec(handle, on_committed=lambda _: None, on_opened=lambda _: None)
    tree = Supervisor("test", [spec], strategy="rest_for_one")

    async def write(name: str) -> None:
        for seq in range(10):
            await handle.commit(rows(name, seq, 1))
            if seq % 3 == 0:
                found = await handle.read(lambda store: seqs(store, name))
                assert list(range(seq + 1)) == found

    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)
        async with trio.open_nursery() as writers:
            for n in range(50):
                writers.start_soon(write, f"run_{n}")
        report = await handle.read(lambda store: store.verify())
        assert (500, None) == (report.checked_events, report.first_break)
        nursery.cancel_scope.cancel()
    assert store.open().was_clean
    store.close()


@pytest.mark.real
async def test_a_crash_on_a_real_disk_keeps_committed_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next incarnation opens the file although the last one's store is still open."""
    store = sqlite_journal(tmp_path)
    handle = JournalHandle(store)
    spec = child_spec(handle, on_committed=lambda _: None, on_opened=lambda _: None)
    tree = Supervisor("test", [spec], strategy="rest_for_one")
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)
        await handle.commit(rows("run_a", 0, 2))
        with monkeypatch.context() as broken:
            broken.setattr(store, "commit", lambda _: 1 / 0)
            with pytest.raises(ActorGone):
                await handle.commit(rows("run_a", 2, 1))
        while not handle.is_writable:
            await trio.lowlevel.checkpoint()
        await handle.commit(rows("run_a", 2, 1))
        assert [0, 1, 2] == await handle.read(lambda store: seqs(store, "run_a"))
        nursery.cancel_scope.cancel()
