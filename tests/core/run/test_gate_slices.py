"""A turn with many calls is gated a few at a time, so that others get their turn in between."""

from typing import Any

import pytest

from palyra.core.replay.replay import Replay
from palyra.core.run.decide import MAX_GATED, decide
from palyra.core.run.inputs import Begin, Cancel, GoOn, Input, Resume, Steer, TurnFinished, Yield
from tests.core.run.fates import rows
from tests.core.run.run_world import World, environment, turn

MANY = 2 * MAX_GATED + 1


class Slices(World):
    """One run, step by step."""

    def __init__(self, *tools: str, **limits: Any) -> None:
        super().__init__(**limits)
        self.take(Begin(instance_id="i1"))
        self.take(TurnFinished(turn=1, attempt=1, result=turn(*tools)))

    def take(self, heard: Input) -> bool:
        """One step; whether it lets others go first."""
        return Yield() in self.keep(decide(self.run, heard, self.env)).effects

    @property
    def gated(self) -> int:
        """Calls that have a verdict or wait for one."""
        return sum(call.phase != "named" for call in self.run.calls)


def test_a_step_gates_a_few_calls_and_nothing_starts_before_all_are() -> None:
    """The last step but one still lets others go first; the last one starts the batch."""
    world = Slices(*["allow"] * MANY)
    assert (MAX_GATED, True) == (world.gated, Yield() in world.effects)
    assert world.take(GoOn())
    assert (2 * MAX_GATED, []) == (world.gated, world.drafts("tool.started"))
    assert not world.take(GoOn())
    assert (MANY, 4) == (world.gated, len(world.drafts("tool.started")))


def test_as_many_calls_as_a_step_gates_are_one_step() -> None:
    """A short turn does not yield."""
    world = Slices(*["allow"] * MAX_GATED)
    assert Yield() not in world.effects
    assert len(world.drafts("tool.started")) == MAX_GATED


def test_a_step_too_many_changes_nothing() -> None:
    """A second continuation starts nothing twice."""
    world = Slices(*["allow"] * MAX_GATED)
    before = world.run
    assert not world.take(GoOn())
    assert before == world.run


def test_a_question_stops_the_gating() -> None:
    """No call is evaluated after one that waits for an approval, and the run does not yield."""
    world = Slices(*["allow"] * (MAX_GATED - 1), "ask", *["allow"] * MAX_GATED)
    assert (MAX_GATED, False) == (world.gated, Yield() in world.effects)
    assert not world.take(GoOn())
    assert world.gated == MAX_GATED


@pytest.mark.parametrize("strict", [True, False])
def test_inputs_between_steps_are_handled_and_the_tape_replays(strict: bool) -> None:  # noqa: FBT001 - a parameter
    """A steering message or a restart between two steps neither repeats nor skips a call."""
    world = Slices(*["allow"] * MANY)
    world.take(Steer(text="hurry", by="ann"))
    world.take(GoOn())
    world.take(Resume())
    assert MANY == world.gated == len(world.drafts("tool.proposed"))
    assert world.refold() == world.run
    replay = Replay(rows(world), world.env.redact, now=environment() if strict else None)
    while replay.advance(3):
        pass
    assert replay.report().first_divergence is None


def test_a_cancel_between_is_the_end() -> None:
    """A call that was not evaluated has no events."""
    world = Slices(*["allow"] * MANY)
    assert not world.take(Cancel(reason="enough", by="ann"))
    assert not world.take(GoOn())
    assert ("cancelled", MAX_GATED) == (world.run.state, len(world.drafts("tool.attested")))
