"""A run's frames as what an answer is made of.  Pure.

The text of an answer is everything the model says in the run: the turns before a tool's call, too,
with a blank line between two turns.  It must be passed on as it comes, before anybody can know
whether the turn will end in a call; so the whole answer and the stream say the same.  In JSON mode
only the answer itself counts, once it was found to be JSON; and where a call is asked for, only the
words beside it.  What the daemon itself says of a run without an answer is none of the model's
words: such an end is a refusal.

What streamed is checked against what the tape has: a turn whose pieces are not its beginning ends
the answer with an error, for a piece that was shown cannot be taken back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import Usage
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ProposedCall
from palyra.core.ports import ProgressKind
from palyra.core.run.ending import OWN_WORDS
from palyra.core.session.continuation import BREAK
from palyra.core.tape import events as ev
from palyra.core.tool.spec import CLIENT, HANDED_OVER
from palyra.errors import Unavailable

Finish = Literal["stop", "length", "tool_calls", "content_filter"]


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
    status: str  # waiting for its turn, a person, or the outcome
    output: str = ""
    error: str = ""
    approval_id: str = ""
    expires_ms: int = 0  # of the question


class Text(msgspec.Struct, frozen=True):
    """More of the answer."""

    delta: str


class Reasoning(msgspec.Struct, frozen=True):
    """More of what the model thought."""

    delta: str


class AnswerEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over, and its end is committed."""

    finish: Finish
    calls: tuple[ProposedCall, ...] = ()  # for the client
    failure_class: str = ""  # with it there is no answer
    reason: str = ""
    partial: str = ""  # why the answer is none as a whole
    refusal: str = ""  # in place of an answer: nothing of what the model said is one


Part = Text | Reasoning | ServerCall | AnswerEnded


class AnswerReader:
    """What is known of a run so far, and what follows from each frame."""

    def __init__(self) -> None:
        self.created_ms = 0
        self.model = ""  # of the last turn
        self.text = ""
        self.reasoning = ""
        self.server_calls: dict[str, ServerCall] = {}
        self.usage = Usage()
        self.ended: AnswerEnded | None = None
        self._is_strict = False  # not every text may be an answer: none leaves before the end
        self._turn = ""  # the item its pieces come with
        self._streamed = ""  # of the turn
        self._answer = ""  # the text of the last turn, with what it goes on from
        self._finish_reason = ""
        self._calls: tuple[ProposedCall, ...] = ()
        self._held = ""  # the answer, until the run's end tells whether it is one
        self._is_paused = False  # the next text begins another paragraph
        self._promised: list[tuple[int, Part]] = []  # in order, each until its seq is committed

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
            if self._promised:  # nothing overtakes them
                self._promised.append((seq, part))
            else:
                yield part
        while self._promised and self._promised[0][0] <= committed:
            _, part = self._promised.pop(0)
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
        self._streamed += text
        yield from self._say(text)

    def _say(self, text: str, *, is_final: bool = False) -> Iterator[Part]:
        if not text or (self._is_strict and not is_final):
            return
        if self._is_paused:
            text = BREAK + text
        self._is_paused = False
        self.text += text
        yield Text(text)

    def _turn_started(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.TurnStarted)
        if self._streamed:
            raise Unavailable("a turn was begun anew; ask for the run by its id")
        self._turn, self._streamed = f"turn:{event.turn}", ""
        self.model = event.model
        if not event.continues:
            self._answer, self._is_paused = "", bool(self.text)
        return iter(())

    def _turn_completed(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.TurnCompleted)
        if not event.text.startswith(self._streamed):
            raise Unavailable("pieces of this stream were lost; ask for the run by its id")
        rest = event.text[len(self._streamed) :]
        self._turn, self._streamed = "", ""
        self._answer += event.text
        self._finish_reason = event.finish_reason
        self.usage = self.usage.plus(event.usage)
        yield from self._say(rest)

    def _message_completed(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.MessageCompleted)
        self._calls = event.calls
        if self._is_strict or not self.text.strip():
            self._held = event.text if self._is_strict else event.text.removeprefix(self._answer)
        elif event.text.startswith(self._answer):
            yield from self._say(event.text[len(self._answer) :])
        else:  # of a run that ends with less than an answer
            self._is_paused = bool(self.text)
            yield from self._say(event.text)

    # --- calls

    def _proposed(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.ToolProposed)
        if event.executor == CLIENT:  # told with the end, unless a person is asked about it
            return
        yield self._note(
            ServerCall(
                id=event.call_id, tool=event.tool, arguments=event.arguments, status="proposed"
            )
        )

    def _asked(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.ApprovalRequested)
        call_id = event.call_id or event.approval_id  # of a question about no call: a budget's
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
        # Who is told of a question must find it.
        self._promised += [(row.seq, part) for part in question]
        return iter(())

    def _answered(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.ApprovalResolved)
        status = {"allow": "allowed", "deny": "denied", "abort": "aborted"}[event.decision]
        yield from self._change(event.call_id or event.approval_id, status=status)

    def _completed(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.ToolCompleted)
        changes = {"status": event.status, "output": event.output, "error": event.error or ""}
        return self._change(event.call_id, is_news=False, **changes)

    def _attested(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.ToolAttested)
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

    # --- the beginning and the end

    def _accepted(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.RunAccepted)
        must_call = event.brief is not None and bool(event.brief.must_call)
        self.created_ms, self._is_strict = row.at_ms, event.json_mode or must_call
        return iter(())

    def _done(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.RunDone)
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
        self._promised.append((row.seq, ended))

    def _find_finish(self, event: ev.RunDone) -> Finish:
        if self._calls:
            return "tool_calls"
        if self._finish_reason == "content_filter" and event.cause:
            return "content_filter"
        return "length" if event.cause in {"max_tokens", "cut_off", "turn_cap"} else "stop"

    def _failed(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.RunFailed)
        reason = f"{event.reason}: {event.action}" if event.action else event.reason
        ended = AnswerEnded(finish="stop", failure_class=event.failure_class, reason=reason)
        self._promised.append((row.seq, ended))
        return iter(())

    def _cancelled(self, row: TapeRow) -> Iterator[Part]:
        event = msgspec.json.decode(row.data, type=ev.RunCancelled)
        reason = f"the run was cancelled by {event.by}" + (f": {event.reason}" * bool(event.reason))
        ended = AnswerEnded(finish="stop", failure_class="run_cancelled", reason=reason)
        self._promised.append((row.seq, ended))
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
