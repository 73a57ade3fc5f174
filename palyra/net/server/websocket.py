"""The WebSocket transport: text messages over one upgraded connection.

Owns: the engine of one connection, its reader and its keep-alive.  Used by: the listener.
Whatever a peer does (vanish, stall, send garbage) ends its own connection and nothing else.

The WebSocket engine: trio-websocket's connection with exact limits and batched writes.

Owns: the frames of one connection.  Used by: `palyra.net.websocket` only.
It changes three private handlers of trio-websocket, uses its send lock and puts a limit into
wsproto's decoder, so the version ranges in pyproject.toml are narrow and a test fails when one of
the names in `RELIED_ON` is gone.
"""

import math
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage
from wsproto.extensions import Extension
from wsproto.frame_protocol import (
    CloseReason,
    FrameDecoder,
    FrameProtocol,
    Opcode,
    ParseFailed,
    RsvBits,
)
from wsproto.utilities import LocalProtocolError

from palyra.net.protocol import close_codes
from palyra.net.server.request_head import RequestHead, UpgradeRequest
from palyra.net.server.stream import RECEIVE_BYTES, PrefixedStream
from palyra.net.server.transport import BadFrame, PeerClosed

RELIED_ON = frozenset(
    {
        "_abort_web_socket", "_accept", "_close_handshake", "_close_reason", "_close_web_socket",
        "_handle_close_connection_event", "_handle_message_event", "_handle_ping_event",
        "_handle_pong_event", "_reader_task", "_send", "_send_channel", "_stream_lock", "_wsproto",
    }
)  # fmt: skip

# One message waits for `get_message`, one is being put together: no peer can make us hold more.
_QUEUED_MESSAGES = 1
_FIN_TEXT = 0x81
_SHORT, _MEDIUM = 125, 65_535  # payload lengths up to which a frame's header has 2 and 4 bytes


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """Bounds of one connection."""

    max_message_bytes: int = 1_048_576
    send_timeout_s: float = 30.0  # a peer that takes nothing for so long does not read any more
    close_timeout_s: float = 3.0  # for the whole goodbye, after which the socket is just closed
    ping_every_s: float = 20.0
    pong_within_s: float = 20.0


def render_frames(messages: Sequence[bytes]) -> bytes:
    """All messages as unmasked, unfragmented text frames, back to back (RFC 6455 section 5.2)."""
    return b"".join(_parts(messages))


def _parts(messages: Sequence[bytes]) -> Iterator[bytes]:
    for message in messages:
        size = len(message)
        if size <= _SHORT:
            yield bytes((_FIN_TEXT, size))
        elif size <= _MEDIUM:
            yield struct.pack("!BBH", _FIN_TEXT, 126, size)
        else:
            yield struct.pack("!BBQ", _FIN_TEXT, 127, size)
        yield message


class _SizeLimit(Extension):
    """Refuses a message by the lengths that its frames announce, before their payload comes.

    wsproto may look at one header several times while the rest of it is awaited.
    """

    name = "size-limit"  # never offered: it is put into the decoder alone

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._message_bytes = 0  # of the fragments that have ended
        self._frame_bytes = 0  # announced by the present fragment

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


