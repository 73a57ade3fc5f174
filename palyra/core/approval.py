"""Approvals as data: the record of a question, and the rules for its answers.

The first valid answer settles a question.  An answer must carry the digest of exactly what was
shown; after the deadline only the daemon's own denial counts.
"""

from typing import Literal

import msgspec

from palyra.core.journal.records import (
    ApprovalRecord,
    ApprovalScope,
    ApprovalState,
    GrantRecord,
    GrantScope,
)
from palyra.core.policy.grants import MAX_TTL_MS, grant_id_of
from palyra.core.policy.questions import ASK_USER, check_words
from palyra.core.policy.views import Resolved
from palyra.core.run.state import Run
from palyra.core.tape.events import ApprovalRequested, ApprovalResolved
from palyra.errors import DigestMismatch, IllegalState, InvalidParams, Unavailable


class ResolveApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer."""

    approval_id: str
    decision: Literal["allow", "deny"]
    digest: str
    scope: ApprovalScope = "once"
    ttl_ms: int | None = None
    reason: str = ""
    has_answer: bool = False  # the reason is an answer, which only a question of the model takes


STATE_OF: dict[str, ApprovalState] = {"allow": "allowed", "deny": "denied", "abort": "aborted"}
DECISION_OF: dict[ApprovalState, Literal["allow", "deny", "abort"]] = {
    "allowed": "allow",
    "denied": "deny",
    "aborted": "abort",
}


def pending_record(run: Run, prompt: ApprovalRequested, at_ms: int) -> ApprovalRecord:
    """Return the record of a new question."""
    return ApprovalRecord(
        approval_id=prompt.approval_id,
        run_id=run.run_id,
        session_id=run.accepted.session_id,
        call_id=prompt.call_id,
        principal=run.accepted.principal,
        tool=prompt.tool,
        risk=prompt.risk,
        summary=prompt.summary,
        arguments=msgspec.Raw(msgspec.json.encode(prompt.arguments)),
        digest=prompt.digest,
        scopes=prompt.scopes,
        policy_reason=prompt.policy_reason,
        requested_ms=at_ms,
        expires_ms=prompt.expires_ms,
        agent=run.accepted.agent,
        grant_key=prompt.grant_key,
        covers=prompt.covers[1:],
        inspection=prompt.inspection,
        once_because=prompt.once_because,
        parent_run_id=run.accepted.parent_run_id if run.accepted.depth else None,
        workspace=run.accepted.workspace,
    )


def resolved_record(
    pending: ApprovalRecord, answer: ApprovalResolved, at_ms: int
) -> ApprovalRecord:
    """Return the record of a settled question."""
    return msgspec.structs.replace(
        pending,
        state=STATE_OF[answer.decision],
        scope=answer.scope,
        by=answer.by,
        reason=answer.reason,
        resolved_ms=at_ms,
    )


def check_answer(pending: ApprovalRecord, answer: ResolveApproval, now_ms: int) -> None:
    """Raise unless the answer may settle the question."""
    if answer.digest != pending.digest:
        raise DigestMismatch(
            f"digest {answer.digest[:16]!r}… is not the one that was shown "
            f"({pending.digest[:16]}…): read the approval again and answer what it asks",
            field="digest",
        )
    if answer.scope not in pending.scopes:
        why = f": {pending.once_because}" if pending.once_because else ""
        raise InvalidParams(
            f"scope {answer.scope!r} was not offered{why}; offered: {', '.join(pending.scopes)}",
            field="scope",
        )
    if answer.has_answer and pending.tool != ASK_USER:
        raise InvalidParams(
            f"{pending.tool} is no question of the model: decide without an answer", field="answer"
        )
    if pending.tool == ASK_USER and answer.decision == "allow":
        check_words(msgspec.json.decode(pending.arguments), answer.reason)
    if answer.scope == "timeboxed" and answer.ttl_ms is None:
        raise InvalidParams("a timeboxed answer needs a time: how long it holds", field="ttl_ms")
    if answer.scope != "timeboxed" and answer.ttl_ms is not None:
        raise InvalidParams(
            f"a time goes with the scope 'timeboxed', not with {answer.scope!r}", field="ttl_ms"
        )
    if answer.ttl_ms is not None and answer.ttl_ms > MAX_TTL_MS:
        raise InvalidParams(
            f"ttl_ms = {answer.ttl_ms}: at most {MAX_TTL_MS}, a day; longer is for a rule",
            field="ttl_ms",
        )
    if now_ms >= pending.expires_ms:
        raise IllegalState(f"{pending.approval_id} expired; it counts as denied")


def used(approval: ApprovalRecord) -> ApprovalRecord:
    """Return the record after one more call has started on it."""
    return msgspec.structs.replace(approval, uses=approval.uses + 1)


def recorded_outcome(record: ApprovalRecord) -> Resolved:
    """Return the outcome for a later answer.  Raises Unavailable while the question is reopened."""
    decision = DECISION_OF.get(record.state)
    if decision is None:
        raise Unavailable(f"{record.approval_id} is being asked again: answer in a moment")
    return Resolved(
        decision=decision,
        scope=record.scope or "once",
        by=record.by or "",
        resolved_ms=record.resolved_ms or 0,
        won=False,
        run_id=record.run_id,
        grant_id=None if record.scope in {None, "once"} else grant_id_of(record.approval_id),
    )


def first_outcome(settled: ApprovalRecord, seq: int) -> Resolved:
    """Return the outcome of the valid answer; `seq` is that of `approval.resolved`."""
    return msgspec.structs.replace(recorded_outcome(settled), won=True, seq=seq)


def grant_record(
    run: Run, asked: ApprovalRecord, answer: ApprovalResolved, at_ms: int
) -> GrantRecord | None:
    """Return the grant that an answer makes, None for scope `once`."""
    if answer.grant_id is None or answer.scope == "once" or answer.decision == "abort":
        return None
    scope: GrantScope = answer.scope
    return GrantRecord(
        grant_id=answer.grant_id,
        principal=asked.principal,
        agent=asked.agent,
        tool=asked.tool,
        key=asked.grant_key,
        decision=answer.decision,
        scope=scope,
        session_id=asked.session_id,
        epoch=run.accepted.epoch or 0,
        approval_id=asked.approval_id,
        by=answer.by,
        granted_ms=at_ms,
        expires_ms=answer.grant_expires_ms,
        reason=answer.reason,
        workspace=asked.workspace,
    )
