"""The WebSocket transport: text messages over one upgraded connection.

Owns: the frames of one connection, its reader and its keep-alive.  Used by: the acceptor.
A peer that vanishes, stalls or breaks the protocol ends its own connection and nothing else.

wsproto parses frames and keeps the state of the close handshake (RFC 6455 section 7.1):

    OPEN -- we close --> LOCAL_CLOSING -- the peer's close frame --> CLOSED
    OPEN -- the peer's close frame --> REMOTE_CLOSING -- our answer --> CLOSED

Three tasks share a connection.  The reader feeds wsproto, answers pings and closes, and hands
messages to `receive` through a queue of one.  `send` writes batches of text frames, which it renders
itself.  `keep_alive` pings.  All of them write through one first-come-first-served lock, so a pong
or close frame goes before or after a batch, never into it; and a write that was cancelled is
completed by the next one (`PrefixedStream`), so a frame is never cut.

Every end passes through the reader: it sets `_ended` once no more frames can come, either because
the close handshake is complete or because the socket is closed.  A protocol error is different: the
reader sends the close frame that names the error and stops, `receive` raises `BadFrame`, and `close`
reads and drops what the peer is still sending, so that a reset does not destroy the close frame.
"""

import math
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio
from wsproto import ConnectionType
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.extensions import Extension
from wsproto.frame_protocol import (
    CloseReason,
    FrameDecoder,
    FrameProtocol,
    Opcode,
    ParseFailed,
    RsvBits,
)
from wsproto.utilities import generate_accept_token

from palyra.net.protocol import close_codes
from palyra.net.server.request_head import RequestHead, UpgradeRequest
from palyra.net.server.stream import RECEIVE_BYTES, PrefixedStream
from palyra.net.server.transport import BadFrame, PeerClosed

# One message waits for `receive`, one is being put together: a peer can make us hold no more.
_QUEUED_MESSAGES = 1
_FIN_TEXT = 0x81
_SHORT, _MEDIUM = 125, 65_535  # payload lengths up to which a frame's header has 2 and 4 bytes


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """Bounds of one connection."""

    max_message_bytes: int = 1_048_576
    send_timeout_s: float = 30.0  # a peer that reads nothing for so long is given up
    close_timeout_s: float = 3.0  # for the close handshake, after which the socket is closed
    ping_every_s: float = 20.0
    pong_within_s: float = 20.0


def render_frames(messages: Sequence[bytes]) -> bytes:
    """Render messages as unmasked, unfragmented text frames (RFC 6455 section 5.2)."""
    parts: list[bytes] = []
    for message in messages:
        size = len(message)
        if size <= _SHORT:
            head = bytes((_FIN_TEXT, size))
        elif size <= _MEDIUM:
            head = struct.pack("!BBH", _FIN_TEXT, 126, size)
        else:
            head = struct.pack("!BBQ", _FIN_TEXT, 127, size)
        parts += head, message
    return b"".join(parts)


class _SizeLimit(Extension):
    """Refuse a message by the lengths that its frames announce, before their payload comes.

    wsproto may read one header several times while the rest of it is awaited.
    """

    name = "size-limit"  # never negotiated

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._message_bytes = 0  # of the complete fragments
        self._frame_bytes = 0  # announced by the current fragment

    def enabled(self) -> bool:  # noqa: PLR6301 - wsproto asks for a method
        return True

    def offer(self) -> bool:  # noqa: PLR6301 - as above
        return False

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        del proto, rsv
        if not opcode.iscontrol():
            self._frame_bytes = payload_length
            if self._message_bytes + payload_length > self._max_bytes:
                text = f"a message may have {self._max_bytes} bytes"
                raise ParseFailed(text, CloseReason.MESSAGE_TOO_BIG)
        return RsvBits(rsv1=False, rsv2=False, rsv3=False)

    def frame_inbound_complete(
        self,
        proto: FrameDecoder | FrameProtocol,
        fin: bool,  # noqa: FBT001 - wsproto's signature
    ) -> bytes | CloseReason | None:
        header = proto.header if isinstance(proto, FrameDecoder) else None
        if header is not None and not header.opcode.iscontrol():
            self._message_bytes = 0 if fin else self._message_bytes + self._frame_bytes
        return None


