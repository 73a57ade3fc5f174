"""The WebSocket of a connection under asyncio: wsproto over a stream."""

import asyncio
import contextlib
from collections import deque
from urllib.parse import SplitResult

from wsproto import ConnectionType, WSConnection, events
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from palyra.client.waits import SocketClosed
from palyra.errors import Unreachable
from palyra.net.protocol import close_codes
from palyra.net.protocol.notifications import PROTOCOL

MAX_MESSAGE_CHARS = 16_777_216  # a page of tape is 2 MiB before its JSON is escaped
RECEIVE_BYTES = 65_536
RFC_PROTOCOL_ERROR = 1002  # RFC 6455 section 7.4.1


class UpgradeRefused(Exception):
    """The server answered the upgrade with this HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class AsyncioSocket:
    """An open WebSocket.  One task receives; any task sends, pings and closes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._messages: deque[str | bytes] = deque()
        self._parts: list[str] = []  # of a message that has not ended
        self._chars = 0  # in them
        self._is_accepted = False
        self._pong = asyncio.Event()
        self._closed: SocketClosed | None = None
        self._ended = asyncio.Event()

    async def upgrade(self, parts: SplitResult) -> None:
        """Upgrade the stream.

        Raises UpgradeRefused, RemoteProtocolError, OSError, or Unreachable if the peer closes the
        stream instead.
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
        while not self._messages:
            if self._closed is not None:
                raise self._closed
            try:
                data = await self._reader.read(RECEIVE_BYTES)
                self._take(data or None)  # None is the end of the stream
            except OSError as error:
                self._end(None, str(error))
            except RemoteProtocolError as error:
                self._hang_up(RFC_PROTOCOL_ERROR, str(error))
        return self._messages.popleft()

    async def send(self, text: str, within_s: float) -> None:
        self._write(events.TextMessage(data=text))
        await self._drain(within_s)

    async def ping(self, within_s: float) -> None:
        self._pong = asyncio.Event()
        self._write(events.Ping())
        await self._drain(within_s)
        async with asyncio.timeout(within_s):
            await self._pong.wait()

    async def close(self, within_s: float) -> None:
        """Perform the closing handshake, with the receiving task running; never raises."""
        with contextlib.suppress(SocketClosed, TimeoutError):
            self._write(events.CloseConnection(code=close_codes.DONE))
            async with asyncio.timeout(within_s):
                await self._ended.wait()
        self.abort()

    def abort(self) -> None:
        """Close the stream at once."""
        self._end(None, "closed by this client")
        self._writer.transport.abort()

    def _take(self, data: bytes | None) -> None:
        """Handle received bytes.  Raises RemoteProtocolError or UpgradeRefused."""
        self._protocol.receive_data(data)
        for event in self._protocol.events():
            match event:
                case events.AcceptConnection():
                    self._is_accepted = True
                case events.RejectConnection(status_code=status):
                    raise UpgradeRefused(status)
                case events.TextMessage(data=text, message_finished=is_whole):
                    self._take_text(text, is_whole=is_whole)
                case events.BytesMessage(data=piece):
                    self._messages.append(bytes(piece))  # the daemon sends none: a protocol error
                case events.Ping() if self._closed is None:
                    self._write(event.response())
                case events.Pong():
                    self._pong.set()
                case events.CloseConnection(code=code, reason=reason):
                    self._take_close(event, code, reason)
                case _:
                    pass

    def _take_text(self, text: str, *, is_whole: bool) -> None:
        self._parts.append(text)
        self._chars += len(text)
        if self._chars > MAX_MESSAGE_CHARS:
            self._hang_up(close_codes.TOO_BIG, f"a message over {MAX_MESSAGE_CHARS} characters")
        elif is_whole:
            self._messages.append("".join(self._parts))
            self._parts.clear()
            self._chars = 0

    def _take_close(self, event: events.CloseConnection, code: int, reason: str | None) -> None:
        with contextlib.suppress(LocalProtocolError, OSError):  # if this side closed first
            self._writer.write(self._protocol.send(event.response()))
        self._end(code, reason or "")

    def _hang_up(self, code: int, reason: str) -> None:
        with contextlib.suppress(SocketClosed):
            self._write(events.CloseConnection(code=code, reason=close_codes.cut_reason(reason)))
        self._end(code, reason)

    def _end(self, code: int | None, reason: str) -> None:
        self._closed = self._closed or SocketClosed(code, reason)
        self._ended.set()

    def _write(self, event: events.Event) -> None:
        if self._closed is not None:
            raise self._closed
        try:
            self._writer.write(self._protocol.send(event))
        except LocalProtocolError:  # the closing handshake has begun
            raise SocketClosed(None, "the connection is closing") from None

    async def _drain(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._writer.drain()
        except TimeoutError:
            raise
        except OSError as error:
            self._end(None, str(error))
            raise SocketClosed(None, str(error)) from None
