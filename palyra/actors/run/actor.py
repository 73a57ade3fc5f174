"""The run actor: handles a message, decides, publishes, appends, dispatches.

Owns: the state of one run and its tasks (turn, tool calls, questions).
Talks to: hub (wire), journal (tape).  The supervisor notifies the run's session of its end.
Never: awaits anything long in its loop, executes a tool, or keeps state that a restart would need.
Restart: temporary; the session decides whether to resume the run from its tape.

Every step is wire -> tape -> act.  Its rows are published to the hub, then appended to the journal,
and an effect that touches the world waits for the commit of the step it came from.  So a client may
see an event that is never committed, but no effect happens without its event on the tape.

Two nurseries hold the tasks.  `nursery` has the turn and the tool calls: the end of the run cancels
them first, and its cancel scope has the run's deadline.  `watchers` has questions to people and
tasks that await a commit: they live until the terminal event is committed, so that clients are
notified of questions that the end aborts.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec
import structlog
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.child import ChildTask
from palyra.actors.kernel.mailbox import Receiver
from palyra.actors.kernel.supervisor import run_task
from palyra.actors.run.approval import ask_person, notify_resolved
from palyra.actors.run.environment import (
    CallArguments,
    LiveEnvironment,
    RunServices,
    look_for_secrets,
)
from palyra.actors.run.gather import GatherTask, gather_sources
from palyra.actors.run.handle import AcceptedInput, Message, RunHandle, RunMessage, no_clock
from palyra.actors.run.tool_call import (
    CallInspection,
    ToolExecution,
    execute_call,
    inspect_call,
    report_crash,
)
from palyra.actors.run.turn import TurnTask, ask_model
from palyra.core.agent import placeholder_agent
from palyra.core.approval import first_outcome, grant_record, pending_record, resolved_record, used
from palyra.core.context.assembly import brief_prefix, narrow_prefix
from palyra.core.context.history import NO_HISTORY, History
from palyra.core.journal.changes import Change
from palyra.core.journal.records import AgentRecord, ApprovalRecord, Record, UsageRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.learning.procedures import MODEL
from palyra.core.policy.views import Resolved
from palyra.core.run.decide import decide
from palyra.core.run.inputs import (
    ApprovalAnswered,
    AskPerson,
    Begin,
    CallEnded,
    CallModel,
    Cancel,
    Effect,
    Execute,
    Expire,
    Gather,
    GoOn,
    Input,
    Inspect,
    ReportIncident,
    Resume,
    RulesChanged,
    Summarise,
    Summarised,
    TurnFinished,
    Yield,
)
from palyra.core.run.step import Transition, tape_rows
from palyra.core.tape import events as ev
from palyra.core.tool.spec import ToolCall
from palyra.core.usage.budgets import settle_delegated
from palyra.core.usage.ledger import usage_record
from palyra.errors import ActorGone, IllegalState, InvariantBroken, TooLarge, Unavailable, innermost
from palyra.services.usage.budgets import Reservation

log = structlog.get_logger("palyra.run")
DAEMON = "palyra"  # who ends a run that cannot go on

# --- the loop ------------------------------------------------------------------------------------


async def run_actor(
    handle: RunHandle,
    services: RunServices,
    first: Begin | Resume | Cancel,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one run until its terminal event is committed, or until a stop.

    Cancellation, and an orderly stop: committed events stay on the tape, from which the run is
    resumed.
    """
    task_status.started()
    try:
        actor, first = await _prepare(handle, services, first)
        with handle.inbox.receiver() as messages:
            await actor.live(messages, first)
    except* (Unavailable, ActorGone) as gone:
        # Not a crash: without the journal a run can only wait, and its session resumes it.
        log.warning(
            "run suspended: the journal is unavailable",
            run_id=handle.run_id,
            reason=str(innermost(gone)),
        )
    finally:
        services.budgets.leave(handle)
        services.factors.learn(handle.run)


async def _prepare(
    handle: RunHandle, services: RunServices, first: Begin | Resume | Cancel
) -> tuple["_RunActor", Begin | Resume | Cancel]:
    """Load agent and history; return the actor and its first input, Cancel if it cannot run."""
    agent, obstacle = await _find_agent(handle, services)
    history, first = await _find_history(handle, services, obstacle or first)
    accepted, mode = handle.run.accepted, handle.run.mode
    await services.sources.prepare(accepted.principal, accepted.workspace)
    if isinstance(first, Begin) and services.gate.modes:
        mode = services.gate.mode_of(accepted)
        first = msgspec.structs.replace(first, mode=mode)
    prefix = brief_prefix(
        narrow_prefix(
            services.agents.prefix(agent, accepted.owner_of_tools, accepted.workspace, mode),
            accepted.tools,
        ),
        accepted.brief,
    )
    operands = CallArguments(services.gate, prefix, partial(services.budgets.find_end, handle))
    await operands.reload(handle.run, services.run_blocking)
    env = LiveEnvironment(services, prefix, history, operands)
    await env.prepare(handle.run, services.run_blocking)
    actor = _RunActor(handle, services, operands, env)
    return actor, actor.check_model(first)


