"""Forks: the conversation of a run up to a point, which another run continues.

A fork point is an event where the conversation is whole: every call of the model has its result.
The attestation of a result belongs to it: a fork at the result is one at its attestation.
The new run's tape carries the inherited messages themselves, so that it can be folded without the
old tape, and names the event they reach to, so that it can be verified against the old tape.  The
messages are those that the model of the old run was shown: the session's history, then the run's own.
Messages that a summary stood for at that event are inherited as that summary, a ledger that later
compactions continue.  The artifacts that the old tape names up to that event are inherited too.
"""

from collections.abc import Iterable, Iterator

import msgspec

from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import AssistantMessage, Message, ToolMessage
from palyra.core.model.summary import Summary
from palyra.core.run.state import Run, apply, begin
from palyra.core.session.commands import InheritedConversation
from palyra.core.tape import events as ev
from palyra.core.tape.events import ConversationInherited
from palyra.errors import InvalidParams, InvariantBroken

CHUNK_BYTES = 196_608  # of messages in one event, unless one alone is larger


def given(
    messages: tuple[Message, ...], held: "InheritedView | None" = None
) -> InheritedConversation:
    """Return a conversation that the caller sent.

    `held` is the stored conversation that the messages begin with: its summary replaces what is
    before them.
    """
    return InheritedConversation(
        run_id="",
        at_seq=-1,
        link="",
        messages=messages,
        summary=None if held is None else held.summary,
        is_tainted=held is not None and held.is_tainted,
    )


def inherited_events(branch: InheritedConversation) -> Iterator[ConversationInherited]:
    """Yield the events for the new tape: the summary's, and as many as the messages need."""
    blank = ConversationInherited(
        run_id=branch.run_id,
        at_seq=branch.at_seq,
        link=branch.link,
        messages=(),
        is_tainted=branch.is_tainted,
    )
    if branch.summary is not None:
        yield msgspec.structs.replace(blank, summary=branch.summary)
    for messages in _chunks(branch.messages):
        yield msgspec.structs.replace(blank, messages=messages)


def _chunks(messages: tuple[Message, ...]) -> Iterator[tuple[Message, ...]]:
    """Yield the messages in order, in chunks that fit one event."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        more = len(msgspec.json.encode(message))
        if chunk and size + more > CHUNK_BYTES:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(message)
        size += more
    if chunk:
        yield tuple(chunk)


class InheritedView(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation that the model of a run is shown at one event."""

    messages: tuple[Message, ...]
    summary: Summary | None = None  # of the conversation before the messages
    is_tainted: bool = False


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The last event where the conversation is whole, at or before the requested one.

    Of a result it is the attestation that follows.
    """

    seq: int
    run: Run  # as it was then
    artifacts: tuple[str, ...] = ()  # of the calls of this run up to there
    inherited: tuple[str, int] | None = None  # the run and seq that this run continues


def find_point(rows: Iterable[TapeRow], at_seq: int) -> ForkPoint:
    """Find the fork point for `at_seq`.

    Raises InvalidParams if the conversation is empty there, or the tape is shorter.
    """
    run: Run | None = None
    point: ForkPoint | None = None
    artifacts: tuple[str, ...] = ()
    inherited: tuple[str, int] | None = None
    for row in rows:
        if row.seq > at_seq and not (row.kind in _CLOSING and run is not None and _is_ended(run)):
            break
        event = ev.decode_event(row.kind, row.data)
        match event:
            case ev.ToolCompleted():
                artifacts = (*artifacts, *_artifacts_of(event))
            case ev.ConversationInherited(run_id=str(origin)) if origin:
                inherited = origin, event.at_seq
        if run is not None:
            run = apply(run, event, row.at_ms)
        elif isinstance(event, ev.RunAccepted):
            run = begin(row.run_id, event, row.at_ms)
        else:
            raise InvariantBroken(f"the tape of {row.run_id} does not begin with run.accepted")
        if run.transcript and all(call.phase == "attested" for call in run.calls):
            point = ForkPoint(seq=row.seq, run=run, artifacts=artifacts, inherited=inherited)
    head_seq = -1 if run is None else run.next_seq - 1
    if head_seq < at_seq:
        raise InvalidParams(
            f"at_seq = {at_seq}: the committed tape ends with seq {head_seq}", field="at_seq"
        )
    if point is None:
        raise InvalidParams(
            f"at_seq = {at_seq}: the conversation is empty at that event", field="at_seq"
        )
    return point


_CLOSING = frozenset({ev.DelegationEnded.KIND, ev.ToolAttested.KIND})


def _is_ended(run: Run) -> bool:
    """True if every call has its result, and at least one waits for its attestation."""
    phases = {call.phase for call in run.calls}
    return phases != {"attested"} and phases <= {"rejected", "denied", "completed", "attested"}


def make_branch(
    point: ForkPoint, link: bytes, view: InheritedView, artifacts: tuple[str, ...] = ()
) -> InheritedConversation:
    """Return what the new run inherits; `artifacts` are those up to the point, inherited included."""
    results = (each for each in view.messages if isinstance(each, ToolMessage))
    shown = (name for result in results for name in _artifacts_of(result))
    return InheritedConversation(
        run_id=point.run.run_id,
        at_seq=point.seq,
        link=link.hex(),
        messages=view.messages,
        summary=view.summary,
        is_tainted=view.is_tainted,
        session_id=point.run.accepted.session_id,
        artifacts=(*artifacts, *shown),
    )


def _artifacts_of(result: ToolMessage | ev.ToolCompleted) -> Iterator[str]:
    """Yield the names of the whole output and of the pictures."""
    if result.artifact:
        yield result.artifact
    yield from (picture.artifact for picture in result.pictures)


def require_open_end(branch: InheritedConversation) -> None:
    """Raise InvalidParams if the conversation ends with an answer.

    A model that continues without a message would have nothing to answer.
    """
    if not branch.messages or isinstance(branch.messages[-1], AssistantMessage):
        raise InvalidParams(
            f"the conversation up to seq {branch.at_seq} ends with an answer: give a text to "
            "continue with, or an earlier at_seq to have it answered again",
            field="text",
        )
