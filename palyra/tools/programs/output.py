"""A program's output while it comes: passed on, kept up to a bound, and stopped when it floods."""

import codecs
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

BACKGROUND_KEPT_BYTES = 1_048_576  # of its output: the end of it


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of output; positions are bytes from the very beginning."""

    text: str
    start: int  # later than asked for when what stood there is kept no more
    end: int
    total: int


class KeptOutput:
    """The end of an output, readable by position."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._dropped = 0  # bytes before the first piece
        self.total = 0

    def take(self, piece: bytes) -> None:
        """The next piece."""
        self._pieces.append(piece)
        self.total += len(piece)
        while self.total - self._dropped - len(self._pieces[0]) >= BACKGROUND_KEPT_BYTES:
            self._dropped += len(self._pieces.popleft())

    def read(self, start: int, limit: int) -> Page:
        """At most `limit` bytes from a position on; whole characters, except broken ones."""
        begin = min(max(start, self._dropped), self.total)
        kept = b"".join(self._pieces)[begin - self._dropped :][:limit]
        if begin + len(kept) < self.total:
            kept = _whole_characters(kept)
        return Page(kept.decode("utf-8", "replace"), begin, begin + len(kept), self.total)


def _whole_characters(piece: bytes) -> bytes:
    """Without the beginning of a character at its end."""
    for left_out in range(1, min(4, len(piece))):
        if piece[-left_out] >= 0xC0:  # noqa: PLR2004 - the first byte of a longer character
            return piece[:-left_out]
        if piece[-left_out] < 0x80:  # noqa: PLR2004 - ASCII
            break
    return piece


# Of one output, half from its beginning, half from its end; with the closing note it is 1 MiB.
CAPTURE_KEPT_BYTES = 1_048_576 - 1_024
FLOOD_BYTES = 16_777_216  # whoever writes more is stopped


@dataclass(frozen=True, slots=True)
class Captured:
    """What came."""

    text: str
    total_bytes: int
    left_out_bytes: int  # from the middle of the text

    @property
    def is_truncated(self) -> bool:
        """Whether something is missing."""
        return self.left_out_bytes > 0


class Capture:
    """One stream of bytes, taken piece by piece."""

    def __init__(
        self,
        on_output: Callable[[str], None] | None = None,
        *,
        kept_bytes: int = CAPTURE_KEPT_BYTES,
    ) -> None:
        """`on_output` hears the text as it comes, up to `kept_bytes`."""
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._half_bytes = kept_bytes // 2
        self._head = bytearray()
        self._tail: deque[bytes | bytearray] = deque()
        self._tail_bytes = 0
        self.total_bytes = 0

    @property
    def is_flood(self) -> bool:
        """Whether this is more than anybody is going to read."""
        return self.total_bytes > FLOOD_BYTES

    def take(self, piece: bytes | bytearray) -> None:
        """The next piece."""
        if self._on_output is not None and self.total_bytes < 2 * self._half_bytes:
            self._on_output(self._decoder.decode(piece))
        self.total_bytes += len(piece)
        room = self._half_bytes - len(self._head)
        self._head += piece[:room]
        if piece[room:]:
            self._tail.append(piece[room:])
            self._tail_bytes += len(piece) - room
            self._drop()

    def result(self) -> Captured:
        """Everything that is kept, in one text."""
        tail = b"".join(self._tail)[-self._half_bytes :]
        left_out = self.total_bytes - len(self._head) - len(tail)
        gap = f"\n[… {left_out} bytes left out …]\n" if left_out else ""
        text = (
            _decode(bytes(self._head)) + gap + _decode(tail) if gap else _decode(self._head + tail)
        )
        return Captured(text, self.total_bytes, left_out)

    def _drop(self) -> None:
        while self._tail_bytes - len(self._tail[0]) >= self._half_bytes:
            self._tail_bytes -= len(self._tail.popleft())


def _decode(piece: bytes | bytearray) -> str:
    return piece.decode("utf-8", "replace")
