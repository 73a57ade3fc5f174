"""The session actor: one conversation, one foreground run at a time, and a queue of the rest.

Owns: which run of the session is active and which wait.  Talks to: its runs, journal, hub.
Never: decides anything inside a run.  It writes to the tape of a run only while that run waits and
has no actor.
Restart: transient, with the state in its handle.  The actor ends when it is idle, and the next
message starts another one.  After a restart of the daemon the state is rebuilt from the tapes and,
for order and settings, from the session's record (`core.session.queue.plan_adoption`).

A run's actor is started with its first input: Begin for a run that is only accepted, Resume for one
that had begun, Cancel if its end is decided already.  A run whose memory may be ahead of its tape is
first loaded from the tape (`resume_run`).
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import msgspec
import trio

from palyra.actors.journal.actor import JournalHandle, PendingCommit
from palyra.actors.kernel.child import ChildSnapshot, ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.mailbox import Receiver
from palyra.actors.run.actor import run_actor
from palyra.actors.run.handle import AcceptedInput, RunHandle, RunLifecycle
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
from palyra.actors.session.registry import ActorRegistry, SessionServices
from palyra.core.incident.kinds import run_stranded
from palyra.core.journal.changes import Change
from palyra.core.journal.idempotency import receipt_for
from palyra.core.journal.records import Record, SessionRecord
from palyra.core.ports import NowMs
from palyra.core.run.decide import accept
from palyra.core.run.inputs import Begin, Cancel, Resume, RulesChanged
from palyra.core.run.step import Transition, record_event, tape_rows
from palyra.core.session import queue as queue_rules
from palyra.core.session.commands import (
    Disposition,
    Forked,
    SessionRestored,
    Started,
    StartRun,
)
from palyra.core.session.fork import inherited_events
from palyra.core.session.purge import work_of
from palyra.core.session.queue import (
    BESIDE,
    QueueState,
    find_place,
    is_interrupt,
    make_acceptance,
    plan_adoption,
)
from palyra.core.tape import events as ev
from palyra.errors import ActorGone, Conflict, IllegalState, Overloaded, PalyraError, Unavailable
from palyra.services.tape.run_loader import LoadedRun, read_run

RUN_GRACE_S = 2.0  # a run has nothing to drain: what it did is on the tape
MAX_CRASHES = 4  # of the actors of one run in one life of the daemon; one more strands it
RETRY_S = 0.25  # between attempts to find the journal writable again

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
    actor = _SessionActor(handle, services, work)
    with handle.inbox.receiver() as messages, suppress(trio.EndOfChannel):
        while not actor.is_idle:
            for message in await actor.receive(messages):
                actor.handle_message(message)
            actor.start_next()  # the collection window may have closed
            actor.note_queue()
            await actor.settle()
    services.registry.remove_session(handle)


@dataclass(slots=True)
class _SessionActor:
    """The private state of one incarnation; touched by its own task only."""

    handle: SessionHandle
    services: SessionServices
    work: DynamicSupervisor
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
        if not self.is_held:
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
        self.start_next()

    def _perform(self, message: Message) -> None:
        """Dispatch on the kind of message."""
        match message:
            case SubmitMessage():
                self._submit(message)
            case AdoptRuns():
                self.adopt(message.runs)
            case CancelQueued():
                self._cancel_queued(message)
            case SteerQueued():
                self._steer_queued(message)
            case RunFinished():
                self.handle_end(message.run_id)
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
        services.journal.require_files()
        accepted = make_acceptance(
            message.command, message.caller, handle.record, services.router.default
        )
        if handle.record.archived_ms is not None:
            what = "archived" if handle.record.purge is None else "purged"
            raise IllegalState(f"{handle.session_id} is {what}: start another session")
        if accepted.origin in BESIDE:
            return self._create(message, accepted, "started")
        self.drop_unaccepted()
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
        """Append the acceptance of a new run and put the run in its place.

        Raises TooLarge, or Conflict if the run with the given id is open, perhaps in another session
        that waits for the journal to take its acceptance.
        """
        handle = self.handle
        branch, run_id = message.command.branch, message.command.run_id
        if message.command.delegated is not None:
            self._check_parent(message.command.delegated.parent_run_id)
        if run_id in self.services.registry.runs:
            raise Conflict(f"{run_id} is open already")
        step = accept(
            run_id or self.services.new_id("run"),
            accepted,
            _received(message),
            self.services,
            inherited=tuple(inherited_events(branch)) if branch is not None else (),
        )
        run = RunHandle(step.run)
        run.has_history, handle.has_past = handle.has_past, True
        self.services.registry.runs[run.run_id] = run
        self.services.registry.add_child(run.run.to_record())
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
            self.begin_run(run)
        return submitted

    def _check_parent(self, parent_run_id: str) -> None:
        """Refuse a delegated run if the run above has ended, which would never cancel it."""
        parent = self.services.registry.runs.get(parent_run_id)
        if parent is None or parent.run.is_terminal or parent.ending is not None:
            raise IllegalState(f"{parent_run_id} has ended, so it delegates nothing")

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
            self.drop_run(run, cancel)
        if active is not None:
            self.end_run(active, cancel)
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
        branch = message.command.branch
        if branch is not None and not branch.is_given:
            started = Forked(
                **msgspec.structs.asdict(started), parent_run_id=branch.run_id, at_seq=branch.at_seq
            )
        if step.run.accepted.queue_mode == "collect":
            self.handle.holds_until_s = trio.current_time() + self.services.debounce_ms / 1000
        records: list[Record] = [step.run.to_record()]
        if message.receipt is not None:
            answer = _answer(message.command, started)
            records.append(receipt_for(message.receipt, answer, step.now_ms))
        listed = queue_rules.with_title(self._listed(step.now_ms), step)
        run.last_commit = self._write(listed, step, records)
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
        records: list[Record] = [step.run.to_record()]
        if message.receipt is not None:
            records.append(message.receipt(seq))
        run.last_commit = self._write(self._listed(step.now_ms), step, records)
        message.reply.put(AcceptedInput(seq, run.last_commit))

    # --- the record

    def _update_record(self, message: UpdateRecord) -> None:
        """Change the session's record; a new epoch cancels the runs and ends the grants of the old."""
        handle = self.handle
        try:
            after = message.change(handle.record)
        except PalyraError as refused:
            message.reply.fail(refused)
            return
        ended: list[Record] = []
        if after.purge is not None and handle.record.purge is None:
            self.services.registry.release_names(handle)
            ended = [work_of(handle.record)]
        if after.epoch != handle.record.epoch:
            self.end_foreground(Cancel(reason=queue_rules.RESET, by=after.principal))
            ended += self.services.grants.end_session(after.session_id)
            after = msgspec.structs.replace(after, waiting=self._waiting_ids())
        is_other_mode = after.mode != handle.record.mode
        ticket = self._write(after, records=ended, notifies=True)
        if is_other_mode:
            self.services.registry.note_mode(after)
            for run in handle.under_way:  # a call that was judged before cannot start anyway
                with suppress(ActorGone, Overloaded):
                    run.inbox.offer(RulesChanged())
        message.reply.put((after, ticket))

    def _cancel_queued(self, message: CancelQueued) -> None:
        """Cancel a waiting run; for an active one, note the Cancel for its next actor.

        The active run has the Cancel in its mailbox already, but its actor may end first.
        """
        run = self.services.registry.runs.get(message.run_id)
        if run is not None and run in self.handle.waiting:
            self.drop_run(run, message.cancel)
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
            self.drop_run(runs[run_id], Cancel(reason=queue_rules.DROPPED, by=message.by))
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

    # --- the queue of runs

    @property
    def is_held(self) -> bool:
        """True if the only waiting run collects messages and its window is open."""
        handle = self.handle
        if handle.active is not None or handle.is_paused or len(handle.waiting) != 1:
            return False
        run = handle.waiting[0].run
        is_collecting = run.state == "accepted" and run.accepted.queue_mode == "collect"
        return is_collecting and trio.current_time() < handle.holds_until_s

    def start_next(self) -> None:
        """Start the next waiting run if none is active."""
        handle = self.handle
        if handle.active is not None or handle.is_paused or not handle.waiting:
            return
        self.drop_unaccepted()
        if handle.waiting and not self.is_held:
            handle.active = handle.waiting.popleft()
            self.begin_run(handle.active)

    def drop_unaccepted(self) -> None:
        """Drop waiting runs whose acceptance was refused; their senders got the commit's error."""
        waiting = self.handle.waiting
        for run in [run for run in waiting if run.find_refused_acceptance()]:
            waiting.remove(run)
            self.services.registry.remove_run(run)
            run.wake()

    # --- actors of runs

    def begin_run(self, run: RunHandle) -> None:
        """Start the run's actor, from the tape if memory is ahead of the tape."""
        if run.find_refused_append():
            self._start(run, partial(resume_run, run, self.services))
        else:
            first = first_input(run, self.services)
            self._start(run, partial(run_actor, run, self.services, first))

    def _start(self, run: RunHandle, start: Callable[..., Awaitable[None]]) -> None:
        run.refusals = self.services.journal.refusals
        run.advance("actor_started")
        tree = partial(snapshot_run, self.services.registry, run, self.services.now_ms)
        spec = ChildSpec(f"run:{run.run_id}", start, "temporary", RUN_GRACE_S, run.inbox, tree)
        with suppress(ActorGone):  # `work` is stopping, this session too; the tape stays
            self.work.spawn_child(spec)

    def drop_run(self, run: RunHandle, cancel: Cancel) -> None:
        """Cancel a waiting run: its actor is started with the Cancel as its first input."""
        self.handle.waiting.remove(run)
        self.handle.beside[run.run_id] = run
        run.ending = cancel
        self.begin_run(run)

    def end_run(self, run: RunHandle, cancel: Cancel) -> None:
        """Send Cancel to an active run.  Should its actor end first, the next one begins with it."""
        if run.ending is not None:
            return
        run.ending = cancel
        try:
            run.inbox.offer(cancel)
        except ActorGone:
            pass  # it has no actor at the moment
        except Overloaded:
            self.work.cancel_child(f"run:{run.run_id}", cancel.reason)

    def end_foreground(self, cancel: Cancel) -> None:
        """Cancel the active run and all waiting ones."""
        if self.handle.active is not None:
            self.end_run(self.handle.active, cancel)
        for run in list(self.handle.waiting):
            self.drop_run(run, cancel)

    def handle_end(self, run_id: str) -> None:
        """Handle the end of a run's actor: forget a run that is over, resume or strand another."""
        registry, handle = self.services.registry, self.handle
        run = registry.runs.get(run_id)
        if run is None:
            return
        run.wake()
        if not run.is_over:
            is_refused = run.refusals < self.services.journal.refusals
            run.advance("append_refused" if is_refused else "actor_crashed")
            if is_refused or run.crash_count < MAX_CRASHES:
                self._resume(run)
                return
            why = registry.stranded[run_id] = f"its actor was lost {run.crash_count + 1} times"
            self.services.incidents.report(run_stranded(run_id, why))
        registry.remove_run(run)
        handle.beside.pop(run_id, None)
        if handle.active is run:
            handle.active = None

    def _resume(self, lost: RunHandle) -> None:
        """Start another actor, from the tape, once the journal takes writes again."""
        registry, handle = self.services.registry, self.handle
        crash_count = lost.crash_count + (lost.lifecycle == "lost")
        run = RunHandle(lost.run, lifecycle=lost.lifecycle, crash_count=crash_count)
        run.ending = lost.ending
        registry.runs[run.run_id] = run
        if handle.active is lost:
            handle.active = run
        else:
            handle.beside[run.run_id] = run
        self._start(run, partial(resume_run, run, self.services))

    # --- after a restart

    def adopt(self, recovered: tuple[LoadedRun, ...]) -> None:
        """Take over the session's open runs, oldest first, after a restart of the daemon.

        Runs of messages that arrived before keep their places.
        """
        registry, handle = self.services.registry, self.handle
        found = [each for each in recovered if each.run.run_id not in registry.runs]
        runs = {each.run.run_id: _adopted(each) for each in found}
        registry.runs.update(runs)
        for run in runs.values():
            registry.cancel_orphan(run)
        plan = plan_adoption(handle.record, [each.run for each in found])
        for run_id, reason in plan.doomed.items():
            runs[run_id].ending = Cancel(reason=reason, by=handle.record.principal)
        for run_id in plan.beside:
            handle.beside[run_id] = runs[run_id]
            self.begin_run(runs[run_id])
        self._enqueue(
            [runs[run_id] for run_id in plan.waiting],
            runs[plan.first] if plan.first is not None else None,
        )
        self._restore_window(found)

    def _enqueue(self, waiting: list[RunHandle], first: RunHandle | None) -> None:
        handle = self.handle
        if first is not None and handle.active is not None:
            waiting = [first, *waiting]
        elif first is not None:
            handle.active = first
            self.begin_run(first)
        handle.waiting = deque([*waiting, *handle.waiting])
        handle.left = ()
        for run in waiting:
            if run.ending is not None:
                self.drop_run(run, run.ending)

    def _restore_window(self, found: list[LoadedRun]) -> None:
        """Restore the rest of the window of a collecting run."""
        debounce_ms = self.services.debounce_ms
        ends_ms = max((each.last_ms for each in found), default=0) + debounce_ms
        left_ms = min(max(ends_ms - self.services.now_ms(), 0), debounce_ms)
        holds_until_s = trio.current_time() + left_ms / 1000
        self.handle.holds_until_s = max(self.handle.holds_until_s, holds_until_s)


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


