"""Decisions about one tool call: its verdict, approval, outcome and attestation.

The phases of a call are in `core.run.call`.  A call stays `proposed` while its targets are inspected
and is `asking` while an approval request is pending.  One request covers all equal calls of a turn;
the answer holds for each of them once.  `request_approval` and `abort_question` serve every subject
of an approval (`core.policy.gate.ApprovalSubject`), the rest is about tool calls.

The outcome of a call is its output, redacted and cut to an excerpt.  Only the excerpt is scanned for
injected instructions: the model reads the rest of a long output page by page, by calls with outputs
of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from palyra.core.incident.kinds import outcome_unknown
from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.policy.grants import ONCE, grant_id_of
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.call import Call
from palyra.core.run.environment import GatedCall
from palyra.core.run.inputs import ApprovalAnswered, AskPerson, CallEnded, Inspect, ReportIncident
from palyra.core.run.state import ABORTED, DENIED_BY_PERSON, Question, Run
from palyra.core.run.step import Step
from palyra.core.run.todos import UPDATE_TODOS, todos_changed
from palyra.core.tape import events as ev
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.text.excerpt import excerpt
from palyra.core.text.visible import describe_call
from palyra.core.tool.arguments import Refused
from palyra.core.tool.artifacts import NAME_CHARS
from palyra.core.tool.attestation import Attestation, seal_attestation
from palyra.core.tool.spec import CLIENT, HANDED_OVER, DelegatedEnd, OutcomeStatus, ToolOutput
from palyra.core.trust.injection_scan import find_injections
from palyra.core.trust.labels import Trust
from palyra.errors import InvariantBroken

DEADLINE = "deadline"  # `by` of the denial after the deadline
# Reasons on the tape, which a replay compares.
LAPSED = "what a person had allowed ended before it could start: propose the call again"
STALE = "the rules have changed since it was allowed: propose the call again"
EMPTY_SHA256 = sha256_hex(b"")
ONE_TOO_MANY = Refused(
    reason="the caller takes one call a turn, and there is one before it",
    repair_hint="if it is still needed, propose it alone, once the other one has its result",
)

# --- proposal and verdict ------------------------------------------------------------------------


def find_duplicate_ids(step: Step, calls: Sequence[ProposedCall]) -> str | None:
    """Describe two calls of a turn whose ids are equal once redacted; None if all differ.

    The description names their places, because an id may be long or contain a secret.
    """
    if len(calls) < 2:  # noqa: PLR2004 - a single call has no duplicate
        return None
    if sum(len(call.call_id) for call in calls) > MAX_PAYLOAD_BYTES:
        return None  # the turn is too large, whatever they are
    places: dict[str, int] = {}
    written, _ = step.env.redact(msgspec.json.encode([call.call_id for call in calls]))
    for place, call_id in enumerate(msgspec.json.decode(written, type=list[str]), 1):
        first = places.setdefault(call_id, place)
        if first != place:
            return f"calls {first} and {place} of the turn have the same id"
    return None


def prepare_call(step: Step, call: Call) -> None:
    """Propose the next named call with its verdict."""
    gated = step.env.evaluate(step.run, call)
    step.add(
        ev.ToolProposed(
            call_id=call.call_id,
            tool=call.tool,
            arguments=gated.arguments,
            digest=gated.digest,
            tool_class=gated.tool_class,
            coercions=gated.coercions,
            may_rerun=gated.may_rerun,
            path_key=gated.path_key,
            executor=gated.executor,
            enforcement=gated.enforcement,
            inspects=gated.inspects,
        )
    )
    apply_verdict(step, call, gated)


def evaluate_again(step: Step, call: Call) -> None:
    """Evaluate a proposed call again, after its inspection or a change of the rules."""
    apply_verdict(step, call, step.env.evaluate(step.run, call))


def apply_verdict(step: Step, call: Call, gated: GatedCall) -> None:
    """Record what follows from the verdict: a rejection, a question or a decision."""
    if _is_one_too_many(step.run, gated):
        reject(step, call, ONE_TOO_MANY)
        return
    match gated.verdict:
        case Refused() as refused:
            reject(step, call, refused)
        case NeedsApproval() as asks:
            verdict = ask(step, call, gated, asks)
            if verdict is not None:
                asked = step.run.find_asked(call.call_id)
                record_decision(step, call, verdict, None if asked is None else asked.approval_id)
        case verdict:
            record_decision(step, call, verdict)


def _is_one_too_many(run: Run, gated: GatedCall) -> bool:
    """True if the caller accepts one client call a turn and another one is allowed already."""
    brief = run.accepted.brief
    if brief is None or not brief.one_call or gated.executor != CLIENT:
        return False
    return any(call.executor == CLIENT and call.phase == "allowed" for call in run.calls)


def reject(step: Step, call: Call, refused: Refused) -> None:
    """Reject the call and describe to the model how to repair it."""
    step.add(
        ev.ToolRejected(
            call_id=call.call_id, reason=refused.reason, repair_hint=refused.repair_hint
        )
    )
    attest(step, call.call_id, "rejected")


def record_decision(
    step: Step, call: Call, verdict: Allow | Deny, approval_id: str | None = None
) -> None:
    """Record the verdict; `approval_id` is set if an equal call's approval covers this one."""
    is_allowed = isinstance(verdict, Allow)
    step.add(
        ev.ToolDecided(
            call_id=call.call_id,
            verdict="allow" if is_allowed else "deny",
            reason_code=verdict.reason_code,
            reason=verdict.reason,
            policies=verdict.policies,
            policy_version=verdict.version,
            taint=step.run.is_tainted,
            approval_id=approval_id,
            grant_id=verdict.grant_id,
        )
    )
    if not is_allowed:
        attest(step, call.call_id, "denied")