class WebSocketTransport:
    """A `Transport` over one WebSocket; see `palyra.net.server.transport`."""

    def __init__(self, stream: PrefixedStream, limits: WebSocketLimits, *, name: str) -> None:
        self.name = name
        self._stream = stream
        self._limits = limits
        self._frames = Connection(
            ConnectionType.SERVER, extensions=[_SizeLimit(limits.max_message_bytes)]
        )
        self._incoming, self._messages = trio.open_memory_channel[bytes](_QUEUED_MESSAGES)
        self._partial = bytearray()
        self._write_lock = trio.StrictFIFOLock()
        self._pong = trio.Event()
        self._ended = trio.Event()  # no more frames can come
        self._refusal: BadFrame | None = None
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        """True while messages may be sent."""
        return self._frames.state is ConnectionState.OPEN and not self._ended.is_set()

    async def accept(self, head: RequestHead, subprotocol: str | None) -> None:
        """Answer a checked upgrade request with 101.  Raises PeerClosed.

        Frames that the peer sent together with the request are read by `read` like any other.
        """
        (key,) = head.values(b"sec-websocket-key")
        lines = [
            b"HTTP/1.1 101 Switching Protocols",
            b"Upgrade: WebSocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Accept: " + generate_accept_token(key),
        ]
        if subprotocol is not None:
            lines.append(b"Sec-WebSocket-Protocol: " + subprotocol.encode())
        await self._write(b"\r\n".join([*lines, b"", b""]))

    # --- the three parts of the Transport protocol ---

    async def receive(self) -> bytes:
        """Return the next whole text message as UTF-8.  Raises BadFrame, PeerClosed."""
        try:
            return await self._messages.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise self._refusal or self._peer_closed() from None

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write all messages with one write.  Raises PeerClosed, also if the peer stopped reading.

        Cancellation: the rest of the batch is written before the close frame, so `close` still
        works; another `send` would put its messages after messages the caller takes for lost.
        """
        if not self.is_open:
            raise self._peer_closed()
        with trio.move_on_after(self._limits.send_timeout_s) as scope:
            await self._write(render_frames(messages))
        if scope.cancelled_caught:
            await self.close(close_codes.SLOW_CONSUMER, "slow consumer")
            raise PeerClosed(
                f"{self.name}: the peer read nothing for {self._limits.send_timeout_s:g} s"
            )

    async def close(self, code: int, reason: str) -> None:
        """Close with that code, within `close_timeout_s`; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with trio.move_on_after(self._limits.close_timeout_s, shield=True), suppress(PeerClosed):
            if self._refusal is not None:  # our close frame is sent
                await self._stream.linger(max_bytes=4 * self._limits.max_message_bytes)
            else:
                if self.is_open:
                    await self._send_event(CloseConnection(code=code, reason=reason))
                self._messages.close()  # else the reader could wait for `receive`
                await self._ended.wait()
        self._stream.abort()

    # --- the reader ---

    async def read(self) -> None:
        """Read frames until the connection ends; answer pings and closes."""
        gone = (trio.BrokenResourceError, trio.ClosedResourceError, PeerClosed)
        try:
            with suppress(*gone, BadFrame):  # `receive` reports it
                await self._read_frames()
        finally:
            self._ended.set()
            self._pong.set()
            self._incoming.close()
            if self._refusal is None:
                self._stream.abort()

    async def _read_frames(self) -> None:
        while self._frames.state is not ConnectionState.CLOSED:
            data = await self._stream.receive_some(RECEIVE_BYTES)
            if not data:
                return
            self._frames.receive_data(data)
            for event in self._frames.events():
                await self._handle(event)

    async def _handle(self, event: Event) -> None:
        match event:
            case TextMessage() if self.is_open:
                self._partial += event.data.encode()
                if event.message_finished:
                    message = bytes(self._partial)
                    self._partial.clear()
                    with suppress(trio.ClosedResourceError, trio.BrokenResourceError):  # closing
                        await self._incoming.send(message)
                else:
                    await trio.lowlevel.checkpoint()  # empty fragments must not starve other tasks
            case BytesMessage() if self.is_open:
                text = "binary frames are not part of the protocol"
                await self._refuse(close_codes.UNSUPPORTED, text)
            case Ping() if self.is_open:  # a ping may cross our close frame
                await self._send_event(event.response())
            case Pong():
                self._pong.set()
                await trio.lowlevel.checkpoint()  # nor may unsolicited pongs
            case CloseConnection():
                await self._handle_close(event)
            case _:
                pass  # data that crosses our close frame

    async def _handle_close(self, event: CloseConnection) -> None:
        match self._frames.state:
            case ConnectionState.REMOTE_CLOSING:
                await self._send_event(event.response())
            case ConnectionState.OPEN:  # wsproto reports a parse error like this
                await self._refuse(int(event.code), event.reason or "")
            case _:  # the answer to our close frame, or a parse error in place of it
                raise self._peer_closed()

    async def _refuse(self, code: int, reason: str) -> None:
        """Send a close frame that names the protocol error.  Always raises BadFrame."""
        self._refusal = BadFrame(code, reason)
        with trio.move_on_after(self._limits.close_timeout_s):
            await self._send_event(CloseConnection(code=code, reason=reason))
        raise self._refusal

    # --- the keep-alive ---

    async def keep_alive(self) -> None:
        """Ping at intervals; close the socket of a peer that stays silent.  Never returns."""
        while True:
            await trio.sleep(self._limits.ping_every_s)
            asked_s = trio.current_time()
            with trio.move_on_after(self._limits.pong_within_s) as scope, suppress(PeerClosed):
                if self.is_open:
                    self._pong = trio.Event()
                    await self._send_event(Ping())
                    await self._pong.wait()
            # Any byte is a sign of life: a pong cannot overtake a long message.  And while a message
            # waits for `receive`, nothing is read: that is our doing, not the peer's.
            is_silent = scope.cancelled_caught and self._stream.heard_s < asked_s
            if is_silent and not self._incoming.statistics().tasks_waiting_send:
                self._stream.abort()

    # --- writing ---

    async def _send_event(self, event: Event) -> None:
        await self._write(self._frames.send(event))

    async def _write(self, data: bytes) -> None:
        async with self._write_lock:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_all(data)
                return
        self._stream.abort()
        raise self._peer_closed()

    def _peer_closed(self) -> PeerClosed:
        return PeerClosed(f"{self.name}: the connection is closed")


