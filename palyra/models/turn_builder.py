"""Builds a turn from what streams in: text, tool calls in fragments, finish reason, usage.

The same for every dialect.  Arguments that are no JSON stay the text they are, so that intake
refuses the call with a hint and the model can repair it.
"""

from collections.abc import Callable, Hashable, Mapping

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
)
from palyra.core.text.tokens import estimate_tokens

MAX_ARGUMENT_BYTES = 524_288  # of all calls of one turn: twice what a tape takes of it
MAX_TEXT_CHARS = 4_194_304  # of one turn
MAX_CALLS = 128  # of one turn
MAX_COUNT = 1_000_000_000  # tokens; beyond it a provider does not count, it talks nonsense

OnDelta = Callable[[Delta], None]


class _OpenCall:
    __slots__ = ("name", "pieces", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[str] = []
        self.size = 0


class TurnBuilder:
    """One turn under way; the methods raise ModelFailure (malformed) over a cap."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._text: list[str] = []
        self._text_chars = 0
        self._calls: dict[Hashable, _OpenCall] = {}  # in the order in which they began
        self._argument_bytes = 0  # of all of them
        self.finish_reason: FinishReason | None = None
        self._usage: Usage | None = None
        self.trace_ref: str | None = None

    def add_text(self, text: str) -> None:
        """A piece of the answer, passed on at once."""
        if not text:
            return
        self._text_chars += len(text)
        if self._text_chars > MAX_TEXT_CHARS:
            raise ModelFailure("malformed", f"a turn of more than {MAX_TEXT_CHARS} characters")
        self._text.append(text)
        self._on_delta(Delta("text", text))

    def add_reasoning(self, text: str) -> None:
        """A piece of what the model thinks; it is shown and not kept."""
        if text:
            self._on_delta(Delta("reasoning", text))

    def open_call(self, key: Hashable, name: str) -> None:
        """A call begins, or one that has begun is named again."""
        known = self._calls.get(key)
        if known is None:
            if len(self._calls) >= MAX_CALLS:
                raise ModelFailure("malformed", f"a turn of more than {MAX_CALLS} tool calls")
            self._calls[key] = _OpenCall(name)
        elif name and not known.name:
            known.name = name

    def add_arguments(self, key: Hashable, piece: str) -> None:
        """A piece of a call's arguments; of a call that was never opened, a nameless one."""
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

    def set_arguments(self, key: Hashable, whole: str) -> None:
        """A call's arguments as a whole, in place of the pieces."""
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
        """What the provider counted so far: tokens of input and output.

        Of the input: those from its cache, and those put into it; of the output: those of what it
        thought.  Nonsense counts as nothing told: it would end up in somebody's budget.
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
        """The finished turn; `names` are the catalogue's by the provider's."""
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
        )


def _parse(arguments: str) -> object:
    if not arguments.strip():
        return {}  # a tool without parameters is often called so
    try:
        value: object = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return arguments
    return value


def _estimate(request: ModelRequest, text: str, calls: tuple[ProposedCall, ...]) -> Usage:
    """What a provider that does not say has probably counted; marked as an estimate."""
    asked = msgspec.json.encode([request.instructions, request.messages, request.tools]).decode()
    answered = text + (msgspec.json.encode(calls).decode() if calls else "")
    return Usage(input_tokens=estimate_tokens(asked), output_tokens=estimate_tokens(answered))
