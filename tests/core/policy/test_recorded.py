"""Recorded decisions: what counts as a person's answer."""

from typing import Any

import msgspec

from palyra.core.journal.purged_row import make_tombstone
from palyra.core.journal.records import ApprovalRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.policy.recorded import find_asked, read_calls
from palyra.core.tape import events as ev
from tests.rows import every_row

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


@every_row(("decided", "events"), CASES)
def test_only_an_answer_about_the_call_allows_it(
    decided: str, events: tuple[ev.Event, ...]
) -> None:
    """Each end of a call has its class; without a person's word it counts against a rule."""
    calls, is_purged = read_calls("run_1", rows(ACCEPTED, PROPOSED, *events))
    assert ([decided], False) == ([call.decided for call in calls], is_purged)


def test_an_open_question_is_not_counted() -> None:
    """A call without a verdict is left out until its run ends."""
    assert ([], False) == read_calls("run_1", rows(ACCEPTED, PROPOSED))


ASKED = ApprovalRecord(
    approval_id="apr_1", run_id="run_1", session_id="ses_1", call_id="c1", principal="ann",
    tool="shell", risk="high", summary="shell", arguments=msgspec.Raw(b"{}"), digest="d",
    scopes=("once",), policy_reason="asks", requested_ms=0, expires_ms=1,
)  # fmt: skip


@every_row(
    ("decided", "events"),
    [
        ("unanswered", ()),
        ("allowed", (an_answer("allow"), a_verdict("allow", "approved"))),
        ("denied", (an_answer("deny"), a_verdict("deny", "denied_by_person"))),
    ],
)
def test_the_call_of_a_question_is_found_answered_or_not(
    decided: str, events: tuple[ev.Event, ...]
) -> None:
    """The call has the run's facts and the time of its proposal."""
    call = find_asked(ASKED, rows(ACCEPTED, PROPOSED, *events))
    assert call is not None
    assert (decided, False, ACCEPTED, 1) == (call.decided, call.is_tainted, call.run, call.at_ms)


def test_taint_after_the_proposal_counts() -> None:
    """A rule is about the run as it is now, so text that came after the question taints it."""
    found = ev.ToolCompleted(call_id="c0", status="succeeded", output="", findings=("role",))
    call = find_asked(ASKED, rows(ACCEPTED, PROPOSED, found))
    assert call is not None
    assert call.is_tainted


@every_row("events", [(), (ACCEPTED,), (PROPOSED,)])
def test_a_question_without_its_call_has_none(events: tuple[ev.Event, ...]) -> None:
    """The tape lost the run or the proposal."""
    assert None is find_asked(ASKED, rows(*events))


def test_a_purged_tape_is_no_evidence() -> None:
    """Its calls are gone, and a reading says so."""
    purged = [
        msgspec.structs.replace(row, data=make_tombstone(row.data, 0))
        for row in rows(ACCEPTED, PROPOSED)
    ]
    assert ([], True) == read_calls("run_1", purged)
    assert None is find_asked(ASKED, purged)


def test_a_tape_without_its_first_event_has_no_calls() -> None:
    """Nothing says whose calls they are."""
    assert ([], False) == read_calls("run_1", rows(PROPOSED, DONE))


def test_calls_of_clients_and_malformed_calls_are_told_apart() -> None:
    """A client executes its own calls, so they are left out; a rejected one is marked."""
    theirs = msgspec.structs.replace(PROPOSED, call_id="c2", executor="client")
    rejected = ev.ToolRejected(call_id="c1", reason="bad", repair_hint="good")
    calls, _ = read_calls("run_1", rows(ACCEPTED, PROPOSED, theirs, rejected, DONE))
    assert [("c1", True)] == [(call.call_id, call.is_rejected) for call in calls]
