"""The session actor: one conversation, one foreground run at a time, and a queue of the rest.

Owns: which run of the session is active and which wait.  Talks to: its runs, journal, hub.
Never: decides anything inside a run.  It writes to the tape of a run only while that run waits and
has no actor.
Restart: transient, with the state in its handle.  The actor ends when it is idle, and the next
message starts another one.  After a restart of the daemon the state is rebuilt from the tapes and,
for order and settings, from the session's record (`core.session.queue.plan_adoption`).
"""

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import assert_never

import msgspec
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.mailbox import Receiver
from palyra.actors.run.handle import AcceptedInput, RunHandle
from palyra.actors.session.handle import (
    AdoptRuns,
    CancelQueued,
    Message,
    RunFinished,
    SessionHandle,
    SteerInstead,
    SteerQueued,
    SubmitMessage,
    Submitted,
    UpdateQueue,
    UpdateRecord,
)
from palyra.actors.session.runs import SessionRuns
from palyra.actors.session.services import SessionServices
from palyra.core.journal.changes import Change
from palyra.core.journal.idempotency import receipt_for
from palyra.core.journal.records import Record, SessionRecord
from palyra.core.run.decide import accept
from palyra.core.run.inputs import Cancel
from palyra.core.run.records import record as run_record
from palyra.core.run.transition import Transition, record_event, tape_rows
from palyra.core.session import queue as queue_rules
from palyra.core.session.commands import Disposition, Forked, Started
from palyra.core.session.fork import InheritedConversation
from palyra.core.session.queue import BESIDE, QueueState, find_place, is_interrupt, make_acceptance
from palyra.core.tape import events as ev
from palyra.errors import IllegalState, PalyraError

# --- the loop ------------------------------------------------------------------------------------


