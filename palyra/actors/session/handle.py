"""The handle of a session, and the messages of its actor.

Owned by: the actor registry.  It outlives incarnations of the actor, so it holds which run is
active and which wait; only the actor writes that.
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
from palyra.services.tape.run_loader import LoadedRun

INBOX_CAPACITY = 4_096  # ends of its own runs must find room, however many messages clients send

# --- messages ------------------------------------------------------------------------------------


class Submitted(msgspec.Struct, frozen=True):
    """An accepted message and its pending commit."""

    started: Started
    ticket: PendingCommit


class SteerInstead(msgspec.Struct, frozen=True):
    """The message steers the active run, which must accept it and may refuse."""

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
    """Steer a run that may still be waiting; the reply is None if it does not wait."""

    run_id: str
    message: Steer
    reply: Reply[AcceptedInput | None]
    receipt: Callable[[int], IdempotencyRecord] | None = None


class RunFinished(msgspec.Struct, frozen=True):
    """The actor of a run has ended, with the run or before it."""

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
        self.has_past = has_past  # False: known to have no earlier run
        self.left = record.waiting  # waiting runs of the last daemon, to be adopted
        self.active: RunHandle | None = None  # the foreground run
        self.waiting: deque[RunHandle] = deque()  # without an actor
        self.beside: dict[
            str, RunHandle
        ] = {}  # detached runs and dropped ones; they do not block the queue
        self.holds_until_s = 0.0  # a collected run waits for further messages, on trio's clock

    def renewed(self) -> "SessionHandle":
        """Return a handle with the same state and a mailbox that is open."""
        handle = SessionHandle(self.record, has_past=self.has_past)
        handle.left, handle.active, handle.waiting = self.left, self.active, self.waiting
        handle.beside, handle.holds_until_s = self.beside, self.holds_until_s
        return handle

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.record.session_id

    @property
    def is_paused(self) -> bool:
        """True if no run leaves the queue."""
        return self.record.paused_ms is not None

    @property
    def under_way(self) -> list[RunHandle]:
        """The runs that have an actor."""
        active = [self.active] if self.active is not None else []
        return [*active, *self.beside.values()]

    def show_queue(self, cap: int) -> Queue:
        """Return the queue, possibly ahead of the committed one."""
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
        """Send a message to the session.  Raises Rejected, Overloaded, ActorGone (ask the next incarnation).

        Cancellation: the message may have been accepted; an idempotency key tells.
        """
        return await self.inbox.ask(
            lambda reply: SubmitMessage(command, caller, reply, receipt), timeout_s=timeout_s
        )

    async def steer(
        self,
        run_id: str,
        message: Steer,
        receipt: Callable[[int], IdempotencyRecord] | None,
        *,
        timeout_s: float,
    ) -> AcceptedInput | None:
        """Steer a waiting run; return where it was appended, None if the run does not wait."""
        return await self.inbox.ask(
            lambda reply: SteerQueued(run_id, message, reply, receipt), timeout_s=timeout_s
        )

    async def update_record(
        self, change: Callable[[SessionRecord], SessionRecord], *, timeout_s: float
    ) -> tuple[SessionRecord, PendingCommit]:
        """Change the record; return the new one and its pending commit."""
        return await self.inbox.ask(lambda reply: UpdateRecord(change, reply), timeout_s=timeout_s)

    async def update_queue(
        self, change: ChangeQueue, by: str, *, timeout_s: float
    ) -> PendingCommit:
        """Change the queue; return the pending commit.  Raises Conflict, with nothing changed."""
        return await self.inbox.ask(
            lambda reply: UpdateQueue(change, by, reply), timeout_s=timeout_s
        )
