"""Recorded decisions: what counts as a person's answer."""

from typing import Any

import pytest

from palyra.core.journal.tape_row import TapeRow
from palyra.core.policy.recorded import read_calls
from palyra.core.tape import events as ev

ACCEPTED = ev.RunAccepted(principal="ann", session_id="ses_1", agent="default", model="m")
PROPOSED = ev.ToolProposed(
    call_id="c1", tool="shell", arguments={}, digest="d", tool_class="effect"
)
DONE = ev.RunDone(reason="answered")


def a_verdict(verdict: Any, code: str, **more: Any) -> ev.ToolDecided:
    facts: dict[str, Any] = {"reason": "", "policies": (), "policy_version": "v", **more}
    return ev.ToolDecided(call_id="c1", verdict=verdict, reason_code=code, **facts)


def an_answer(decision: Any, call_id: str = "c1") -> ev.ApprovalResolved:
    return ev.ApprovalResolved(
        approval_id="apr_1", call_id=call_id, decision=decision, scope="once", by="ann", reason=""
    )


def rows(*events: ev.Event) -> list[TapeRow]:
    return [
        TapeRow(
            run_id="run_1", session_id="ses_1", seq=seq, at_ms=seq, kind=event.KIND,
            principal="ann", redacted=False, data=ev.encode_event(event),
        )
        for seq, event in enumerate(events)
    ]  # fmt: skip


CASES: list[tuple[str, tuple[ev.Event, ...]]] = [
    ("allowed", (an_answer("allow"), a_verdict("allow", "approved"), DONE)),
    ("allowed", (an_answer("allow", "c0"), a_verdict("allow", "approved", approval_id="apr_1"))),
    ("never_asked", (a_verdict("allow", "approved"), DONE)),
    ("covered", (a_verdict("allow", "granted", grant_id="grt_1"), DONE)),
    ("covered", (a_verdict("allow", "allowed", policies=("user/a/1",)), DONE)),
    ("never_asked", (a_verdict("allow", "allowed", policies=("default/harmless",)), DONE)),
    ("never_asked", (a_verdict("deny", "no_approver"), DONE)),
    ("denied", (an_answer("deny"), a_verdict("deny", "denied_by_person"), DONE)),
    ("denied", (a_verdict("deny", "denied_by_grant"), DONE)),
    ("unanswered", (an_answer("deny"), a_verdict("deny", "approval_expired"), DONE)),
    ("unanswered", (an_answer("abort"), a_verdict("deny", "aborted"), DONE)),
    ("unanswered", (DONE,)),
]


@pytest.mark.parametrize(("decided", "events"), CASES)
def test_only_an_answer_about_the_call_allows_it(
    decided: str, events: tuple[ev.Event, ...]
) -> None:
    """Each end of a call has its class; without a person's word it counts against a rule."""
    calls, is_purged = read_calls("run_1", rows(ACCEPTED, PROPOSED, *events))
    assert ([decided], False) == ([call.decided for call in calls], is_purged)


def test_an_open_question_is_not_counted() -> None:
    """A call without a verdict is left out until its run ends."""
    assert ([], False) == read_calls("run_1", rows(ACCEPTED, PROPOSED))
