"""Forking: the conversation of a run up to a point, for another run to go on from.

A point is good when the conversation is whole there: every call that the model made has its
result.  The branch carries the messages themselves, so that the new run's tape can be folded
without the old one, and says which event they reach to, so that it can be proved against it.  The
whole outputs of its calls go along: exactly those that the tape names up to that event.

A branch: the conversation that a forked run goes on from, and where it comes from.
"""

from collections.abc import Iterable, Iterator

import msgspec

from palyra.core.journal.tape_row import MAX_PAYLOAD_BYTES, TapeRow
from palyra.core.model.messages import AssistantMessage, Message
from palyra.core.run.fold import apply, begin
from palyra.core.run.state import Run, transcript_with_results
from palyra.core.tape import events as ev
from palyra.core.tape.events import ConversationInherited
from palyra.errors import InvalidParams, InvariantBroken

CHUNK_BYTES = MAX_PAYLOAD_BYTES * 3 // 4  # of messages in one event, unless one alone is larger


class InheritedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to go on from, and where it comes from."""

    run_id: str  # "": from the caller, who says that it was said
    at_seq: int
    link: str  # of that event in the journal's chain, hex
    messages: tuple[Message, ...]
    session_id: str = ""  # of that run
    artifacts: tuple[str, ...] = ()  # that hold whole outputs of calls in the messages

    @property
    def is_given(self) -> bool:
        """Whether it is the caller's word and no tape's."""
        return not self.run_id

    def events(self) -> Iterator[ConversationInherited]:
        """The branch as the new tape holds it, in as many events as its size takes."""
        for messages in _chunks(self.messages):
            yield ConversationInherited(
                run_id=self.run_id, at_seq=self.at_seq, link=self.link, messages=messages
            )


def given(messages: tuple[Message, ...]) -> InheritedConversation:
    """A conversation as the caller tells it."""
    return InheritedConversation(run_id="", at_seq=-1, link="", messages=messages)


def _chunks(messages: tuple[Message, ...]) -> Iterator[tuple[Message, ...]]:
    """The messages in order, cut into pieces that an event can hold."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        more = len(msgspec.json.encode(message))
        if chunk and size + more > CHUNK_BYTES:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(message)
        size += more
    yield tuple(chunk)


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The last event at or before the wanted one where the conversation is whole."""

    seq: int
    run: Run  # as it was then
    artifacts: tuple[str, ...] = ()  # of the calls of this run up to there
    inherited: tuple[str, int] | None = None  # the run and seq that this one goes on from


def find_point(rows: Iterable[TapeRow], at_seq: int) -> ForkPoint:
    """Where a fork at `at_seq` begins.

    Raises InvalidParams when nothing was said by then, or the tape does not reach that far.
    """
    run: Run | None = None
    point: ForkPoint | None = None
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
            point = ForkPoint(seq=row.seq, run=run, artifacts=artifacts, inherited=inherited)
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
    point: ForkPoint, link: bytes, text: str | None, artifacts: tuple[str, ...] = ()
) -> InheritedConversation:
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
    return InheritedConversation(
        run_id=point.run.run_id,
        at_seq=point.seq,
        link=link.hex(),
        messages=messages,
        session_id=point.run.accepted.session_id,
        artifacts=artifacts,
    )
