"""The journal actor: the one writer of all tapes, committing whatever waits in one batch.

Owns: the writing half of the store and the thread it runs on.  Written by: run actors, through
`JournalHandle.append`.  Tells: the hub what is committed.  Never: decides what to append.
Restart: permanent.  What was appended and not committed is lost with the incarnation, and its
tickets say so: who appended is restarted with it and goes on from the tape.

Group commit: while a batch is being written new appends pile up, and are the next batch.  The
fuller the load the larger the batch, and one sync serves them all.

How long a batch of the journal stays open for what may still join it.
"""

from collections.abc import Callable, Sequence, Sized
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol, TypeVar

import structlog
import trio

from palyra.actors.journal.write_retry import FailedRuns, Probe
from palyra.actors.kernel import threads
from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.mailbox import Mailbox, Receiver
from palyra.core.journal.changes import Change, OpenReport
from palyra.core.ports import JournalStore, RunBlocking
from palyra.errors import ActorGone, Overloaded, PalyraError, Unavailable

T = TypeVar("T")
log = structlog.get_logger()

# Every open run waits for few of its appends, so thousands waiting mean a disk that hangs.
MAX_WAITING = 65_536  # changes
MAILBOX_CAPACITY = 8  # a batch, a stop and a bookmark, with room to spare
MAX_BATCH = 128  # changes in one transaction: while it syncs, those of the last one go on
SEAL_ROWS = 1_024
SEAL_S = 10.0
CLOSE_S = 5.0  # grace for a last batch, a root and a checkpoint

OnCommitted = Callable[[list[tuple[str, int]]], None]  # (run_id, last committed seq)
OnOpened = Callable[[OpenReport], None]
OnWriting = Callable[[Unavailable | None], None]  # it refused, and why; None: it works again


class JournalThread(Protocol):
    """Where the store is called: a `DedicatedThread`, or a fake that calls it on the spot."""

    async def call(self, fn: Callable[..., T], *args: object) -> T: ...
    def close(self) -> None: ...


# --- messages ------------------------------------------------------------------------------------


class PendingCommit:
    """One append on its way: a change, and the promise that it will be committed."""

    __slots__ = ("_error", "_waiters", "change", "is_settled")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.is_settled = False
        self._error: PalyraError | None = None
        self._waiters: list[trio.lowlevel.Task] = []

    @property
    def is_committed(self) -> bool:
        """Whether the change is durable."""
        return self.is_settled and self._error is None

    async def wait(self) -> None:
        """Wait until the change is durable.

        Raises Unavailable, TooLarge, InvariantBroken, Conflict or Overloaded when nothing of it
        was written, ActorGone when that is not known.
        Cancellation: it may be committed all the same; a repeat is harmless.
        """
        if self.is_settled:
            await trio.lowlevel.checkpoint()
        else:  # what `trio.Event` does, without one event for each event of a tape
            task = trio.lowlevel.current_task()
            self._waiters.append(task)
            await trio.lowlevel.wait_task_rescheduled(lambda _: self._leave(task))
        if self._error is not None:
            raise self._error

    def _leave(self, task: trio.lowlevel.Task) -> trio.lowlevel.Abort:
        """The task is cancelled: wake it no more."""
        self._waiters.remove(task)
        return trio.lowlevel.Abort.SUCCEEDED

    def settle(self, error: PalyraError | None) -> None:
        """Keep or break the promise; the first word stands."""
        if self.is_settled:
            return
        self.is_settled = True
        self._error = error
        for task in self._waiters:
            trio.lowlevel.reschedule(task)


Batch = list[PendingCommit]  # the message: one for all appends until the actor takes it


@dataclass(slots=True)
class JournalState:
    """What the actor and its handles share.

    Appends join `batch`, which is in the mailbox already; it is None when the next append has to
    begin one.  So the mailbox holds one message for a thousand appends.
    """

    is_open: bool = False
    is_writable: bool = False
    has_room: bool = False
    refusals: int = 0  # batches that the store refused, in all its lives
    batch: Batch | None = None
    waiting_rows: int = 0
    lookups: JournalThread | None = None  # for `find`, while the journal is open


# --- handle --------------------------------------------------------------------------------------