async def _find_agent(
    handle: RunHandle, services: RunServices
) -> tuple[AgentRecord, Cancel | None]:
    """Return the agent in the accepted version; with a placeholder, the Cancel for its absence."""
    accepted = handle.run.accepted
    name, version = accepted.agent, accepted.agent_version
    agent = await services.agents.find_version(name, version)
    if agent is None:
        reason = f"the journal has no version {version} of the agent {name!r}: start another run"
        return placeholder_agent(name, version), Cancel(reason=reason, by=DAEMON)
    return agent, None


async def _find_history(
    handle: RunHandle, services: RunServices, first: Begin | Resume | Cancel
) -> tuple[History, Begin | Resume | Cancel]:
    """Return the session's history for the model; `Begin` carries its run ids to the tape."""
    is_first = handle.run.is_given or not handle.has_history
    if isinstance(first, Cancel) or (isinstance(first, Begin) and is_first):
        return NO_HISTORY, first
    if isinstance(first, Resume):
        return await services.histories.repeat(handle.run.history), first
    history = await services.histories.find(handle.run)
    return history, msgspec.structs.replace(
        first,
        history=history.run_ids,
        history_is_cut=history.is_cut,
        is_tainted=history.is_tainted,
        refused=history.refused,
        todos=history.runs[-1].todos if history.runs else (),
    )


