"""The journal actor: the one writer of all tapes, with group commit.

Owns: the writing half of the store and the thread that calls it.  Written by: run actors and
services, through `JournalHandle.append`.  Notifies: the hub, of committed heads.  Never: decides
what to append.
Restart: permanent.  Changes that were appended and not committed are lost with the incarnation:
their `PendingCommit` raises ActorGone, and the actors that appended them are restarted with the
journal and resume from the tape.

An append, step by step.  It starts in `actors/run/actor` (`emit`: the rows of a step and the records
that belong to them are one `Change`) and ends in `store/sqlite/writer`; between the two lie this file
and the port `core.ports.JournalStore`, which `store/sqlite/journal` implements.

1. `JournalHandle.append` adds a `PendingCommit` to the open batch and returns it.  The first append
   of a batch also puts the batch into the mailbox, so a thousand appends are one message.  The call
   never waits; the order of the calls is the order on the tape.
2. The actor receives the batch and leaves it open for a moment (`wait_for_more`, at most 1 ms):
   appends that follow from the same message join it and share its sync.  Then it closes the batch,
   and the next append opens another.
3. `JournalStore.commit` runs on the journal's thread, with at most `MAX_BATCH` changes at a time.
   `store/sqlite/writer` describes the steps inside: `store/journal/admission` compares the rows
   with their tapes, `core/journal/tape_row` hashes them, `store/sqlite/queries` writes the records.
4. The actor settles every `PendingCommit` with its outcome and reports the committed heads to the
   hub.  Nothing is awaited in between, so no waiter runs before all outcomes are known.

While a batch is being written new appends collect in the next one.  So batches grow with the load,
and one sync serves a whole batch (group commit).

A change that the store refuses for itself (InvariantBroken, Conflict, TooLarge) fails alone.  When
the store refuses a whole batch (Unavailable: full disk, I/O error), all its changes fail with that
error and are not retried here: a run appends again from its tape once the journal is writable.
`write_retry` decides when that is.

Signed roots are made between batches, every `SEAL_ROWS` rows or `SEAL_S` seconds, also under steady
load; `CLEAN_S` seconds after a removal, because the seal overwrites what was removed.

A crash or a stop settles every change exactly once: with its outcome if its batch reached the
store, otherwise with ActorGone.  The batch in the store's hands is finished even when the actor is
cancelled.
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
from palyra.core.journal.changes import Change, FilesLost, OpenReport
from palyra.core.ports import JournalStore, RunBlocking
from palyra.errors import ActorGone, Overloaded, PalyraError, Unavailable

T = TypeVar("T")
log = structlog.get_logger()

# A run waits for most of its appends, so thousands of pending changes mean a hanging disk.
MAX_WAITING = 65_536  # changes in one batch
MAILBOX_CAPACITY = 8  # a batch, a stop and the last marker, with some to spare
MAX_BATCH = 128  # changes in one transaction: the waiters of one run while the next one syncs
SEAL_ROWS = 1_024
SEAL_S = 10.0
CLEAN_S = 1.0  # the same, while removed content may still be in the files
CLOSE_S = 5.0  # grace for a last batch, a root and a checkpoint
QUIET_TURNS = 3  # scheduler turns without an append: a model that answers at once needs two
GROW_S = 0.001  # longest time that a received batch stays open

OnCommitted = Callable[[list[tuple[str, int]]], None]  # (run_id, last committed seq)
OnOpened = Callable[[OpenReport], None]
OnWriting = Callable[[Unavailable | None], None]  # a batch was refused; None: writable again


class JournalThread(Protocol):
    """Calls the store: a `DedicatedThread`, or a fake that calls it directly."""

    async def call(self, fn: Callable[..., T], *args: object) -> T: ...
    def close(self) -> None: ...


# --- messages ------------------------------------------------------------------------------------


class PendingCommit:
    """An appended change and its outcome, which any number of tasks may wait for."""

    __slots__ = ("_error", "_waiters", "change", "is_settled")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.is_settled = False
        self._error: PalyraError | None = None
        self._waiters: list[trio.lowlevel.Task] = []

    @property
    def is_committed(self) -> bool:
        """True if the change is durable."""
        return self.is_settled and self._error is None

    async def wait(self) -> None:
        """Wait until the change is durable.

        Raises Unavailable, TooLarge, InvariantBroken, Conflict or Overloaded when nothing of the
        change was written, ActorGone when that is not known.
        Cancellation: the change may still be committed; appending it again is idempotent.
        """
        if self.is_settled:
            await trio.lowlevel.checkpoint()
        else:  # as `trio.Event` does, without an object for each change
            task = trio.lowlevel.current_task()
            self._waiters.append(task)
            await trio.lowlevel.wait_task_rescheduled(lambda _: self._leave(task))
        if self._error is not None:
            raise self._error

    def _leave(self, task: trio.lowlevel.Task) -> trio.lowlevel.Abort:
        """Remove a cancelled task from the waiters."""
        self._waiters.remove(task)
        return trio.lowlevel.Abort.SUCCEEDED

    def settle(self, error: PalyraError | None) -> None:
        """Set the outcome and wake the waiters; only the first call counts."""
        if self.is_settled:
            return
        self.is_settled = True
        self._error = error
        for task in self._waiters:
            trio.lowlevel.reschedule(task)


Batch = list[PendingCommit]  # the one message of this actor


@dataclass(slots=True)
class JournalState:
    """State that the actor and its handle share.

    `batch` is the open batch, which is in the mailbox already; None if the next append opens one.
    """

    is_open: bool = False
    is_writable: bool = False
    has_room: bool = False
    refusals: int = 0  # batches refused by the store, over all incarnations
    wants_checkpoint: bool = False
    batch: Batch | None = None
    waiting_rows: int = 0
    epoch: int = 0  # of the last opening; raised by each
    silent_since_s: float | None = None  # set by `find_silence`; the end of a batch makes it None
    writes: JournalThread | None = None  # thread of the store's write half, likewise
    lost: FilesLost | None = None  # found by `check_files`
    lookups: JournalThread | None = None  # thread of `find`, while the journal is open


# --- handle --------------------------------------------------------------------------------------


class JournalHandle:
    """Appends to and reads from the journal."""

    __slots__ = ("_run_blocking", "inbox", "state", "store")

    def __init__(
        self, store: JournalStore, *, run_blocking: RunBlocking = threads.run_sync
    ) -> None:
        self.inbox: Mailbox[Batch] = Mailbox("journal", MAILBOX_CAPACITY)
        self.state = JournalState()
        self.store = store
        self._run_blocking = run_blocking

    def append(self, change: Change) -> PendingCommit:
        """Queue a change; never waits.  Changes are committed in the order of these calls."""
        pending = PendingCommit(change)
        state = self.state
        if not state.is_open:
            pending.settle(ActorGone("the journal is not running"))
            return pending
        if state.batch is None:
            state.batch = []
            self.inbox.offer(state.batch)
        if len(state.batch) < MAX_WAITING:
            state.batch.append(pending)
            state.waiting_rows += len(change.rows)
        else:
            pending.settle(Overloaded(f"{MAX_WAITING} changes wait for the journal"))
        return pending

    async def commit(self, change: Change) -> None:
        """Append and wait; see `PendingCommit.wait`."""
        await self.append(change).wait()

    async def read(self, query: Callable[[JournalStore], T]) -> T:
        """Run the query in a worker thread and return its result: pages, lists, checks.

        Raises Unavailable while the journal is closed.
        """
        return await self._run_blocking(query, self.store)

    async def find(self, query: Callable[[JournalStore], T]) -> T:
        """Look up one record by key; all lookups share a thread, at half the cost of `read`.

        Raises Unavailable while the journal is closed.
        """
        if self.state.lookups is None:
            raise Unavailable("journal: it is closed")
        return await self.state.lookups.call(query, self.store)

    async def check_files(self) -> FilesLost | None:
        """Check that the files of the store are in place, between two batches; see `JournalStore`.

        Raises Unavailable, ActorGone.  Cancellation: waits for the store.
        """
        if self.state.writes is None:
            raise Unavailable("journal: it is closed")
        self.state.lost = await self.state.writes.call(self.store.check_files)
        return self.state.lost

    def require_files(self) -> None:
        """Raise Unavailable for new work if files of the store were lost."""
        if self.state.lost is not None:
            raise Unavailable(
                f"journal: {self.state.lost.found}: no run is started; `palyra incidents list --open` "
                "names the remedy"
            )

    def request_checkpoint(self) -> None:
        """Have the write-ahead log folded into the database after the next batch."""
        self.state.wants_checkpoint = True

    def find_silence(self, now_s: float) -> float | None:
        """Return since when rows have waited and no batch has ended, as far as calls of this saw it.

        None if no row waits.
        """
        state = self.state
        if not state.waiting_rows:
            state.silent_since_s = None
        elif state.silent_since_s is None:
            state.silent_since_s = now_s
        return state.silent_since_s

    @property
    def backlog(self) -> int:
        """Number of rows that are not committed yet."""
        return self.state.waiting_rows

    @property
    def is_writable(self) -> bool:
        """True while writing works and its files are in place; after a refusal, see `actors.journal.write_retry`."""
        return self.state.is_writable and self.state.lost is None

    @property
    def has_room(self) -> bool:
        """True if the store has refused nothing since it last accepted a probe."""
        return self.state.has_room

    @property
    def refusals(self) -> int:
        """Number of batches the store has refused since start.

        Compare two readings to see whether a write failed in between.
        """
        return self.state.refusals


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
    """Commit batches until stopped; then commit those queued before the stop, and close.

    Raises Unavailable when the store cannot be opened.
    Cancellation: the current batch is finished and acknowledged, the others fail with ActorGone.
    """
    with closing(new_thread("journal")) as thread, closing(new_thread("lookups")) as lookups:
        report = await thread.call(handle.store.open)
        handle.state.epoch = report.owner_epoch
        on_opened(report)
        life = _Incarnation(handle.store, handle.state, thread, on_committed, on_writing)
        life.schedule_first_seal(report)
        try:
            with handle.inbox.receiver() as messages:
                handle.state.is_open = handle.state.is_writable = handle.state.has_room = True
                handle.state.lookups, handle.state.writes = lookups, thread
                handle.state.lost = None
                task_status.started()
                await life.serve(messages)
        finally:
            handle.state.is_open = handle.state.is_writable = handle.state.has_room = False
            handle.state.lookups = handle.state.writes = None
            with trio.CancelScope(shield=True):
                await life.refuse_queued(handle.inbox)
                await life.close()


class _Incarnation:
    """The private state and the loop of one incarnation."""

    def __init__(
        self,
        store: JournalStore,
        state: JournalState,
        thread: JournalThread,
        on_committed: OnCommitted,
        on_writing: OnWriting,
    ) -> None:
        self._store = store
        self._state = state
        self._thread = thread
        self._on_committed = on_committed
        self._on_writing = on_writing
        self._failed_runs = FailedRuns(MAX_WAITING)
        self._unsealed_rows = 0
        self._seal_at_s = inf  # never, while nothing new is committed
        self._probe = Probe()

    def schedule_first_seal(self, report: OpenReport) -> None:
        """Seal at once if the last incarnation left unsigned rows, so that they do not add up."""
        if report.verification.signed_through_position < report.head_position:
            self._seal_at_s = trio.current_time()

    async def serve(self, messages: Receiver[Batch]) -> None:
        """Commit batches; probe and seal between them when it is time."""
        with suppress(trio.EndOfChannel):
            while True:
                batch = await self._receive(messages)
                for start in range(0, len(batch), MAX_BATCH):
                    await self._commit(batch[start : start + MAX_BATCH])
                if trio.current_time() >= self._probe.at_s:
                    await self._try_probe()
                if self._unsealed_rows >= SEAL_ROWS or trio.current_time() >= self._seal_at_s:
                    await self._seal()
                if self._state.wants_checkpoint:
                    await self._checkpoint()

    async def _receive(self, messages: Receiver[Batch]) -> Batch:
        """Receive the next batch and close it; empty when a probe or a seal is due first."""
        with trio.move_on_at(min(self._seal_at_s, self._probe.at_s)):
            batch = await messages.receive()
            with trio.CancelScope(shield=True):  # a received batch must be settled
                await wait_for_more(batch, MAX_BATCH)
            self._state.batch = None
            return batch
        return []

    async def refuse_queued(self, inbox: Mailbox[Batch]) -> None:
        """Settle the batches that will not be committed: all that precede a marker."""
        gone = ActorGone("the journal ended before it committed this change")
        marker = PendingCommit(Change())
        with suppress(ActorGone, trio.EndOfChannel), inbox.receiver() as messages:
            inbox.offer([marker])
            while not marker.is_settled:
                _settle_all(await messages.receive(), gone)
        self._state.batch = None
        self._state.waiting_rows = 0

    async def close(self) -> None:
        """Close the store; after a failed close the next opening reports an unclean shutdown."""
        try:
            await self._thread.call(self._store.close)
        except Unavailable as error:
            log.warning("journal.not_closed_cleanly", error=error.message)

    async def _commit(self, batch: Sequence[PendingCommit]) -> None:
        """Write one batch and acknowledge it; see the module's steps 3 and 4."""
        changes = [pending.change for pending in batch]
        try:
            outcomes = await self._thread.call(self._store.commit, changes)
        except Unavailable as error:
            self._state.is_writable = self._state.has_room = False
            self._state.refusals += 1
            error.retry_after_ms = self._probe.record_refusal(changes, trio.current_time())
            self._on_writing(error)
            self._failed_runs.record(changes)
            _settle_all(batch, error)
        else:
            self._acknowledge(batch, outcomes)
        finally:
            _settle_all(batch, ActorGone("the journal crashed while committing this change"))
            self._state.waiting_rows -= sum(len(pending.change.rows) for pending in batch)
            self._state.silent_since_s = None

    def _acknowledge(
        self, batch: Sequence[PendingCommit], outcomes: Sequence[PalyraError | None]
    ) -> None:
        """Settle each change with its outcome and notify the hub, without awaiting in between."""
        heads: dict[str, int] = {}
        for pending, outcome in zip(batch, outcomes, strict=True):
            rows = pending.change.rows
            pending.settle(self._failed_runs.explain(pending.change, outcome))
            if rows and outcome is None:
                heads[rows[-1].run_id] = rows[-1].seq
                self._unsealed_rows += len(rows)
        self._on_committed(list(heads.items()))
        delay_s = CLEAN_S if self._store.has_leftovers else SEAL_S
        self._seal_at_s = min(self._seal_at_s, trio.current_time() + delay_s)

    async def _try_probe(self) -> None:
        """Commit a probe; see `actors.journal.write_retry`."""
        try:
            (refusal,) = await self._thread.call(self._store.commit, [self._probe.padding()])
        except Unavailable as error:
            refusal = error
        if refusal is not None:
            self._state.has_room = False
            self._probe.record_failure(trio.current_time())
            return
        self._state.has_room, self._seal_at_s = True, trio.current_time()  # a seal deletes it
        if self._probe.record_success(trio.current_time()):
            self._state.is_writable = True
            self._on_writing(None)

    async def _checkpoint(self) -> None:
        self._state.wants_checkpoint = False
        try:
            await self._thread.call(self._store.checkpoint)
        except Unavailable as error:
            log.warning("journal.not_checkpointed", error=error.message)

    async def _seal(self) -> None:
        self._unsealed_rows, self._seal_at_s = 0, inf
        try:
            await self._thread.call(self._store.seal)
            if self._store.has_leftovers:
                self._seal_at_s = trio.current_time() + CLEAN_S
        except Unavailable as error:
            log.warning("journal.not_sealed", error=error.message)
            self._seal_at_s = trio.current_time() + SEAL_S


def _settle_all(batch: Sequence[PendingCommit], error: PalyraError) -> None:
    """Settle every change that has no outcome yet with this error."""
    for pending in batch:
        pending.settle(error)


async def wait_for_more(batch: Sized, most: int) -> None:
    """Yield to other tasks until the batch is full, old enough, or nothing joins it any more.

    Cancellation: nothing is changed.
    """
    until_s = trio.current_time() + GROW_S
    quiet = 0
    while quiet < QUIET_TURNS and len(batch) < most and trio.current_time() < until_s:
        size = len(batch)
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if len(batch) == size else 0


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
