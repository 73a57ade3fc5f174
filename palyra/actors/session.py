"""The session actor: one conversation, one foreground run at a time, a queue of the rest.

Owns: which run of the session is active and which wait.  Talks to: its runs, journal, hub.
Never: looks into a run; that is the run's own business.
Restart: transient, with what its handle remembers; it ends when it has nothing to do and is made
again by the next message.  All it knows is on the tapes: an accepted run that has not started is
a queued one.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog
import trio

from palyra.actors.approvals import receipt_for
from palyra.actors.child import ChildSpec
from palyra.actors.dynamic import DynamicSupervisor
from palyra.actors.journal import Ticket
from palyra.actors.mailbox import Mailbox
from palyra.actors.office import Office
from palyra.actors.reply import Reply
from palyra.actors.resume import Recovered, resume_run
from palyra.actors.rows import tape_rows
from palyra.actors.run import run_actor
from palyra.actors.run_handle import RunHandle
from palyra.core import events as ev
from palyra.core.access import Caller
from palyra.core.agents import DEFAULT_AGENT
from palyra.core.commands import Disposition, Forked, ReceiptKey, Started, StartRun
from palyra.core.fork import Branch
from palyra.core.journal import Change
from palyra.core.records import Record, SessionRecord
from palyra.core.run import accept
from palyra.core.run_state import record
from palyra.core.run_steps import Begin, Cancel, Resume
from palyra.errors import Conflict, IllegalState, InvalidParams, Overloaded, PalyraError

log = structlog.get_logger("palyra.session")
INBOX_CAPACITY = 4_096  # ends of its own runs must always find room beside clients' messages
RUN_GRACE_S = 2.0  # a run has nothing to drain: what it did is on the tape
MAX_LOST = 4  # lost actors of one run in one life of the daemon before it is left alone
UNSERVED_MODES = frozenset({"collect", "steer"})

# --- messages ------------------------------------------------------------------------------------


class Begun(msgspec.Struct, frozen=True):
    """An accepted message and the ticket of its commit."""

    started: Started
    ticket: Ticket


class Submit(msgspec.Struct, frozen=True):
    """A new message for the session."""

    command: StartRun
    caller: Caller
    reply: Reply[Begun]
    receipt: ReceiptKey | None = None


class Adopt(msgspec.Struct, frozen=True):
    """Open runs found at start, oldest first."""

    runs: tuple[Recovered, ...]


class Withdraw(msgspec.Struct, frozen=True):
    """Cancel a run that may still be waiting."""

    run_id: str
    cancel: Cancel


class Ended(msgspec.Struct, frozen=True):
    """A run's actor is gone: settled, or lost."""

    run_id: str


class Amend(msgspec.Struct, frozen=True):
    """Change the session's own record."""

    change: Callable[[SessionRecord], SessionRecord]
    reply: Reply[tuple[SessionRecord, Ticket]]


Message = Submit | Adopt | Withdraw | Ended | Amend

# --- handle --------------------------------------------------------------------------------------


class SessionHandle:
    """A session that has an actor."""

    __slots__ = ("active", "inbox", "record", "waiting")

    def __init__(self, record: SessionRecord) -> None:
        self.inbox: Mailbox[Message] = Mailbox(record.session_id, INBOX_CAPACITY)
        self.record = record
        self.active: RunHandle | None = None
        self.waiting: deque[RunHandle] = deque()

    @property
    def session_id(self) -> str:
        """Which session."""
        return self.record.session_id

    async def submit(
        self, command: StartRun, caller: Caller, receipt: ReceiptKey | None, *, timeout_s: float
    ) -> Begun:
        """Hand in a message.  Raises Rejected, Overloaded, ActorGone (ask the next incarnation).

        Cancellation: the message may have been accepted; an idempotency key tells.
        """
        return await self.inbox.ask(
            lambda reply: Submit(command, caller, reply, receipt), timeout_s=timeout_s
        )

    async def amend(
        self, change: Callable[[SessionRecord], SessionRecord], *, timeout_s: float
    ) -> tuple[SessionRecord, Ticket]:
        """Change the record; the new one and the ticket of its commit."""
        return await self.inbox.ask(lambda reply: Amend(change, reply), timeout_s=timeout_s)


# --- the loop ------------------------------------------------------------------------------------