def _queue_of(record: SessionRecord) -> tuple[object, ...]:
    return record.queue_mode, record.paused_ms, record.waiting


# --- actors of runs -------------------------------------------------------------------------------


def _adopted(found: LoadedRun) -> RunHandle:
    lifecycle: RunLifecycle = "queued" if found.run.state == "accepted" else "lost"
    handle = RunHandle(found.run, found.prompts, lifecycle=lifecycle)
    handle.approved = {asked.approval_id: asked for asked in found.approved}
    return handle


async def find_run(journal: JournalHandle, run_id: str) -> LoadedRun | None:
    """Load a run from its tape, in a reader's thread.  See `read_run`."""
    return await journal.read(lambda store: read_run(store, run_id))


async def resume_run(
    handle: RunHandle,
    services: SessionServices,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Restart a run from its committed tape, discarding its state in memory.

    Wait first until its last appends are settled and the journal takes writes again.
    Cancellation: as for `run_actor`.
    """
    await trio.sleep(RETRY_S * handle.crash_count)
    while not await _is_settled_and_writable(services.journal):  # noqa: ASYNC110 - the journal sends no notification
        await trio.sleep(RETRY_S)
    recovered = await find_run(services.journal, handle.run_id)
    if recovered is None:
        task_status.started()
        handle.advance("acceptance_refused")
        return
    handle.run = recovered.run
    handle.prompts = {prompt.approval_id: prompt for prompt in recovered.prompts}
    handle.approved = {asked.approval_id: asked for asked in recovered.approved}
    if recovered.run.is_terminal:  # its end was committed without an actor
        task_status.started()
        handle.advance("end_committed")
        return
    await run_actor(handle, services, first_input(handle, services), task_status=task_status)


def _answer(command: StartRun, started: Started) -> Started | SessionRestored:
    """Return the answer to the request behind a command, which a repetition of it gets again."""
    if command.restored is None:
        return started
    return msgspec.structs.replace(
        command.restored, session_id=started.session_id, run_id=started.run_id
    )


async def _is_settled_and_writable(journal: JournalHandle) -> bool:
    """True if everything appended so far is settled and the journal takes writes."""
    try:
        await journal.commit(Change())
    except Unavailable:
        return False
    return journal.has_room  # an empty change commits even on a full disk


def snapshot_run(registry: ActorRegistry, run: RunHandle, now_ms: NowMs) -> ChildSnapshot:
    """Return the node of a run's actor in the tree, with the runs that it has delegated to."""
    node = run.snapshot(now_ms)
    below = [
        registry.runs.get(child_id) for child_id in sorted(registry.children.get(run.run_id, ()))
    ]
    shown = (snapshot_run(registry, child, now_ms) for child in below if child is not None)
    return msgspec.structs.replace(node, children=(*node.children, *shown)) if below else node


def first_input(handle: RunHandle, services: SessionServices) -> Begin | Resume | Cancel:
    """Return the first input of a run's next actor."""
    if handle.ending is not None:
        return handle.ending
    if handle.run.state == "accepted":
        return Begin(instance_id=services.instance_id, token_bps=services.factors.bps)
    return Resume(is_put_off=handle.lifecycle == "suspended")
