"""The records that follow from a run's events, committed with them: questions, grants, the ledger.

Owns: nothing; it is the part of the run actor (`actors.run`) that keeps the handle's open questions
and those that calls may still start on.
"""

from collections.abc import Callable
from typing import Any

from palyra.actors.run_handle import RunHandle
from palyra.core import events as ev
from palyra.core.approvals import pending_record, resolved_record, used
from palyra.core.grants import grant_record
from palyra.core.ledger import usage_record
from palyra.core.records import Record
from palyra.core.step import Step
from palyra.core.tape import TapeRow


def follow(handle: RunHandle, step: Step, row: TapeRow) -> list[Record]:
    """What is recorded beside this event."""
    rule = _RULES.get(row.kind)
    return [] if rule is None else rule(handle, step, ev.decode_event(row.kind, row.data))


def _asked(handle: RunHandle, step: Step, prompt: ev.ApprovalRequested) -> list[Record]:
    asked = pending_record(step.run, prompt, step.now_ms)
    handle.prompts[asked.approval_id] = asked
    return [asked]


def _answered(handle: RunHandle, step: Step, answer: ev.ApprovalResolved) -> list[Record]:
    """The answered question, and the grant that its answer makes."""
    asked = handle.prompts.pop(answer.approval_id)
    settled = resolved_record(asked, answer, step.now_ms)
    if settled.state == "allowed":
        handle.approved[answer.approval_id] = settled
    grant = grant_record(step.run, asked, answer, step.now_ms)
    if grant is None:
        return [settled]
    handle.granted[answer.approval_id] = grant
    return [settled, grant]


def _started(handle: RunHandle, _step: Step, started: ev.ToolStarted) -> list[Record]:
    """The use of an approval, committed with the start that uses it."""
    approval = handle.approved.pop(started.approval_id or "", None)
    if approval is None:
        return []
    approval = used(approval)
    if approval.is_open:
        handle.approved[approval.approval_id] = approval
    return [approval]


def _spent(handle: RunHandle, step: Step, event: ev.Event) -> list[Record]:
    """The line of the ledger for a model call that ends here."""
    line = usage_record(handle.run, event, step.now_ms)
    return [] if line is None else [line]


_RULES: dict[str, Callable[[RunHandle, Step, Any], list[Record]]] = {
    ev.ApprovalRequested.KIND: _asked,
    ev.ApprovalResolved.KIND: _answered,
    ev.ToolStarted.KIND: _started,
    ev.TurnCompleted.KIND: _spent,
    ev.TurnFailed.KIND: _spent,
    ev.RunRecovered.KIND: _spent,
    ev.RunFailed.KIND: _spent,
    ev.RunCancelled.KIND: _spent,
}
