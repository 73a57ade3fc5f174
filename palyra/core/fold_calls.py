"""The rules of the fold about tool calls; see `core.fold`."""

from typing import Any, cast

import msgspec

from palyra.core import events as ev
from palyra.core.fold_rules import RulesOf, is_attested, need, registrar
from palyra.core.progress import observe
from palyra.core.run_state import DENIED_BY_PERSON, RULES_CHANGED, CallPhase, Run

RULES: RulesOf = {}
_rule = registrar(RULES)
_replace = msgspec.structs.replace


def _advance(
    run: Run,
    event: Any,  # noqa: ANN401 - every event about a call
    before: frozenset[CallPhase],
    **changes: Any,  # noqa: ANN401 - fields of Call, checked by replace
) -> Run:
    """The run with one call moved on from one of the phases `before`."""
    call = run.find_call(event.call_id)
    need(call is not None and call.phase in before, run, event)
    calls = tuple(
        _replace(other, **changes) if other.call_id == event.call_id else other
        for other in run.calls
    )
    return _replace(run, calls=calls)


_NAMED: frozenset[CallPhase] = frozenset({"named"})
_PROPOSED: frozenset[CallPhase] = frozenset({"proposed"})
_ASKING: frozenset[CallPhase] = frozenset({"asking"})
_GATED: frozenset[CallPhase] = frozenset({"proposed", "asking"})
_ALLOWED: frozenset[CallPhase] = frozenset({"allowed"})
_STARTED: frozenset[CallPhase] = frozenset({"started"})
_ENDED: frozenset[CallPhase] = frozenset({"rejected", "denied", "allowed", "completed"})


@_rule(ev.ToolProposed)
def _tool_proposed(run: Run, event: ev.ToolProposed, _at_ms: int) -> Run:
    after = _advance(
        run,
        event,
        _NAMED,
        phase="proposed",
        arguments=event.arguments,
        digest=event.digest,
        tool_class=event.tool_class,
        may_rerun=event.may_rerun,
        path_key=event.path_key,
        executor=event.executor,
        enforcement=event.enforcement,
    )
    return _replace(after, tool_calls=run.tool_calls + 1)


@_rule(ev.ToolRejected)
def _tool_rejected(run: Run, event: ev.ToolRejected, _at_ms: int) -> Run:
    text = f"{event.reason}\n{event.repair_hint}".rstrip()
    return _advance(run, event, _PROPOSED, phase="rejected", status="rejected", output=text)


@_rule(ev.ApprovalRequested)
def _approval_requested(run: Run, event: ev.ApprovalRequested, at_ms: int) -> Run:
    if not event.call_id:  # no call is asked about, but the model call that a budget stopped
        need(run.exceeded is not None and run.asked_ms is None, run, event)
        return _replace(run, budget_question=event.approval_id, asked_ms=at_ms)
    after = _advance(
        run,
        event,
        _PROPOSED,
        phase="asking",
        approval_id=event.approval_id,
        approval_digest=event.digest,
        approval_expires_ms=event.expires_ms,
        covers=event.covers,
        policy_version=event.policy_version,
    )
    return _replace(after, asked_ms=at_ms)


_NO_APPROVAL: dict[str, Any] = {
    "approval_id": None,
    "approval_digest": "",
    "approval_expires_ms": 0,
    "covers": (),
}


@_rule(ev.ApprovalResolved)
def _approval_resolved(run: Run, event: ev.ApprovalResolved, at_ms: int) -> Run:
    if event.approval_id == run.budget_question:
        return _budget_answered(run, event, at_ms)
    call = run.find_call(event.call_id)
    need(call is not None and call.approval_id == event.approval_id, run, event)
    need(run.asked_ms is not None, run, event)
    if event.decision == "abort":
        void = _NO_APPROVAL if event.by == RULES_CHANGED else {}
        after = _advance(run, event, _ASKING, phase="proposed", **void)
    else:
        after = _advance(run, event, _ASKING, answer=event.decision, answered_by=event.by)
    return _stop_waiting(after, at_ms)


def _stop_waiting(run: Run, at_ms: int) -> Run:
    """The run with the time that people took."""
    waited_ms = max(0, at_ms - cast("int", run.asked_ms))
    return _replace(run, asked_ms=None, people_ms=run.people_ms + waited_ms)


def _budget_answered(run: Run, event: ev.ApprovalResolved, at_ms: int) -> Run:
    """Somebody said whether the run may go beyond the budget; that holds for the rest of it."""
    need(run.exceeded is not None and run.asked_ms is not None, run, event)
    exceeded = cast("ev.BudgetExceeded", run.exceeded)
    is_lifted = event.decision == "allow"
    lifted = run.lifted | {exceeded.budget_id} if is_lifted else run.lifted
    return _replace(_stop_waiting(run, at_ms), budget_question="", lifted=lifted)


@_rule(ev.ToolDecided)
def _tool_decided(run: Run, event: ev.ToolDecided, _at_ms: int) -> Run:
    shared = _shared_approval(run, event)
    if event.verdict == "allow":
        facts = {"policy_version": event.policy_version, "grant_id": event.grant_id}
        return _advance(run, event, _GATED, phase="allowed", **facts, **shared)
    after = _advance(
        run,
        event,
        _GATED | _ALLOWED,
        phase="denied",
        status="denied",
        output=event.reason,
        policy_version=event.policy_version,
        **shared,
    )
    call = run.find_call(event.call_id)
    if call is None or event.reason_code != DENIED_BY_PERSON:
        return after
    return _replace(after, denied=run.denied | {(call.tool, call.digest)})


def _shared_approval(run: Run, event: ev.ToolDecided) -> dict[str, Any]:
    """What a call has from the question about an identical one before it."""
    asked = run.find_asked(event.call_id) if event.approval_id is not None else None
    if asked is None or asked.approval_id != event.approval_id:
        need(event.approval_id is None, run, event)
        return {}
    return {name: getattr(asked, name) for name in _NO_APPROVAL}


@_rule(ev.ToolStarted)
def _tool_started(run: Run, event: ev.ToolStarted, at_ms: int) -> Run:
    return _advance(
        run,
        event,
        _ALLOWED,
        phase="started",
        started_ms=at_ms,
        executor=event.executor,
        enforcement=event.enforcement,
        batch=event.batch,
    )


@_rule(ev.ToolCompleted)
def _tool_completed(run: Run, event: ev.ToolCompleted, _at_ms: int) -> Run:
    shown = event.output if event.error is None else f"{event.output}{event.error}"
    after = _advance(
        run,
        event,
        _STARTED,
        phase="completed",
        status=event.status,
        output=shown,
        trust=event.trust,
        findings=event.findings,
    )
    recoveries = run.recoveries if event.status == "unknown" else 0
    return _replace(after, recoveries=recoveries, is_tainted=run.is_tainted or bool(event.findings))


@_rule(ev.ToolAttested)
def _tool_attested(run: Run, event: ev.ToolAttested, _at_ms: int) -> Run:
    status = str(event.attestation.get("status", ""))
    digest = str(event.attestation.get("output_sha256", ""))
    after = _advance(run, event, _ENDED, phase="attested", status=status, output_sha256=digest)
    progress = observe(run.progress, after.calls) if is_attested(after) else run.progress
    return _replace(after, attestation_head=event.digest, progress=progress)
