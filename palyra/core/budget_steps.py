"""The steps of a run that a budget stops: it ends, or a person is asked whether it may go on.

The question is an approval without a call.  Yes holds for this run and this budget, to its end.
"""

from datetime import UTC, datetime

from palyra.core import events as ev
from palyra.core.canonical import digest_of
from palyra.core.end_steps import end_failed
from palyra.core.gate import UNATTENDED
from palyra.core.run_steps import ApprovalAnswered, AskPerson, BudgetRefused
from palyra.core.step import Step
from palyra.core.turn_steps import next_turn

TOOL = "budget"  # what the question names where others name a tool
EXCEEDED, UNPRICED = "budget_exceeded", "budget_unpriced"  # classes of failure


def budget_refused(step: Step, heard: BudgetRefused) -> None:
    """The turn is closed without a call; then the run waits for a person, or ends."""
    exceeded, run = heard.exceeded, step.run
    if not run.turn_is_open or (run.turn, run.attempt) != (exceeded.turn, exceeded.attempt):
        return
    step.add(exceeded)
    accepted = run.accepted
    is_attended = accepted.approval_mode == "ask" and accepted.origin not in UNATTENDED
    asks = exceeded.action == "ask" and not exceeded.is_unpriced
    if asks and is_attended and heard.approval_id:
        _ask(step, exceeded, heard.approval_id)
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
    step.add(
        ev.ApprovalRequested(
            approval_id=approval_id,
            call_id="",
            tool=TOOL,
            risk="medium",
            summary=f"go on beyond the budget {exceeded.budget_id!r}: {describe(exceeded)}",
            arguments=arguments,
            digest=digest_of({"run_id": step.run.run_id, "turn": exceeded.turn, **arguments}),
            scopes=("once",),
            expires_ms=step.now_ms + step.setting.limits.approval_ms,
            policy_reason="the budget asks at its limit",
            once_because="it is about this run alone; a higher limit in usage.budgets is for all",
        )
    )
    step.effects.append(AskPerson(approval_id=approval_id))


def budget_answered(step: Step, heard: ApprovalAnswered) -> None:
    """The model is asked after all, or the run ends."""
    exceeded = step.run.exceeded
    step.add(
        ev.ApprovalResolved(
            approval_id=heard.approval_id,
            call_id="",
            decision=heard.decision,
            scope="once",
            by=heard.by,
            reason=heard.reason,
        )
    )
    if heard.decision == "allow":
        next_turn(step, step.run.attempt + 1)
    elif exceeded is not None:
        end_exceeded(step, exceeded, f"; {heard.by}: {heard.reason or 'it may not go on'}")


def end_exceeded(step: Step, exceeded: ev.BudgetExceeded, answer: str = "") -> None:
    """The run ends for it; the model was not called."""
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
    """How the account stands, in words."""
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
