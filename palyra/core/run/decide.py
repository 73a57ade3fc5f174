"""The decisions of a run: `decide(run, input, env)` returns events, effects and the next state.

A decision is deterministic except for the answers of `env` (clock, ids, gate, signature), so live
operation, recovery and replay share this code.  Which events are legal when is in `core.run.state`
and `core.run.call`; this module decides which of them follow from an input:

- Calls are evaluated one after the other in the model's order.  Evaluation stops at a call that is
  being inspected or waits for an approval.  A question of the model (`ask_user`) stops nothing: its
  result is a text, so no other call of the turn can depend on it.
- One step evaluates at most `MAX_GATED` calls and then yields, so that a turn with a hundred calls
  does not block the event loop.
- Execution starts when every call of the turn but questions has a verdict, in batches.  A question
  starts as soon as it is answered, or a long batch could outlast the answer.  A batch is the longest
  run of calls from the front that cannot disturb one another: a `path_scoped` call has its path to
  itself, reads of one path do not disturb each other, an `effect` runs alone, a `delegation` runs
  beside other delegations only.
- The next turn starts when every call is attested, unless the loop guard ends the run.
- A turn without calls ends the run if its text is an answer (`core.run.answer`).  A text that is
  not is rejected once.  A text that was cut off is continued up to three times, unless the caller
  set the limit itself.
- A failed turn is attempted again with the same model, another one or a smaller prompt, or it ends
  the run.  A turn with two equal call ids, or one too large for the tape, is malformed.
- A budget closes the turn before the model is called.  The run then ends, or requests an approval
  with the subject `budget`; the answer holds for this budget until the end of the run.
- Calls that the client executes end the run once all other calls of the turn have ended.  If the
  caller accepts one call at most, that is the first allowed one.
- A terminal run ignores every input.  A late input, such as the outcome of an ended call, is
  ignored as well.

What a call goes through is in `core.run.calls`, how a run ends in `core.run.ending`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal, assert_never, cast

import msgspec
from msgspec.structs import asdict, replace

from palyra.core.incident.kinds import recovery_exhausted
from palyra.core.journal.records import DAMAGED_BUDGET
from palyra.core.model.messages import RETRYABLE, ModelTurn
from palyra.core.model.route_plan import RouteChange
from palyra.core.model.routing import FAILS_OVER
from palyra.core.policy.gate import NeedsApproval
from palyra.core.run.answer import FILTERED, answer_text
from palyra.core.run.call import Call
from palyra.core.run.calls import (
    abort_question,
    complete_call,
    complete_unknown,
    deny_lapsed,
    evaluate_again,
    find_duplicate_ids,
    hand_over,
    prepare_call,
    record_decision,
    reject,
    request_approval,
    take_answer,
)
from palyra.core.run.ending import (
    EndReason,
    end_answered,
    end_at_callers_limit,
    end_failed,
    end_handed_over,
    end_partial,
    end_requested,
)
from palyra.core.run.environment import RunEnvironment, TapeEnvironment
from palyra.core.run.inputs import (
    ApprovalAnswered,
    AskPerson,
    Begin,
    BudgetRefused,
    CallEnded,
    CallInspected,
    CallModel,
    Cancel,
    Execute,
    Expire,
    Gathered,
    GoOn,
    Input,
    Inspect,
    ReportIncident,
    Resume,
    RulesChanged,
    Steer,
    Summarise,
    Summarised,
    TurnFailedInput,
    TurnFinished,
    Yield,
)
from palyra.core.run.state import (
    COMPACTION,
    RESTORE,
    RULES_CHANGED,
    Question,
    Run,
    begin,
    is_between_turns,
)
from palyra.core.run.step import EncodedEvent, Step, Transition, transition
from palyra.core.tape import events as ev
from palyra.core.tape.events import Compaction, CompactionTrigger
from palyra.core.text.canonical_json import digest_of
from palyra.core.tool.arguments import Refused
from palyra.core.tool.spec import DELEGATION, HANDED_OVER, PARALLEL
from palyra.errors import TooLarge

MAX_GATED = 4  # calls evaluated in one step: about a millisecond
MAX_PARALLEL = 4
MAX_CONTINUATIONS = 3  # of a text that was cut off at the model's output limit
MAX_REJECTIONS = 1  # texts of one run that are rejected as answers
PATIENCE_MS = 20_000  # longest `retry-after` to wait for if another model may take over
PROPOSAL_BYTES = 8_192  # free room: a call's own events repeat its arguments and add fields
MALFORMED_RETRIES = 1  # of a damaged answer: a provider that breaks the protocol does so again
ACTIONS = {  # how to correct a failure, by class; the default is to check the provider
    "context_overflow": "ask for less at once, reset the session, or choose a model with a larger "
    "window",
    "content_policy": "change the message, or choose another model",
    "unknown_model": "name a model that the provider has: `palyra models` lists those that are configured, "
    "`palyra models known` public ones; models.default and an agent's model may name it",
    "quota": "see to the provider's account, or name another model in models.failover",
    "step_failed": "read the result of that step; make the calls that are left one by one",
    "auth": "see to the provider's key: `palyra config get models.providers` names its place, "
    "`palyra models add PROVIDER` tries it",
}


def accept(
    run_id: str,
    accepted: ev.RunAccepted,
    message: ev.MessageReceived | None,
    env: TapeEnvironment,
    inherited: Sequence[ev.ConversationInherited] = (),
) -> Transition:
    """Return the first step of a run: what was accepted, inherited messages, the message.

    A fork inherits messages and needs no message of its own.
    """
    now_ms = env.now_ms()
    data, redacted = env.redact(ev.encode_event(accepted))
    if redacted:
        accepted = msgspec.json.decode(data, type=ev.RunAccepted)
    step = Transition(begin(run_id, accepted, now_ms), env, now_ms=now_ms, redacts_each=True)
    step.drafts.append(EncodedEvent(accepted, data, redacted))
    for event in (*inherited, *(() if message is None else (message,))):
        step.add(event)
    return step


def decide(run: Run, incoming: Input, env: RunEnvironment) -> Step:
    """Decide one step.  Raises InvariantBroken for an input that only a bug can produce."""
    return transition(run, env, partial(_handle, incoming=incoming))


def _handle(step: Step, incoming: Input) -> None:
    if step.run.is_terminal:
        return
    match incoming:
        case Begin():
            step.add(ev.RunStarted(**msgspec.structs.asdict(incoming)))
            _proceed(step)
        case Resume():
            _resume(step, incoming)
        case TurnFinished() | TurnFailedInput():
            _end_turn(step, incoming)
        case BudgetRefused():
            budget_refused(step, incoming)
        case ApprovalAnswered() | CallInspected() | RulesChanged() | GoOn() | CallEnded():
            _handle_call_input(step, incoming)
        case Steer():
            step.add(incoming.event)
        case Gathered() | Summarised():
            _handle_prompt_input(step, incoming)
        case Cancel() | Expire():
            end_requested(step, incoming)
        case _:
            assert_never(incoming)


def _handle_prompt_input(step: Step, incoming: Gathered | Summarised) -> None:
    match incoming:
        case Gathered():
            gathered(step, incoming)
        case Summarised():
            _summarised(step, incoming)
        case _:
            assert_never(incoming)


def _handle_call_input(
    step: Step, incoming: ApprovalAnswered | CallInspected | RulesChanged | GoOn | CallEnded
) -> None:
    match incoming:
        case ApprovalAnswered():
            _approval_answered(step, incoming)
        case CallInspected():
            _inspected(step, incoming)
        case RulesChanged():
            _rules_changed(step)
        case GoOn():
            if any(call.phase == "named" for call in step.run.calls):
                _proceed(step)
        case CallEnded():
            call = step.run.find_call(incoming.call_id)
            if call is not None and call.phase == "started":
                complete_call(step, call, incoming)
                _proceed(step)
        case _:
            assert_never(incoming)


# --- turns ---------------------------------------------------------------------------------------


def _proceed(step: Step) -> None:
    """Do everything that is possible before the next input."""
    if step.run.accepted.origin == RESTORE:
        step.add(ev.RunDone(reason="answered"))
        return
    _prepare_calls(step)
    _start_answered(step)
    unanswered = {call.call_id for call in step.run.calls if _is_unanswered(step.run, call)}
    phases = {call.phase for call in step.run.calls if call.call_id not in unanswered}
    if phases & {"named", "proposed", "asking", "started"}:
        return
    for call in step.run.calls:
        if call.phase == "allowed":
            deny_lapsed(step, call)
    hand_over(step)
    if any(call.phase == "allowed" for call in step.run.calls):
        _start_batch(step)
    elif unanswered:
        return
    elif any(call.status == HANDED_OVER for call in step.run.calls):
        end_handed_over(step)
    else:
        _check_progress(step)


def _check_progress(step: Step) -> None:
    """Apply the findings of the loop guard: end the run, or warn the model in the next turn."""
    end = step.run.progress.end
    if end is not None:
        step.add(ev.GuardBlocked(rule=end.rule, call=end.call, count=end.count))
        end_partial(step, EndReason("no_progress", end.sentence))
        return
    for finding in step.run.progress.findings:
        step.add(
            ev.GuardWarned(
                rule=finding.rule,
                call=finding.call,
                count=finding.count,
                guidance=finding.guidance,
            )
        )
    next_turn(step)


def choose_model(step: Step) -> None:
    """Record the route plan of a starting run, if there is more than one candidate."""
    plan = step.env.plan_route(step.run)
    if plan is not None:
        step.add(ev.RoutePlanned(**asdict(plan)))
    leave_unavailable_model(step)


def leave_unavailable_model(step: Step) -> None:
    """Replace the model if it is not configured any more."""
    changed = step.env.change_route(step.run, "gone", may_retry=False)
    if changed is not None:
        step.add(ev.RouteChanged(**asdict(changed)))


def _summarised(step: Step, incoming: Summarised) -> None:
    """Record the outcome of a compaction; then call the model, or end if that was the task."""
    step.add(incoming.event)
    if step.run.accepted.origin != COMPACTION:
        next_turn(step, may_summarise=False)
        return
    event = incoming.event
    if isinstance(event, ev.CompactionApplied):
        summary = event.summary
        text = f"{summary.before_tokens} tokens are now {summary.after_tokens}"
        step.add(ev.MessageCompleted(text=text))
        step.add(ev.RunDone(reason="answered"))
    else:
        step.add(ev.RunDone(reason="partial", cause="nothing_compacted", missing=event.reason))


def next_turn(
    step: Step, attempt: int = 1, delay_ms: int = 0, *, may_summarise: bool = True
) -> None:
    """Call the model, or gather what its prompt lacks, or end at a limit.

    Attempts after the first repeat the same turn with what was gathered for it.  A conversation
    that has grown too long is summarised first.
    """
    run, limits = step.run, step.env.limits
    turn = run.turn + 1 if attempt == 1 else run.turn
    if turn > limits.max_turns:
        sentence = f"no answer after {limits.max_turns} turns; runs.max_turns is the limit"
        end_partial(step, EndReason("turn_cap", sentence), answer_text(run) if run.is_cut else "")
        return
    if attempt == 1 and may_summarise:
        missing = step.env.find_sources(run)
        if missing is not None:
            step.effects.append(missing)
            return
        if turn == 1:
            choose_model(step)
    assembled, request = step.env.assemble(step.run, turn, attempt)
    is_task = run.accepted.origin == COMPACTION
    if (
        attempt == 1
        and may_summarise
        and (is_task or step.env.summary_is_due(step.run, assembled.input_tokens))
    ):
        trigger: CompactionTrigger = "manual" if is_task else "auto"
        step.effects.append(Summarise(trigger=trigger, input_tokens=assembled.input_tokens))
        return
    step.add(assembled)
    if assembled.budget is not None and assembled.budget.is_exhausted:
        end_failed(step, BUDGET_EXHAUSTED, describe_exhausted(assembled.budget), TOO_MUCH)
        return
    step.add(
        ev.TurnStarted(
            turn=turn,
            attempt=attempt,
            provider=step.env.provider(request.model),
            model=request.model,
            continues=run.continues(attempt),
        )
    )
    step.effects.append(CallModel(request=request, delay_ms=delay_ms))


BUDGET_EXHAUSTED = "context_budget_exhausted"  # failure class
TOO_MUCH = "send less at once (a shorter message, fewer references), or choose a model with a larger window"


def describe_exhausted(budget: ev.ContextBudget) -> str:
    """Describe why even the protected parts of the prompt do not fit."""
    return (
        f"instructions, message and references need {budget.needed} tokens; {budget.available} are "
        f"available: a window of {budget.window}, less {budget.reserved} for the answer, "
        f"{budget.tools} for tools and {budget.margin} as margin"
    )


def gathered(step: Step, incoming: Gathered) -> None:
    """Record the gathered texts and start the turn; ignore them if the run has gone on."""
    run = step.run
    if not is_between_turns(run) or run.question is not None:
        return
    for left, event in zip(reversed(range(len(incoming.events))), incoming.events, strict=True):
        step.add(replace(event, following=left))
    next_turn(step)


def _end_turn(step: Step, incoming: TurnFinished | TurnFailedInput) -> None:
    """Close the open turn; ignore the result of a turn that is not open any more."""
    run = step.run
    if not run.turn_is_open or (run.turn, run.attempt) != (incoming.turn, incoming.attempt):
        return
    if isinstance(incoming, TurnFailedInput):
        fail_turn(step, incoming)
        return
    unfit = find_duplicate_ids(step, incoming.result.calls)
    if unfit is None:
        completed = turn_completed(incoming.turn, incoming.result)
        try:
            step.add(completed, room_bytes=PROPOSAL_BYTES if completed.calls else 0)
        except TooLarge as too_large:
            unfit = too_large.message
    if unfit is None:
        _turn_finished(step)
        return
    broke = TurnFailedInput(
        turn=incoming.turn,
        attempt=incoming.attempt,
        failure_class="malformed",
        detail=unfit,
        is_final=True,
        charge=incoming.result.charge,
    )
    fail_turn(step, broke)


def turn_completed(turn: int, result: ModelTurn) -> ev.TurnCompleted:
    """Return the event of a completed turn."""
    return ev.TurnCompleted(
        turn=turn,
        text=result.text,
        calls=result.calls,
        finish_reason=result.finish_reason,
        usage=result.usage,
        cost_usd_micros=result.cost_usd_micros,
        trace_ref=result.trace_ref,
        is_unpriced=result.is_unpriced,
        thought=result.thought,
    )


def _turn_finished(step: Step) -> None:
    run = step.run
    if run.calls or run.steers:
        _proceed(step)
    elif not run.is_cut:
        judge_answer(step)
    elif run.output_cap is not None:
        end_at_callers_limit(step, run.output_cap)
    elif run.continuations < MAX_CONTINUATIONS:
        next_turn(step)
    else:
        sentence = f"it was cut off at the model's output limit {run.continuations + 1} times"
        end_partial(step, EndReason("cut_off", sentence), answer_text(run))


def judge_answer(step: Step) -> None:
    """Accept the text as the answer, reject it once, or end with a partial answer."""
    defect = step.env.check_answer(step.run)
    if (
        defect is not None and defect.code == FILTERED.code
    ):  # asked again it would be filtered again, or pass for the whole answer
        text = answer_text(step.run)
        end_partial(step, EndReason(defect.code, defect.sentence), text)
    elif defect is None:
        end_answered(step)
    elif step.run.rejections < MAX_REJECTIONS:
        step.add(ev.AnswerRejected(reason=defect.code, guidance=defect.guidance))
        next_turn(step)
    else:
        end_partial(step, EndReason(defect.code, defect.sentence))


def fail_turn(step: Step, incoming: TurnFailedInput) -> None:
    """Record the failure and attempt the turn again if possible; otherwise end the run.

    Text that was streamed does not matter: it is withdrawn by the event, and no call of an
    unfinished turn has run.
    """
    retry = None if incoming.is_final else _find_retry(step, incoming)
    pause_ms = max(step.env.jitter_ms(incoming.attempt), incoming.retry_after_ms or 0)
    delay_ms = pause_ms if retry == "again" else 0
    step.add(
        ev.TurnFailed(
            turn=incoming.turn,
            attempt=incoming.attempt,
            failure_class=incoming.failure_class,
            retry=retry is not None,
            detail=incoming.detail,
            delay_ms=delay_ms,
            charge=incoming.charge,
            was_asked=incoming.was_asked,
        )
    )
    if retry is None:
        action = ACTIONS.get(incoming.failure_class, "check the provider, then start the run again")
        end_failed(step, incoming.failure_class, incoming.detail, action)
        return
    if isinstance(retry, RouteChange):
        step.add(ev.RouteChanged(**asdict(retry)))
    elif isinstance(retry, Compaction):
        step.add(ev.ContextCompacted(**asdict(retry)))
    elif isinstance(retry, ev.ItemRefused):
        step.add(retry)
    next_turn(step, incoming.attempt + 1, delay_ms)


def _find_retry(
    step: Step, incoming: TurnFailedInput
) -> Literal["again"] | RouteChange | Compaction | ev.ItemRefused | None:
    """Choose the same model, another one or another prompt; None if no option is left."""
    run, env, failure_class = step.run, step.env, incoming.failure_class
    if failure_class == "context_overflow":
        return env.compact(run)
    tried = incoming.attempt - run.spent_attempts
    retries = env.limits.model_retries if failure_class in RETRYABLE else MALFORMED_RETRIES
    is_passing = failure_class in RETRYABLE or failure_class == "malformed"
    may_retry = is_passing and tried <= retries
    if incoming.refused_tools:
        first, *more = incoming.refused_tools
        return ev.ItemRefused(
            turn=incoming.turn, item="tool", name=first, detail=incoming.detail, also=tuple(more)
        )
    suspect = env.find_refused(run, failure_class, incoming.detail, may_retry=may_retry)
    if suspect is not None:
        return suspect
    changed = None
    if failure_class in FAILS_OVER:
        is_soon = (incoming.retry_after_ms or 0) <= PATIENCE_MS
        changed = env.change_route(run, failure_class, may_retry=may_retry and is_soon)
    return changed or ("again" if may_retry else None)


# --- budgets -------------------------------------------------------------------------------------

EXCEEDED, UNPRICED = "budget_exceeded", "budget_unpriced"  # failure classes


def budget_refused(step: Step, incoming: BudgetRefused) -> None:
    """Close the turn without a model call, then request an approval or end the run."""
    exceeded, run = incoming.exceeded, step.run
    if not run.turn_is_open or (run.turn, run.attempt) != (exceeded.turn, exceeded.attempt):
        return
    step.add(exceeded)
    accepted = run.accepted
    asks = exceeded.action == "ask" and not exceeded.is_unpriced
    if asks and accepted.approval_mode == "ask" and incoming.approval_id:
        _ask(step, exceeded, incoming.approval_id)
    else:
        end_exceeded(step, exceeded)


def _ask(step: Step, exceeded: ev.BudgetExceeded, approval_id: str) -> None:
    arguments = {
        "budget_id": exceeded.budget_id,
        "scope": exceeded.scope,
        "subject": exceeded.subject,
        "metric": exceeded.metric,
        "window": exceeded.window,
        "spent": exceeded.spent,
        "limit": exceeded.limit,
        "model": exceeded.model,
    }
    asks = NeedsApproval(
        subject="budget",
        reason_code=EXCEEDED,
        reason="the budget asks at its limit",
        policies=(),
        version="",
        risk="medium",
        summary=f"go on beyond the budget {exceeded.budget_id!r}: {describe(exceeded)}",
        once_because="it is about this run alone; a higher limit in usage.budgets is for all",
    )
    request_approval(
        step,
        asks,
        approval_id=approval_id,
        tool=asks.subject,
        arguments=arguments,
        digest=digest_of({"run_id": step.run.run_id, "turn": exceeded.turn, **arguments}),
    )


def budget_answered(step: Step, incoming: ApprovalAnswered) -> None:
    """Record the answer about a budget; call the model or end the run."""
    exceeded = cast("ev.BudgetExceeded", step.run.exceeded)  # or it could not have been asked
    step.add(
        ev.ApprovalResolved(
            approval_id=incoming.approval_id,
            call_id="",
            decision=incoming.decision,
            scope="once",
            by=incoming.by,
            reason=incoming.reason,
        )
    )
    if incoming.decision == "allow":
        next_turn(step, step.run.attempt + 1)
    else:
        end_exceeded(step, exceeded, f"; {incoming.by}: {incoming.reason or 'it may not go on'}")


REPAIR_BUDGET = (
    "set or delete the budget again (`palyra budget set`, `palyra budget delete`), or restore a backup "
    "that has it"
)


def end_exceeded(step: Step, exceeded: ev.BudgetExceeded, answer: str = "") -> None:
    """End the run because the budget is spent or cannot be applied."""
    name = f"the budget {exceeded.budget_id!r}"
    if exceeded.is_unpriced:
        end_failed(
            step,
            UNPRICED,
            f"{name} is money, and the model {exceeded.model!r} has no price",
            "add the model to usage.prices, or choose a model that is in it",
        )
        return
    if exceeded.is_damaged:
        end_failed(step, EXCEEDED, f"{name} admits nothing: {DAMAGED_BUDGET}", REPAIR_BUDGET)
        return
    action = (
        "start another run with a larger budget"
        if exceeded.scope == "run" and exceeded.window == "run"
        else "raise the budget (usage.budgets, or `palyra budget set`), or wait until it rolls"
    )
    why = "leaves too little" if exceeded.spent < exceeded.limit else "is spent"
    end_failed(step, EXCEEDED, f"{name} {why}: {describe(exceeded)}{answer}", action)


def describe(exceeded: ev.BudgetExceeded) -> str:
    """Describe what is spent of the budget and when its window rolls."""
    if exceeded.is_damaged:
        return DAMAGED_BUDGET
    whose = "everybody" if exceeded.scope == "global" else f"{exceeded.scope} {exceeded.subject}"
    unit = "tokens" if exceeded.metric == "tokens" else "micro-dollars"
    within = {
        "run": "the run",
        "sliding": f"the last {(exceeded.window_ms or 0) // 1000} s",
    }.get(exceeded.window, f"the {exceeded.window}")
    text = f"{exceeded.spent} of {exceeded.limit} {unit} of {whose} in {within}"
    if exceeded.spent < exceeded.limit:
        text = f"{text} are spent, and the call takes at least {exceeded.needs}"
    if exceeded.rolls_ms is None:
        return text
    rolls = datetime.fromtimestamp(exceeded.rolls_ms / 1000, UTC)
    return f"{text}; it rolls at {rolls:%Y-%m-%dT%H:%M:%SZ}"


# --- calls ---------------------------------------------------------------------------------------

Slot = tuple[str, str | None]  # tool class, path key (None: touches no path)


def _prepare_calls(step: Step) -> None:
    """Evaluate the named calls in order; stop at one that waits for inspection or approval."""
    gated = 0
    for call in step.run.calls:
        if call.phase != "named" or _is_unanswered(step.run, call):
            continue
        if _is_held(step.run):
            return
        if gated == MAX_GATED:
            step.effects.append(Yield())
            return
        prepare_call(step, call)
        gated += 1


def _is_held(run: Run) -> bool:
    """True if a call waits that later calls must not overtake."""
    return any(
        call.phase == "proposed" or (call.phase == "asking" and not call.is_question)
        for call in run.calls
    )


def _is_unanswered(run: Run, call: Call) -> bool:
    """True if the call is a question of the model that waits for its answer, or one equal to it."""
    if not call.is_question:
        return False
    return call.phase == "asking" or (
        call.phase == "named"
        and any(each.phase == "asking" and call.call_id in each.covers for each in run.calls)
    )


def _start_answered(step: Step) -> None:
    """Start the questions of the model that were answered, whatever else runs."""
    for call in step.run.calls:
        if call.phase == "allowed" and call.is_question and not deny_lapsed(step, call):
            _start(step, call, _next_number(step.run))


def _start_batch(step: Step) -> None:
    """Start the allowed calls that may run in parallel now."""
    allowed = [call for call in step.run.calls if call.phase == "allowed"]
    number = _next_number(step.run)
    chosen = next_batch(
        [(call.tool_class, call.path_key) for call in allowed], step.env.limits.max_parallel
    )
    for call in allowed[:chosen]:
        _start(step, call, number)


def _next_number(run: Run) -> int:
    return 1 + max((call.batch for call in run.calls), default=0)


def _start(step: Step, call: Call, batch: int) -> None:
    step.add(
        ev.ToolStarted(
            call_id=call.call_id,
            executor=call.executor,
            enforcement=call.enforcement,
            batch=batch,
            approval_id=call.approval_id,
        )
    )
    if call.tool_class == DELEGATION:
        step.add(step.env.plan_delegation(step.run, call))
    step.effects.append(_execute(call))


def next_batch(waiting: Sequence[Slot], limit: int = MAX_PARALLEL) -> int:
    """Return the number of calls from the front that may start together; at least 1 if any waits."""
    if not waiting:
        return 0
    size = 1
    while size < min(limit, len(waiting)):
        if any(_disturbs(waiting[size], other) for other in waiting[:size]):
            break
        size += 1
    return size


def _disturbs(one: Slot, other: Slot) -> bool:
    classes = {one[0], other[0]}
    if classes == {DELEGATION}:
        return False
    if not classes <= PARALLEL:
        return True
    return "path_scoped" in classes and _overlap(one[1], other[1])


def _overlap(one: str | None, other: str | None) -> bool:
    """True if two keys are the same path, or one lies below the other; "" is the root."""
    if one is None or other is None:
        return False
    return (
        not one
        or not other
        or f"{one}/".startswith(f"{other}/")
        or f"{other}/".startswith(f"{one}/")
    )


def _execute(call: Call) -> Execute:
    return Execute(
        call_id=call.call_id,
        approval_digest=call.approval_digest if call.approval_id is not None else None,
        covers=call.covers,
    )


def _approval_answered(step: Step, incoming: ApprovalAnswered) -> None:
    question = step.run.find_question(incoming.approval_id)
    if question is None:
        return
    match question.subject:
        case "budget":
            budget_answered(step, incoming)
        case "tool_call":
            call = cast("Call", step.run.find_asking(incoming.approval_id))
            record_decision(step, call, take_answer(step, call, incoming))
            _proceed(step)
        case subject:
            assert_never(subject)


def _inspected(step: Step, incoming: CallInspected) -> None:
    call = step.run.find_call(incoming.call_id)
    if call is None or call.phase != "proposed":
        return
    if incoming.failure:
        reject(step, call, Refused(reason=incoming.failure, repair_hint=""))
    else:
        evaluate_again(step, call)
    _proceed(step)


def _rules_changed(step: Step) -> None:
    """Evaluate pending questions again; an allowed call is checked when it starts."""
    is_changed = False
    for call in step.run.calls:
        if call.phase == "asking" and step.env.is_stale(step.run, call):
            question = Question(call.approval_id or "", "tool_call", call.call_id)
            reason = "the rules have changed since it was asked"
            abort_question(step, question, by=RULES_CHANGED, reason=reason)
            evaluate_again(step, call)
            is_changed = True
    if is_changed:
        _proceed(step)


# --- recovery ------------------------------------------------------------------------------------


def _resume(step: Step, incoming: Resume) -> None:
    """Resume from the tape: count the attempt, repeat what may be repeated, record what is unknown.

    The attempt does not count if the run only waits for approvals or for delegated runs, because
    nothing is dispatched that could fail, or if the journal refused its writes, because the run did
    not fail.  Delegated runs count their own attempts.
    """
    run, limits = step.run, step.env.limits
    only_asks = run.pending_approvals > 0 and not run.is_executing
    is_free = incoming.is_put_off or only_asks or run.awaits_children
    attempt = run.recoveries if is_free else run.recoveries + 1
    if attempt > limits.max_recoveries:
        end_failed(
            step,
            "recovery_exhausted",
            f"resumed {run.recoveries} times without getting further",
            "read the tape's last events; start the run again once the cause is mended",
            incoming.abandoned,
        )
        step.effects.append(ReportIncident(alarm=recovery_exhausted(run.run_id, run.recoveries)))
        return
    step.add(
        ev.RunRecovered(attempt=attempt, from_seq=run.next_seq - 1, abandoned=incoming.abandoned)
    )
    leave_unavailable_model(step)
    if run.turn_is_open:
        next_turn(step, run.attempt + 1)
        return
    if run.question is not None:
        step.effects.append(AskPerson(approval_id=run.question.approval_id))
        return
    for call in run.calls:
        if call.phase == "asking":
            step.effects.append(AskPerson(approval_id=call.approval_id or ""))
        elif call.phase == "proposed":
            step.effects.append(Inspect(call_id=call.call_id))
        elif call.phase == "started":
            _resume_call(step, call)
    _proceed(step)


def _resume_call(step: Step, call: Call) -> None:
    """Repeat a call that was started before the restart, if its tool permits that."""
    if call.may_rerun:
        step.effects.append(_execute(call))
    else:
        complete_unknown(step, call)