async def session_actor(
    handle: SessionHandle,
    office: Office,
    work: DynamicSupervisor,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one session until it has nothing to do.

    Cancellation: nothing is lost; its runs are on their tapes.
    """
    task_status.started()
    actor = _SessionActor(handle, office, work)
    with handle.inbox.receiver() as messages, suppress(trio.EndOfChannel):
        while not actor.is_idle:
            for message in await messages.drain():
                actor.hear(message)
    office.directory.remove_session(handle)


@dataclass(slots=True)
class _SessionActor:
    """The private state of one incarnation; touched by its own task only."""

    handle: SessionHandle
    office: Office
    work: DynamicSupervisor
    has_heard: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether the actor may end: nothing under way, nothing queued, nothing unheard."""
        handle = self.handle
        is_busy = handle.active is not None or bool(handle.waiting) or handle.inbox.depth > 0
        return self.has_heard and not is_busy

    def hear(self, message: Message) -> None:
        """One message; never waits."""
        self.has_heard = True
        match message:
            case Submit():
                self.submit(message)
            case Adopt():
                self.adopt(message)
            case Withdraw():
                self.withdraw(message)
            case Ended():
                self.ended(message.run_id)
            case Amend():
                self.amend(message)

    # --- a new message

    def submit(self, message: Submit) -> None:
        """Start, queue, steer, interrupt or refuse, as the queue mode says."""
        try:
            message.reply.put(self.place(message))
        except PalyraError as refused:
            message.reply.fail(refused)

    def place(self, message: Submit) -> Begun:
        """Find the message its place.  Raises what the client is told."""
        handle = self.handle
        mode = message.command.queue_mode or handle.record.queue_mode
        if handle.record.archived_ms is not None:
            raise IllegalState(f"{handle.session_id} is archived: start another session")
        if handle.active is None:
            return self.create(message, "started")
        if mode == "reject":
            raise Conflict(f"{handle.session_id} is busy with {handle.active.run_id}")
        if mode in UNSERVED_MODES:
            raise InvalidParams(
                f"queue_mode {mode!r} is not served: use followup, interrupt or reject "
                "(to steer a run under way call run.steer)",
                field="queue_mode",
            )
        if len(handle.waiting) >= self.office.queue_cap:
            raise Overloaded(
                f"{handle.session_id} has {len(handle.waiting)} messages waiting, the cap",
                retry_after_ms=1_000,
            )
        if mode == "interrupt":
            handle.active.inbox.offer(
                Cancel(reason="interrupted by a new message", by=message.caller.principal)
            )
            return self.create(message, "interrupted")
        return self.create(message, "queued")

    def create(self, message: Submit, disposition: Disposition) -> Begun:
        """Put the run on tape and in its place."""
        office, handle, command = self.office, self.handle, message.command
        step = accept(
            office.new_id("run"),
            self.accepted(message),
            received(command),
            office.setting,
            inherited=tuple(command.branch.events()) if command.branch is not None else (),
        )
        run = RunHandle(step.run)
        position = self.enqueue(run, disposition)
        started = Started(
            run_id=run.run_id,
            session_id=handle.session_id,
            seq=step.run.next_seq - 1,
            disposition=disposition,
            position=position,
        )
        if command.branch is not None:
            started = forked(started, command.branch)
        handle.record = msgspec.structs.replace(handle.record, updated_ms=step.now_ms)
        records: list[Record] = [handle.record, record(step.run)]
        if message.receipt is not None:
            records.append(receipt_for(message.receipt, started, step.now_ms))
        rows = tape_rows(step)
        office.hub.publish(rows)
        ticket = office.journal.append(Change(rows=rows, records=tuple(records)))
        self.start_next()
        return Begun(started, ticket)

    def accepted(self, message: Submit) -> ev.RunAccepted:
        """The promise, from the command and who gave it."""
        command, caller = message.command, message.caller
        return ev.RunAccepted(
            principal=caller.principal,
            role=caller.role,
            session_id=self.handle.session_id,
            agent=command.agent or DEFAULT_AGENT.name,
            agent_version=command.agent_version,
            model=command.model or self.office.default_model,
            origin=command.origin,
            queue_mode=command.queue_mode or self.handle.record.queue_mode,
            approval_mode=command.approval_mode,
            json_mode=command.json_mode,
            budget=command.budget,
            parent_run_id=command.branch.run_id if command.branch is not None else None,
            channel=command.channel,
            conversation_id=command.conversation_id,
            sender=command.sender,
        )

    def enqueue(self, run: RunHandle, disposition: Disposition) -> int | None:
        """The run's place in the queue, from 1; None when it starts at once."""
        handle = self.handle
        self.office.directory.runs[run.run_id] = run
        if disposition == "interrupted":
            handle.waiting.appendleft(run)
            return 1
        handle.waiting.append(run)
        return None if handle.active is None else len(handle.waiting)

    # --- lives of runs

    def start_next(self) -> None:
        """Give the next waiting run its turn when none is active."""
        handle = self.handle
        if handle.active is None and handle.waiting:
            handle.active = handle.waiting.popleft()
            self.spawn(handle.active, self.first_input(handle.active))

    def first_input(self, run: RunHandle) -> Begin | Resume:
        """What the run hears first: it may have been started in an earlier life of the daemon."""
        if run.run.state == "accepted":
            return Begin(instance_id=self.office.instance_id)
        return Resume()

    def spawn(self, run: RunHandle, first: Begin | Resume | Cancel) -> None:
        """Start a run's actor with what it hears first."""
        start = partial(run_actor, run, self.office, first)
        self.start(run, start)

    def start(self, run: RunHandle, start: Callable[..., Awaitable[None]]) -> None:
        """Start an incarnation of a run's actor."""
        self.work.spawn_child(
            ChildSpec(f"run:{run.run_id}", start, "temporary", RUN_GRACE_S, run.inbox)
        )

    def adopt(self, message: Adopt) -> None:
        """Take over the session's open runs after a restart, oldest first."""
        directory = self.office.directory
        for recovered in message.runs:
            if recovered.run.run_id not in directory.runs:
                has_begun = recovered.run.state != "accepted"
                run = RunHandle(recovered.run, recovered.prompts, is_recovering=has_begun)
                directory.runs[run.run_id] = run
                self.handle.waiting.append(run)
        self.start_next()

    def withdraw(self, message: Withdraw) -> None:
        """Cancel a waiting run by giving it a life just long enough to say so."""
        for run in self.handle.waiting:
            if run.run_id == message.run_id:
                self.handle.waiting.remove(run)
                self.spawn(run, message.cancel)
                return

    def ended(self, run_id: str) -> None:
        """A run's actor is gone: go on with the next run, or resume this one."""
        directory, handle = self.office.directory, self.handle
        run = directory.runs.get(run_id)
        if run is None:
            return
        run.wake()
        is_over = run.is_settled or run.is_void
        if not is_over and run.lost < MAX_LOST:
            self.resume(run)
            return
        if not is_over:
            log.critical("a run is left alone after repeated crashes", run_id=run_id)
            directory.stranded[run_id] = f"its actor was lost {run.lost + 1} times"
        del directory.runs[run_id]
        if handle.active is run:
            handle.active = None
        self.start_next()

    def resume(self, lost: RunHandle) -> None:
        """Another incarnation, from the tape, once the journal takes writes again."""
        directory, handle = self.office.directory, self.handle
        run = RunHandle(lost.run, lost=lost.lost + 1, is_recovering=True)
        directory.runs[run.run_id] = run
        if handle.active is lost:
            handle.active = run
        start = partial(resume_run, run, self.office)
        self.start(run, start)

    # --- the record

    def amend(self, message: Amend) -> None:
        """Change the session's record."""
        handle, office = self.handle, self.office
        handle.record = message.change(handle.record)
        ticket = office.journal.append(Change(records=(handle.record,)))
        office.hub.notify(
            "session.updated",
            handle.record,
            principal=handle.record.principal,
            scope="sessions:read",
        )
        message.reply.put((handle.record, ticket))


def received(command: StartRun) -> ev.MessageReceived | None:
    """The message as the tape has it; a fork without a text goes on without one."""
    if command.branch is not None and not command.text:
        return None
    return ev.MessageReceived(text=command.text, attachments=command.attachments)


def forked(started: Started, branch: Branch) -> Forked:
    """The answer to whoever asked for a fork."""
    return Forked(
        **msgspec.structs.asdict(started), parent_run_id=branch.run_id, at_seq=branch.at_seq
    )
