"""The public record of a run, derived from its state."""

from typing import cast

from palyra.core.journal.records import RunPhase, RunRecord
from palyra.core.run.state import Run


def record(run: Run) -> RunRecord:
    """Return the run as `run.get` shows it."""
    return RunRecord(
        run_id=run.run_id,
        session_id=run.accepted.session_id,
        state=run.state,
        principal=run.accepted.principal,
        agent=run.accepted.agent,
        model=run.model,
        created_ms=run.created_ms,
        started_ms=run.started_ms,
        finished_ms=run.finished_ms,
        head_seq=run.next_seq - 1,
        usage=run.usage,
        cost_usd_micros=run.cost_usd_micros,
        unpriced_calls=run.unpriced_calls,
        turns=run.turn,
        tool_calls=run.tool_calls,
        pending_approvals=run.pending_approvals,
        reason=run.reason,
        parent_run_id=run.accepted.parent_run_id,
        attempts=run.recoveries,
    )


def phase(run: RunRecord, *, is_recovering: bool = False, is_stranded: bool = False) -> RunPhase:
    """Derive the public phase; it is never stored."""
    if run.is_terminal:
        return cast("RunPhase", run.state)
    if is_stranded:
        return "stranded"
    if is_recovering:
        return "recovering"
    if run.state == "accepted":
        return "queued"
    return "awaiting_approval" if run.pending_approvals else "in_progress"
