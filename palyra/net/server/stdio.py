"""The stdio transport: one JSON object per line on standard input and output (NDJSON).

Owns: the process's standard input and output, from `take_stdio` on.  For programs that run the
daemon as a child.  Nothing but protocol lines may reach standard output, so both descriptors are
duplicated first: a stray print then goes to standard error, and a child process reads nothing.
Restart: temporary; there is no second connection to a parent, so its end calls `on_end`.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.net.protocol import close_codes
from palyra.net.server.transport import BadFrame, NoMoreInput, Peer, PeerClosed, Transport

RECEIVE_BYTES = 65_536
CLOSE_TIMEOUT_S = 3.0
STDIN, STDOUT, STDERR = 0, 1, 2
NAME = "stdio"

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class StdioStream(Protocol):
    """The used part of a byte stream; trio has it for pipes and terminals."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...
    async def send_all(self, data: bytes) -> None: ...
    async def aclose(self) -> None: ...


class ReadyFile:
    """A file that is always ready, which epoll cannot wait for: a regular file, or /dev/null."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return os.read(self._fd, max_bytes or RECEIVE_BYTES)

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        while data:
            data = data[os.write(self._fd, data) :]

    async def aclose(self) -> None:
        os.close(self._fd)
        await trio.lowlevel.checkpoint()


class StdioTransport:
    """A `Transport` over two byte streams; see `palyra.net.server.transport`.

    The end of input ends the connection, once the requests before it are answered.
    """

    name = NAME

    def __init__(self, source: StdioStream, sink: StdioStream, *, max_message_bytes: int) -> None:
        self._source = source
        self._sink = sink
        self._max_message_bytes = max_message_bytes
        self._received = bytearray()
        self._searched = 0  # so far without a newline
        self._is_cut = False  # a write was cancelled in the middle of a line
        self._is_closed = False

    async def receive(self) -> bytes:
        """Return the next line that is not blank.  Raises BadFrame, PeerClosed."""
        while True:
            line = await self._receive_line()
            if line.strip():
                return _check_text(line)

    async def _receive_line(self) -> bytes:
        while (end := self._received.find(b"\n", self._searched)) < 0:
            self._searched = len(self._received)
            self._check_size(self._searched)
            if not await self._receive_more():
                end = len(self._received)
                break
        self._check_size(end)
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        self._searched = 0
        return line

    async def _receive_more(self) -> bool:
        """Read more; False if only a last line without its newline is left."""
        try:
            data = await self._source.receive_some(RECEIVE_BYTES)
        except GONE as error:
            raise PeerClosed(f"{NAME}: {error}") from error
        if not data and not self._received:
            raise NoMoreInput(f"{NAME}: end of input")
        self._received += data
        return bool(data)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_message_bytes:
            raise BadFrame(
                close_codes.TOO_BIG, f"a message may have {self._max_message_bytes} bytes"
            )

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write all lines at once.  Raises PeerClosed.  Cancellation: only `close` may follow."""
        # In JSON a newline can only be between tokens, where a space is equivalent.
        lines = [message.replace(b"\n", b" ") for message in messages]
        self._is_cut = True
        try:
            await self._sink.send_all(b"\n".join([*lines, b""]))
        except (*GONE, OSError) as error:
            raise PeerClosed(f"{NAME}: {error}") from error
        self._is_cut = False

    async def close(self, code: int, reason: str) -> None:
        """Send code and reason in a last line and close both ends; bounded in time, idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        with trio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            await self._say_goodbye(code, reason)
        with trio.CancelScope(shield=True):  # closing does not wait
            await self._source.aclose()
            await self._sink.aclose()

    async def _say_goodbye(self, code: int, reason: str) -> None:
        if self._is_cut:
            return  # the line would continue a cut one
        params = {"code": code, "reason": reason}
        notice = {"jsonrpc": "2.0", "method": "connection.closed", "params": params}
        try:
            await self.send([msgspec.json.encode(notice)])
        except PeerClosed:
            return


def _check_text(line: bytes) -> bytes:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise BadFrame(close_codes.INVALID_TEXT, f"invalid UTF-8 at byte {error.start}") from None
    return line


def take_stdio(*, max_message_bytes: int) -> StdioTransport:
    """Return a transport over the process's input and output, which other code then cannot use."""
    source, sink = _take(STDIN, os.O_RDONLY), _take(STDOUT, os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    os.dup2(STDERR, STDOUT)
    return StdioTransport(
        open_stream(source), open_stream(sink), max_message_bytes=max_message_bytes
    )


def _take(fd: int, flags: int) -> int:
    """Return a descriptor of our own for the file of `fd`.

    Pipes and terminals are opened again if possible: non-blocking mode belongs to the open file
    description, and that of a terminal is shared with standard error and with the shell.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        try:
            return os.open(f"/proc/self/fd/{fd}", flags | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            pass  # no /proc, or another user's: then the description is shared
    return os.dup(fd)


def open_stream(fd: int) -> StdioStream:
    """Return a stream that owns the descriptor."""
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) or os.path.samestat(status, Path(os.devnull).stat()):
        return ReadyFile(fd)
    return trio.lowlevel.FdStream(fd)


def child_spec(
    transport: StdioTransport,
    serve: Callable[[Transport, Peer], Awaitable[None]],
    peer: Peer,
    on_end: Callable[[], None],
) -> ChildSpec:
    """Return the actor of the connection to the parent process; its end always calls `on_end`."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await serve(transport, peer)
        finally:
            on_end()

    return ChildSpec(NAME, start, restart="temporary", grace_s=CLOSE_TIMEOUT_S + 1)