def deny_lapsed(step: Step, call: Call) -> bool:
    """Deny an allowed call that may no longer start; True if it was denied."""
    reason = find_lapse(step, call)
    if reason is None:
        return False
    void = Deny(
        reason_code="approval_void", reason=reason, policies=(), version=call.policy_version
    )
    record_decision(step, call, void)
    return True


def find_lapse(step: Step, call: Call) -> str | None:
    """Return why an allowed call may no longer start; None if it may."""
    if step.env.is_stale(step.run, call):
        return STALE
    if call.grant_id is not None and step.env.has_lapsed(call):
        return LAPSED
    if call.approval_id is not None and step.now_ms >= call.approval_expires_ms > 0:
        return "its approval ended before it could start: propose the call again"
    return None


def hand_over(step: Step) -> None:
    """Attest the calls that the client executes; for the daemon they have ended."""
    for call in step.run.calls:
        if call.phase == "allowed" and call.executor == CLIENT:
            attest(step, call.call_id, HANDED_OVER)


def close_call(step: Step, call: Call, reason: str) -> None:
    """Close one call of a run that is ending, in any phase."""
    match call.phase:
        case "asking":
            question = Question(call.approval_id or "", "tool_call", call.call_id)
            abort_question(step, question, by="run", reason=reason)
            record_decision(step, call, _aborted(call, reason))
        case "proposed":
            record_decision(step, call, _aborted(call, reason))
        case "allowed":
            attest(step, call.call_id, "cancelled")
        case "started":
            step.add(
                ev.ToolCompleted(call_id=call.call_id, status="cancelled", output="", error=reason)
            )
            # The delegated run ends after this one: its session cancels it.
            end_delegation(step, call, DelegatedEnd(state="cancelled", reason=reason))
            attest(step, call.call_id, "cancelled")
        case _:
            pass  # named or attested: nothing to close


def _aborted(call: Call, reason: str) -> Deny:
    return Deny(reason_code=ABORTED, reason=reason, policies=(), version=call.policy_version)


# --- approvals -----------------------------------------------------------------------------------


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
        why = "the call has a secret, so a wider answer has no words that it could hold for"
        asks = msgspec.structs.replace(
            asks,
            summary=summary,
            scopes=ONCE,
            grant_key="",
            once_because=asks.once_because or why,
        )
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


# --- outcome and attestation ---------------------------------------------------------------------


