"""A tape as a replay reads it: decoded events, look-ups for a step, and the input of each step.

A tape records events, not inputs.  The kind of a step's first event tells which input the step
had; the exception is a run that ends, whose last event tells it.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ModelTurn
from palyra.core.run.inputs import (
    ApprovalAnswered,
    Begin,
    BudgetRefused,
    CallEnded,
    CallInspected,
    Cancel,
    Expire,
    Gathered,
    GoOn,
    Input,
    Resume,
    RulesChanged,
    Steer,
    Summarised,
    TurnFailedInput,
    TurnFinished,
)
from palyra.core.run.state import ABORTED, RULES_CHANGED, Run
from palyra.core.tape import events as ev
from palyra.core.tool.spec import DelegatedEnd
from palyra.errors import Damaged

E = TypeVar("E", bound=ev.Event)

_WALL_MS = re.compile(r"longer than (\d+) ms")


class RecordedTape:
    """A decoded tape; `position` is the seq of the first event of the current step."""

    def __init__(self, rows: Sequence[TapeRow]) -> None:
        self.rows = rows
        self.position = 0
        self.events: list[ev.Event] = []
        self.unreadable = ""  # why the row after the last decoded event could not be decoded
        self._places: dict[type[ev.Event], list[int]] = defaultdict(list)
        # Per completed turn: seqs of the events of a kind about a call, ascending.
        self._calls: list[dict[tuple[type[ev.Event], str], list[int]]] = [{}]
        self._turn_of: list[int] = []
        self.signatures: dict[str, str] = {}
        for row in rows:
            try:
                self._add(ev.decode_event(row.kind, row.data))
            except Damaged as error:
                self.unreadable = str(error)
                break

    def _add(self, event: ev.Event) -> None:
        index = len(self.events)
        if isinstance(event, ev.TurnCompleted):
            self._calls.append({})
        call_id = getattr(event, "call_id", None)
        if call_id is not None:
            self._calls[-1].setdefault((type(event), call_id), []).append(index)
        if isinstance(event, ev.ToolAttested):
            self.signatures[event.digest] = event.signature
        self._places[type(event)].append(index)
        self._turn_of.append(len(self._calls) - 1)
        self.events.append(event)

    @property
    def at_ms(self) -> int:
        """Time of the current step."""
        return self.rows[self.position].at_ms

    @property
    def last(self) -> ev.Event:
        """The last event of the run itself; undos of its changes follow it."""
        return next(each for each in reversed(self.events) if not isinstance(each, ev.RunUndone))

    def opening(self, kind: type[E], start: int) -> list[E]:
        """Return the uninterrupted events of a kind that start at `start`."""
        found: list[E] = []
        for event in self.events[start:]:
            if not isinstance(event, kind):
                break
            found.append(event)
        return found

    def find_next(self, kind: type[E]) -> E | None:
        """Return the next event of a kind from the current step on."""
        place = self._next_place(kind)
        return self.events[place] if place < len(self.events) else None  # type: ignore[return-value]  # by kind

    def _next_place(self, kind: type[ev.Event]) -> int:
        """Return the seq of the next event of a kind; one past the last event if there is none."""
        places = self._places[kind]
        at = bisect_left(places, self.position)
        return places[at] if at < len(places) else len(self.events)

    def find_all(self, kind: type[E]) -> list[E]:
        """Return all events of a kind."""
        return [self.events[place] for place in self._places[kind]]  # type: ignore[misc]  # by kind

    def seq_of(self, kind: type[ev.Event], call_id: str) -> int | None:
        """Return the seq of the event of that kind about a call of the current turn.

        Of several, the first from the current step on, or else the last before it.
        """
        places = self._calls[self._turn_of[self.position]].get((kind, call_id))
        if not places:
            return None
        return places[min(bisect_left(places, self.position), len(places) - 1)]

    def find_of(self, kind: type[E], call_id: str) -> E | None:
        """Return the event of that kind about a call of the current turn; see `seq_of`."""
        seq = self.seq_of(kind, call_id)
        return None if seq is None else self.events[seq]  # type: ignore[return-value]  # by kind

    def find_ahead(self, kind: type[E], call_id: str) -> E | None:
        """Return the first such event from the current step on."""
        return next(iter(self.list_ahead(kind, call_id)), None)

    def list_ahead(
        self, kind: type[E], call_id: str, *, before: type[ev.Event] | None = None
    ) -> list[E]:
        """Return such events from the current step on, up to the next event of kind `before`."""
        places = self._calls[self._turn_of[self.position]].get((kind, call_id), [])
        end = len(self.events) if before is None else self._next_place(before)
        return [self.events[place] for place in places if self.position <= place < end]  # type: ignore[misc]  # by kind


# --- inputs --------------------------------------------------------------------------------------


def read_input(record: RecordedTape, run: Run) -> Input | None:
    """Return the input of the current step; None if no input starts with its first event."""
    event = record.events[record.position]
    read = _INPUTS.get(type(event))
    if read is None or (isinstance(event, _CLOSING) and _closes(event)):
        return _read_ending(record.last)
    return read(record, run, event)


def _closes(event: ev.ApprovalResolved | ev.ToolDecided | ev.ToolCompleted) -> bool:
    """True if the event closes a call of an ending run, and is no answer or outcome."""
    if isinstance(event, ev.ToolDecided):
        return event.reason_code == ABORTED
    if isinstance(event, ev.ApprovalResolved):
        return event.decision == "abort" and event.by != RULES_CHANGED
    return event.status == "cancelled"


def _read_begin(_record: RecordedTape, _run: Run, event: ev.RunStarted) -> Begin:
    return Begin(**msgspec.structs.asdict(event))


def _read_gathered(record: RecordedTape, _run: Run, event: ev.ContextGathered) -> Gathered:
    """Read the events of one step; those of the next one may follow directly."""
    found = record.opening(ev.ContextGathered, record.position)
    return Gathered(events=tuple(found[: 1 + event.following]))


def _read_turn(_record: RecordedTape, run: Run, event: ev.TurnCompleted) -> TurnFinished:
    result = ModelTurn(
        text=event.text,
        calls=event.calls,
        finish_reason=event.finish_reason,
        usage=event.usage,
        cost_usd_micros=event.cost_usd_micros,
        trace_ref=event.trace_ref,
        is_unpriced=event.is_unpriced,
        thought=event.thought,
    )
    return TurnFinished(turn=event.turn, attempt=run.attempt, result=result)


def _read_failure(_record: RecordedTape, _run: Run, event: ev.TurnFailed) -> TurnFailedInput:
    return TurnFailedInput(
        turn=event.turn,
        attempt=event.attempt,
        failure_class=event.failure_class,
        detail=event.detail,
        is_final=not event.retry,  # as the tape tells
        charge=event.charge,
        was_asked=event.was_asked,
    )


def _read_refusal(record: RecordedTape, _run: Run, event: ev.BudgetExceeded) -> BudgetRefused:
    asked = record.opening(ev.ApprovalRequested, record.position + 1)
    return BudgetRefused(exceeded=event, approval_id=asked[0].approval_id if asked else "")


def _read_answer(
    record: RecordedTape, _run: Run, event: ev.ApprovalResolved
) -> ApprovalAnswered | RulesChanged:
    if event.decision == "abort":
        return RulesChanged()
    ends_ms = event.grant_expires_ms
    return ApprovalAnswered(
        approval_id=event.approval_id,
        decision="allow" if event.decision == "allow" else "deny",
        scope=event.scope,
        by=event.by,
        reason=event.reason,
        ttl_ms=None if ends_ms is None else ends_ms - record.at_ms,
    )


def _read_inspection(
    _record: RecordedTape, _run: Run, event: ev.ApprovalRequested | ev.ToolDecided | ev.ToolRejected
) -> CallInspected:
    """A verdict at the start of a step follows an inspection."""
    failure = event.reason if isinstance(event, ev.ToolRejected) else ""
    return CallInspected(call_id=event.call_id, failure=failure)


def _read_continuation(_record: RecordedTape, _run: Run, _event: ev.ToolProposed) -> GoOn:
    """A proposal at the start of a step was left over by the previous step's limit."""
    return GoOn()