@dataclass(slots=True)
class _RunActor:
    """The private state of one incarnation; touched by its own task only."""

    handle: RunHandle
    services: RunServices
    operands: CallArguments
    env: LiveEnvironment
    nursery: trio.Nursery = field(init=False)
    watchers: trio.Nursery = field(init=False)
    ticket: PendingCommit = field(init=False)  # of the latest append
    aborted: list[tuple[ApprovalRecord, Resolved]] = field(default_factory=list)  # to notify of
    late: list[Message] = field(default_factory=list)  # behind a cancel in the same batch
    paused_left_s: float | None = None  # of the deadline, while a person is asked
    idle_since_s: float | None = None  # paused for delegated runs only, which the tape lacks as yet

    def check_model(self, first: Begin | Resume | Cancel) -> Begin | Resume | Cancel:
        """Return Cancel instead of `first` if the model is gone and no route replaces it."""
        run = self.handle.run
        if isinstance(first, Cancel) or self.services.router.is_there(run.model):
            return first
        if self.env.change_route(run, "gone", may_retry=False) is not None:
            return first
        reason = f"the model {run.model!r} is not there any more: start another run"
        return Cancel(reason=reason, by=DAEMON)

    async def live(self, messages: Receiver[Message], first: Begin | Resume | Cancel) -> None:
        """Work until the end or a stop.  On return no task of the run is left."""
        async with trio.open_nursery() as self.watchers:
            ending = await self.work(messages, first)
            if ending is not None:
                await self.end(ending, messages)
            if self.handle.run.is_terminal:
                await self.settle()
            self.watchers.cancel_scope.cancel(f"{self.handle.run_id} has ended")
        if self.handle.is_ended:
            self.handle.wake()

    async def work(
        self, messages: Receiver[Message], first: Begin | Resume | Cancel
    ) -> Cancel | Expire | None:
        """Step until the run is terminal, or must be ended: then return the reason.

        Turn and tool calls have ended on return.
        """
        ending: Cancel | Expire | None = Expire(wall_ms=self.wall_ms)  # unless the loop ends first
        async with trio.open_nursery() as self.nursery:
            spent_ms = self.handle.run.spent_ms(
                with_people=self.counts_people
            )  # under earlier actors
            self.deadline_scope.deadline = trio.current_time() + (self.wall_ms - spent_ms) / 1000
            self.handle.on_asking = self.pause_or_resume_deadline
            self.step_over(first)
            if isinstance(first, Resume):
                self.step(RulesChanged())  # possible while the run had no actor
            self.handle.advance("first_step")
            ending = await self.listen(messages)
            self.nursery.cancel_scope.cancel(f"{self.handle.run_id} ends")
        self.handle.on_asking = no_clock  # leaves no cycle to the collector
        return ending

    @property
    def deadline_scope(self) -> trio.CancelScope:
        """Scope of the run's wall-clock limit; it cancels the loop, the turn and the tools together."""
        return self.nursery.cancel_scope

    async def listen(self, messages: Receiver[Message]) -> Cancel | None:
        """Handle messages until the run is terminal or stopped (None), or a Cancel ends it."""
        ending: Cancel | None = None
        with suppress(trio.EndOfChannel):
            while ending is None and not self.handle.run.is_terminal:
                ending = self._handle_batch(await messages.drain())
        return ending

    def _handle_batch(self, batch: list[Message]) -> Cancel | None:
        """Handle messages in order, up to a Cancel, which is returned."""
        for index, message in enumerate(batch):
            if isinstance(message, Cancel):
                self.late = batch[index + 1 :]
                return message
            self.handle_message(message)
        return None

    async def end(self, ending: Cancel | Expire, messages: Receiver[Message]) -> None:
        """Record the call outcomes that arrived before the end, then the end itself."""
        queued = [await messages.receive() for _ in range(self.handle.inbox.depth)]
        for late in [*self.late, *queued]:
            if isinstance(late, CallEnded):
                self.emit(decide(self.handle.run, late, self.env))
            elif isinstance(late, RunMessage):
                late.reply.fail(IllegalState(f"{self.handle.run_id} is ending"))
        self.step_over(ending)

    def step_over(self, first: Begin | Resume | Cancel | Expire) -> None:
        """Take one step, charging the model request that it abandons."""
        if not isinstance(first, Begin):
            abandoned = self.services.budgets.abandon(self.handle)
            first = msgspec.structs.replace(first, abandoned=abandoned)
        self.step(first)

    async def settle(self) -> None:
        """Wait for the terminal event to commit, then notify clients of aborted questions."""
        await self.ticket.wait()
        reflections = self.services.reflections
        if reflections.is_on or self.handle.run.summary is not None:
            reflections.notify()
        self.handle.advance("end_committed")
        self.notify_aborted(self.aborted)

    async def withdraw(
        self, aborted: list[tuple[ApprovalRecord, Resolved]], ticket: PendingCommit
    ) -> None:
        """Close questions of a run that continues, once their withdrawal is committed."""
        await ticket.wait()
        for prompt, _ in aborted:
            self.services.approvals.close(prompt.approval_id)
        self.notify_aborted(aborted)

    def notify_aborted(self, aborted: list[tuple[ApprovalRecord, Resolved]]) -> None:
        """Notify clients that these questions are closed without an answer."""
        for prompt, outcome in aborted:
            notify_resolved(self.services.hub, prompt, outcome)

    # --- one step

    def handle_message(self, message: Message) -> None:
        """Take one step for one message; refuse an input that the state does not allow any more."""
        if not isinstance(message, RunMessage):
            if isinstance(message, TurnFinished):
                self.operands.keep(message.result.calls)
            self.step(message)
            return
        if message.reply.is_abandoned:
            return  # its sender may repeat it, under the same idempotency key
        run, received = self.handle.run, message.input
        if isinstance(received, ApprovalAnswered):
            is_possible = run.find_question(received.approval_id) is not None
        else:
            is_possible = not run.is_terminal
        if not is_possible:
            message.reply.fail(IllegalState(f"{run.run_id} is {run.state} and takes this no more"))
            return
        try:
            self.step(received, message)
        except TooLarge as refused:  # the sender's mistake, not the run's
            message.reply.fail(refused)

    def step(self, received: Input, asked: RunMessage | None = None) -> None:
        """Decide, publish and append, dispatch."""
        step = decide(self.handle.run, received, self.env)
        self.emit(step, asked)
        for effect in step.effects:
            self.dispatch(effect, step.now_ms)

    def emit(self, step: Transition, asked: RunMessage | None = None) -> None:
        """Publish the rows of the step, then append them with their records."""
        if not step.drafts:
            return
        rows = tape_rows(step)
        seq = rows[0].seq  # of the input's own event; the others follow from it and commit with it
        records = self.records(step, rows)
        if asked is not None and asked.receipt is not None:
            records.append(asked.receipt(seq))
        self.handle.run, self.handle.silent_since_s = step.run, None
        self.services.hub.publish(rows)
        self.ticket = self.services.journal.append(Change(rows=rows, records=tuple(records)))
        self.pause_or_resume_deadline()
        if self.aborted and not step.run.is_terminal:  # a changed policy withdrew questions
            self.watchers.start_soon(self.withdraw, self.aborted, self.ticket)
            self.aborted = []
        if asked is not None:
            asked.reply.put(AcceptedInput(seq, self.ticket))
            self.watchers.start_soon(self.ticket.wait)  # a failed append ends this actor

    def records(self, step: Transition, rows: Sequence[TapeRow]) -> list[Record]:
        """Return the records to commit with these events; remember aborted questions."""
        records: list[Record] = [step.run.to_record()]
        reports = [effect for effect in step.effects if isinstance(effect, ReportIncident)]
        records += [self.services.incidents.report(each.alarm) for each in reports]
        for draft, row in zip(step.drafts, rows, strict=True):
            if row.kind == ev.DelegationEnded.KIND:
                ended = cast("ev.DelegationEnded", draft.event)
                settle_delegated(self.services.budgets.find(self.handle.run), ended, step.now_ms)
            rule = _RULES.get(row.kind)
            if rule is None:
                continue
            for found in rule(self.handle, step, draft.event):
                records.append(found)
                if isinstance(found, ApprovalRecord) and found.state == "aborted":
                    self.aborted.append((found, first_outcome(found, row.seq)))
                elif isinstance(found, UsageRecord):
                    self.services.budgets.settle(self.handle, found)
        reflections = self.services.reflections
        if step.run.is_terminal and reflections.is_wanted(step.run):
            task = reflections.task_for(step.run, step.now_ms)
            incidents = self.services.incidents
            records.append(task or incidents.report(reflections.report_skipped(step.run)))
        return records

    def dispatch(self, effect: Effect, now_ms: int) -> None:
        """Start the task for an effect; the task reports by message."""
        handle, services = self.handle, self.services
        match effect:
            case CallModel():
                model = effect.request.model
                handle.reservation = Reservation(model, handle.run.asked.input_tokens)
                turn = TurnTask(
                    id="turn",
                    started_ms=now_ms,
                    run=handle,
                    services=services,
                    model=services.player if model == MODEL else services.models[model],
                    effect=effect,
                    reservation=handle.reservation,
                    charge=self.ticket if handle.is_recovering else None,
                    validate=self.operands.validate_ahead,
                )
                self.nursery.start_soon(run_task, handle.tasks, turn, ask_model)
            case Gather():
                gathering = GatherTask(
                    id="context",
                    started_ms=now_ms,
                    run=handle,
                    services=services,
                    prefix=self.env.prefix,
                    effect=effect,
                )
                self.nursery.start_soon(run_task, handle.tasks, gathering, gather_sources)
            case AskPerson():
                prompt = handle.prompts[effect.approval_id]
                question = services.approvals.open(
                    prompt, handle.run.accepted, self.ticket, self.operands.judge_answer
                )
                ask = partial(ask_person, handle, services.approvals)
                self.watchers.start_soon(run_task, handle.tasks, question, ask)
            case Inspect():
                inspection = CallInspection(
                    id=f"tool:{effect.call_id}",
                    started_ms=now_ms,
                    waits_for="preflight",
                    run=handle,
                    services=services,
                    call=self.tool_call(effect.call_id),
                    note=self.operands.note,
                )
                self.nursery.start_soon(
                    run_task, handle.tasks, inspection, inspect_call, report_crash
                )
            case Execute():
                execution = ToolExecution(
                    id=f"tool:{effect.call_id}",
                    started_ms=now_ms,
                    run=handle,
                    services=services,
                    call=self.tool_call(effect.call_id),
                    effect=effect,
                    start=self.ticket,
                )
                self.nursery.start_soon(
                    run_task, handle.tasks, execution, execute_call, report_crash
                )
            case Summarise():
                summary = SummaryTask(
                    id="summary",
                    started_ms=now_ms,
                    waits_for="compaction",
                    run=handle,
                    services=services,
                    env=self.env,
                    effect=effect,
                )
                self.nursery.start_soon(
                    run_task, handle.tasks, summary, summarise, report_failed_summary
                )
            case ReportIncident():
                pass  # recorded with the step's events
            case Yield():
                self.nursery.start_soon(handle.report, GoOn())

    def tool_call(self, call_id: str) -> ToolCall:
        """Return the call with the arguments as gated or, after a restart, as on the tape."""
        run = self.handle.run
        recorded = run.find_call(call_id)
        if recorded is None:
            raise InvariantBroken(f"{call_id} is not a call of the current turn")
        return self.operands.tool_call(run, recorded)

    # --- the deadline

    @property
    def wall_ms(self) -> int:
        """Milliseconds the run may take: its own budget, at most the operator's limit."""
        most_ms = self.services.limits.wall_ms
        return min(self.handle.run.accepted.budget.wall_ms or most_ms, most_ms)

    @property
    def counts_people(self) -> bool:
        """True if time spent waiting for people counts towards the deadline."""
        return self.services.limits.wall_counts_approvals

    def pause_or_resume_deadline(self) -> None:
        """Pause the deadline while this run or a delegated one asks a person, unless `counts_people`.

        The tape has the pauses for the run's own questions.  Those for delegated runs are measured
        here, without overlap, and recorded with the end of the next of these runs.
        """
        handle = self.handle
        if self.counts_people or (self.paused_left_s is None and not handle.is_asking):
            return
        now_s = trio.current_time()
        if self.idle_since_s is not None:
            handle.idle_s += now_s - self.idle_since_s
        self.idle_since_s = now_s if handle.asking_children and not handle.prompts else None
        if handle.is_asking and self.paused_left_s is None:
            self.paused_left_s = self.deadline_scope.deadline - now_s
            self.deadline_scope.deadline = float("inf")
            handle.wake()
        elif not handle.is_asking and self.paused_left_s is not None:
            self.deadline_scope.deadline = now_s + self.paused_left_s
            self.paused_left_s = None
            handle.wake()


