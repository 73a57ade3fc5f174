"""The life cycle of a run's actor, as a table."""

from typing import get_args

import pytest

from palyra.actors.run.handle import TRANSITIONS, LifecycleEvent, RunHandle, RunLifecycle
from palyra.core.run.state import begin
from palyra.core.tape.events import RunAccepted
from palyra.errors import InvariantBroken
from tests.rows import every_row

STATES: tuple[RunLifecycle, ...] = get_args(RunLifecycle)
EVENTS: tuple[LifecycleEvent, ...] = get_args(LifecycleEvent)
ACCEPTED = RunAccepted(principal="me", session_id="ses_1", agent="default", model="scripted")


def in_state(state: RunLifecycle) -> RunHandle:
    """A handle in that state."""
    return RunHandle(begin("run_1", ACCEPTED, 0), lifecycle=state)


@every_row("state", STATES)
def test_an_event_that_the_table_lacks_raises_and_changes_nothing(state: RunLifecycle) -> None:
    """Every other event moves the handle where the table says."""
    for event in EVENTS:
        run = in_state(state)
        if event in TRANSITIONS[state]:
            run.advance(event)
            assert TRANSITIONS[state][event] == run.lifecycle
        else:
            with pytest.raises(InvariantBroken, match=f"{event} is not possible while {state}"):
                run.advance(event)
            assert state == run.lifecycle


@every_row("state", STATES)
def test_a_run_that_is_over_has_no_way_on(state: RunLifecycle) -> None:
    """Only ended runs, and those whose acceptance failed, are final; every other can end."""
    assert (not TRANSITIONS[state]) == in_state(state).is_over
    reached = {state}
    while further := {to for at in reached for to in TRANSITIONS[at].values()} - reached:
        reached |= further
    assert in_state(state).is_over or {"ended", "acceptance_failed"} <= reached or state == "live"


@every_row("state", STATES)
def test_a_run_recovers_from_a_crash_and_from_a_refused_append(state: RunLifecycle) -> None:
    """Both are shown as recovering until the first step of the next actor."""
    assert (state in {"lost", "suspended"}) == in_state(state).is_recovering
