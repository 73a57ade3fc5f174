"""The reader of an answer: rows and deltas of a run in, parts of an answer out.  Pure.

The text of an answer is all text of the model in the run, also of turns that end in a tool call, with
a blank line between two turns.  A stream must pass text on before it is known whether the turn ends
in a call, and the whole answer equals the stream.  There are two exceptions.  In JSON mode only the
final text counts, once it is known to be valid; and if a call is required, only the text of the turn
that makes it.  A text of the daemon about a run without an answer is not the model's: it becomes a
refusal.

Parts are passed on in order.  A part that must be durable first (a question to a person, the end of
the run) waits until the seq of its row is committed, and all later parts wait behind it.

Streamed text is compared with the tape: if the text of a completed turn does not begin with the
streamed text, the answer ends with an error, because text that was sent cannot be taken back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import Usage
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ProposedCall
from palyra.core.run.ending import OWN_WORDS
from palyra.core.session.continuation import BREAK
from palyra.core.tape import events as ev
from palyra.core.tape.events import ProgressKind
from palyra.core.tool.spec import CLIENT, HANDED_OVER
from palyra.errors import Unavailable

Finish = Literal["stop", "length", "tool_calls", "content_filter"]


_OTHERWISE = "the provider broke off, and its next answer differs: fetch the run by its id"


@dataclass(slots=True)
class Streamed:
    """Deltas of one turn, merged while they waited."""

    item: str
    kind: ProgressKind
    text: bytearray = field(default_factory=bytearray)  # UTF-8


@dataclass(frozen=True, slots=True)
class Committed:
    """The tape is committed up to that seq."""

    seq: int


Item = TapeRow | Streamed | Committed  # of a run, in order


class ServerCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a tool that the daemon runs."""

    id: str
    tool: str
    arguments: Any
    status: str  # proposed, awaiting_approval, allowed, or the outcome
    output: str = ""
    error: str = ""
    approval_id: str = ""
    expires_ms: int = 0  # of the approval


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of answers: members with their default value are left out."""


class RunNote(Answered, frozen=True, kw_only=True):
    """The member `palyra` of an answer: the run, and the calls of its tools."""

    run_id: str
    session_id: str
    model: str = ""  # of the last turn, by its whole name
    tool_calls: list[ServerCall] = []
    ignored: list[str] = []  # places of the request without effect
    partial: str = ""  # why the answer is not whole
    reason: str = ""


class InputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Input tokens read from the provider's cache, and written to it."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Output tokens of the model's reasoning."""

    reasoning_tokens: int = 0


class Text(msgspec.Struct, frozen=True):
    """Text to append to the answer."""

    delta: str


class Reasoning(msgspec.Struct, frozen=True):
    """Text to append to the reasoning."""

    delta: str


class AnswerEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The run has ended, and its end is committed."""

    finish: Finish
    calls: tuple[ProposedCall, ...] = ()  # for the client
    failure_class: str = ""  # set if there is no answer
    reason: str = ""
    partial: str = ""  # the cause of an incomplete answer
    refusal: str = ""  # in place of an answer


Part = Text | Reasoning | ServerCall | AnswerEnded


class AnswerReader:
    """The answer of a run so far."""

    def __init__(self) -> None:
        self.created_ms = 0
        self.model = ""  # of the last turn
        self.text = ""
        self.reasoning = ""
        self.server_calls: dict[str, ServerCall] = {}
        self.usage = Usage()
        self.ended: AnswerEnded | None = None
        self._is_strict = (
            False  # text is held until the end of the run: not every text may be an answer
        )
        self._turn = ""  # the item of the deltas of the current turn
        self._streamed = ""  # of this attempt at the turn
        self._withdrawn = ""  # the most that earlier attempts have streamed
        self._answer = ""  # the text of the last turn, and of the turns that it continues
        self._finish_reason = ""
        self._calls: tuple[ProposedCall, ...] = ()
        self._held = ""  # text that becomes the answer if the run ends well
        self._is_paused = False  # the next text starts a paragraph
        self._uncommitted: list[
            tuple[int, Part]
        ] = []  # in order, with the seq that must commit first

    def take(self, item: Item) -> Iterator[Part]:
        """Return what an item adds.  Raises Unavailable for a stream that cannot be right."""
        seq, committed = -1, -1
        parts: Iterator[Part] = iter(())
        match item:
            case Streamed():
                parts = self._take_streamed(item)
            case Committed():
                committed = item.seq
            case TapeRow():
                parts = _HANDLERS[item.kind](self, item)
                seq = item.seq
        for part in parts:
            if self._uncommitted:  # keep the order
                self._uncommitted.append((seq, part))
            else:
                yield part
        while self._uncommitted and self._uncommitted[0][0] <= committed:
            _, part = self._uncommitted.pop(0)
            if isinstance(part, AnswerEnded):
                self.ended = part
            yield part

    # --- text

    def _take_streamed(self, streamed: Streamed) -> Iterator[Part]:
        if streamed.item != self._turn:
            return  # of a turn that is over
        text = streamed.text.decode()
        if streamed.kind == "reasoning":
            self.reasoning += text
            yield Reasoning(text)
            return
        yield from self._stream(text)

    def _stream(self, text: str) -> Iterator[Part]:
        """Return what a piece adds to what an earlier attempt at the turn has streamed.

        What a client has been sent cannot be withdrawn here.  So another attempt must begin with the
        same words; otherwise the stream ends with an error, and the run goes on.
        """
        # A strict answer is sent as a whole at its end, so nothing of it has to be repeated.
        known, before = "" if self._is_strict else self._withdrawn, len(self._streamed)
        self._streamed += text
        if not known:
            yield from self._say(text)
            return
        if not (self._streamed.startswith(known) or known.startswith(self._streamed)):
            raise Unavailable(_OTHERWISE)
        yield from self._say(self._streamed[max(before, len(known)) :])

    def _say(self, text: str, *, is_final: bool = False) -> Iterator[Part]:
        if not text or (self._is_strict and not is_final):
            return
        if self._is_paused:
            text = BREAK + text
        self._is_paused = False
        self.text += text
        yield Text(text)

    def _turn_started(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.TurnStarted)
        if len(self._streamed) > len(self._withdrawn):
            self._withdrawn = self._streamed
        self._turn, self._streamed = ev.turn_item(event.turn, event.attempt), ""
        self.model = event.model
        if not event.continues and event.attempt == 1:
            self._answer, self._is_paused = "", bool(self.text)
        return iter(())

    def _turn_completed(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.TurnCompleted)
        if not event.text.startswith(self._streamed):
            raise Unavailable("deltas of this stream were lost; fetch the run by its id")
        yield from self._stream(event.text[len(self._streamed) :])
        if not self._is_strict and len(self._streamed) < len(self._withdrawn):
            raise Unavailable(_OTHERWISE)
        self._turn, self._streamed, self._withdrawn = "", "", ""
        self._answer += event.text
        self._finish_reason = event.finish_reason
        self.usage = self.usage.plus(event.usage)

    def _message_completed(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.MessageCompleted)
        self._calls = event.calls
        if self._is_strict or not self.text.strip():
            self._held = event.text if self._is_strict else event.text.removeprefix(self._answer)
        elif event.text.startswith(self._answer):
            yield from self._say(event.text[len(self._answer) :])
        else:  # a run that ends with less than an answer
            self._is_paused = bool(self.text)
            yield from self._say(event.text)

    # --- calls

    def _proposed(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.ToolProposed)
        if event.executor == CLIENT:  # part of the end, unless it needs an approval
            return
        yield self._note(
            ServerCall(
                id=event.call_id, tool=event.tool, arguments=event.arguments, status="proposed"
            )
        )

    def _asked(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.ApprovalRequested)
        call_id = event.call_id or event.approval_id  # an approval of a budget has no call
        if call_id not in self.server_calls:
            self._note(
                ServerCall(id=call_id, tool=event.tool, arguments=event.arguments, status="asked")
            )
        question = self._change(
            call_id,
            status="awaiting_approval",
            approval_id=event.approval_id,
            expires_ms=event.expires_ms,
        )
        # A client that sees an approval must be able to find it: it must be committed.
        self._uncommitted += [(row.seq, part) for part in question]
        return iter(())

    def _answered(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.ApprovalResolved)
        status = {"allow": "allowed", "deny": "denied", "abort": "aborted"}[event.decision]
        yield from self._change(event.call_id or event.approval_id, status=status)

    def _completed(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.ToolCompleted)
        changes = {"status": event.status, "output": event.output, "error": event.error or ""}
        return self._change(event.call_id, is_news=False, **changes)

    def _attested(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.ToolAttested)
        return self._change(event.call_id, status=str(event.attestation.get("status", HANDED_OVER)))

    def _note(self, call: ServerCall) -> ServerCall:
        self.server_calls[call.id] = call
        return call

    def _change(
        self,
        call_id: str,
        *,
        is_news: bool = True,
        **changes: Any,  # noqa: ANN401 - fields of ServerCall
    ) -> Iterator[Part]:
        known = self.server_calls.get(call_id)
        if known is None:
            return
        call = self._note(msgspec.structs.replace(known, **changes))
        if is_news:
            yield call

    # --- start and end

    def _accepted(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.RunAccepted)
        must_call = event.brief is not None and bool(event.brief.must_call)
        self.created_ms, self._is_strict = row.at_ms, event.json_mode or must_call
        return iter(())

    def _done(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.RunDone)
        is_own = not event.cause or event.cause in OWN_WORDS
        refusal = "" if is_own or not self._held else event.missing
        if not refusal:
            yield from self._say(self._held, is_final=True)
        ended = AnswerEnded(
            finish=self._find_finish(event),
            calls=self._calls,
            reason=event.missing,
            partial=event.cause,
            refusal=refusal,
        )
        self._uncommitted.append((row.seq, ended))

    def _find_finish(self, event: ev.RunDone) -> Finish:
        if self._calls:
            return "tool_calls"
        if self._finish_reason == "content_filter" and event.cause:
            return "content_filter"
        return "length" if event.cause in {"max_tokens", "cut_off", "turn_cap"} else "stop"

    def _failed(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.RunFailed)
        reason = f"{event.reason}: {event.action}" if event.action else event.reason
        ended = AnswerEnded(finish="stop", failure_class=event.failure_class, reason=reason)
        self._uncommitted.append((row.seq, ended))
        return iter(())

    def _cancelled(self, row: TapeRow) -> Iterator[Part]:
        event = ev.decode_row(row, ev.RunCancelled)
        reason = f"the run was cancelled by {event.by}" + (f": {event.reason}" * bool(event.reason))
        ended = AnswerEnded(finish="stop", failure_class="run_cancelled", reason=reason)
        self._uncommitted.append((row.seq, ended))
        return iter(())


_HANDLERS: dict[str, Callable[[AnswerReader, TapeRow], Iterator[Part]]] = {
    "run.accepted": AnswerReader._accepted,  # noqa: SLF001 - its own table
    "turn.started": AnswerReader._turn_started,  # noqa: SLF001
    "turn.completed": AnswerReader._turn_completed,  # noqa: SLF001
    "tool.proposed": AnswerReader._proposed,  # noqa: SLF001
    "tool.completed": AnswerReader._completed,  # noqa: SLF001
    "tool.attested": AnswerReader._attested,  # noqa: SLF001
    "approval.requested": AnswerReader._asked,  # noqa: SLF001
    "approval.resolved": AnswerReader._answered,  # noqa: SLF001
    "message.completed": AnswerReader._message_completed,  # noqa: SLF001
    "run.done": AnswerReader._done,  # noqa: SLF001
    "run.failed": AnswerReader._failed,  # noqa: SLF001
    "run.cancelled": AnswerReader._cancelled,  # noqa: SLF001
}
KINDS = frozenset(_HANDLERS)
STREAMED_KINDS = frozenset({"text", "reasoning"})
