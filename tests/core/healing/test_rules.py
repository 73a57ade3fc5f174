"""Rules of healing: beats, cool-down, attempts, escalation, modes."""

from typing import get_args

import msgspec
import pytest

from palyra.core.healing import symptoms
from palyra.core.healing.rules import (
    COOL_DOWN_S,
    CRASH_WINDOW_S,
    CRASHES,
    MAX_ATTEMPTS,
    RULES,
    STUCK_S,
    SWEPT,
    Escalate,
    HealingMode,
    Propose,
    Remedy,
    Try,
    cool_down_s,
    is_crash_loop,
    is_stuck,
    note_crash,
    plan_step,
)
from palyra.core.incident.incident import IncidentReport, open_incident
from palyra.core.journal.records import IncidentRecord, IncidentState
from tests.rows import every_row

RUN = open_incident(symptoms.run_stuck("run_1", "model", 120), "inc_1", 5)


def after(attempts: int, **changes: object) -> IncidentRecord:
    return msgspec.structs.replace(RUN, attempts=attempts, **changes)


# --- progress


def test_a_subject_is_stuck_from_the_end_of_the_window() -> None:
    """Not earlier."""
    assert not is_stuck(10.0, 10.0 + STUCK_S - 0.1)
    assert is_stuck(10.0, 10.0 + STUCK_S)
    assert is_stuck(10.0, 12.0, 2.0)


def test_crashes_are_a_loop_only_within_the_window() -> None:
    """Rare crashes never add up, and no more times are kept than needed."""
    times: tuple[float, ...] = ()
    for each in range(20):
        times = note_crash(times, each * CRASH_WINDOW_S)
        assert not is_crash_loop(times)
    for each in range(CRASHES + 2):
        times = note_crash(times, 5_000.0 + each)
        assert is_crash_loop(times) == (each + 1 >= CRASHES)
    assert len(times) == CRASHES


# --- steps


def test_the_cool_down_doubles() -> None:
    """60 s, 120 s, 240 s."""
    assert [60.0, 120.0, 240.0] == [cool_down_s(each) for each in (1, 2, 3)]


def test_attempts_follow_the_rule_and_end_in_an_escalation() -> None:
    """Each attempt has its own remedy, no attempt is early, and there is none after the last."""
    remedies = RULES["run_stuck"].remedies
    assert Try(remedies[0]) == plan_step(RUN, "auto", tried_s=None, now_s=0.0)
    for attempts in range(1, MAX_ATTEMPTS + 1):
        pause_s = COOL_DOWN_S * 2 ** (attempts - 1)
        tried = after(attempts)
        assert None is plan_step(tried, "auto", tried_s=10.0, now_s=9.9 + pause_s)
        step = plan_step(tried, "auto", tried_s=10.0, now_s=10.0 + pause_s)
        if attempts < MAX_ATTEMPTS:
            assert Try(remedies[attempts]) == step
        else:
            assert isinstance(step, Escalate)
            assert "3 attempts" in step.reason


def test_a_rule_without_remedies_escalates_at_once() -> None:
    """A person learns of a crash loop and its cause without delay."""
    report = symptoms.actor_crashes("services", "sandbox", 3, "no")
    incident = open_incident(report, "inc_1", 5)
    assert isinstance(plan_step(incident, "auto", tried_s=None, now_s=0.0), Escalate)
    assert None is plan_step(incident, "observe_only", tried_s=None, now_s=0.0)


def test_observe_only_proposes_each_remedy_once() -> None:
    """Nothing is attempted, and nothing is written again while nothing changes."""
    assert Propose("resume_run") == plan_step(RUN, "observe_only", tried_s=None, now_s=0.0)
    proposed = after(0, remedy="resume_run")
    assert None is plan_step(proposed, "observe_only", tried_s=None, now_s=9_999.0)
    assert None is plan_step(after(3), "observe_only", tried_s=0.0, now_s=9_999.0)


@pytest.mark.parametrize("mode", get_args(HealingMode))
@pytest.mark.parametrize("state", ["escalated", "resolved"])
def test_an_incident_of_a_person_is_left_alone(mode: HealingMode, state: IncidentState) -> None:
    """In no mode does the daemon touch an escalated or resolved incident."""
    assert None is plan_step(after(0, state=state), mode, tried_s=None, now_s=0.0)


def test_disabled_and_unknown_kinds_do_nothing() -> None:
    """No step without a rule, and none in mode disabled."""
    other = IncidentReport(domain="edge", key="fallen:x", severity="error", summary="it fell")
    assert None is plan_step(RUN, "disabled", tried_s=None, now_s=0.0)
    assert None is plan_step(open_incident(other, "inc_2", 5), "auto", tried_s=None, now_s=0.0)


def test_the_table_names_every_remedy_and_bounds_the_attempts() -> None:
    """No remedy is without a rule, no rule has more attempts than allowed."""
    named = {remedy for rule in RULES.values() for remedy in rule.remedies}
    assert set(get_args(Remedy)) == named
    assert all(len(rule.remedies) <= MAX_ATTEMPTS and rule.blast for rule in RULES.values())
    assert SWEPT < set(RULES)


@every_row(
    ("supervisor", "actor", "domain"),
    [
        ("services", "sandbox", "tool_runtime"),
        ("daemon", "journal", "store"),
        ("daemon", "memory", "memory"),
        ("daemon", "work", "run"),
        ("daemon", "edge", "edge"),
    ],
)
def test_a_crash_loop_has_the_domain_of_its_actor(supervisor: str, actor: str, domain: str) -> None:
    """The mode of that domain then decides."""
    assert domain == symptoms.actor_crashes(supervisor, actor, 3, "no").domain