@dataclass(slots=True, kw_only=True)
class SummaryTask(ChildTask):
    """One compaction of the session."""

    run: RunHandle
    services: RunServices
    env: LiveEnvironment
    effect: Summarise


async def summarise(task: SummaryTask) -> None:
    """Summarise the conversation and report Summarised.

    Cancellation: nothing is reported.
    """
    blocking = task.services.run_blocking
    event = await task.env.summarise(task.run.run, task.effect, blocking)
    await look_for_secrets(task.services, ev.encode_event(event))
    await task.run.report(Summarised(event=event))


async def report_failed_summary(task: SummaryTask, error: Exception) -> None:
    """Let the run go on without a summary.

    Cancellation: nothing is reported.
    """
    if isinstance(error, Unavailable | ActorGone):
        raise error  # the journal: the run waits for it
    log.error("compaction failed", run_id=task.run.run_id, exc_info=error)
    skipped = ev.CompactionSkipped(
        trigger=task.effect.trigger,
        reason=f"the compaction failed: {type(error).__name__}; see the daemon's log",
        input_tokens=task.effect.input_tokens,
    )
    await task.run.report(Summarised(event=skipped))


# --- records that commit with an event: approvals, grants, usage -----------------------------------
# They keep the open questions of the handle, and the approvals that calls may still start on, in line
# with the events.


