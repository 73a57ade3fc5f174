"""Hold-back: redaction of a text that arrives in pieces and goes out live.

What could still become a secret is held back, and only that: the longest end of the text that is
a viable prefix of some rule.  As long as that end stays below HELD_LIMIT_BYTES, the pieces that
come out join to exactly what the scanner makes of the whole text.  Past the limit a secret that
has already matched is swallowed to its end, and what has not matched anything is let go.
"""

from collections.abc import Iterator
from typing import cast

from palyra.core.redaction.grammar import CONTEXT_BYTES
from palyra.core.redaction.scanner import Ahead, Expression, Match, Scanner, Span, compile_bytes

# Longer than any key, token or password in use except the largest key files, which match early.
HELD_LIMIT_BYTES = 8192
AFTER_SECRET = b"]"  # what a marker ends with


def _begin(span: Span) -> int:
    """Where doubt about the span begins as long as it may grow."""
    return span.start if span.rule.is_word else span.at


class StreamHoldBack:
    """One scanner's view: a little of what went out (for boundaries), then what is held back."""

    __slots__ = ("_buffer", "_first", "_out", "_scanner", "_tail")

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._restart(b"")

    def feed(self, data: bytes) -> bytes:
        """What is beyond doubt now."""
        if not data:
            return b""
        self._buffer += data if self._tail is None else self._beyond(self._tail, data)
        if not self._scanner.may_find(self._buffer):
            return self._release(self._hold(self._buffer, self._first))
        replaced = list(self._replaced(is_end=False))
        return b"".join([*replaced, self._release(self._hold(self._buffer, self._first))])

    def flush(self) -> bytes:
        """Everything that is left."""
        if self._out == len(self._buffer):
            self._restart(b"")
            return b""
        rest = b"".join([*self._replaced(is_end=True), self._buffer[self._out :]])
        self._restart(b"")
        return rest

    def _restart(self, buffer: bytes, *, first: int = 0) -> None:
        self._buffer = buffer
        self._first = first  # 1 when the first byte only shows that the text did not begin here
        self._out = first  # so much of the buffer went out before
        self._tail: Expression | None = None

    def _hold(self, data: bytes | bytearray, pos: int) -> int:
        """Where doubt begins, from `pos` on.  Past the limit the older half of it is let go."""
        hold = self._scanner.find_viable(data, pos)
        if len(data) - hold <= HELD_LIMIT_BYTES:
            return hold
        return self._scanner.find_viable(data, len(data) - HELD_LIMIT_BYTES // 2)

    def _replaced(self, *, is_end: bool) -> Iterator[bytes]:
        """The text up to and including each secret that begins before doubt does.

        The search goes on in the same buffer: one for each secret would be read to its end as often.
        """
        data = self._buffer
        shown: bytes | bytearray = data
        pos, done = self._first, self._out
        ahead: Ahead = {}
        while (span := self._scanner.find(shown, pos, floor=done, ahead=ahead)) is not None:
            is_near = not is_end and len(data) - _begin(span) <= HELD_LIMIT_BYTES
            if is_near and _begin(span) >= self._hold(shown, pos):
                break
            yield data[done : span.start]
            yield span.marker
            done = span.end
            pos = done - 1
            if isinstance(shown, bytes):
                shown = bytearray(data)
            shown[pos:done] = AFTER_SECRET
            is_cut = done == len(data)
            # Only past the limit does a secret that still grows get here: the rest is dropped.
            self._tail = compile_bytes(span.rule.tail) if is_cut and span.rule.tail else None
        if isinstance(shown, bytearray):
            self._buffer = AFTER_SECRET + data[done:]
            self._first, self._out = 0, len(AFTER_SECRET)

    def _release(self, hold: int) -> bytes:
        while hold < len(self._buffer) and self._buffer[hold] & 0xC0 == 0x80:  # noqa: PLR2004 - RFC 3629: inside a character
            hold -= 1
        hold = max(hold, self._out)
        piece = self._buffer[self._out : hold]
        surplus = max(0, hold - CONTEXT_BYTES)
        self._buffer = self._buffer[surplus:]
        self._first = 1 if surplus else self._first
        self._out = hold - surplus
        return piece

    def _beyond(self, tail: Expression, data: bytes) -> bytes:
        """What comes after the end of a secret that was too long to hold; empty before its end."""
        end = cast("Match", tail.match(data)).span()[1]  # `…*` matches anything
        if end < len(data):
            self._tail = None
        return data[end:]