class JournalHandle:
    """Appends to and reads from the journal."""

    __slots__ = ("_run_blocking", "desk", "inbox", "store")

    def __init__(
        self, store: JournalStore, *, run_blocking: RunBlocking = threads.run_sync
    ) -> None:
        self.inbox: Mailbox[Batch] = Mailbox("journal", MAILBOX_CAPACITY)
        self.desk = JournalState()
        self.store = store
        self._run_blocking = run_blocking

    def append(self, change: Change) -> PendingCommit:
        """Queue a change; never waits.  Changes are committed in the order of these calls."""
        ticket = PendingCommit(change)
        desk = self.desk
        if not desk.is_open:
            ticket.settle(ActorGone("the journal is not running"))
            return ticket
        if desk.batch is None:
            desk.batch = []
            self.inbox.offer(desk.batch)
        if len(desk.batch) < MAX_WAITING:
            desk.batch.append(ticket)
            desk.waiting_rows += len(change.rows)
        else:
            ticket.settle(Overloaded(f"{MAX_WAITING} changes wait for the journal"))
        return ticket

    async def commit(self, change: Change) -> None:
        """Append and wait; see `Ticket.wait`."""
        await self.append(change).wait()

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        """What the query says, run in a reader's thread beside the writer: pages, lists, checks.

        Raises Unavailable while the journal is closed.
        """
        return await self._run_blocking(query, self.store)

    async def find(self, query: Callable[[JournalStore], T]) -> T:
        """One record, looked up by its key: all look-ups share a thread, at half of `read`'s price.

        Raises Unavailable while the journal is closed.
        """
        if self.desk.lookups is None:
            raise Unavailable("journal: it is closed")
        return await self.desk.lookups.call(query, self.store)

    @property
    def backlog(self) -> int:
        """Rows that wait to be committed."""
        return self.desk.waiting_rows

    @property
    def is_writable(self) -> bool:
        """Whether the store refused nothing lately; see `actors.journal.write_retry`."""
        return self.desk.is_writable

    @property
    def has_room(self) -> bool:
        """Whether it is worth writing: the store refused nothing since it last took a probe."""
        return self.desk.has_room

    @property
    def refusals(self) -> int:
        """Batches that were refused so far: whoever saw fewer before may blame the journal."""
        return self.desk.refusals


# --- the loop ------------------------------------------------------------------------------------


