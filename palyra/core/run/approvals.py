"""The steps of asking a person about a call: the question, its answer, and when neither counts.

A call waits in `proposed` while what it would meet is looked at, in `asking` while a person is
asked.  Identical calls of one turn are asked about at once: the answer is for all of them, and
each may use it once.
"""

import msgspec

from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.policy.grants import grant_id_of
from palyra.core.run.call import Call
from palyra.core.run.environment import GatedCall
from palyra.core.run.inputs import ApprovalAnswered, AskPerson, CallInspected, Inspect
from palyra.core.run.state import DENIED_BY_PERSON, RULES_CHANGED
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
    prompt = ev.ApprovalRequested(
        approval_id=step.env.new_id("apr"),
        call_id=call.call_id,
        tool=call.tool,
        risk=asks.risk,
        summary=_summary(step, call.tool, judged.arguments, asks),
        arguments=judged.arguments,
        digest=judged.execution_digest,
        scopes=asks.scopes,
        expires_ms=step.now_ms + step.env.limits.approval_ms,
        policy_reason=asks.reason,
        policy_version=asks.version,
        grant_key=asks.grant_key,
        covers=(call.call_id, *judged.duplicates) if judged.duplicates else (),
        inspection=judged.inspection,
        once_because=asks.once_because,
    )
    step.add(prompt)
    step.effects.append(AskPerson(approval_id=prompt.approval_id))
    return None


def _summary(step: Step, tool: str, arguments: object, asks: NeedsApproval) -> str:
    """One line, made of what may be shown: a cut through a secret would hide it from redaction."""
    data, is_redacted = step.env.redact(msgspec.json.encode(arguments))
    return describe_call(tool, msgspec.json.decode(data)) if is_redacted else asks.summary


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


def ask_again(step: Step, call: Call) -> None:
    """The same prompt after a restart: same id, same digest, same deadline."""
    step.effects.append(AskPerson(approval_id=call.approval_id or ""))


def inspect_again(step: Step, call: Call) -> None:
    """The look at what the call would meet was lost with the daemon."""
    step.effects.append(Inspect(call_id=call.call_id))


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


def withdraw(step: Step, call: Call) -> None:
    """End a question that was asked under other rules; the call is proposed again."""
    step.add(
        ev.ApprovalResolved(
            approval_id=call.approval_id or "",
            call_id=call.call_id,
            decision="abort",
            scope="once",
            by=RULES_CHANGED,
            reason="the rules have changed since it was asked",
        )
    )


def record_inspection(step: Step, heard: CallInspected) -> Call | None:
    """The call that was looked at, if it still waits for that."""
    call = step.run.find_call(heard.call_id)
    return call if call is not None and call.phase == "proposed" else None


def find_lapse(step: Step, call: Call) -> str | None:
    """Why an allowed call may not start any more; None when it may."""
    if step.env.is_stale(call):
        return STALE
    if call.grant_id is not None and step.env.has_lapsed(call):
        return LAPSED
    if call.approval_id is not None and step.now_ms >= call.approval_expires_ms > 0:
        return "its approval ended before it could start: propose the call again"
    return None