async def serve_websocket(
    stream: PrefixedStream,
    head: RequestHead,
    admission: UpgradeRequest,
    limits: WebSocketLimits,
    serve: Callable[[WebSocketTransport], Awaitable[None]],
    *,
    name: str,
) -> None:
    """Answer the handshake and let `serve` use the connection; both end together.

    `stream` starts after the head.  Cancellation: the peer gets close code 1001, bounded in time.
    """
    transport = WebSocketTransport(stream, limits, name=name)
    try:
        with trio.fail_after(limits.send_timeout_s):
            await transport.accept(head, admission.subprotocol)
    except (PeerClosed, trio.TooSlowError):
        return  # the peer left before it was answered
    reading = trio.CancelScope(shield=True)  # the peer's answer to our close must be read
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, transport, reading)
        nursery.start_soon(transport.keep_alive)
        try:
            await _serve_and_close(transport, serve)
        finally:
            reading.cancel(reason="the connection has been served")
        nursery.cancel_scope.cancel(reason="the connection has been served")


async def _read(transport: WebSocketTransport, reading: trio.CancelScope) -> None:
    with reading:
        await transport.read()


async def _serve_and_close(
    transport: WebSocketTransport, serve: Callable[[WebSocketTransport], Awaitable[None]]
) -> None:
    try:
        await serve(transport)
        await transport.close(close_codes.DONE, "")
    finally:  # after a crash of `serve`, or cancelled; else it is closed already
        is_cancelled = trio.current_effective_deadline() == -math.inf
        code, reason = (
            (close_codes.GOING_AWAY, "the daemon is shutting down")
            if is_cancelled
            else (close_codes.BUG, "internal error")
        )
        await transport.close(code, reason)  # noqa: ASYNC102 - shielded and bounded inside
