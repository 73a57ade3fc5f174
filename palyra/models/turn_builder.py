"""Builder of a turn from streamed parts: text, tool calls in fragments, finish reason, usage.

All dialects use it.  Arguments that are not valid JSON stay text: intake then refuses the call with
a hint, and the model can repair it.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec

from palyra.core.ids import NewId
from palyra.core.journal.records import Usage
from palyra.core.model.messages import (
    Delta,
    FinishReason,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    Thought,
)
from palyra.core.text.tokens import estimate_tokens
from palyra.models.thought_tags import ThoughtTags

MAX_ARGUMENT_BYTES = 524_288  # of all calls of one turn: twice the tape's limit
MAX_TEXT_CHARS = 4_194_304  # of one turn
MAX_CALLS = 128  # of one turn
MAX_THOUGHT_BYTES = 98_304  # of the reasoning that goes back: the tape keeps it with the calls
MAX_COUNT = 1_000_000_000  # tokens; a larger count is taken for an error of the provider

OnDelta = Callable[[Delta], None]


class _OpenCall:
    __slots__ = ("name", "pieces", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[str] = []
        self.size = 0


class TurnBuilder:
    """Builder of one streaming turn; the methods raise ModelFailure (malformed) over a cap."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._text: list[str] = []
        self._text_chars = 0
        self._calls: dict[Hashable, _OpenCall] = {}  # in order of their start
        self._argument_bytes = 0  # of all calls together
        self._kept: dict[Hashable, dict[str, Any]] = {}  # reasoning, in order
        self._tags: ThoughtTags | None = ThoughtTags()  # None: the answer has begun
        self.finish_reason: FinishReason | None = None
        self._usage: Usage | None = None
        self.trace_ref: str | None = None

    def add_text(self, text: str) -> None:
        """Append a piece of the answer and pass it on at once.

        Local models write their reasoning before the answer, between tags.
        """
        if self._tags is not None:
            text = self._take_tagged(text)
        if not text:
            return
        self._text_chars += len(text)
        if self._text_chars > MAX_TEXT_CHARS:
            raise ModelFailure("malformed", f"a turn of more than {MAX_TEXT_CHARS} characters")
        self._text.append(text)
        self._on_delta(Delta("text", text))

    def _take_rest(self, text: str) -> None:
        self._tags = None
        self.add_text(text)

    def _take_tagged(self, text: str) -> str:
        """Pass on reasoning at the start of the answer; return the text that is the answer's."""
        assert self._tags is not None  # noqa: S101 - asked by the caller
        answer = self._tags.take(text)
        self.add_reasoning(self._tags.thought)
        if self._tags.is_over:
            self._tags = None
        return answer

    def add_reasoning(self, text: str) -> None:
        """Pass on a piece of the model's reasoning; it is shown, not stored."""
        if text:
            self._on_delta(Delta("reasoning", text))

    def keep(self, key: Hashable) -> dict[str, Any]:
        """Return the item of reasoning with that key, to be filled by its dialect.

        The items of a turn with calls go back to the provider with the results.
        """
        return self._kept.setdefault(key, {})

    def open_call(self, key: Hashable, name: str) -> None:
        """Start a call, or set the name of a call that has started."""
        known = self._calls.get(key)
        if known is None:
            if len(self._calls) >= MAX_CALLS:
                raise ModelFailure("malformed", f"a turn of more than {MAX_CALLS} tool calls")
            self._calls[key] = _OpenCall(name)
        elif name and not known.name:
            known.name = name

    def add_arguments(self, key: Hashable, piece: str) -> None:
        """Append a piece of a call's arguments; an unknown key starts a call without a name."""
        self.open_call(key, "")
        call = self._calls[key]
        size = len(piece.encode("utf-8", "surrogatepass"))
        call.size += size
        self._argument_bytes += size
        if self._argument_bytes > MAX_ARGUMENT_BYTES:
            raise ModelFailure(
                "malformed",
                f"arguments of more than {MAX_ARGUMENT_BYTES} bytes in one turn, up to {call.name!r}",
            )
        call.pieces.append(piece)

    def is_complete(self, key: Hashable) -> bool:
        """True if the call's arguments are a whole JSON object, array or string."""
        pieces = self._calls[key].pieces
        # Parsed only behind a sign that can end one: each piece of a long call may be asked about.
        if not pieces or pieces[-1].rstrip()[-1:] not in {"}", "]", '"'}:
            return False
        return not isinstance(_parse("".join(pieces)), str)

    def set_arguments(self, key: Hashable, whole: str) -> None:
        """Replace the collected arguments of a call by the complete text."""
        self.open_call(key, "")
        call = self._calls[key]
        self._argument_bytes -= call.size
        call.pieces.clear()
        call.size = 0
        self.add_arguments(key, whole)

    def count(
        self,
        used: int | None,
        written: int | None,
        *,
        cached: int | None = None,
        stored: int | None = None,
        thought: int | None = None,
    ) -> None:
        """Record the token counts reported so far.

        `used` are input tokens and `written` output tokens.  Of the input, `cached` were read from
        the provider's cache and `stored` were written to it; of the output, `thought` were
        reasoning.  With an invalid count the usage is treated as not reported, because it would be
        charged to a budget.
        """
        counts = (used or 0, written or 0, cached or 0, stored or 0, thought or 0)
        if (used is None and written is None) or not all(0 <= each <= MAX_COUNT for each in counts):
            self._usage = None
            return
        self._usage = Usage(
            input_tokens=counts[0],
            output_tokens=counts[1],
            cached_tokens=min(counts[2], counts[0]),
            cache_write_tokens=min(counts[3], counts[0] - min(counts[2], counts[0])),
            reasoning_tokens=min(counts[4], counts[1]),
            source="provider",
        )

    def build(self, request: ModelRequest, names: Mapping[str, str], new_id: NewId) -> ModelTurn:
        """Return the finished turn; `names` maps the provider's tool names to the catalogue's."""
        if self._tags is not None:
            self._take_rest(self._tags.finish())
        calls = tuple(
            ProposedCall(
                call_id=new_id("call"),
                tool=names.get(call.name, call.name),
                arguments=_parse("".join(call.pieces)),
            )
            for call in self._calls.values()
        )
        text = "".join(self._text)
        reason = self.finish_reason or ("tool_calls" if calls else "stop")
        return ModelTurn(
            text=text,
            calls=calls,
            finish_reason="tool_calls" if calls and reason == "stop" else reason,
            usage=self._usage or _estimate(request, text, calls),
            trace_ref=self.trace_ref,
            thought=self._thought(request) if calls and self._kept else None,
        )

    def _thought(self, request: ModelRequest) -> Thought | None:
        """Return the reasoning that goes back; none if it is too large for the tape."""
        items = tuple(item for item in self._kept.values() if item)
        is_small = len(msgspec.json.encode(items)) <= MAX_THOUGHT_BYTES
        return Thought(model=request.model, items=items) if items and is_small else None


def _parse(arguments: str) -> object:
    if not arguments.strip():
        return {}  # tools without parameters are often called with no text
    try:
        value: object = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return arguments
    return value


def _estimate(request: ModelRequest, text: str, calls: tuple[ProposedCall, ...]) -> Usage:
    """Estimate the usage for a provider that reports none; marked as an estimate."""
    asked = msgspec.json.encode([request.instructions, request.messages, request.tools]).decode()
    answered = text + (msgspec.json.encode(calls).decode() if calls else "")
    return Usage(input_tokens=estimate_tokens(asked), output_tokens=estimate_tokens(answered))
