"""The ledger: a line for each model call, from the event that ends it; and how a budget ends a run."""

import msgspec
import pytest

from palyra.core import events as ev
from palyra.core.fold import fold
from palyra.core.ledger import usage_record
from palyra.core.records import Charge, Usage, UsageRecord
from palyra.core.run_steps import (
    Begin,
    BudgetRefused,
    Cancel,
    Expire,
    Resume,
    TurnBroke,
    TurnFinished,
)
from tests.core.run_world import World, exceeded, turn

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
    broke = TurnBroke(turn=1, attempt=1, failure_class="timeout", detail="", had_output=False)
    world.hear(broke)
    world.hear(TurnFinished(turn=1, attempt=2, result=turn(text="the answer")))
    assert [(1, 1, "failed", 0, 0), (1, 2, "completed", 3, 0)] == told(world)
    assert (1, 2) == (world.run.usage.input_tokens, world.run.usage.output_tokens)


def test_what_a_broken_call_took_all_the_same() -> None:
    """It counts for the run as well."""
    world = begun()
    broke = TurnBroke(turn=1, attempt=1, failure_class="transient", detail="", had_output=True)
    world.hear(msgspec.structs.replace(broke, charge=CHARGE))
    assert [(1, 1, "failed", 13, 6)] == told(world)
    assert (9, 4, 6) == (
        world.run.usage.input_tokens,
        world.run.usage.output_tokens,
        world.run.cost_usd_micros,
    )


@pytest.mark.parametrize(
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
    assert 6 == world.run.cost_usd_micros


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
    assert (0, 1) == (world.run.cost_usd_micros, world.run.unpriced_calls)


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
