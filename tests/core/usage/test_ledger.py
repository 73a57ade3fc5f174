"""The ledger: a line for each model call, from the event that ends it; and how a budget ends a run."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.records import Charge, Usage, UsageRecord
from palyra.core.run.inputs import (
    ApprovalAnswered,
    AskPerson,
    Begin,
    BudgetRefused,
    CallModel,
    Cancel,
    Expire,
    Resume,
    Steer,
    TurnFailedInput,
    TurnFinished,
)
from palyra.core.run.state import fold
from palyra.core.session.commands import RunView
from palyra.core.tape import events as ev
from palyra.core.usage.ledger import usage_record
from tests.core.run.run_world import World, exceeded, turn
from tests.rows import every_row

CHARGE = Charge(usage=Usage(input_tokens=9, output_tokens=4), cost_usd_micros=6)


def begun() -> World:
    """A run that has asked its model."""
    world = World()
    world.hear(Begin(instance_id="i1"))
    return world


def lines(world: World) -> list[UsageRecord]:
    """The lines that follow from a tape, folded anew."""
    found = []
    for seq, (kind, at_ms, data) in enumerate(world.tape[1:], 1):
        before = fold("run_1", world.tape[:seq])
        line = usage_record(before, ev.decode_event(kind, data), at_ms)
        if line is not None:
            found.append(line)
    return found


def told(world: World) -> list[tuple[int, int, str, int, int | None]]:
    return [
        (line.turn, line.attempt, line.outcome, line.tokens, line.cost_usd_micros)
        for line in lines(world)
    ]


def test_a_call_that_broke_and_one_that_was_answered() -> None:
    """Each has its line; the run's totals are their sum."""
    world = begun()
    broke = TurnFailedInput(turn=1, attempt=1, failure_class="timeout", detail="")
    world.hear(broke)
    world.hear(TurnFinished(turn=1, attempt=2, result=turn(text="the answer")))
    assert [(1, 1, "failed", 0, 0), (1, 2, "completed", 3, 0)] == told(world)
    assert (1, 2) == (world.run.costs.usage.input_tokens, world.run.costs.usage.output_tokens)


def test_an_attempt_that_asked_nobody_is_no_call() -> None:
    """The tape says that; the ledger has the call that was made."""
    world = begun()
    broke = TurnFailedInput(turn=1, attempt=1, failure_class="unavailable", detail="")
    world.hear(msgspec.structs.replace(broke, was_asked=False))
    world.hear(TurnFinished(turn=1, attempt=2, result=turn(text="the answer")))
    assert [(1, 2, "completed", 3, 0)] == told(world)
    assert [False] == [event.was_asked for event in world.drafts("turn.failed")]


def test_what_a_broken_call_took_all_the_same() -> None:
    """It counts for the run as well."""
    world = begun()
    broke = TurnFailedInput(turn=1, attempt=1, failure_class="transient", detail="", is_final=True)
    world.hear(msgspec.structs.replace(broke, charge=CHARGE))
    assert [(1, 1, "failed", 13, 6)] == told(world)
    assert (9, 4, 6) == (
        world.run.costs.usage.input_tokens,
        world.run.costs.usage.output_tokens,
        world.run.costs.usd_micros,
    )


def test_an_answer_that_is_no_turn_was_paid_for_all_the_same() -> None:
    """Two calls with one id are malformed; what they took stands in the ledger."""
    world = begun()
    result = turn("allow", "allow")
    twice = msgspec.structs.replace(result, calls=(result.calls[0],) * 2, cost_usd_micros=5)
    world.hear(TurnFinished(turn=1, attempt=1, result=twice))
    assert [(1, 1, "failed", 3, 5)] == told(world)
    assert (5, 3) == (world.run.costs.usd_micros, world.run.costs.usage.input_tokens + 2)


@every_row(
    "end",
    [
        Cancel(reason="enough", by="ann", abandoned=CHARGE),
        Expire(wall_ms=5, abandoned=CHARGE),
        Resume(abandoned=CHARGE),
    ],
)
def test_a_call_that_was_stopped(end: Cancel | Expire | Resume) -> None:
    """Its line says abandoned; without a call under way there is none."""
    world = begun()
    world.hear(end)
    assert [(1, 1, "abandoned", 13, 6)] == told(world)
    assert 6 == world.run.costs.usd_micros


def test_a_restart_charges_each_call_once() -> None:
    """The call that was under way, and the one that took its place."""
    world = begun()
    world.hear(Resume(abandoned=CHARGE))
    world.hear(TurnFinished(turn=1, attempt=2, result=turn(text="the answer")))
    assert [(1, 1, "abandoned", 13, 6), (1, 2, "completed", 3, 0)] == told(world)
    assert world.refold() == world.run


def test_a_cost_that_nobody_knows_is_counted_and_not_guessed() -> None:
    """The line has none, the run's sum leaves it out and says how many there were."""
    world = begun()
    world.hear(Cancel(reason="", by="ann", abandoned=Charge(usage=Usage(input_tokens=7))))
    assert [(1, 1, "abandoned", 7, None)] == told(world)
    assert (0, 1) == (world.run.costs.usd_micros, world.run.costs.unpriced_calls)