def ended_with(
    call_id: str,
    output: ToolOutput,
    redactor: Redactor,
    excerpt_bytes: int,
    keep: Callable[[str], str | None] | None = None,
) -> CallEnded:
    """Return the outcome of a call with an output.

    `keep` stores the whole redacted output if the excerpt is shorter, and returns the name of the
    artifact, or None if it could not be stored.
    """
    redacted, _ = redactor.redact_text(output.text)
    shown, is_cut = excerpt(redacted, excerpt_bytes)
    artifact = keep(redacted) if keep is not None and is_cut else None
    return CallEnded(
        call_id=call_id,
        status="failed" if output.is_failure else "succeeded",
        output=shown
        if artifact is None
        else f"{shown}\n[all of it: artifact_read with artifact {artifact[:NAME_CHARS]}]",
        raw_sha256=sha256_hex(output.text.encode("utf-8", "surrogatepass")),
        is_truncated=is_cut or output.is_truncated,
        executor=output.executor,
        enforcement=output.enforcement,
        artifact=artifact,
        trust=output.trust,
        findings=tuple(dict.fromkeys((*output.findings, *_findings(shown, output.trust)))),
        delegated=output.delegated,
    )


def ended_without(
    call_id: str, status: OutcomeStatus, error: str, redactor: Redactor, trust: Trust
) -> CallEnded:
    """Return the outcome of a call without an output; `trust` labels the text of `error`."""
    shown, _ = redactor.redact_text(error)
    return CallEnded(
        call_id=call_id,
        status=status,
        output="",
        error=shown,
        raw_sha256=EMPTY_SHA256,
        trust=trust,
        findings=_findings(shown, trust),
    )


def _findings(text: str, trust: Trust) -> tuple[str, ...]:
    return () if trust == "trusted_local" else tuple(map(str, find_injections(text)))


def complete_call(step: Step, call: Call, ended: CallEnded) -> None:
    """Record the outcome of a started call."""
    step.add(
        ev.ToolCompleted(
            call_id=call.call_id,
            status=ended.status,
            output=ended.output,
            truncated=ended.is_truncated,
            error=ended.error,
            duration_ms=ended.took_ms,
            artifact=ended.artifact,
            trust=ended.trust,
            findings=ended.findings,
            pictures=ended.pictures,
        )
    )
    if call.tool == UPDATE_TODOS and ended.status == "succeeded":
        step.add(todos_changed(call))
    end_delegation(step, call, ended.delegated or _refused(ended))
    attest(step, call.call_id, ended.status, ended=ended)


def _refused(ended: CallEnded) -> DelegatedEnd:
    return DelegatedEnd(state="refused", reason=ended.error or ended.status)


def end_delegation(step: Step, call: Call, end: DelegatedEnd) -> None:
    """Record the end of the run that the call delegated to, if it did."""
    if call.delegated is not None:
        step.add(
            ev.DelegationEnded(
                call_id=call.call_id,
                **(msgspec.structs.asdict(end) | {"run_id": call.delegated.run_id}),
            )
        )


def complete_unknown(step: Step, call: Call) -> None:
    """Record an unknown outcome: the daemon stopped during the call, and it may not be repeated."""
    step.add(
        ev.ToolCompleted(
            call_id=call.call_id,
            status="unknown",
            output="",
            error="the daemon stopped while this ran: its effect may or may not have happened; "
            "look before you repeat it",
        )
    )
    attest(step, call.call_id, "unknown")
    step.effects.append(
        ReportIncident(alarm=outcome_unknown(step.run.run_id, call.call_id, call.tool))
    )


def attest(
    step: Step, call_id: str, status: OutcomeStatus, *, ended: CallEnded | None = None
) -> None:
    """Sign and record the end of one call."""
    call = step.run.find_call(call_id)
    if call is None:
        raise InvariantBroken(f"{call_id} is not a call of the current turn")
    recorded = sha256_hex(call.output.encode())
    started_ms = call.started_ms or step.now_ms
    document = Attestation(
        call_id=call_id,
        tool=call.tool,
        arguments_sha256=call.digest,
        output_sha256=recorded,
        raw_output_sha256=ended.raw_sha256 if ended is not None else recorded,
        status=status,
        executor=ended.executor if ended is not None else call.executor,
        enforcement=ended.enforcement if ended is not None else call.enforcement,
        policy_hash=call.policy_version,
        approval_id=call.approval_id,
        started_ms=started_ms,
        finished_ms=max(started_ms, step.now_ms) if ended is None else started_ms + ended.took_ms,
        prev=step.run.attestation_head,
    )
    sealed = seal_attestation(document, step.env.sign)
    step.add(
        ev.ToolAttested(
            call_id=call_id,
            attestation=sealed.document,
            digest=sealed.digest,
            signature=sealed.signature,
        )
    )
