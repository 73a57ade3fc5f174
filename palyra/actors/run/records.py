"""Records that follow from a run's events and commit with them: approvals, grants, usage.

Called by the run actor for each row of a step; keeps the open questions of its handle, and the
approvals that calls may still start on, in line with the events.
"""

from collections.abc import Callable
from typing import Any

from palyra.actors.run.handle import RunHandle
from palyra.core.approval import grant_record, pending_record, resolved_record, used
from palyra.core.journal.records import Record
from palyra.core.journal.tape_row import TapeRow
from palyra.core.run.transition import Transition
from palyra.core.tape import events as ev
from palyra.core.usage.ledger import usage_record


def records_for_event(handle: RunHandle, step: Transition, row: TapeRow) -> list[Record]:
    """Return the records that one event adds to its commit."""
    rule = _RULES.get(row.kind)
    return [] if rule is None else rule(handle, step, ev.decode_event(row.kind, row.data))


def _asked(handle: RunHandle, step: Transition, prompt: ev.ApprovalRequested) -> list[Record]:
    asked = pending_record(step.run, prompt, step.now_ms)
    handle.prompts[asked.approval_id] = asked
    return [asked]


def _answered(handle: RunHandle, step: Transition, answer: ev.ApprovalResolved) -> list[Record]:
    """Settle the question; add the grant that its answer makes."""
    asked = handle.prompts.pop(answer.approval_id)
    settled = resolved_record(asked, answer, step.now_ms)
    if settled.state == "allowed":
        handle.approved[answer.approval_id] = settled
    grant = grant_record(step.run, asked, answer, step.now_ms)
    if grant is None:
        return [settled]
    handle.granted[answer.approval_id] = grant
    return [settled, grant]


def _started(handle: RunHandle, _step: Transition, started: ev.ToolStarted) -> list[Record]:
    """Count the use of an approval, committed with the start that uses it."""
    approval = handle.approved.pop(started.approval_id or "", None)
    if approval is None:
        return []
    approval = used(approval)
    if approval.is_open:
        handle.approved[approval.approval_id] = approval
    return [approval]


def _spent(handle: RunHandle, step: Transition, event: ev.Event) -> list[Record]:
    """Return the usage record of a model request that ends with this event."""
    line = usage_record(handle.run, event, step.now_ms)
    return [] if line is None else [line]


_RULES: dict[str, Callable[[RunHandle, Transition, Any], list[Record]]] = {
    ev.ApprovalRequested.KIND: _asked,
    ev.ApprovalResolved.KIND: _answered,
    ev.ToolStarted.KIND: _started,
    ev.TurnCompleted.KIND: _spent,
    ev.TurnFailed.KIND: _spent,
    ev.RunRecovered.KIND: _spent,
    ev.RunFailed.KIND: _spent,
    ev.RunCancelled.KIND: _spent,
}
