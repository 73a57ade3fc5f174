"""JSON-RPC streams over a child process: one message per line (MCP stdio transport).

Bounds: a line has at most MAX_LINE_BYTES; the stream ends after more than
MAX_BAD_LINES lines that are not messages.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Self

import trio

from palyra.tools.mcp.transport import ServerGone

MAX_LINE_BYTES = 4_194_304
MAX_BAD_LINES = 100  # tolerated non-messages, such as stray prints
_PIECE_BYTES = 16_384  # split within a fraction of a millisecond, blank lines too
_MAX_STRAY_BYTES = 1_024  # of a line that is shown: part of a line could be part of a secret


class _Closable:
    """Context manager and `aclose` that a session expects; both do nothing."""

    async def aclose(self) -> None:  # noqa: PLR6301 - interface of the session
        """Do nothing; the owner of the process ends it."""
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class LineReader(_Closable):
    """Reads messages from a process's output."""

    def __init__(
        self,
        output: trio.abc.ReceiveStream,
        parse: Callable[[bytes], Any],
        on_end: Callable[[], None],
        on_stray: Callable[[bytes], None],
    ) -> None:
        """`parse` converts a line to a message, or raises ValueError.

        `on_stray` receives a line of text about each line that is no message: servers that print
        to their standard output by mistake are the usual reason for a start that fails.
        """
        self._output = output
        self._parse = parse
        self._on_end = on_end
        self._on_stray = on_stray
        self._lines = deque[bytes]()
        self._rest = bytearray()  # of a line without its end
        self._bad_lines = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - a message of the package `mcp`
        """Return the next message.

        Raises StopAsyncIteration when the output is closed or after too many invalid lines.
        """
        while True:
            line = await self._next_line()
            if line is None:
                self._on_end()
                raise StopAsyncIteration
            try:
                return self._parse(line)
            except ValueError:
                self._on_stray(b"(on standard output, no message) " + _shown(line) + b"\n")
                self._bad_lines += 1
                if self._bad_lines > MAX_BAD_LINES:
                    self._on_end()
                    raise StopAsyncIteration from None

    async def receive(self) -> Any:  # noqa: ANN401 - likewise
        """Return the next message.  Raises ServerGone at the end of the stream."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise ServerGone("the server closed its output") from None

    async def _next_line(self) -> bytes | None:
        """Return the next line that is not blank; None at the end or for an over-long line."""
        while not self._lines:
            if len(self._rest) > MAX_LINE_BYTES:
                return None
            try:
                piece = await self._output.receive_some(_PIECE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if not piece:
                return None
            self._take(bytes(piece))
        return self._lines.popleft()

    def _take(self, piece: bytes) -> None:
        """Split a piece once: a search in what is left, line by line, would be quadratic."""
        head, mark, tail = piece.rpartition(b"\n")
        if not mark:
            self._rest += tail
            return
        first, *others = head.split(b"\n")
        lines = (bytes(self._rest) + first, *others)
        self._lines += [line for line in lines if line.strip()]
        self._rest = bytearray(tail)


def _shown(line: bytes) -> bytes:
    return line if len(line) <= _MAX_STRAY_BYTES else b"a line of %d bytes" % len(line)


class LineWriter(_Closable):
    """Writes messages to a process's input."""

    def __init__(
        self,
        stdin: trio.abc.SendStream,
        render: Callable[[Any], bytes],
        on_end: Callable[[], None],
    ) -> None:
        self._stdin = stdin
        self._render = render
        self._on_end = on_end
        self._turn = trio.Lock()

    async def send(self, message: Any) -> None:  # noqa: ANN401 - a message of the package `mcp`
        """Write one line.  Cancellation: the line may be partly written; the connection is ended."""
        async with self._turn:
            is_whole = False
            try:
                await self._stdin.send_all(self._render(message) + b"\n")
                is_whole = True
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the reader reports the end of the connection
            finally:
                if not is_whole:
                    self._on_end()
