"""The steps of a run that a budget stops."""

from datetime import UTC, datetime

from palyra.core import events as ev
from palyra.core.end_steps import end_failed
from palyra.core.run_steps import BudgetRefused
from palyra.core.step import Step


def budget_refused(step: Step, heard: BudgetRefused) -> None:
    """The turn is closed without a call, and the run ends."""
    exceeded = heard.exceeded
    run = step.run
    if not run.turn_is_open or (run.turn, run.attempt) != (exceeded.turn, exceeded.attempt):
        return
    step.add(exceeded)
    end_exceeded(step, exceeded)


def end_exceeded(step: Step, exceeded: ev.BudgetExceeded) -> None:
    """The run ends for it; the model was not called."""
    name = f"the budget {exceeded.budget_id!r}"
    if exceeded.is_unpriced:
        end_failed(
            step,
            "budget_unpriced",
            f"{name} is money, and the model {exceeded.model!r} has no price",
            "add the model to usage.prices, or choose a model that is in it",
        )
        return
    action = (
        "start another run with a larger budget"
        if exceeded.scope == "run" and exceeded.window == "run"
        else "raise the budget (`palyra budget set`), or wait until it rolls"
    )
    end_failed(step, "budget_exceeded", f"{name} is spent: {describe(exceeded)}", action)


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