async def session_actor(
    handle: SessionHandle,
    services: SessionServices,
    work: DynamicSupervisor,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one session until it is idle.

    Cancellation: nothing is lost; its runs are on their tapes.
    """
    task_status.started()
    actor = _SessionActor(handle, services, SessionRuns(handle, services, work))
    with handle.inbox.receiver() as messages, suppress(trio.EndOfChannel):
        while not actor.is_idle:
            for message in await actor.receive(messages):
                actor.handle_message(message)
            actor.runs.start_next()  # the collection window may have closed
            actor.note_queue()
            await actor.settle()
    services.registry.remove_session(handle)


@dataclass(slots=True)
class _SessionActor:
    """The private state of one incarnation; touched by its own task only."""

    handle: SessionHandle
    services: SessionServices
    runs: SessionRuns
    has_handled: bool = False
    latest: PendingCommit | None = None  # of the record

    @property
    def is_idle(self) -> bool:
        """True if the actor may end: no run, no queue, no unread message."""
        handle = self.handle
        is_busy = handle.active is not None or bool(handle.waiting) or bool(handle.beside)
        return self.has_handled and not is_busy and handle.inbox.depth == 0

    async def receive(self, messages: Receiver[Message]) -> list[Message]:
        """Return queued messages, or none if the window of a collecting run closes first."""
        if not self.runs.is_held:
            return await messages.drain()
        with trio.move_on_at(self.handle.holds_until_s):
            return await messages.drain()
        return []

    async def settle(self) -> None:
        """Before exiting, wait for the session record to commit.

        Otherwise a lookup by key would find no record and create a duplicate session.
        """
        if self.is_idle and self.latest is not None and not self.latest.is_settled:
            with suppress(PalyraError):
                await self.latest.wait()

    def handle_message(self, message: Message) -> None:
        """Handle one message without waiting; the next run is started before the next message."""
        self.has_handled = True
        if (
            isinstance(message, AdoptRuns | CancelQueued | RunFinished)
            or not message.reply.is_abandoned
        ):
            self._perform(message)
        self.runs.start_next()

    def _perform(self, message: Message) -> None:
        """Dispatch on the kind of message."""
        match message:
            case SubmitMessage():
                self._submit(message)
            case AdoptRuns():
                self.runs.adopt(message.runs)
            case CancelQueued():
                self._cancel_queued(message)
            case SteerQueued():
                self._steer_queued(message)
            case RunFinished():
                self.runs.handle_end(message.run_id)
            case UpdateRecord():
                self._update_record(message)
            case UpdateQueue():
                self._update_queue(message)
            case _:
                assert_never(message)

    # --- a new message

    def _submit(self, message: SubmitMessage) -> None:
        """Start, queue, merge, steer, interrupt or refuse, depending on the queue mode."""
        try:
            message.reply.put(self._place(message))
        except PalyraError as refused:
            message.reply.fail(refused)

    def _place(self, message: SubmitMessage) -> Submitted | SteerInstead:
        """Place the message.  Raises the client's error, with nothing changed."""
        handle, services = self.handle, self.services
        accepted = make_acceptance(
            message.command, message.caller, handle.record, services.default_model
        )
        if handle.record.archived_ms is not None:
            raise IllegalState(f"{handle.session_id} is archived: start another session")
        if accepted.origin in BESIDE:
            return self._create(message, accepted, "started")
        self.runs.drop_unaccepted()
        text, collector = _received(message), self._find_collector(message, accepted)
        can_merge = text is not None and collector is not None
        place = find_place(accepted.queue_mode, self._queue_state(can_merge=can_merge))
        if place == "steer" and handle.active is not None:
            return SteerInstead(handle.active)
        if place == "merge" and collector is not None and text is not None:
            return self._merge(message, collector, text)
        if place == "interrupt":
            return self._interrupt(message, accepted)
        return self._create(message, accepted, "started" if place == "start" else "queued")

    def _find_collector(self, message: SubmitMessage, accepted: ev.RunAccepted) -> RunHandle | None:
        """Return the run at the end of the queue if it collects the message."""
        tail = self.handle.waiting[-1] if self.handle.waiting else None
        if tail is None or tail.find_refused_append():
            return None
        return tail if queue_rules.takes(tail.run, accepted, message.command.text) else None

    def _queue_state(self, *, can_merge: bool) -> QueueState:
        """Return the state of the queue for `find_place`."""
        handle, services = self.handle, self.services
        return QueueState(
            session_id=handle.session_id,
            active=handle.active.run_id if handle.active is not None else None,
            is_paused=handle.is_paused,
            waiting=queue_rules.count_messages([run.run for run in handle.waiting]),
            cap=services.queue_cap,
            can_merge=can_merge,
            is_debounced=services.debounce_ms > 0,
        )

    def _create(
        self,
        message: SubmitMessage,
        accepted: ev.RunAccepted,
        disposition: Disposition,
        *,
        is_urgent: bool = False,
    ) -> Submitted:
        """Append the acceptance of a new run and put the run in its place.  Raises TooLarge."""
        handle = self.handle
        branch = message.command.branch
        step = accept(
            message.command.run_id or self.services.new_id("run"),
            accepted,
            _received(message),
            self.services,
            inherited=tuple(branch.events()) if branch is not None else (),
        )
        run = RunHandle(step.run)
        run.has_history, handle.has_past = handle.has_past, True
        self.services.registry.runs[run.run_id] = run
        position = None
        if disposition != "started":
            position = 1 if is_urgent else len(handle.waiting) + 1
            handle.waiting.insert(position - 1, run)
        elif accepted.origin in BESIDE:
            handle.beside[run.run_id] = run
        else:
            handle.active = run
        submitted = self._append(message, run, step, disposition, position)
        run.acceptance_commit = submitted.ticket
        if disposition == "started":
            self.runs.begin(run)
        return submitted

    def _merge(self, message: SubmitMessage, run: RunHandle, text: ev.MessageReceived) -> Submitted:
        """Append the message to the tape of the collecting run.  Raises TooLarge."""
        step = record_event(run.run, text, self.services)
        run.run = step.run
        return self._append(message, run, step, "merged", len(self.handle.waiting))

    def _interrupt(self, message: SubmitMessage, accepted: ev.RunAccepted) -> Submitted:
        """Put the run first and cancel the active run and earlier interrupts.  Raises TooLarge."""
        handle = self.handle
        active = handle.active
        earlier = [run for run in handle.waiting if is_interrupt(run.run)]
        if active is None and not earlier and not handle.is_paused:
            return self._create(message, accepted, "started")
        disposition: Disposition = "interrupted" if active is not None or earlier else "queued"
        submitted = self._create(message, accepted, disposition, is_urgent=True)
        cancel = Cancel(reason=queue_rules.INTERRUPTED, by=message.caller.principal)
        for run in earlier:
            self.runs.drop(run, cancel)
        if active is not None:
            self.runs.end(active, cancel)
        return submitted

    def _append(
        self,
        message: SubmitMessage,
        run: RunHandle,
        step: Transition,
        disposition: Disposition,
        position: int | None,
    ) -> Submitted:
        """Append a step of a run without an actor, with the message's idempotency record."""
        started = Started(
            run_id=run.run_id,
            session_id=self.handle.session_id,
            seq=step.run.next_seq - 1,
            disposition=disposition,
            position=position,
        )
        if message.command.branch is not None and not message.command.branch.is_given:
            started = _forked(started, message.command.branch)
        if step.run.accepted.queue_mode == "collect":
            self.handle.holds_until_s = trio.current_time() + self.services.debounce_ms / 1000
        records: list[Record] = [run_record(step.run)]
        if message.receipt is not None:
            records.append(receipt_for(message.receipt, started, step.now_ms))
        run.last_commit = self._write(self._listed(step.now_ms), step, records)
        return Submitted(started, run.last_commit)

    def _steer_queued(self, message: SteerQueued) -> None:
        """Append a steering message to a waiting run; its model sees it in the first turn."""
        run = next((r for r in self.handle.waiting if r.run_id == message.run_id), None)
        if run is None or run.find_refused_append():
            message.reply.put(None)
            return
        try:
            step = record_event(run.run, message.message.event, self.services)
        except PalyraError as refused:
            message.reply.fail(refused)
            return
        run.run, seq = step.run, step.run.next_seq - 1
        records: list[Record] = [run_record(step.run)]
        if message.receipt is not None:
            records.append(message.receipt(seq))
        run.last_commit = self._write(self._listed(step.now_ms), step, records)
        message.reply.put(AcceptedInput(seq, run.last_commit))

    # --- the record

    def _update_record(self, message: UpdateRecord) -> None:
        """Change the session's record; a new epoch cancels the runs and ends the grants of the old."""
        handle = self.handle
        after = message.change(handle.record)
        ended: list[Record] = []
        if after.epoch != handle.record.epoch:
            self.runs.end_foreground(Cancel(reason=queue_rules.RESET, by=after.principal))
            ended = [*self.services.grants.end_session(after.session_id)]
            after = msgspec.structs.replace(after, waiting=self._waiting_ids())
        ticket = self._write(after, records=ended, notifies=True)
        message.reply.put((after, ticket))

    def _cancel_queued(self, message: CancelQueued) -> None:
        """Cancel a waiting run; for an active one, note the Cancel for its next actor.

        The active run has the Cancel in its mailbox already, but its actor may end first.
        """
        run = self.services.registry.runs.get(message.run_id)
        if run is not None and run in self.handle.waiting:
            self.runs.drop(run, message.cancel)
        elif run is not None and run.ending is None:
            run.ending = message.cancel

    def _update_queue(self, message: UpdateQueue) -> None:
        """Change the queue: all parts of the change, or none."""
        handle, change = self.handle, message.change
        runs = {run.run_id: run for run in handle.waiting}
        try:
            order = queue_rules.rearrange(list(runs), change)
        except PalyraError as refused:
            message.reply.fail(refused)
            return
        for run_id in change.drop:
            self.runs.drop(runs[run_id], Cancel(reason=queue_rules.DROPPED, by=message.by))
        handle.waiting = deque(runs[run_id] for run_id in order)
        now_ms = self.services.now_ms()
        after = msgspec.structs.replace(
            self._listed(now_ms), queue_mode=change.mode or handle.record.queue_mode
        )
        if change.paused is not None:
            paused_ms = (after.paused_ms or now_ms) if change.paused else None
            after = msgspec.structs.replace(after, paused_ms=paused_ms)
        message.reply.put(self._write(after))

    def _listed(self, now_ms: int) -> SessionRecord:
        """Return the record with the present queue."""
        return msgspec.structs.replace(
            self.handle.record, updated_ms=now_ms, waiting=self._waiting_ids()
        )

    def _waiting_ids(self) -> tuple[str, ...]:
        """Ids of waiting runs, after those of the last daemon that are not adopted yet."""
        left = () if self.services.registry.is_complete else self.handle.left
        return (*left, *(run.run_id for run in self.handle.waiting))

    def note_queue(self) -> None:
        """Update the record if the queue has changed."""
        if self._waiting_ids() != self.handle.record.waiting:
            self._write(self._listed(self.services.now_ms()))

    def _write(
        self,
        after: SessionRecord,
        step: Transition | None = None,
        records: list[Record] | None = None,
        *,
        notifies: bool = False,
    ) -> PendingCommit:
        """Publish and append rows and records; notify clients if the queue has changed."""
        handle, services = self.handle, self.services
        notifies = notifies or _queue_of(after) != _queue_of(handle.record)
        handle.record = after
        rows = tape_rows(step) if step is not None else ()
        if rows:
            services.hub.publish(rows)
        ticket = services.journal.append(Change(rows=rows, records=(after, *(records or ()))))
        self.latest = ticket
        if notifies:
            services.hub.notify(
                "session.updated", after, principal=after.principal, scope="sessions:read"
            )
        return ticket


def _received(message: SubmitMessage) -> ev.MessageReceived | None:
    """Return the message for the tape; None for a fork without a text."""
    command = message.command
    if command.branch is not None and not (command.text or command.attachments):
        return None
    return ev.MessageReceived(
        text=command.text,
        attachments=command.attachments,
        by=message.caller.principal,
        results=command.results,
    )


def _forked(started: Started, branch: InheritedConversation) -> Forked:
    """Return the reply for a fork."""
    return Forked(
        **msgspec.structs.asdict(started), parent_run_id=branch.run_id, at_seq=branch.at_seq
    )


def _queue_of(record: SessionRecord) -> tuple[object, ...]:
    return record.queue_mode, record.paused_ms, record.waiting
