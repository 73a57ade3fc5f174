"""A program's output: streamed to a listener, kept up to a bound, and ended when it floods.

`OutputBuffer` keeps the head and the tail of a stream and drops the middle.  A shell call keeps half
its bound of each, because errors stand at the end and their cause often at the beginning.  A program
in the background keeps the tail alone: a reader pages through it by position, and old positions
expire.  `read_until_exit` is the loop that fills the buffer of either.
"""

import codecs
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio

from palyra.tools.programs.disk_watch import LOOK_S, DiskWatch
from palyra.tools.sandbox.child import JailedProcess

PIECE_BYTES = 65_536
KEPT_BYTES = 1_048_576 - 1_024  # of one output; leaves room for a closing note within 1 MiB
FLOOD_BYTES = 16_777_216  # a program that writes more is killed


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of output; positions count bytes from the first one written."""

    text: str
    start: int  # later than requested if the bytes there have been dropped
    end: int
    total: int


@dataclass(frozen=True, slots=True)
class Captured:
    """The whole output as one text, without the middle of a long one."""

    text: str
    total_bytes: int
    left_out_bytes: int  # from the middle

    @property
    def is_truncated(self) -> bool:
        """True if bytes are missing."""
        return self.left_out_bytes > 0


class OutputBuffer:
    """Bounded buffer of one stream: its first and last bytes, readable whole or by position."""

    def __init__(
        self,
        on_output: Callable[[str], None] | None = None,
        *,
        head_bytes: int = 0,
        tail_bytes: int = KEPT_BYTES,
    ) -> None:
        """`on_output` receives the text of the first `head_bytes + tail_bytes` as it arrives."""
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head_bytes, self._tail_bytes = head_bytes, tail_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()  # at most one piece more than `tail_bytes`
        self._tail_start = 0  # position of its first byte
        self.total_bytes = 0

    @property
    def is_flood(self) -> bool:
        """True if the program has written so much that it is killed."""
        return self.total_bytes > FLOOD_BYTES

    def append(self, piece: bytes) -> None:
        """Add the next piece, and drop the oldest pieces of the tail that exceed the bound."""
        if self._on_output is not None and self.total_bytes < self._head_bytes + self._tail_bytes:
            self._on_output(self._decoder.decode(piece))
        self.total_bytes += len(piece)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += piece[:room]
            self._tail_start = len(self._head)
            piece = piece[room:]
        if piece:
            self._tail.append(piece)
        while self._tail and (
            self.total_bytes - self._tail_start - len(self._tail[0]) >= self._tail_bytes
        ):
            self._tail_start += len(self._tail.popleft())

    def read(self, start: int, limit: int) -> Page:
        """Return at most `limit` bytes from a position on; whole characters, except broken ones."""
        if start < len(self._head):
            begin, kept = start, bytes(self._head[start : start + limit])
        else:
            begin = min(max(start, self._tail_start), self.total_bytes)
            kept = b"".join(self._tail)[begin - self._tail_start :][:limit]
        if begin + len(kept) < self.total_bytes:
            kept = _without_partial_character(kept)
        return Page(kept.decode("utf-8", "replace"), begin, begin + len(kept), self.total_bytes)

    def result(self) -> Captured:
        """Return everything that is kept as one text, with a line in place of the dropped middle."""
        tail = b"".join(self._tail)[-self._tail_bytes :]
        left_out = self.total_bytes - len(self._head) - len(tail)
        parts = [bytes(self._head), tail] if left_out else [bytes(self._head) + tail]
        gap = f"\n[… {left_out} bytes left out …]\n"
        text = gap.join(part.decode("utf-8", "replace") for part in parts)
        return Captured(text, self.total_bytes, left_out)


def _without_partial_character(piece: bytes) -> bytes:
    """Drop the first bytes of a UTF-8 character whose rest is missing at the end of the piece."""
    for left_out in range(1, min(4, len(piece))):
        if piece[-left_out] >= 0xC0:  # noqa: PLR2004 - the first byte of a longer character
            return piece[:-left_out]
        if piece[-left_out] < 0x80:  # noqa: PLR2004 - ASCII
            break
    return piece


async def read_until_exit(
    child: JailedProcess,
    output: OutputBuffer,
    watch: DiskWatch,
    *,
    is_wanted: Callable[[], bool] = lambda: True,
    on_change: Callable[[], None] = lambda: None,
) -> str:
    """Read the child's output until it exits; return "", or the limit for which to kill it.

    The disks, the size of the output and `is_wanted` are checked every LOOK_S and after each piece;
    the loop also ends once `is_wanted` is false.  `on_change` is called after each piece.
    Cancellation: the output read so far is kept.
    """
    has_more, limit = True, ""
    while (has_more or child.ending is None) and not limit and is_wanted():
        with trio.move_on_after(LOOK_S):
            if has_more:
                piece = bytes(await child.stdout.receive_some(PIECE_BYTES))
                output.append(child.without_jail_error(piece))
                has_more = bool(piece)
                on_change()
            else:
                await child.wait()
        if child.is_held_by_survivors():  # the stream stays open until they are ended
            await child.wait()
        limit = "output" if output.is_flood else watch.find_limit()
    return limit
