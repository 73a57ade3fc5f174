"""The WebSocket of a connection under asyncio: wsproto over a stream."""

import asyncio
import contextlib
import ssl
from collections import deque
from urllib.parse import SplitResult, urlsplit

from wsproto import ConnectionType, WSConnection, events
from wsproto.connection import ConnectionState
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from palyra.client.waits import SocketClosed
from palyra.errors import Unreachable
from palyra.net.protocol import close_codes
from palyra.net.protocol.notifications import PROTOCOL

MAX_MESSAGE_CHARS = 16_777_216  # a page of tape is 2 MiB before its JSON is escaped
RECEIVE_BYTES = 65_536


class UpgradeRefused(Exception):
    """The server answered the upgrade with this HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class AsyncioSocket:
    """An open WebSocket.  One task receives; any task sends, pings and closes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._messages: deque[str | bytes] = deque()
        self._parts: list[str] = []
        self._chars = 0
        self._is_accepted = False
        self._pong = asyncio.Event()
        self._end: SocketClosed | None = None

    async def upgrade(self, parts: SplitResult) -> None:
        """Upgrade the stream.

        Raises UpgradeRefused, Unreachable if the peer closes the stream, or RemoteProtocolError.
        """
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.netloc.rpartition("@")[2]
        self._write(events.Request(host=host, target=target, subprotocols=[PROTOCOL]))
        while not self._is_accepted:
            data = await self._reader.read(RECEIVE_BYTES)
            if not data:
                raise Unreachable(
                    f"{parts.geturl()} closed the connection during the WebSocket upgrade"
                )
            self._take(data)

    async def receive(self) -> str | bytes:
        """Return the next message.  Raises SocketClosed."""
        while not self._messages:
            if self._end is not None:
                raise self._end
            try:
                data = await self._reader.read(RECEIVE_BYTES)
                self._take(data)
            except OSError as error:
                self._close(None, str(error))
            except RemoteProtocolError as error:
                self._fail(close_codes.DONE + 2, str(error))
            else:
                if not data:
                    self._close(None, "")
        return self._messages.popleft()

    async def send(self, text: str, within_s: float) -> None:
        """Send a message.  Raises SocketClosed, or TimeoutError if the peer does not read it."""
        self._write(events.TextMessage(data=text))
        await self._drain(within_s)

    async def ping(self, within_s: float) -> None:
        """Wait for the answer to a ping.  Raises SocketClosed or TimeoutError."""
        self._pong = asyncio.Event()
        self._write(events.Ping())
        await self._drain(within_s)
        async with asyncio.timeout(within_s):
            await self._pong.wait()
        if self._end is not None:
            raise self._end

    async def close(self, within_s: float) -> None:
        """Send a close frame, wait for the peer's, close the stream; never raises."""
        with contextlib.suppress(SocketClosed, TimeoutError):
            self._write(events.CloseConnection(code=close_codes.DONE))
            async with asyncio.timeout(within_s):
                await self._pong_or_end()
        self.abort()

    def abort(self) -> None:
        """Close the stream without a handshake."""
        self._close(None, "closed by this client")
        self._writer.transport.abort()
