"""The WebSocket transport: text messages over one upgraded connection.

Owns: the engine of one connection, its reader and its keep-alive.  Used by: the listener.
Whatever a peer does (vanish, stall, send garbage) ends its own connection and nothing else.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import trio
from trio_websocket import ConnectionClosed

from palyra.net import closing
from palyra.net.engine import Engine, WebSocketLimits
from palyra.net.replay import ReplayStream
from palyra.net.sniff import Head
from palyra.net.transport import PeerClosed
from palyra.net.upgrade import Admission


class WebSocketTransport:
    """A `Transport` over one WebSocket; see `palyra.net.transport`."""

    def __init__(
        self, engine: Engine, stream: ReplayStream, limits: WebSocketLimits, *, name: str
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
            await self.close(closing.SLOW_CONSUMER, "slow consumer")
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
    stream: ReplayStream,
    head: Head,
    admission: Admission,
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
        await transport.close(closing.DONE, "")
    finally:  # after a crash of `serve`, or cancelled; else it is closed already
        is_cancelled = trio.current_effective_deadline() == -math.inf
        code, reason = (
            (closing.GOING_AWAY, "the daemon is going away")
            if is_cancelled
            else (closing.BUG, "internal error")
        )
        await transport.close(code, reason)  # noqa: ASYNC102 - shielded and bounded inside