# --- a refusal -----------------------------------------------------------------------------------


def test_a_refusal_ends_the_run() -> None:
    """The tape says which budget, how it stands and when it rolls; nothing was called."""
    world = begun()
    assert ["budget.exceeded", "run.failed"] == world.hear(BudgetRefused(exceeded=exceeded()))
    failed = world.drafts("run.failed")[0]
    assert ("budget_exceeded", []) == (failed.failure_class, told(world))
    assert (
        "the budget 'day' is spent: 12 of 10 tokens of principal ann in the day; "
        "it rolls at 1970-01-02T00:00:00Z"
    ) == failed.reason
    assert "palyra budget set" in failed.action


def test_a_model_without_a_price_ends_the_run_with_a_remedy() -> None:
    """Another class: nothing was exceeded."""
    world = begun()
    world.hear(BudgetRefused(exceeded=exceeded(metric="usd_micros", is_unpriced=True)))
    failed = world.drafts("run.failed")[0]
    assert "budget_unpriced" == failed.failure_class
    assert ("'scripted' has no price" in failed.reason, "usage.prices" in failed.action) == (
        True,
        True,
    )


def test_a_refusal_of_another_turn_changes_nothing() -> None:
    """It came too late."""
    world = begun()
    assert [] == world.hear(BudgetRefused(exceeded=exceeded(attempt=2)))


# --- a question ----------------------------------------------------------------------------------

ASKED = BudgetRefused(exceeded=exceeded(action="ask"), approval_id="apr_9")


def asked_run() -> World:
    """A run that waits for a person because of a budget."""
    world = begun()
    world.hear(ASKED)
    return world


def said(decision: Any, by: str = "bob") -> ApprovalAnswered:
    return ApprovalAnswered(
        approval_id="apr_9", decision=decision, scope="once", by=by, reason="no money"
    )


def test_a_budget_that_asks_has_a_person_decide() -> None:
    """The question names the budget and how it stands; yes asks the model after all."""
    world = begun()
    assert ["budget.exceeded", "approval.requested"] == world.hear(ASKED)
    (prompt,) = world.drafts("approval.requested")
    assert ("", "budget", ("once",), 12, 10) == (
        prompt.call_id,
        prompt.tool,
        prompt.scopes,
        prompt.arguments["spent"],
        prompt.arguments["limit"],
    )
    assert (1, "awaiting_approval") == (
        world.run.pending_approvals,
        RunView.of(world.run.to_record()).phase,
    )
    assert ["approval.resolved", "context.assembled", "turn.started"] == world.hear(said("allow"))
    assert (frozenset({"day"}), 0, 2) == (
        world.run.lifted,
        world.run.pending_approvals,
        world.run.attempt,
    )
    assert isinstance(world.effects[-1], CallModel)
    assert world.refold() == world.run


@pytest.mark.parametrize("by", ["bob", "deadline"])
def test_no_ends_the_run(by: str) -> None:
    """A person's, or the deadline's; the reason says who."""
    world = asked_run()
    assert ["approval.resolved", "run.failed"] == world.hear(said("deny", by))
    (failed,) = world.drafts("run.failed")
    assert ("budget_exceeded", True) == (failed.failure_class, f"{by}: no money" in failed.reason)


def test_an_end_takes_the_question_back() -> None:
    """Whoever was asked is told; the time they had does not count for the run."""
    world = asked_run()
    assert ["approval.resolved", "run.cancelled"] == world.hear(Cancel(reason="x", by="ann"))
    (answer,) = world.drafts("approval.resolved")
    assert ("abort", 0) == (answer.decision, world.run.pending_approvals)


def test_a_restart_asks_again_and_is_not_charged() -> None:
    """The same question; a word to the run does not start the turn meanwhile."""
    world = asked_run()
    assert ["run.recovered"] == world.hear(Resume())
    assert (AskPerson(approval_id="apr_9"), 0) == (world.effects[-1], world.run.recoveries)
    assert ["steer.received"] == world.hear(Steer(text="go on", by="ann"))
    assert "turn.started" in world.hear(said("allow"))


@every_row(
    ("mode", "changes"),
    [
        ("deny", {}),
        ("ask", {"is_unpriced": True}),
        ("ask", {"action": "block"}),
    ],
)
def test_where_nobody_can_be_asked_the_run_ends(mode: Any, changes: dict[str, Any]) -> None:
    """Unattended runs, costs that nobody knows, budgets that do not ask."""
    world = begun()
    accepted = msgspec.structs.replace(world.run.accepted, approval_mode=mode)
    world.run = msgspec.structs.replace(world.run, accepted=accepted)
    heard = BudgetRefused(exceeded=exceeded(**{"action": "ask", **changes}), approval_id="apr_9")
    assert ["budget.exceeded", "run.failed"] == world.hear(heard)


def test_too_many_questions_end_the_run() -> None:
    """Then there is no id to ask under."""
    world = begun()
    assert "run.failed" in world.hear(BudgetRefused(exceeded=exceeded(action="ask")))
