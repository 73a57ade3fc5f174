"""A socket stream that returns bytes already read from it first, and completes cancelled writes.

Owns: one accepted socket.  Used by: the acceptor, the WebSocket transport, the HTTP server.
Two differences from `trio.SocketStream`: the bytes read with the head come first, and a write that
was cancelled is completed by the next one, so a close frame can follow a stalled message without
cutting it.
"""

import math
from collections import deque

import trio

RECEIVE_BYTES = 16_384  # one read; small, so a flood of tiny frames is handled in small portions


class PrefixedStream(trio.abc.HalfCloseableStream):
    """One accepted connection.  One task reads, one task writes."""

    def __init__(self, stream: trio.SocketStream, pending: bytes = b"") -> None:
        self.socket = stream.socket
        self.write_timeout_s = math.inf  # for writers that cannot bound their writes
        self.heard_s = -math.inf  # when the peer last sent anything, on trio's clock
        self._stream = stream
        self._pending = pending
        self._unsent: deque[memoryview] = deque()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, first those read before; empty at the end of the stream."""
        if not self._pending:
            data = await self._stream.receive_some(max_bytes or RECEIVE_BYTES)
            self.heard_s = trio.current_time()
            return bytes(data)
        await trio.lowlevel.checkpoint()
        size = max_bytes or RECEIVE_BYTES
        taken, self._pending = self._pending[:size], self._pending[size:]
        return taken

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write everything, after the rest of a cancelled call.

        Raises BrokenResourceError or ClosedResourceError.  Cancellation: the rest is kept and
        goes out before the next write, so frames are late but never torn.
        """
        if not data:
            await trio.lowlevel.checkpoint()
        self._unsent.append(memoryview(data))
        with trio.move_on_after(self.write_timeout_s) as scope:
            await self._send_unsent()
        if scope.cancelled_caught:
            self.abort()  # else the reader would still wait for this peer
            raise trio.BrokenResourceError(f"the peer read nothing for {self.write_timeout_s:g} s")

    async def _send_unsent(self) -> None:
        try:
            while self._unsent:
                await self._send_first()
        except OSError as error:
            self._unsent.clear()
            raise trio.BrokenResourceError(f"socket error: {error}") from error

    async def _send_first(self) -> None:
        view = self._unsent[0]
        sent = await self.socket.send(view) if view else 0
        if sent == len(view):
            self._unsent.popleft()
        else:
            self._unsent[0] = view[sent:]

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Send the end of the stream, also when cancelled.

        Hypercorn closes from a task that Quart has just cancelled; without this, a client that
        asked for `Connection: close` would wait for ever.
        """
        with trio.CancelScope(shield=True):  # a checkpoint and a system call, which do not wait
            await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def abort(self) -> None:
        """Close at once; tasks that wait for the socket get ClosedResourceError."""
        self.socket.close()

    async def linger(self, *, max_bytes: int) -> None:
        """Send the end of the stream, then read and drop what the peer still sends.

        A socket closed with unread bytes sends a reset, and the peer may then lose bytes that it
        has not read yet.  Ends with the peer's end, after `max_bytes`, or at the caller's deadline.
        """
        try:
            await self.send_eof()
            while max_bytes > 0 and (dropped := await self.receive_some()):
                max_bytes -= len(dropped)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
