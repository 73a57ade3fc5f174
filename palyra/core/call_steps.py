"""The steps of one tool call inside a run: gate it, ask, close it, attest it.

Every call that was proposed ends in exactly one attestation, whatever happened in between.
"""

from collections.abc import Sequence

import msgspec

from palyra.core import events as ev
from palyra.core.attest import Attestation, seal_attestation
from palyra.core.canonical import sha256_hex
from palyra.core.gate import Allow, Deny, NeedsApproval
from palyra.core.intake import Refused
from palyra.core.prompt import ProposedCall
from palyra.core.run_state import Call
from palyra.core.run_steps import AskPerson, CallEnded, Preparation
from palyra.core.step import Step
from palyra.core.tools import OutcomeStatus
from palyra.errors import InvariantBroken


def equal_ids(step: Step, calls: Sequence[ProposedCall]) -> str | None:
    """Which two calls of a turn would have one id on the tape, where secrets are redacted.

    They are named by their places: an id of the provider's may be long, or hold a secret.
    """
    if len(calls) < 2:  # noqa: PLR2004 - there is nothing to be equal to
        return None
    places: dict[str, int] = {}
    written, _ = step.setting.redact(msgspec.json.encode([call.call_id for call in calls]))
    for place, call_id in enumerate(msgspec.json.decode(written, type=list[str]), 1):
        first = places.setdefault(call_id, place)
        if first != place:
            return f"calls {first} and {place} of the turn have the same id"
    return None


def prepare_call(step: Step, call: Call) -> None:
    """Intake and gate of the next named call."""
    named = ProposedCall(call_id=call.call_id, tool=call.tool, arguments=call.arguments)
    prepared = step.setting.prepare(step.run, named)
    step.add(
        ev.ToolProposed(
            call_id=call.call_id,
            tool=call.tool,
            arguments=prepared.arguments,
            digest=prepared.digest,
            tool_class=prepared.tool_class,
            coercions=prepared.coercions,
            may_rerun=prepared.may_rerun,
            path_key=prepared.path_key,
            executor=prepared.executor,
            enforcement=prepared.enforcement,
        )
    )
    match prepared.verdict:
        case Refused() as refused:
            step.add(
                ev.ToolRejected(
                    call_id=call.call_id, reason=refused.reason, repair_hint=refused.repair_hint
                )
            )
            attest(step, call.call_id, "rejected")
        case NeedsApproval() as asks:
            _ask(step, call, prepared, asks)
        case verdict:
            _decided(step, call, verdict)


def _decided(step: Step, call: Call, verdict: Allow | Deny) -> None:
    is_allowed = isinstance(verdict, Allow)
    step.add(
        ev.ToolDecided(
            call_id=call.call_id,
            verdict="allow" if is_allowed else "deny",
            reason_code=verdict.reason_code,
            reason=verdict.reason,
            policies=verdict.policies,
            policy_version=verdict.version,
        )
    )
    if not is_allowed:
        attest(step, call.call_id, "denied")


def _ask(step: Step, call: Call, prepared: Preparation, asks: NeedsApproval) -> None:
    prompt = ev.ApprovalRequested(
        approval_id=step.setting.new_id("apr"),
        call_id=call.call_id,
        tool=call.tool,
        risk=asks.risk,
        summary=asks.summary,
        arguments=prepared.arguments,
        digest=prepared.execution_digest,
        scopes=("once",),
        expires_ms=step.now_ms + step.setting.limits.approval_ms,
        policy_reason=asks.reason,
        policy_version=asks.version,
    )
    step.add(prompt)
    step.effects.append(AskPerson(approval_id=prompt.approval_id))


def ask_again(step: Step, call: Call) -> None:
    """The same prompt after a restart: same id, same digest, same deadline."""
    step.effects.append(AskPerson(approval_id=call.approval_id or ""))


def close_call(step: Step, call: Call, reason: str) -> None:
    """End one call of a run that is ending, from whatever phase it is in."""
    match call.phase:
        case "asking":
            step.add(
                ev.ApprovalResolved(
                    approval_id=call.approval_id or "",
                    call_id=call.call_id,
                    decision="abort",
                    scope="once",
                    by="run",
                    reason=reason,
                )
            )
            _decided(
                step,
                call,
                Deny(
                    reason_code="aborted",
                    reason=reason,
                    policies=(),
                    version=call.policy_version,
                ),
            )
        case "allowed":
            attest(step, call.call_id, "cancelled")
        case "started":
            step.add(
                ev.ToolCompleted(call_id=call.call_id, status="cancelled", output="", error=reason)
            )
            attest(step, call.call_id, "cancelled")
        case _:
            pass  # only named, or attested already


def attest(
    step: Step, call_id: str, status: OutcomeStatus, *, ended: CallEnded | None = None
) -> None:
    """The signed end of one call."""
    call = step.run.find_call(call_id)
    if call is None:
        raise InvariantBroken(f"{call_id} is not a call of the current turn")
    recorded = sha256_hex(call.output.encode())
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
        started_ms=call.started_ms or step.now_ms,
        finished_ms=step.now_ms,
        prev=step.run.attestation_head,
    )
    sealed = seal_attestation(document, step.setting.sign)
    step.add(
        ev.ToolAttested(
            call_id=call_id,
            attestation=sealed.document,
            digest=sealed.digest,
            signature=sealed.signature,
        )
    )
