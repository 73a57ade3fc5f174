"""Decisions about turns: the model call, its result, its failure, and a budget that stops it.

A failed turn is attempted again with the same model, another one or a smaller prompt, or it ends
the run.  A budget closes the turn before the model is called.  The run then ends, or requests an
approval with the subject `budget`; the answer holds for this budget until the end of the run.
"""

from datetime import UTC, datetime
from typing import Literal

from msgspec.structs import asdict, replace

from palyra.core.model.messages import RETRYABLE, ModelTurn
from palyra.core.model.route_plan import RouteChange
from palyra.core.model.routing import FAILS_OVER
from palyra.core.policy.gate import UNATTENDED, NeedsApproval
from palyra.core.run.answer import answer_text
from palyra.core.run.approvals import request_approval
from palyra.core.run.ending import EndReason, end_answered, end_failed, end_partial
from palyra.core.run.fold import is_between_turns
from palyra.core.run.inputs import (
    ApprovalAnswered,
    BudgetRefused,
    CallModel,
    Gathered,
    TurnFailedInput,
    TurnFinished,
)
from palyra.core.run.transition import Step
from palyra.core.tape import events as ev
from palyra.core.tape.events import Compaction
from palyra.core.text.canonical_json import digest_of
from palyra.errors import TooLarge

PATIENCE_MS = 20_000  # longest `retry-after` to wait for if another model may take over
MAX_REJECTIONS = 1  # texts of one run that are rejected as answers
ACTIONS = {  # how to correct a failure, by class; the default is to check the provider
    "context_overflow": "ask for less at once, reset the session, or choose a model with a larger "
    "window",
    "content_policy": "change the message, or choose another model",
    "quota": "see to the provider's account, or name another model in models.failover",
    "auth": "see to the provider's key; `palyra secrets test` looks for it",
}
PROPOSAL_BYTES = 8_192  # free room: a call's own events repeat its arguments and add fields


def next_turn(step: Step, attempt: int = 1, delay_ms: int = 0) -> None:
    """Call the model, or gather what its prompt lacks, or end at a limit.

    Attempts after the first repeat the same turn with what was gathered for it.
    """
    run, limits = step.run, step.env.limits
    turn = run.turn + 1 if attempt == 1 else run.turn
    if turn > limits.max_turns:
        sentence = f"no answer after {limits.max_turns} turns; runs.max_turns is the limit"
        end_partial(step, EndReason("turn_cap", sentence), answer_text(run) if run.is_cut else "")
        return
    missing = step.env.find_sources(run) if attempt == 1 else None
    if missing is not None:
        step.effects.append(missing)
        return
    if turn == 1 and attempt == 1:
        choose_model(step)
    assembled, request = step.env.assemble(step.run, turn, attempt)
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
    )


def add_turn(step: Step, incoming: TurnFinished) -> str | None:
    """Record the turn; return why it is too large for the tape, if it is."""
    completed = turn_completed(incoming.turn, incoming.result)
    try:
        step.add(completed, room_bytes=PROPOSAL_BYTES if completed.calls else 0)
    except TooLarge as too_large:
        return too_large.message
    return None


def judge_answer(step: Step) -> None:
    """Accept the text as the answer, reject it once, or end with a partial answer."""
    defect = step.env.check_answer(step.run)
    if defect is None:
        end_answered(step)
    elif step.run.rejections < MAX_REJECTIONS:
        step.add(ev.AnswerRejected(reason=defect.code, guidance=defect.guidance))
        next_turn(step)
    else:
        end_partial(step, EndReason(defect.code, defect.sentence))


def fail_turn(step: Step, incoming: TurnFailedInput) -> None:
    """Record the failure and attempt the turn again if possible; otherwise end the run."""
    retry = None if incoming.had_output else _find_retry(step, incoming)
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
    next_turn(step, incoming.attempt + 1, delay_ms)


def _find_retry(
    step: Step, incoming: TurnFailedInput
) -> Literal["again"] | RouteChange | Compaction | None:
    """Choose the same model, another one or a smaller prompt; None if no option is left."""
    run, env, failure_class = step.run, step.env, incoming.failure_class
    if failure_class == "context_overflow":
        return env.compact(run)
    tried = incoming.attempt - run.spent_attempts
    may_retry = failure_class in RETRYABLE and tried <= env.limits.model_retries
    changed = None
    if failure_class in FAILS_OVER:
        is_soon = (incoming.retry_after_ms or 0) <= PATIENCE_MS
        changed = env.change_route(run, failure_class, may_retry=may_retry and is_soon)
    return changed or ("again" if may_retry else None)


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


EXCEEDED, UNPRICED = "budget_exceeded", "budget_unpriced"  # failure classes


def budget_refused(step: Step, incoming: BudgetRefused) -> None:
    """Close the turn without a model call, then request an approval or end the run."""
    exceeded, run = incoming.exceeded, step.run
    if not run.turn_is_open or (run.turn, run.attempt) != (exceeded.turn, exceeded.attempt):
        return
    step.add(exceeded)
    accepted = run.accepted
    is_attended = accepted.approval_mode == "ask" and accepted.origin not in UNATTENDED
    asks = exceeded.action == "ask" and not exceeded.is_unpriced
    if asks and is_attended and incoming.approval_id:
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
        rendered="",
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
    exceeded = step.run.exceeded
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
    elif exceeded is not None:
        end_exceeded(step, exceeded, f"; {incoming.by}: {incoming.reason or 'it may not go on'}")


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
    action = (
        "start another run with a larger budget"
        if exceeded.scope == "run" and exceeded.window == "run"
        else "raise the budget (usage.budgets, or `palyra budget set`), or wait until it rolls"
    )
    end_failed(step, EXCEEDED, f"{name} is spent: {describe(exceeded)}{answer}", action)


def describe(exceeded: ev.BudgetExceeded) -> str:
    """Describe what is spent of the budget and when its window rolls."""
    whose = "everybody" if exceeded.scope == "global" else f"{exceeded.scope} {exceeded.subject}"
    unit = "tokens" if exceeded.metric == "tokens" else "micro-dollars"
    within = {
        "run": "the run",
        "sliding": f"the last {(exceeded.window_ms or 0) // 1000} s",
    }.get(exceeded.window, f"the {exceeded.window}")
    text = f"{exceeded.spent} of {exceeded.limit} {unit} of {whose} in {within}"
    if exceeded.rolls_ms is None:
        return text
    rolls = datetime.fromtimestamp(exceeded.rolls_ms / 1000, UTC)
    return f"{text}; it rolls at {rolls:%Y-%m-%dT%H:%M:%SZ}"
