"""A session's handle and what its actor hears: what everybody else may know of `actors.session`.

Owned by: the directory.  It outlives incarnations of the actor, so it keeps which run is active
and which wait; only the actor writes that.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.mailbox import Mailbox
from palyra.actors.kernel.reply import Reply
from palyra.actors.run.handle import AcceptedInput, RunHandle
from palyra.core.access import Caller
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import IdempotencyRecord, SessionRecord
from palyra.core.run.inputs import Cancel, Steer
from palyra.core.session.commands import ChangeQueue, Queue, Started, StartRun
from palyra.core.session.queue import count_messages
from palyra.services.run_loader import LoadedRun

INBOX_CAPACITY = 4_096  # ends of its own runs must always find room beside clients' messages

# --- messages ------------------------------------------------------------------------------------


class Submitted(msgspec.Struct, frozen=True):
    """An accepted message and the ticket of its commit."""

    started: Started
    ticket: PendingCommit


class SteerInstead(msgspec.Struct, frozen=True):
    """A message that is a word to the active run: it has to be asked, and may say no."""

    run: RunHandle


class SubmitMessage(msgspec.Struct, frozen=True):
    """A new message for the session."""

    command: StartRun
    caller: Caller
    reply: Reply[Submitted | SteerInstead]
    receipt: IdempotencyKey | None = None


class AdoptRuns(msgspec.Struct, frozen=True):
    """Open runs found at start, oldest first."""

    runs: tuple[LoadedRun, ...]


class CancelQueued(msgspec.Struct, frozen=True):
    """Cancel a run that may still be waiting."""

    run_id: str
    cancel: Cancel


class SteerQueued(msgspec.Struct, frozen=True):
    """A word to a run that may still be waiting; the answer is None when it does not."""

    run_id: str
    word: Steer
    reply: Reply[AcceptedInput | None]
    receipt: Callable[[int], IdempotencyRecord] | None = None


class RunFinished(msgspec.Struct, frozen=True):
    """A run's actor is gone: settled, or lost."""

    run_id: str


class UpdateRecord(msgspec.Struct, frozen=True):
    """Change the session's own record."""

    change: Callable[[SessionRecord], SessionRecord]
    reply: Reply[tuple[SessionRecord, PendingCommit]]


class UpdateQueue(msgspec.Struct, frozen=True):
    """Change the session's queue."""

    change: ChangeQueue
    by: str
    reply: Reply[PendingCommit]


Message = (
    SubmitMessage
    | AdoptRuns
    | CancelQueued
    | SteerQueued
    | RunFinished
    | UpdateRecord
    | UpdateQueue
)

# --- handle --------------------------------------------------------------------------------------


class SessionHandle:
    """A session that has an actor."""

    __slots__ = (
        "active", "beside", "has_past", "holds_until_s", "inbox", "left", "record", "waiting",
    )  # fmt: skip

    def __init__(self, record: SessionRecord, *, has_past: bool = True) -> None:
        self.inbox: Mailbox[Message] = Mailbox(record.session_id, INBOX_CAPACITY)
        self.record = record
        self.has_past = has_past  # there may be runs in it already
        self.left = record.waiting  # by the last life, to be adopted
        self.active: RunHandle | None = None  # the foreground run under way
        self.waiting: deque[RunHandle] = deque()  # without an actor
        self.beside: dict[str, RunHandle] = {}  # under way, and not in the way of others
        self.holds_until_s = 0.0  # a collected run waits for further messages, on trio's clock

    @property
    def session_id(self) -> str:
        """Which session."""
        return self.record.session_id

    @property
    def is_paused(self) -> bool:
        """Whether nothing leaves the queue."""
        return self.record.paused_ms is not None

    @property
    def under_way(self) -> list[RunHandle]:
        """The runs that have an actor."""
        active = [self.active] if self.active is not None else []
        return [*active, *self.beside.values()]

    def show_queue(self, cap: int) -> Queue:
        """The queue as it stands, possibly ahead of what is committed."""
        return Queue(
            session_id=self.session_id,
            mode=self.record.queue_mode,
            paused=self.is_paused,
            waiting=[run.run_id for run in self.waiting],
            messages=count_messages([run.run for run in self.waiting]),
            cap=cap,
            active=self.active.run_id if self.active is not None else None,
        )

    async def submit(
        self, command: StartRun, caller: Caller, receipt: IdempotencyKey | None, *, timeout_s: float
    ) -> Submitted | SteerInstead:
        """Hand in a message.  Raises Rejected, Overloaded, ActorGone (ask the next incarnation).

        Cancellation: the message may have been accepted; an idempotency key tells.
        """
        return await self.inbox.ask(
            lambda reply: SubmitMessage(command, caller, reply, receipt), timeout_s=timeout_s
        )

    async def tell(
        self,
        run_id: str,
        word: Steer,
        receipt: Callable[[int], IdempotencyRecord] | None,
        *,
        timeout_s: float,
    ) -> AcceptedInput | None:
        """A word to a waiting run, on its way to the tape; None when the run does not wait."""
        return await self.inbox.ask(
            lambda reply: SteerQueued(run_id, word, reply, receipt), timeout_s=timeout_s
        )

    async def amend(
        self, change: Callable[[SessionRecord], SessionRecord], *, timeout_s: float
    ) -> tuple[SessionRecord, PendingCommit]:
        """Change the record; the new one and the ticket of its commit."""
        return await self.inbox.ask(lambda reply: UpdateRecord(change, reply), timeout_s=timeout_s)

    async def rearrange(self, change: ChangeQueue, by: str, *, timeout_s: float) -> PendingCommit:
        """Change the queue; the ticket of its commit.  Raises Conflict: then nothing changed."""
        return await self.inbox.ask(
            lambda reply: UpdateQueue(change, by, reply), timeout_s=timeout_s
        )
