"""Approvals as data: the valid answers, and the reply to later ones."""

from typing import Any

import msgspec
import pytest

from palyra.core.approval import (
    ResolveApproval,
    check_answer,
    first_outcome,
    pending_record,
    recorded_outcome,
    resolved_record,
)
from palyra.core.journal.records import (
    LISTED_BYTES,
    ApprovalRecord,
    ApprovalScope,
    ApprovalState,
)
from palyra.core.run.state import begin
from palyra.core.tape import events as ev
from palyra.errors import DigestMismatch, IllegalState, InvalidParams, Unavailable
from tests.rows import every_row

PENDING = ApprovalRecord(
    approval_id="apr_1",
    run_id="run_1",
    session_id="ses_1",
    call_id="c1",
    principal="ann",
    tool="write_file",
    risk="medium",
    summary="write",
    arguments=msgspec.Raw(b"{}"),
    digest="d" * 64,
    scopes=("once",),
    policy_reason="because",
    requested_ms=1_000,
    expires_ms=2_000,
)
ANSWER = ResolveApproval(approval_id="apr_1", decision="allow", digest=PENDING.digest)


def test_a_list_leaves_long_arguments_out_and_counts_them() -> None:
    """A long answer to a question of the model takes their room, and is no part of the number."""
    long, form = msgspec.Raw(b'"%s"' % (b"a" * LISTED_BYTES)), msgspec.Raw(b'{"question":"?"}')
    for arguments, reason, left_out_bytes in (
        (long, None, LISTED_BYTES + 2),
        (form, "a" * LISTED_BYTES, len(form)),
        (form, "a", 0),
    ):
        record = msgspec.structs.replace(PENDING, arguments=arguments, reason=reason)
        listed = record.in_list()
        assert (left_out_bytes, reason) == (listed.left_out_bytes, listed.reason)
        assert (b"{}" if left_out_bytes else bytes(form)) == bytes(listed.arguments)


def test_an_answer_counts_up_to_its_deadline() -> None:
    """The last millisecond counts, the deadline itself does not."""
    check_answer(PENDING, ANSWER, 1_999)
    with pytest.raises(IllegalState, match="counts as denied"):
        check_answer(PENDING, ANSWER, 2_000)


@pytest.mark.parametrize(
    ("change", "error", "field"),
    [
        ({"digest": "e" * 64}, DigestMismatch, "digest"),
        ({"scope": "session"}, InvalidParams, "scope"),
    ],
)
def test_an_answer_to_something_else_does_not_count(
    change: dict[str, Any], error: type[Exception], field: str
) -> None:
    """Another digest, or a scope that was not offered, is refused by name."""
    with pytest.raises(error, match=field):
        check_answer(PENDING, msgspec.structs.replace(ANSWER, **change), 1_000)


def test_a_scope_that_is_not_offered_is_refused_with_the_reason() -> None:
    """The error has the reason and the offered scopes."""
    asked = msgspec.structs.replace(PENDING, once_because="the run is tainted")
    wider = msgspec.structs.replace(ANSWER, scope="session")
    with pytest.raises(InvalidParams, match=r"not offered: the run is tainted; offered: once$"):
        check_answer(asked, wider, 1_000)


@every_row(
    ("scope", "ttl_ms", "complaint"),
    [
        ("once", 5, "goes with the scope 'timeboxed', not with 'once'"),
        ("session", 5, "goes with the scope 'timeboxed', not with 'session'"),
        ("timeboxed", None, "needs a time"),
        ("timeboxed", 86_400_001, "at most 86400000, a day"),
    ],
)
def test_a_time_goes_with_a_timeboxed_answer(
    scope: ApprovalScope, ttl_ms: int | None, complaint: str
) -> None:
    """With it, within a day, and with no other; the field is named."""
    wide = msgspec.structs.replace(PENDING, scopes=("once", "session", "timeboxed"))
    answer = msgspec.structs.replace(ANSWER, scope=scope, ttl_ms=ttl_ms)
    with pytest.raises(InvalidParams, match=complaint) as refused:
        check_answer(wide, answer, 1_000)
    assert refused.value.field == "ttl_ms"
    good = {"once": None, "session": None, "timeboxed": 86_400_000}
    for each, time in good.items():
        check_answer(wide, msgspec.structs.replace(ANSWER, scope=each, ttl_ms=time), 1_000)


def test_the_records_follow_from_the_events() -> None:
    """Approval and grant records are computed from the events of the tape."""
    accepted = ev.RunAccepted(principal="ann", session_id="ses_1", agent="scout", model="m")
    prompt = ev.ApprovalRequested(
        approval_id="apr_1", call_id="c1", tool="shell", risk="high", summary="s", arguments={},
        digest="d", scopes=("once", "session"), expires_ms=9, policy_reason="because",
        grant_key="git", covers=("c1", "c2"), inspection={"binary": "git"},
    )  # fmt: skip
    asked = pending_record(begin("run_1", accepted, 0), prompt, 5)
    assert (asked.agent, asked.grant_key, asked.covers, asked.inspection, asked.uses) == (
        "scout", "git", ("c2",), {"binary": "git"}, 0,
    )  # fmt: skip
    answer = ev.ApprovalResolved(
        approval_id="apr_1", call_id="c1", decision="allow", scope="session", by="bob", reason="r"
    )
    settled = resolved_record(asked, answer, 7)
    assert (settled.state, settled.scope, settled.by, settled.resolved_ms) == (
        "allowed", "session", "bob", 7,
    )  # fmt: skip
    assert recorded_outcome(settled).grant_id == "grt_1"


@every_row(("state", "decision"), [("allowed", "allow"), ("denied", "deny"), ("aborted", "abort")])
def test_a_later_answer_gets_the_recorded_one(state: ApprovalState, decision: str) -> None:
    """The reply has the recorded decision; only the first answer has won."""
    settled = msgspec.structs.replace(
        PENDING, state=state, scope="once", by="bob", resolved_ms=1_500
    )
    told = recorded_outcome(settled)
    assert (told.decision, told.by, told.resolved_ms) == (decision, "bob", 1_500)
    assert not told.won
    first = first_outcome(settled, 7)
    assert (first.won, first.seq, first.decision) == (True, 7, decision)


def test_an_approval_after_a_restart_has_no_outcome() -> None:
    """After a restart an approval is pending before its run accepts answers."""
    with pytest.raises(Unavailable, match="in a moment"):
        recorded_outcome(PENDING)
