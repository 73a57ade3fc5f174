"""The run actor: reads, decides, emits, appends, dispatches.

Owns: the state of one run and the tasks that work for it (turn, tool calls, prompts).
Talks to: hub (wire), journal (tape); its session hears of its end through the supervisor.
Never: awaits anything long in its loop, executes a tool, keeps what a restart would need.
Restart: temporary; whether and how to resume is the session's decision, from the tape.

Every step is wire -> tape -> act: rows go to the hub, then to the journal, and an effect that
touches the world first waits for the ticket of the step it came from.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial

import msgspec
import structlog
import trio

from palyra.actors.journal.actor import PendingCommit
from palyra.actors.kernel.mailbox import Receiver
from palyra.actors.kernel.supervisor import run_task
from palyra.actors.run.approval import ask_person, notify_resolved
from palyra.actors.run.arguments import CallArguments
from palyra.actors.run.environment import run_setting
from palyra.actors.run.handle import AcceptedInput, Message, RunHandle, RunMessage
from palyra.actors.run.records import records_for_event
from palyra.actors.run.services import RunServices
from palyra.actors.run.tool_call import (
    CallInspection,
    ToolExecution,
    execute_call,
    inspect_call,
    report_crash,
)
from palyra.actors.run.turn import TurnTask, ask_model
from palyra.core.agent import placeholder_agent
from palyra.core.approval import Resolved, first_outcome
from palyra.core.context.assembly import brief_prefix
from palyra.core.context.history import NO_HISTORY, History
from palyra.core.journal.changes import Change
from palyra.core.journal.records import AgentRecord, ApprovalRecord, Record, UsageRecord
from palyra.core.journal.tape_row import TapeRow
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
    GoOn,
    Input,
    Inspect,
    ReportIncident,
    Resume,
    RulesChanged,
    RunEnvironment,
    TurnFinished,
    Yield,
)
from palyra.core.run.records import record
from palyra.core.run.transition import Transition, tape_rows
from palyra.core.tool.spec import ToolCall
from palyra.errors import ActorGone, IllegalState, InvariantBroken, TooLarge, Unavailable, innermost
from palyra.services.budgets import Reservation

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
    """Live until the run's terminal event is committed, or until told to stop.

    Cancellation, and an orderly stop: the tape keeps what was committed; the run is resumed from
    there.
    """
    task_status.started()
    try:
        actor, first = await _prepare(handle, services, first)
        with handle.inbox.receiver() as messages:
            await actor.live(messages, first)
    except* (Unavailable, ActorGone) as gone:
        # Not a crash: without the journal a run can only wait; its session resumes it.
        log.warning("a run lost its journal", run_id=handle.run_id, reason=str(innermost(gone)))
    finally:
        services.budgets.leave(handle)


async def _prepare(
    handle: RunHandle, services: RunServices, first: Begin | Resume | Cancel
) -> tuple["_RunActor", Begin | Resume | Cancel]:
    """The actor with its agent and past, and what it hears first: perhaps why it cannot go on."""
    agent, obstacle = await _find_agent(handle, services)
    history, first = await _find_history(handle, services, obstacle or first)
    actor = _RunActor(handle, services, agent, history)
    await actor.operands.reload(handle.run, services.run_blocking)
    return actor, actor.check_model(first)


async def _find_agent(
    handle: RunHandle, services: RunServices
) -> tuple[AgentRecord, Cancel | None]:
    """The agent in the version the run was accepted with; its end when it cannot go on."""
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
    """What the model is shown of the session before; a run that begins notes it on its tape."""
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
    )


@dataclass(slots=True)
class _RunActor:
    """The private state of one incarnation; touched by its own task only."""

    handle: RunHandle
    services: RunServices
    agent: InitVar[AgentRecord]
    history: InitVar[History]
    setting: RunEnvironment = field(init=False)
    nursery: trio.Nursery = field(init=False)  # turn and tools: what an ending stops first
    desk: trio.Nursery = field(init=False)  # prompts and watched commits: they live to the end
    ticket: PendingCommit = field(init=False)  # of the latest append
    operands: CallArguments = field(init=False)
    aborted: list[tuple[ApprovalRecord, Resolved]] = field(default_factory=list)  # not told yet
    late: list[Message] = field(default_factory=list)  # came in one batch with the cancel
    wall_left_s: float | None = None  # while the clock stands still for a person

    def __post_init__(self, agent: AgentRecord, history: History) -> None:
        run, services = self.handle.run, self.services
        prefix = brief_prefix(services.agents.prefix(agent), run.accepted.brief)
        find_end = partial(services.budgets.find_end, self.handle)
        self.operands = CallArguments(services.gate, prefix, find_end)
        # Nothing in here may refer to this object: only the collector would free the run.
        self.setting = msgspec.structs.replace(
            run_setting(services, prefix, history),
            prepare=self.operands.prepare,
            is_stale=self.operands.is_stale,
            has_lapsed=self.operands.has_lapsed,
        )

    def check_model(self, first: Begin | Resume | Cancel) -> Begin | Resume | Cancel:
        """The end instead, when the model is not there any more and none may take over."""
        run = self.handle.run
        if isinstance(first, Cancel) or self.services.router.is_there(run.model):
            return first
        if self.setting.change_route(run, "gone", False) is not None:  # noqa: FBT003 - see Setting
            return first
        reason = f"the model {run.model!r} is not there any more: start another run"
        return Cancel(reason=reason, by=DAEMON)

    async def live(self, messages: Receiver[Message], first: Begin | Resume | Cancel) -> None:
        """From the first input to the end, or to the stop; no child is left on return."""
        async with trio.open_nursery() as self.desk:
            ending = await self.work(messages, first)
            if ending is not None:
                await self.end(ending, messages)
            if self.handle.run.is_terminal:
                await self.settle()
            self.desk.cancel_scope.cancel(f"{self.handle.run_id} has ended")
        if self.handle.is_ended:
            self.handle.wake()

    async def work(
        self, messages: Receiver[Message], first: Begin | Resume | Cancel
    ) -> Cancel | Expire | None:
        """Step until the run is terminal or must be ended; turn and tools have ended on return."""
        ending: Cancel | Expire | None = Expire(wall_ms=self.wall_ms)  # unless listening ends first
        async with trio.open_nursery() as self.nursery:
            spent_ms = self.handle.run.spent_ms(with_people=self.counts_people)  # in earlier lives
            self.wall.deadline = trio.current_time() + (self.wall_ms - spent_ms) / 1000
            self.step_over(first)
            if isinstance(first, Resume):
                self.step(RulesChanged())  # they may have, while nobody was there to hear of it
            self.handle.advance("first_step")
            ending = await self.listen(messages)
            self.nursery.cancel_scope.cancel(f"{self.handle.run_id} ends")
        return ending

    @property
    def wall(self) -> trio.CancelScope:
        """The wall clock: at its deadline listening and every child are cancelled together."""
        return self.nursery.cancel_scope

    async def listen(self, messages: Receiver[Message]) -> Cancel | Expire | None:
        """Hear messages until the run is terminal or stopped (None), or somebody ends it."""
        ending: Cancel | Expire | None = None
        with suppress(trio.EndOfChannel):
            while ending is None and not self.handle.run.is_terminal:
                ending = self._hear_all(await messages.drain())
        return ending

    def _hear_all(self, batch: list[Message]) -> Cancel | None:
        """Hear messages in order, up to one that ends the run."""
        for index, message in enumerate(batch):
            if isinstance(message, Cancel):
                self.late = batch[index + 1 :]
                return message
            self.hear(message)
        return None

    async def end(self, ending: Cancel | Expire, messages: Receiver[Message]) -> None:
        """Record the outcomes that still arrived, then the end."""
        queued = [await messages.receive() for _ in range(self.handle.inbox.depth)]
        for late in [*self.late, *queued]:
            if isinstance(late, CallEnded):
                self.emit(decide(self.handle.run, late, self.setting))
            elif isinstance(late, RunMessage):
                late.reply.fail(IllegalState(f"{self.handle.run_id} is ending"))
        self.step_over(ending)

    def step_over(self, heard: Begin | Resume | Cancel | Expire) -> None:
        """One step; a model call that it finds under way is stopped, and charged."""
        if not isinstance(heard, Begin):
            abandoned = self.services.budgets.abandon(self.handle)
            heard = msgspec.structs.replace(heard, abandoned=abandoned)
        self.step(heard)

    async def settle(self) -> None:
        """Wait until the end is durable, then tell whoever was asked for nothing."""
        await self.ticket.wait()
        self.handle.advance("end_committed")
        self.tell_aborted(self.aborted)

    async def take_back(
        self, aborted: list[tuple[ApprovalRecord, Resolved]], ticket: PendingCommit
    ) -> None:
        """Ask no more, once that is durable, while the run goes on."""
        await ticket.wait()
        for prompt, _ in aborted:
            self.services.approvals.close(prompt.approval_id)
        self.tell_aborted(aborted)

    def tell_aborted(self, aborted: list[tuple[ApprovalRecord, Resolved]]) -> None:
        """Tell whoever was asked that nobody is asked any more."""
        for prompt, outcome in aborted:
            notify_resolved(self.services.hub, prompt, outcome)

    # --- one step

    def hear(self, message: Message) -> None:
        """One message, one step."""
        if not isinstance(message, RunMessage):
            if isinstance(message, TurnFinished):
                self.operands.keep(message.result.calls)
            self.step(message)
        elif message.reply.is_abandoned:
            pass  # it may be asked again, under the same key
        elif self._takes(message.input):
            self._step_for(message)
        else:
            run = self.handle.run
            message.reply.fail(IllegalState(f"{run.run_id} is {run.state} and takes this no more"))

    def _step_for(self, asked: RunMessage) -> None:
        """A step somebody waits for; what is too large for the tape is their mistake."""
        try:
            self.step(asked.input, asked)
        except TooLarge as refused:
            asked.reply.fail(refused)

    def _takes(self, heard: Input) -> bool:
        """Whether the state still allows an input that came from outside."""
        if isinstance(heard, ApprovalAnswered):
            return self.handle.run.is_asking(heard.approval_id)
        return not self.handle.run.is_terminal

    def step(self, heard: Input, asked: RunMessage | None = None) -> None:
        """Decide, emit, append, dispatch."""
        step = decide(self.handle.run, heard, self.setting)
        self.emit(step, asked)
        for effect in step.effects:
            self.dispatch(effect, step.now_ms)

    def emit(self, step: Transition, asked: RunMessage | None = None) -> None:
        """Wire, then tape."""
        if not step.drafts:
            return
        rows = tape_rows(step)
        seq = rows[0].seq  # of what was heard; what follows from it is committed with it
        records = self.records(step, rows)
        if asked is not None and asked.receipt is not None:
            records.append(asked.receipt(seq))
        self.handle.run = step.run
        self.services.hub.publish(rows)
        self.ticket = self.services.journal.append(Change(rows=rows, records=tuple(records)))
        self.stop_or_go_wall()
        if self.aborted and not step.run.is_terminal:  # other rules took questions back
            self.desk.start_soon(self.take_back, self.aborted, self.ticket)
            self.aborted = []
        if asked is not None:
            asked.reply.put(AcceptedInput(seq, self.ticket))
            self.desk.start_soon(self.ticket.wait)  # a failed append ends this life

    def records(self, step: Transition, rows: Sequence[TapeRow]) -> list[Record]:
        """What is committed with these events; questions that end are kept, to be told of."""
        records: list[Record] = [record(step.run)]
        reports = [effect for effect in step.effects if isinstance(effect, ReportIncident)]
        records += [self.services.incidents.report(each.alarm) for each in reports]
        for row in rows:
            for found in records_for_event(self.handle, step, row):
                records.append(found)
                if isinstance(found, ApprovalRecord) and found.state == "aborted":
                    self.aborted.append((found, first_outcome(found, row.seq)))
                elif isinstance(found, UsageRecord):
                    self.services.budgets.settle(self.handle, found)
        return records

    def dispatch(self, effect: Effect, now_ms: int) -> None:
        """Start what the step asked for; each child reports by message."""
        handle, services = self.handle, self.services
        match effect:
            case CallModel():
                model = effect.request.model
                handle.reservation = Reservation(model, handle.run.input_tokens)
                turn = TurnTask(
                    id="turn",
                    started_ms=now_ms,
                    run=handle,
                    services=services,
                    model=services.models[model],
                    effect=effect,
                    reservation=handle.reservation,
                    charge=self.ticket if handle.is_recovering else None,
                    validate=self.operands.take_in,
                )
                self.nursery.start_soon(run_task, handle.tasks, turn, ask_model)
            case AskPerson():
                prompt = handle.prompts[effect.approval_id]
                epoch, judge = handle.run.accepted.epoch, self.operands.judge_answer
                question = services.approvals.open(prompt, epoch, self.ticket, judge)
                ask = partial(ask_person, handle, services)
                self.desk.start_soon(run_task, handle.tasks, question, ask)
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
            case ReportIncident():
                pass  # recorded with the step's events
            case Yield():
                self.nursery.start_soon(handle.report, GoOn())

    def tool_call(self, call_id: str) -> ToolCall:
        """What will run: the operands as gated or, after a restart, as the tape has them."""
        run = self.handle.run
        recorded = run.find_call(call_id)
        if recorded is None:
            raise InvariantBroken(f"{call_id} is not a call of the current turn")
        spec = self.services.gate.find_spec(recorded.tool)
        return ToolCall(
            call_id=call_id,
            run_id=run.run_id,
            session_id=run.accepted.session_id,
            principal=run.accepted.principal,
            tool=recorded.tool,
            tool_version=spec.version if spec is not None else "",
            arguments=self.operands.find(call_id, recorded.arguments),
        )

    # --- the wall clock

    @property
    def wall_ms(self) -> int:
        """How long the run may take: who starts it may shorten what the operator allows."""
        most_ms = self.services.limits.wall_ms
        return min(self.handle.run.accepted.budget.wall_ms or most_ms, most_ms)

    @property
    def counts_people(self) -> bool:
        """Whether the time of people counts."""
        return self.services.limits.wall_counts_approvals

    def stop_or_go_wall(self) -> None:
        """The clock stands still while a person is asked, unless their time counts."""
        if self.counts_people:
            return
        if self.handle.prompts and self.wall_left_s is None:
            self.wall_left_s = self.wall.deadline - trio.current_time()
            self.wall.deadline = float("inf")
        elif not self.handle.prompts and self.wall_left_s is not None:
            self.wall.deadline = trio.current_time() + self.wall_left_s
            self.wall_left_s = None
