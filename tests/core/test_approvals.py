"""Approvals as data: which answers count, and what a later one is told."""

from typing import Any

import msgspec
import pytest

from palyra.core.approvals import check_answer, first_outcome, recorded_outcome
from palyra.core.commands import ResolveApproval
from palyra.core.records import ApprovalRecord, ApprovalState
from palyra.errors import DigestMismatch, IllegalState, InvalidParams, Unavailable

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


@pytest.mark.parametrize(
    ("state", "decision"), [("allowed", "allow"), ("denied", "deny"), ("aborted", "abort")]
)
def test_a_later_answer_is_told_the_recorded_one(state: ApprovalState, decision: str) -> None:
    """Who answered first, what and when; only the first answer has won."""
    settled = msgspec.structs.replace(
        PENDING, state=state, scope="once", by="bob", resolved_ms=1_500
    )
    told = recorded_outcome(settled)
    assert (told.decision, told.by, told.resolved_ms) == (decision, "bob", 1_500)
    assert not told.won
    first = first_outcome(settled, 7)
    assert (first.won, first.seq, first.decision) == (True, 7, decision)


def test_a_question_that_is_asked_again_has_no_outcome_yet() -> None:
    """After a restart a question may be pending although nobody can take the answer yet."""
    with pytest.raises(Unavailable, match="in a moment"):
        recorded_outcome(PENDING)
