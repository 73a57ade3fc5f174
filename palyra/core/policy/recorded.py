"""Recorded decisions: what became of each call on a tape, as evidence for suggested rules.

Pure: rows of one run to calls.  A call counts as `allowed` only if a person answered a question
about exactly this call.  A call that a grant or a user rule allowed was decided by a person before;
it is `covered`, neither evidence nor harm.  Everything else that did not run by a person's word is a
reason against a rule that would allow it: `denied`, `unanswered` (no answer in time, or withdrawn)
and `never_asked` (denied by rules, or allowed by a shipped rule).
"""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import ApprovalRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.policy.request import PolicyRequest
from palyra.core.tape import events as ev
from palyra.core.tape.taint import TAINTING, read_taint
from palyra.core.tool.spec import CLIENT
from palyra.errors import Unreadable

Decided = Literal["allowed", "covered", "denied", "unanswered", "never_asked"]
NEEDED = frozenset({
    ev.RunAccepted.KIND, ev.ToolProposed.KIND, ev.ToolRejected.KIND, ev.ToolDecided.KIND,
    ev.ApprovalResolved.KIND, *ev.TERMINAL_KINDS,
})  # fmt: skip
_BY_PERSON = frozenset({"denied_by_person", "denied_by_grant", "denied_before"})
_UNANSWERED = frozenset({"approval_expired", "approval_void", "aborted"})


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tape with its run's facts."""

    run: ev.RunAccepted
    run_id: str
    call_id: str
    tool: str
    arguments: Any  # as recorded: redacted
    decided: Decided
    is_tainted: bool
    is_rejected: bool = False  # malformed when it was proposed: no rule was evaluated
    at_ms: int = 0


class PolicyEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call as the rules see it."""

    request: PolicyRequest
    decided: Decided
    run_id: str
    call_id: str
    summary: str  # one line, safe to show
    is_whole: bool = True  # False: a secret was redacted from the arguments
    at_ms: int = 0

    @property
    def was_asked(self) -> bool:
        """True if a person was asked about this call, with or without an answer."""
        return self.decided in {"allowed", "denied", "unanswered"}


class _Tape:
    """The events of one tape that decide about its calls."""

    def __init__(self) -> None:
        self.run: ev.RunAccepted | None = None
        self.is_ended = False
        self.proposed: dict[str, tuple[ev.ToolProposed, int]] = {}
        self.rejected: set[str] = set()
        self.decided: dict[str, ev.ToolDecided] = {}
        self._answers: dict[str, ev.ApprovalResolved] = {}  # by call and by approval

    def note(self, row: TapeRow) -> None:
        """Take an event.  Raises Purged."""
        self.is_ended = self.is_ended or row.kind in ev.TERMINAL_KINDS
        if row.kind not in NEEDED:
            return
        event = ev.decode_event(row.kind, row.data)
        match event:
            case ev.RunAccepted():
                self.run = event
            case ev.ToolProposed() if event.executor != CLIENT:
                self.proposed[event.call_id] = event, row.at_ms
            case ev.ToolRejected():
                self.rejected.add(event.call_id)
            case ev.ToolDecided():
                self.decided[event.call_id] = event
            case ev.ApprovalResolved() if event.decision != "abort":
                self._answers[event.approval_id] = self._answers[event.call_id] = event
            case _:
                pass

    def find_answer(self, call_id: str) -> ev.ApprovalResolved | None:
        """Return the answer about the call, or about an equal one of its turn."""
        verdict = self.decided.get(call_id)
        shared = None if verdict is None else verdict.approval_id
        return self._answers.get(call_id) or self._answers.get(shared or "")


def read_calls(run_id: str, rows: Iterable[TapeRow]) -> tuple[list[RecordedCall], bool]:
    """Return the calls of a tape in order, and True if its content was purged.

    Calls without a verdict are left out while the run is open: their question may be open, too.
    A tape with a damaged event counts as one whose content was purged.
    """
    tape = _Tape()
    try:
        for row in rows:
            tape.note(row)
    except Unreadable:
        return [], True
    if tape.run is None:
        return [], False
    calls: list[RecordedCall] = []
    for call_id, (event, at_ms) in tape.proposed.items():
        verdict, answer = tape.decided.get(call_id), tape.find_answer(call_id)
        if verdict is None and not tape.is_ended:
            continue
        calls.append(
            RecordedCall(
                run=tape.run,
                run_id=run_id,
                call_id=call_id,
                tool=event.tool,
                arguments=event.arguments,
                decided=_decided(verdict, answer),
                is_tainted=verdict is not None and verdict.taint,
                is_rejected=call_id in tape.rejected,
                at_ms=at_ms,
            )
        )
    return calls, False


def find_asked(record: ApprovalRecord, rows: Iterable[TapeRow]) -> RecordedCall | None:
    """Return the call of an approval, answered or not, with the state of its run now.

    None if the tape has no such call any more.  The run counts as tainted if an event up to now
    says so.
    """
    tape = _Tape()
    kept = [row for row in rows if row.kind in NEEDED | TAINTING]
    try:
        for row in kept:
            tape.note(row)
        is_tainted = bool(read_taint(kept))
    except Unreadable:
        return None
    found = tape.proposed.get(record.call_id)
    if tape.run is None or found is None:
        return None
    event, at_ms = found
    return RecordedCall(
        run=tape.run,
        run_id=record.run_id,
        call_id=record.call_id,
        tool=event.tool,
        arguments=event.arguments,
        decided=_decided(tape.decided.get(record.call_id), tape.find_answer(record.call_id)),
        is_tainted=is_tainted,
        at_ms=at_ms,
    )


def _decided(verdict: ev.ToolDecided | None, answer: ev.ApprovalResolved | None) -> Decided:
    """Classify a call; every doubt counts against it."""
    if verdict is None:
        return "unanswered"
    code = verdict.reason_code
    if verdict.verdict == "deny":
        if code in _BY_PERSON:
            return "denied"
        return "unanswered" if code in _UNANSWERED else "never_asked"
    if verdict.grant_id is not None:
        return "covered"
    if code == "approved" and answer is not None and answer.decision == "allow":
        return "allowed"
    by_user = bool(verdict.policies) and all(name.startswith("user/") for name in verdict.policies)
    return "covered" if code == "allowed" and by_user else "never_asked"
