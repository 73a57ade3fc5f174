"""Approval requests: asking, the answer, and when neither counts any more.

An approval has a subject (`core.policy.gate.ApprovalSubject`).  `request_approval` and
`abort_question` serve every subject; the rest of this module is about tool calls, `core.run.turns`
about budgets.

A call stays `proposed` while its targets are inspected and is `asking` while the request is
pending.  One request covers all equal calls of a turn.  The answer holds for each of them once.
"""

from typing import Any

import msgspec

from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.policy.grants import grant_id_of
from palyra.core.run.call import Call
from palyra.core.run.environment import GatedCall
from palyra.core.run.inputs import ApprovalAnswered, AskPerson, Inspect
from palyra.core.run.state import DENIED_BY_PERSON, Question
from palyra.core.run.transition import Step
from palyra.core.tape import events as ev
from palyra.core.text.visible import describe_call

DEADLINE = "deadline"  # `by` of the denial after the deadline
# Reasons on the tape, which a replay compares.
LAPSED = "what a person had allowed ended before it could start: propose the call again"
STALE = "the rules have changed since it was allowed: propose the call again"


def ask(step: Step, call: Call, gated: GatedCall, asks: NeedsApproval) -> Allow | Deny | None:
    """Request an approval, or an inspection before it.

    Returns the verdict if the approval of an equal call already covers this one.
    """
    asked = step.run.find_asked(call.call_id)
    if asked is not None and (asked.digest, asked.policy_version) == (gated.digest, asks.version):
        is_allowed = asked.answer == "allow"
        code, reason = answer_reason(is_allowed=is_allowed, by=asked.answered_by, reason="")
        kind = Allow if is_allowed else Deny
        return kind(reason_code=code, reason=reason, policies=(), version=asked.policy_version)
    if gated.inspects:
        step.effects.append(Inspect(call_id=call.call_id))
        return None
    data, is_redacted = step.env.redact(msgspec.json.encode(gated.arguments))
    if is_redacted:  # truncating the summary first could cut a secret and hide it from redaction
        summary = describe_call(call.tool, msgspec.json.decode(data))
        asks = msgspec.structs.replace(asks, summary=summary)
    request_approval(
        step,
        asks,
        approval_id=step.env.new_id("apr"),
        call_id=call.call_id,
        tool=call.tool,
        arguments=gated.arguments,
        digest=gated.execution_digest,
        covers=(call.call_id, *gated.duplicates) if gated.duplicates else (),
        inspection=gated.inspection,
    )
    return None


def request_approval(  # noqa: PLR0913 - the fields of one event, all by name
    step: Step,
    asks: NeedsApproval,
    *,
    approval_id: str,
    tool: str,
    arguments: Any,  # noqa: ANN401 - a JSON value
    digest: str,
    call_id: str = "",
    covers: tuple[str, ...] = (),
    inspection: Any = None,  # noqa: ANN401 - a JSON value
) -> None:
    """Record an approval request, whatever its subject, and ask once it is committed."""
    step.add(
        ev.ApprovalRequested(
            approval_id=approval_id,
            call_id=call_id,
            tool=tool,
            risk=asks.risk,
            summary=asks.summary,
            arguments=arguments,
            digest=digest,
            scopes=asks.scopes,
            expires_ms=step.now_ms + step.env.limits.approval_ms,
            policy_reason=asks.reason,
            policy_version=asks.version,
            grant_key=asks.grant_key,
            covers=covers,
            inspection=inspection,
            once_because=asks.once_because,
        )
    )
    step.effects.append(AskPerson(approval_id=approval_id))


def abort_question(step: Step, question: Question, *, by: str, reason: str) -> None:
    """Withdraw a pending approval request."""
    step.add(
        ev.ApprovalResolved(
            approval_id=question.approval_id,
            call_id=question.call_id,
            decision="abort",
            scope="once",
            by=by,
            reason=reason,
        )
    )


def take_answer(step: Step, call: Call, incoming: ApprovalAnswered) -> Allow | Deny:
    """Record the answer about a call and return the verdict that follows."""
    is_once = incoming.scope == "once"
    ends = incoming.ttl_ms is not None and incoming.scope == "timeboxed"
    step.add(
        ev.ApprovalResolved(
            approval_id=incoming.approval_id,
            call_id=call.call_id,
            decision=incoming.decision,
            scope=incoming.scope,
            by=incoming.by,
            reason=incoming.reason,
            grant_id=None if is_once else grant_id_of(incoming.approval_id),
            grant_expires_ms=step.now_ms + (incoming.ttl_ms or 0) if ends else None,
        )
    )
    is_allowed = incoming.decision == "allow"
    code, reason = answer_reason(is_allowed=is_allowed, by=incoming.by, reason=incoming.reason)
    kind = Allow if is_allowed else Deny
    return kind(reason_code=code, reason=reason, policies=(), version=call.policy_version)


def answer_reason(*, is_allowed: bool, by: str, reason: str) -> tuple[str, str]:
    """Return reason code and reason of the verdict that follows from an answer."""
    if is_allowed:
        return "approved", f"approved by {by}"
    code = "approval_expired" if by == DEADLINE else DENIED_BY_PERSON
    return code, reason or f"denied by {by}"


def find_lapse(step: Step, call: Call) -> str | None:
    """Return why an allowed call may no longer start; None if it may."""
    if step.env.is_stale(call):
        return STALE
    if call.grant_id is not None and step.env.has_lapsed(call):
        return LAPSED
    if call.approval_id is not None and step.now_ms >= call.approval_expires_ms > 0:
        return "its approval ended before it could start: propose the call again"
    return None
