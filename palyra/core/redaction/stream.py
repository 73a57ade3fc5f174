"""Hold-back: redaction of a text that arrives in pieces and is streamed on.

Only text that may still become a secret is held back: the longest end of the text that is a viable
prefix of some rule.  While that end is below HELD_LIMIT_BYTES, the returned pieces join to exactly the
scanner's result for the whole text.  Past the limit a secret that has already matched is dropped to
its end, and text that has not matched any rule is released.
"""

from collections.abc import Iterator
from typing import cast

from palyra.core.redaction.grammar import CONTEXT_BYTES
from palyra.core.redaction.long_secrets import LongSecrets
from palyra.core.redaction.scanner import Ahead, Expression, Match, Scanner, Span, compile_bytes
from palyra.core.redaction.structures import Structures

AnyScanner = Scanner | Structures | LongSecrets

# Longer than any key, token or password in use except the largest key files, which match early.
HELD_LIMIT_BYTES = 8192
AFTER_SECRET = b"]"  # the end of a marker


def _begin(span: Span) -> int:
    """Return the first byte to hold back while the span may grow."""
    return span.start if span.rule.is_word else span.at


class StreamHoldBack:
    """Text of one scanner: the last released bytes (for boundaries), then what is held back."""

    __slots__ = ("_buffer", "_first", "_out", "_scanner", "_tail")

    def __init__(self, scanner: AnyScanner) -> None:
        self._scanner = scanner
        self._restart(b"")

    def feed(self, data: bytes) -> bytes:
        """Take more text and return the text that is now certain."""
        if not data:
            return b""
        self._buffer += data if self._tail is None else self._beyond(self._tail, data)
        if not self._scanner.may_find(self._buffer):
            return self._release(self._hold(self._buffer, self._first))
        replaced = list(self._replaced(is_end=False))
        return b"".join([*replaced, self._release(self._hold(self._buffer, self._first))])

    def flush(self) -> bytes:
        """Return the rest of the text, and start with no text."""
        if self._out == len(self._buffer):
            self._restart(b"")
            return b""
        rest = b"".join([*self._replaced(is_end=True), self._buffer[self._out :]])
        self._restart(b"")
        return rest

    def _restart(self, buffer: bytes, *, first: int = 0) -> None:
        self._buffer = buffer
        self._first = first  # 1 if the first byte only shows that the text began earlier
        self._out = first  # bytes of the buffer that were released before
        self._tail: Expression | None = None

    def _hold(self, data: bytes | bytearray, pos: int) -> int:
        """Return the first byte to hold back, from `pos` on; past the limit the older half is released."""
        hold = self._scanner.find_viable(data, pos)
        if len(data) - hold <= HELD_LIMIT_BYTES:
            return hold
        return self._scanner.find_viable(data, len(data) - HELD_LIMIT_BYTES // 2)

    def _replaced(self, *, is_end: bool) -> Iterator[bytes]:
        """Yield the text up to and including each secret that begins before the held-back end.

        The search continues in the same buffer; a new one for each secret would be read to its end
        each time.
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
        """Return the text after a secret that was too long to hold; empty before its end."""
        end = cast("Match", tail.match(data)).span()[1]  # `…*` matches anything
        if end < len(data):
            self._tail = None
        return data[end:]