class Engine(WebSocketConnection):
    """One server-side connection.  Messages are handed out as UTF-8 bytes."""

    def __init__(self, stream: PrefixedStream, limits: WebSocketLimits) -> None:
        super().__init__(
            stream,
            WSConnection(ConnectionType.SERVER),
            message_queue_size=_QUEUED_MESSAGES,
            max_message_size=limits.max_message_bytes,
            receive_buffer_size=RECEIVE_BYTES,
        )
        self.refusal: BadFrame | None = None
        self._limits = limits
        self._partial = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether a message may still be sent."""
        return self._close_reason is None and self._wsproto.state is ConnectionState.OPEN

    @property
    def is_held_up(self) -> bool:
        """Whether reading stands still because nobody takes the message that was read."""
        return self._send_channel.statistics().tasks_waiting_send > 0

    async def shake_hands(self, head: RequestHead, subprotocol: str | None) -> None:
        """Answer a checked request with 101.  Raises ConnectionClosed.

        `read` starts afterwards, so what the peer sent too early are frames like any other.
        """
        self._wsproto.initiate_upgrade_connection(list(head.headers), head.target)
        request = cast("Request", next(self._wsproto.events()))
        await self._accept(request, subprotocol, [])
        connection = cast("Connection", self._wsproto.connection)
        decoder = connection._proto._frame_decoder  # noqa: SLF001 - see the module
        decoder.extensions.append(_SizeLimit(self._limits.max_message_bytes))

    async def read(self) -> None:
        """Read frames until the connection ends; answers pings and closes."""
        with suppress(BadFrame):  # `refusal` tells whoever receives
            await self._reader_task()

    async def send_batch(self, messages: Sequence[bytes]) -> None:
        """Write all messages with one `send_all`.  Raises ConnectionClosed.

        The lock is the engine's own, and first come first served: frames of the reader (pong,
        close) go before or after a batch, never into it.
        """
        if not self.is_open:
            raise ConnectionClosed(self._close_reason)
        data = render_frames(messages)
        async with self._stream_lock:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_all(data)
                return
        await self._abort_web_socket()
        raise ConnectionClosed(self._close_reason)

    async def check_alive(self) -> None:
        """Returns once the peer answered a ping, or the connection is closing."""
        with suppress(ConnectionClosed, LocalProtocolError):
            await self.ping()

    async def _handle_message_event(self, event: BytesMessage | TextMessage) -> None:
        # Replaces the base method, which counts characters, keeps every fragment as an object of
        # its own and lets a flood of empty fragments run without ever yielding to other tasks.
        if isinstance(event, BytesMessage):
            await self._refuse(
                close_codes.UNSUPPORTED, "binary frames are not part of the protocol"
            )
        self._partial += cast("str", event.data).encode()
        if not event.message_finished:
            await trio.lowlevel.checkpoint()
            return
        message = bytes(self._partial)
        self._partial.clear()
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):  # we are closing
            await self._send_channel.send(message)

    async def _handle_close_connection_event(self, event: CloseConnection) -> None:
        # OPEN means that wsproto made this event up because it cannot parse what came; the base
        # method would drop the connection without the close frame that says why.
        if self._wsproto.state is ConnectionState.OPEN:
            await self._refuse(int(event.code), event.reason or "")
        await super()._handle_close_connection_event(event)

    async def _handle_ping_event(self, event: Ping) -> None:
        # The base method raises LocalProtocolError for a ping that crosses our close frame.
        if self.is_open:
            await super()._handle_ping_event(event)

    async def _handle_pong_event(self, event: Pong) -> None:
        await super()._handle_pong_event(event)
        await trio.lowlevel.checkpoint()  # pongs nobody asked for must not starve other tasks

    async def _refuse(self, code: int, reason: str) -> None:
        """Say why and set `refusal`.  Always raises it, which ends the reader at once."""
        self.refusal = BadFrame(code, reason)
        with trio.move_on_after(self._limits.close_timeout_s), suppress(ConnectionClosed):
            await self._send(CloseConnection(code=code, reason=reason))
        await self._close_web_socket(code, reason)
        self._close_handshake.set()
        raise self.refusal


class WebSocketTransport:
    """A `Transport` over one WebSocket; see `palyra.net.server.transport`."""

    def __init__(
        self, engine: Engine, stream: PrefixedStream, limits: WebSocketLimits, *, name: str
    ) -> None:
        self.name = name
        self._engine = engine
        self._stream = stream
        self._limits = limits
        self._is_closed = False

    async def receive(self) -> bytes:
        """The next whole text message.  Raises BadFrame, PeerClosed."""
        try:
            message = await self._engine.get_message()
        except ConnectionClosed as closed:
            raise self._engine.refusal or PeerClosed(f"{self.name}: {closed.reason}") from None
        return message if isinstance(message, bytes) else message.encode()

    async def send(self, messages: Sequence[bytes]) -> None:
        """Write all messages in one go.  Raises PeerClosed, also when the peer stopped reading.

        Cancellation: the rest of the batch goes out before the close frame, so `close` still
        works; another `send` would put its messages after messages the caller takes for lost.
        """
        with trio.move_on_after(self._limits.send_timeout_s) as scope:
            try:
                await self._engine.send_batch(messages)
            except ConnectionClosed as closed:
                raise PeerClosed(f"{self.name}: {closed.reason}") from None
        if scope.cancelled_caught:
            await self.close(close_codes.SLOW_CONSUMER, "slow consumer")
            raise PeerClosed(f"{self.name}: took nothing for {self._limits.send_timeout_s:g} s")

    async def close(self, code: int, reason: str) -> None:
        """Say why and close, within `close_timeout_s`; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with trio.move_on_after(self._limits.close_timeout_s, shield=True):
            await self._say_goodbye(code, reason)
        self._stream.abort()

    async def _say_goodbye(self, code: int, reason: str) -> None:
        if self._engine.refusal is None:
            await self._engine.aclose(code, reason)
        else:  # our close frame is out; the peer may still be busy sending what was refused
            await self._stream.linger(max_bytes=4 * self._limits.max_message_bytes)

    async def keep_alive(self) -> None:
        """Ping now and then; close the socket of a peer that stays silent.  Never returns."""
        while True:
            await trio.sleep(self._limits.ping_every_s)
            asked_s = trio.current_time()
            with trio.move_on_after(self._limits.pong_within_s) as scope:
                await self._engine.check_alive()
            # Any byte is life: a pong cannot overtake a long message.  And while a message waits
            # for `receive` nothing is read at all: that is our doing.
            is_silent = scope.cancelled_caught and self._stream.heard_s < asked_s
            if is_silent and not self._engine.is_held_up:
                self._stream.abort()


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

    `stream` starts after the head.  Cancellation: the peer is told 1001, bounded in time.
    """
    engine = Engine(stream, limits)
    with trio.move_on_after(limits.send_timeout_s), suppress(ConnectionClosed):
        await engine.shake_hands(head, admission.subprotocol)
    if not engine.is_open:
        return  # the peer left before it was answered
    transport = WebSocketTransport(engine, stream, limits, name=name)
    reading = trio.CancelScope(shield=True)  # the peer's answer to our close must be heard
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, engine, reading)
        nursery.start_soon(transport.keep_alive)
        try:
            await _serve_and_close(transport, serve)
        finally:
            reading.cancel(reason="the connection has been served")
        nursery.cancel_scope.cancel(reason="the connection has been served")


async def _read(engine: Engine, reading: trio.CancelScope) -> None:
    with reading:
        await engine.read()


async def _serve_and_close(
    transport: WebSocketTransport, serve: Callable[[WebSocketTransport], Awaitable[None]]
) -> None:
    try:
        await serve(transport)
        await transport.close(close_codes.DONE, "")
    finally:  # after a crash of `serve`, or cancelled; else it is closed already
        is_cancelled = trio.current_effective_deadline() == -math.inf
        code, reason = (
            (close_codes.GOING_AWAY, "the daemon is going away")
            if is_cancelled
            else (close_codes.BUG, "internal error")
        )
        await transport.close(code, reason)  # noqa: ASYNC102 - shielded and bounded inside