def _read_outcome(record: RecordedTape, _run: Run, event: ev.ToolCompleted) -> CallEnded:
    """Read the outcome; fields that its event lacks are in the attestation."""
    attested = record.find_of(ev.ToolAttested, event.call_id)
    document: Mapping[str, Any] = attested.attestation if attested is not None else {}
    return CallEnded(
        call_id=event.call_id,
        status=event.status,
        output=event.output,
        raw_sha256=str(document.get("raw_output_sha256", "")),
        took_ms=event.duration_ms,
        error=event.error,
        is_truncated=event.truncated,
        executor=str(document.get("executor", "")),
        enforcement=str(document.get("enforcement", "")),
        artifact=event.artifact,
        trust=event.trust,
        findings=event.findings,
        pictures=event.pictures,
        delegated=_read_delegated(record, event.call_id),
    )


def _read_delegated(record: RecordedTape, call_id: str) -> DelegatedEnd | None:
    ended = record.find_of(ev.DelegationEnded, call_id)
    if ended is None:
        return None
    names = DelegatedEnd.__struct_fields__
    return DelegatedEnd(**{name: getattr(ended, name) for name in names})


def _read_steer(_record: RecordedTape, _run: Run, event: ev.SteerReceived) -> Steer:
    return Steer(text=event.text, by=event.by, attachments=event.attachments)


def _read_summarised(
    _record: RecordedTape, _run: Run, event: ev.CompactionApplied | ev.CompactionSkipped
) -> Summarised:
    return Summarised(event=event)


def _read_resume(_record: RecordedTape, run: Run, event: ev.RunRecovered) -> Resume:
    return Resume(abandoned=event.abandoned, is_put_off=event.attempt == run.recoveries)


def _read_ending(last: ev.Event) -> Input | None:
    """Read the input that ended the run; its step closes calls first, so the last event tells."""
    match last:
        case ev.RunCancelled():
            return Cancel(reason=last.reason, by=last.by, abandoned=last.abandoned)
        case ev.RunFailed(failure_class="wall_clock"):
            wall = _WALL_MS.search(last.reason)
            return Expire(wall_ms=int(wall[1]) if wall else 0, abandoned=last.abandoned)
        case ev.RunFailed(failure_class="recovery_exhausted"):
            return Resume(abandoned=last.abandoned)
        case _:
            return None


_CLOSING = (ev.ApprovalResolved, ev.ToolDecided, ev.ToolCompleted)
_INPUTS: dict[type[ev.Event], Callable[[RecordedTape, Run, Any], Input]] = {
    ev.RunStarted: _read_begin,
    ev.ContextGathered: _read_gathered,
    ev.TurnCompleted: _read_turn,
    ev.TurnFailed: _read_failure,
    ev.BudgetExceeded: _read_refusal,
    ev.ApprovalResolved: _read_answer,
    ev.ApprovalRequested: _read_inspection,
    ev.ToolProposed: _read_continuation,
    ev.ToolDecided: _read_inspection,
    ev.ToolRejected: _read_inspection,
    ev.ToolCompleted: _read_outcome,
    ev.SteerReceived: _read_steer,
    ev.CompactionApplied: _read_summarised,
    ev.CompactionSkipped: _read_summarised,
    ev.RunRecovered: _read_resume,
}
