"""Ledger: one line of usage per model call, derived from the events of a run.

A line is committed together with its event, so a crash neither loses nor duplicates it.  A call
gets a line when it was answered (`turn.completed`), when it failed (`turn.failed`), and when the
end of the run or of the daemon stopped it (`abandoned` of that event).  An attempt that sent no
request (`was_asked` is false) is not a call.
"""

from palyra.core.journal.records import CallOutcome, Charge, UsageRecord
from palyra.core.run.state import Run
from palyra.core.tape import events as ev

NOTHING = Charge(cost_usd_micros=0)


def usage_record(run: Run, event: ev.Event, at_ms: int) -> UsageRecord | None:
    """Return the line derived from an event, or None; `run` is the state before the event."""
    match event:
        case ev.TurnCompleted():
            cost = None if event.is_unpriced else event.cost_usd_micros
            charge = Charge(usage=event.usage, cost_usd_micros=cost)
            return _line(run, "completed", charge, at_ms)
        case ev.TurnFailed():
            made = _line(run, "failed", event.charge or NOTHING, at_ms)
            return made if event.was_asked else None
        case ev.RunRecovered() | ev.RunCancelled() | ev.RunFailed():
            charge_left = event.abandoned
            return None if charge_left is None else _line(run, "abandoned", charge_left, at_ms)
        case _:
            return None


def _line(run: Run, outcome: CallOutcome, charge: Charge, at_ms: int) -> UsageRecord:
    usage, accepted = charge.usage, run.accepted
    return UsageRecord(
        run_id=run.run_id,
        turn=run.turn,
        attempt=run.attempt,
        session_id=accepted.session_id,
        principal=accepted.principal,
        agent=accepted.agent,
        provider=run.asked.provider,
        model=run.asked.model,
        outcome=outcome,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        is_estimate=usage.source == "estimate",
        cost_usd_micros=charge.cost_usd_micros,
        at_ms=at_ms,
    )
