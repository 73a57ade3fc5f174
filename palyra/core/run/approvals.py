"""The steps of asking a person about a call: the question, its answer, and when neither counts.

A call waits in `proposed` while what it would meet is looked at, in `asking` while a person is
asked.  Identical calls of one turn are asked about at once: the answer is for all of them, and
each may use it once.
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

DEADLINE = "deadline"  # who answers when nobody does
LAPSED = "what a person had allowed ended before it could start: propose the call again"
STALE = "the rules have changed since it was allowed: propose the call again"


def ask(step: Step, call: Call, judged: GatedCall, asks: NeedsApproval) -> Allow | Deny | None:
    """Put the question, or look first; the verdict at once if it was answered for this call too."""
    asked = step.run.find_asked(call.call_id)
    if asked is not None and (asked.digest, asked.policy_version) == (judged.digest, asks.version):
        return _answered_before(asked)
    if judged.inspects:
        step.effects.append(Inspect(call_id=call.call_id))
        return None
    data, is_redacted = step.env.redact(msgspec.json.encode(judged.arguments))
    if is_redacted:  # truncating the summary first could cut a secret and hide it from redaction
        summary = describe_call(call.tool, msgspec.json.decode(data))
        asks = msgspec.structs.replace(asks, summary=summary)
    request_approval(
        step,
        asks,
        approval_id=step.env.new_id("apr"),
        call_id=call.call_id,
        tool=call.tool,
        arguments=judged.arguments,
        digest=judged.execution_digest,
        covers=(call.call_id, *judged.duplicates) if judged.duplicates else (),
        inspection=judged.inspection,
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


def _answered_before(asked: Call) -> Allow | Deny:
    words = ApprovalAnswered(
        approval_id=asked.approval_id or "",
        decision="allow" if asked.answer == "allow" else "deny",
        scope="once",
        by=asked.answered_by,
        reason="",
    )
    code, reason = answer_words(words)
    kind = Allow if asked.answer == "allow" else Deny
    return kind(reason_code=code, reason=reason, policies=(), version=asked.policy_version)


def take_answer(step: Step, call: Call, heard: ApprovalAnswered) -> Allow | Deny:
    """Record the answer; the verdict that follows from it."""
    is_once = heard.scope == "once"
    ends = heard.ttl_ms is not None and heard.scope == "timeboxed"
    step.add(
        ev.ApprovalResolved(
            approval_id=heard.approval_id,
            call_id=call.call_id,
            decision=heard.decision,
            scope=heard.scope,
            by=heard.by,
            reason=heard.reason,
            grant_id=None if is_once else grant_id_of(heard.approval_id),
            grant_expires_ms=step.now_ms + (heard.ttl_ms or 0) if ends else None,
        )
    )
    code, reason = answer_words(heard)
    kind = Allow if heard.decision == "allow" else Deny
    return kind(reason_code=code, reason=reason, policies=(), version=call.policy_version)


def answer_words(heard: ApprovalAnswered) -> tuple[str, str]:
    """Reason code and reason of the verdict that an answer is."""
    if heard.decision == "allow":
        return "approved", f"approved by {heard.by}"
    code = "approval_expired" if heard.by == DEADLINE else DENIED_BY_PERSON
    return code, heard.reason or f"denied by {heard.by}"


def find_lapse(step: Step, call: Call) -> str | None:
    """Why an allowed call may not start any more; None when it may."""
    if step.env.is_stale(call):
        return STALE
    if call.grant_id is not None and step.env.has_lapsed(call):
        return LAPSED
    if call.approval_id is not None and step.now_ms >= call.approval_expires_ms > 0:
        return "its approval ended before it could start: propose the call again"
    return None