async def journal(
    handle: JournalHandle,
    *,
    on_committed: OnCommitted,
    on_opened: OnOpened,
    on_writing: OnWriting = lambda _: None,
    new_thread: Callable[[str], JournalThread] = threads.DedicatedThread,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Commit what is appended until stopped; then what was queued before the stop, and close.

    Raises Unavailable when the store cannot be opened.
    Cancellation: the batch under way is finished and acknowledged, the rest is refused.
    """
    with closing(new_thread("journal")) as thread, closing(new_thread("lookups")) as lookups:
        report = await thread.call(handle.store.open)
        on_opened(report)
        keeper = _Keeper(handle.store, handle.desk, thread, on_committed, on_writing)
        keeper.sign_soon(report)
        try:
            with handle.inbox.receiver() as messages:
                handle.desk.is_open = handle.desk.is_writable = handle.desk.has_room = True
                handle.desk.lookups = lookups
                task_status.started()
                await keeper.serve(messages)
        finally:
            handle.desk.is_open = handle.desk.is_writable = handle.desk.has_room = False
            handle.desk.lookups = None
            with trio.CancelScope(shield=True):
                await keeper.refuse_queued(handle.inbox)
                await keeper.close()


class _Keeper:
    """The private state of one incarnation."""

    def __init__(
        self,
        store: JournalStore,
        desk: JournalState,
        thread: JournalThread,
        on_committed: OnCommitted,
        on_writing: OnWriting,
    ) -> None:
        self._store = store
        self._desk = desk
        self._thread = thread
        self._on_committed = on_committed
        self._on_writing = on_writing
        self._gaps = FailedRuns(MAX_WAITING)
        self._unsealed_rows = 0
        self._seal_at_s = inf  # never, while nothing new is committed
        self._probe = Probe()

    def sign_soon(self, report: OpenReport) -> None:
        """What a life left unsigned is signed first: short lives must not add up to a long tail."""
        if report.verification.signed_through_position < report.head_position:
            self._seal_at_s = trio.current_time()

    async def serve(self, messages: Receiver[Batch]) -> None:
        """Commit batches; seal and probe when it is time, also under steady load."""
        with suppress(trio.EndOfChannel):
            while True:
                tickets = await self._take(messages)
                for start in range(0, len(tickets), MAX_BATCH):
                    await self._commit(tickets[start : start + MAX_BATCH])
                await self._do_chores()

    async def _take(self, messages: Receiver[Batch]) -> Batch:
        """What waits; empty when a chore is due first.

        The others get a few turns before the batch is closed: what they are about to append often
        follows from the same message, and shares its sync.
        """
        with trio.move_on_at(min(self._seal_at_s, self._probe.at_s)):
            batch = await messages.receive()
            with trio.CancelScope(shield=True):  # what was taken is kept
                await wait_for_more(batch, MAX_BATCH)
            self._desk.batch = None
            return batch
        return []

    async def refuse_queued(self, inbox: Mailbox[Batch]) -> None:
        """Settle what nobody will commit: all that is queued before a bookmark."""
        gone = ActorGone("the journal ended before it came to this change")
        bookmark = PendingCommit(Change())
        with suppress(ActorGone, trio.EndOfChannel), inbox.receiver() as messages:
            inbox.offer([bookmark])
            while not bookmark.is_settled:
                _settle_all(await messages.receive(), gone)
        self._desk.batch = None
        self._desk.waiting_rows = 0

    async def close(self) -> None:
        """Close the store; one that cannot be closed well says so at its next opening."""
        try:
            await self._thread.call(self._store.close)
        except Unavailable as error:
            log.warning("journal.not_closed_cleanly", error=error.message)

    async def _commit(self, tickets: Sequence[PendingCommit]) -> None:
        """Write one batch, tell the hub, wake who waits: once for all."""
        changes = [ticket.change for ticket in tickets]
        try:
            outcomes = await self._thread.call(self._store.commit, changes)
        except Unavailable as error:
            self._note_failure(error, changes)
            self._on_writing(error)
            self._gaps.note(changes)
            _settle_all(tickets, error)
        else:
            self._note_success(tickets, outcomes)
        finally:
            _settle_all(tickets, ActorGone("the journal crashed with this change under way"))
            self._desk.waiting_rows -= sum(len(ticket.change.rows) for ticket in tickets)

    def _note_success(
        self, tickets: Sequence[PendingCommit], outcomes: Sequence[PalyraError | None]
    ) -> None:
        """Everybody learns in the same step: nobody runs before this returns."""
        heads: dict[str, int] = {}
        for ticket, outcome in zip(tickets, outcomes, strict=True):
            rows = ticket.change.rows
            ticket.settle(self._gaps.explain(ticket.change, outcome))
            if rows and outcome is None:
                heads[rows[-1].run_id] = rows[-1].seq
                self._unsealed_rows += len(rows)
        self._on_committed(list(heads.items()))
        self._seal_at_s = min(self._seal_at_s, trio.current_time() + SEAL_S)

    def _note_failure(self, error: Unavailable, changes: Sequence[Change]) -> None:
        """Refuse nothing by itself: whoever appends is told by the store, as long as it fails."""
        self._desk.is_writable = self._desk.has_room = False
        self._desk.refusals += 1
        error.retry_after_ms = self._probe.note_refusal(changes, trio.current_time())

    def _note_taken(self) -> None:
        """A probe was taken: forget it, and say so when writing works again."""
        self._desk.has_room, self._seal_at_s = True, trio.current_time()
        if self._probe.note_taken(trio.current_time()):
            self._desk.is_writable = True
            self._on_writing(None)

    async def _do_chores(self) -> None:
        """Probe a store that failed; sign what is new."""
        if trio.current_time() >= self._probe.at_s:
            await self._try_again()
        if self._unsealed_rows >= SEAL_ROWS or trio.current_time() >= self._seal_at_s:
            await self._seal()

    async def _try_again(self) -> None:
        """Commit a probe; see `actors.journal.write_retry`."""
        try:
            (refusal,) = await self._thread.call(self._store.commit, [self._probe.padding()])
        except Unavailable as error:
            refusal = error
        if refusal is None:
            self._note_taken()
        else:
            self._desk.has_room = False
            self._probe.note_failure(trio.current_time())

    async def _seal(self) -> None:
        self._unsealed_rows, self._seal_at_s = 0, inf
        try:
            await self._thread.call(self._store.seal)
        except Unavailable as error:
            log.warning("journal.not_sealed", error=error.message)
            self._seal_at_s = trio.current_time() + SEAL_S


def _settle_all(tickets: Sequence[PendingCommit], error: PalyraError) -> None:
    """Give all that are not settled yet the same answer."""
    for ticket in tickets:
        ticket.settle(error)


def child_spec(
    handle: JournalHandle,
    *,
    on_committed: OnCommitted,
    on_opened: OnOpened,
    on_writing: OnWriting = lambda _: None,
    new_thread: Callable[[str], JournalThread] = threads.DedicatedThread,
) -> ChildSpec:
    """The journal as the first child of the daemon."""
    start = partial(
        journal,
        handle,
        on_committed=on_committed,
        on_opened=on_opened,
        on_writing=on_writing,
        new_thread=new_thread,
    )
    return ChildSpec("journal", start, "permanent", CLOSE_S, handle.inbox)


QUIET_TURNS = 3  # turns of the scheduler: a model that answers at once needs two
GROW_S = 0.001  # a batch waits no longer for what may join it


async def wait_for_more(batch: Sized, most: int) -> None:
    """Give way until nothing more joins, the batch is full, or the first has waited long enough.

    Cancellation: nothing is changed.
    """
    until_s = trio.current_time() + GROW_S
    quiet = 0
    while quiet < QUIET_TURNS and len(batch) < most and trio.current_time() < until_s:
        size = len(batch)
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if len(batch) == size else 0
