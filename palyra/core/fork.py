"""Forking: the conversation of a run up to a point, for another run to go on from.

A point is good when the conversation is whole there: every call that the model made has its
result.  The branch carries the messages themselves, so that the new run's tape can be folded
without the old one, and says which event they reach to, so that it can be proved against it.  The
whole outputs of its calls go along: exactly those that the tape names up to that event.
"""

from collections.abc import Iterable

import msgspec

from palyra.core import events as ev
from palyra.core.branch import Branch
from palyra.core.fold import apply, begin
from palyra.core.prompt import AssistantMessage
from palyra.core.run_state import Run, transcript_with_results
from palyra.core.tape import TapeRow
from palyra.errors import InvalidParams, InvariantBroken


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The last event at or before the wanted one where the conversation is whole."""

    seq: int
    run: Run  # as it was then
    artifacts: tuple[str, ...] = ()  # of the calls of this run up to there
    inherited: tuple[str, int] | None = None  # the run and seq that this one goes on from


def find_point(rows: Iterable[TapeRow], at_seq: int) -> Point:
    """Where a fork at `at_seq` begins.

    Raises InvalidParams when nothing was said by then, or the tape does not reach that far.
    """
    run: Run | None = None
    point: Point | None = None
    artifacts: tuple[str, ...] = ()
    inherited: tuple[str, int] | None = None
    for row in rows:
        if row.seq > at_seq:
            break
        event = ev.decode_event(row.kind, row.data)
        match event:
            case ev.ToolCompleted(artifact=str(artifact)):
                artifacts = (*artifacts, artifact)
            case ev.ConversationInherited(run_id=str(origin)) if origin:
                inherited = origin, event.at_seq
        run = _apply(run, row, event)
        if run.transcript and all(call.phase == "attested" for call in run.calls):
            point = Point(seq=row.seq, run=run, artifacts=artifacts, inherited=inherited)
    head_seq = -1 if run is None else run.next_seq - 1
    if head_seq < at_seq:
        raise InvalidParams(
            f"at_seq = {at_seq}: the committed tape ends with seq {head_seq}", field="at_seq"
        )
    if point is None:
        raise InvalidParams(f"at_seq = {at_seq}: nothing was said by then", field="at_seq")
    return point


def _apply(run: Run | None, row: TapeRow, event: ev.Event) -> Run:
    if run is not None:
        return apply(run, event, row.at_ms)
    if not isinstance(event, ev.RunAccepted):
        raise InvariantBroken(f"the tape of {row.run_id} does not begin with run.accepted")
    return begin(row.run_id, event, row.at_ms)


def make_branch(
    point: Point, link: bytes, text: str | None, artifacts: tuple[str, ...] = ()
) -> Branch:
    """What the new run inherits; `artifacts` are those of the point and of what it inherited.

    Without a text the model simply goes on, so its own answer must not be the last word: raises
    InvalidParams when it is.
    """
    messages = transcript_with_results(point.run)
    if text is None and isinstance(messages[-1], AssistantMessage):
        raise InvalidParams(
            f"the conversation up to seq {point.seq} ends with an answer: give a text to go on "
            "with, or an earlier at_seq to have it answered anew",
            field="text",
        )
    return Branch(
        run_id=point.run.run_id,
        at_seq=point.seq,
        link=link.hex(),
        messages=messages,
        session_id=point.run.accepted.session_id,
        artifacts=artifacts,
    )
