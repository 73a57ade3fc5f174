"""Decisions about one tool call: evaluate it, record its verdict, its outcome, its attestation.

The phases of a call are in `core.run.call`, approval requests in `core.run.approvals`.
"""

from collections.abc import Sequence

import msgspec

from palyra.core.incident.kinds import outcome_unknown
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.run.approvals import abort_question, ask, find_lapse
from palyra.core.run.call import Call
from palyra.core.run.environment import GatedCall
from palyra.core.run.inputs import CallEnded, ReportIncident
from palyra.core.run.state import ABORTED, Question, Run
from palyra.core.run.transition import Step
from palyra.core.tape import events as ev
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.tool.arguments import Refused
from palyra.core.tool.attestation import Attestation, seal_attestation
from palyra.core.tool.spec import CLIENT, HANDED_OVER, OutcomeStatus
from palyra.errors import InvariantBroken

ONE_TOO_MANY = Refused(
    reason="the caller takes one call a turn, and there is one before it",
    repair_hint="if it is still needed, propose it alone, once the other one has its result",
)


def find_duplicate_ids(step: Step, calls: Sequence[ProposedCall]) -> str | None:
    """Describe two calls of a turn whose ids are equal once redacted; None if all differ.

    The description names their places, because an id may be long or contain a secret.
    """
    if len(calls) < 2:  # noqa: PLR2004 - a single call has no duplicate
        return None
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


def deny_ended(step: Step) -> None:
    """Deny allowed calls that may no longer start."""
    for call in step.run.calls:
        reason = find_lapse(step, call) if call.phase == "allowed" else None
        if reason is not None:
            void = Deny(
                reason_code="approval_void",
                reason=reason,
                policies=(),
                version=call.policy_version,
            )
            record_decision(step, call, void)


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
            attest(step, call.call_id, "cancelled")
        case _:
            pass  # named or attested: nothing to close


def _aborted(call: Call, reason: str) -> Deny:
    return Deny(reason_code=ABORTED, reason=reason, policies=(), version=call.policy_version)


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
        )
    )
    attest(step, call.call_id, ended.status, ended=ended)


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
