"""The steps of one tool call inside a run: gate it, close it, attest it; see also `ask_steps`.

Every call that was proposed ends in exactly one attestation, whatever happened in between.
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
    """Which two calls of a turn would have one id on the tape, where secrets are redacted.

    They are named by their places: an id of the provider's may be long, or hold a secret.
    """
    if len(calls) < 2:  # noqa: PLR2004 - there is nothing to be equal to
        return None
    places: dict[str, int] = {}
    written, _ = step.env.redact(msgspec.json.encode([call.call_id for call in calls]))
    for place, call_id in enumerate(msgspec.json.decode(written, type=list[str]), 1):
        first = places.setdefault(call_id, place)
        if first != place:
            return f"calls {first} and {place} of the turn have the same id"
    return None


def prepare_call(step: Step, call: Call) -> None:
    """Intake and gate of the next named call."""
    judged = step.env.evaluate(step.run, call)
    step.add(
        ev.ToolProposed(
            call_id=call.call_id,
            tool=call.tool,
            arguments=judged.arguments,
            digest=judged.digest,
            tool_class=judged.tool_class,
            coercions=judged.coercions,
            may_rerun=judged.may_rerun,
            path_key=judged.path_key,
            executor=judged.executor,
            enforcement=judged.enforcement,
            inspects=judged.inspects,
        )
    )
    apply_verdict(step, call, judged)


def judge_again(step: Step, call: Call) -> None:
    """Gate a proposed call once more: it was looked at, or the rules have changed."""
    apply_verdict(step, call, step.env.evaluate(step.run, call))


def apply_verdict(step: Step, call: Call, judged: GatedCall) -> None:
    if _is_one_too_many(step.run, judged):
        reject(step, call, ONE_TOO_MANY)
        return
    match judged.verdict:
        case Refused() as refused:
            reject(step, call, refused)
        case NeedsApproval() as asks:
            verdict = ask(step, call, judged, asks)
            if verdict is not None:
                asked = step.run.find_asked(call.call_id)
                record_decision(step, call, verdict, None if asked is None else asked.approval_id)
        case verdict:
            record_decision(step, call, verdict)


def _is_one_too_many(run: Run, judged: GatedCall) -> bool:
    """Whether a call for the client comes behind another one, and the caller takes one alone."""
    brief = run.accepted.brief
    if brief is None or not brief.one_call or judged.executor != CLIENT:
        return False
    return any(call.executor == CLIENT and call.phase == "allowed" for call in run.calls)


def reject(step: Step, call: Call, refused: Refused) -> None:
    """Tell the model what it would have to repair."""
    step.add(
        ev.ToolRejected(
            call_id=call.call_id, reason=refused.reason, repair_hint=refused.repair_hint
        )
    )
    attest(step, call.call_id, "rejected")


def record_decision(
    step: Step, call: Call, verdict: Allow | Deny, approval_id: str | None = None
) -> None:
    """The last word on a call; `approval_id` is that of an identical call before it."""
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
    """Deny what was allowed and may not start any more."""
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
    """Give the client the calls that are its own to run: for the daemon they have ended."""
    for call in step.run.calls:
        if call.phase == "allowed" and call.executor == CLIENT:
            attest(step, call.call_id, HANDED_OVER)


def close_call(step: Step, call: Call, reason: str) -> None:
    """End one call of a run that is ending, from whatever phase it is in."""
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
            pass  # only named, or attested already


def _aborted(call: Call, reason: str) -> Deny:
    return Deny(reason_code=ABORTED, reason=reason, policies=(), version=call.policy_version)


def complete_call(step: Step, call: Call, ended: CallEnded) -> None:
    """The outcome of a call that was started."""
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
    """The daemon stopped while the call ran, and it may not simply be started again."""
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
    """The signed end of one call."""
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