def _asked(handle: RunHandle, step: Transition, prompt: ev.ApprovalRequested) -> list[Record]:
    asked = pending_record(step.run, prompt, step.now_ms)
    handle.prompts[asked.approval_id] = asked
    return [asked]


def _answered(handle: RunHandle, step: Transition, answer: ev.ApprovalResolved) -> list[Record]:
    """Settle the question; add the grant that its answer makes."""
    asked = handle.prompts.pop(answer.approval_id)
    settled = resolved_record(asked, answer, step.now_ms)
    if settled.state == "allowed":
        handle.approved[answer.approval_id] = settled
    grant = grant_record(step.run, asked, answer, step.now_ms)
    if grant is None:
        return [settled]
    handle.granted[answer.approval_id] = grant
    return [settled, grant]


def _started(handle: RunHandle, _step: Transition, started: ev.ToolStarted) -> list[Record]:
    """Count the use of an approval, committed with the start that uses it."""
    approval = handle.approved.pop(started.approval_id or "", None)
    if approval is None:
        return []
    approval = used(approval)
    if approval.is_open:
        handle.approved[approval.approval_id] = approval
    return [approval]


def _spent(handle: RunHandle, step: Transition, event: ev.Event) -> list[Record]:
    """Return the usage record of a model request that ends with this event."""
    line = usage_record(handle.run, event, step.now_ms)
    return [] if line is None else [line]


_RULES: dict[str, Callable[[RunHandle, Transition, Any], list[Record]]] = {
    ev.ApprovalRequested.KIND: _asked,
    ev.ApprovalResolved.KIND: _answered,
    ev.ToolStarted.KIND: _started,
    ev.TurnCompleted.KIND: _spent,
    ev.TurnFailed.KIND: _spent,
    ev.RunRecovered.KIND: _spent,
    ev.RunFailed.KIND: _spent,
    ev.RunCancelled.KIND: _spent,
}
