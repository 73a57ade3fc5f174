"""The network in memory: connections with latency that tear, fall silent and stall.

The daemon's end is a `Transport`; the client's end looks like the WebSocket of the real client
library, which is dialled through `dial.open_stream` and `dial.upgrade` as if it were TCP.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio
from trio_websocket import CloseReason, ConnectionClosed

from palyra.net.server.transport import PeerClosed
from tests.simulate.trace import Trace
from tests.simulate.weather import Weather

if TYPE_CHECKING:
    from tests.simulate.life import Life


WINDOW = 32  # messages on their way to the client; then the daemon's writes wait
LATENCY_S = (0.0002, 2.0)
STALL_S = 12.0  # longer than the daemon waits for one write
ABNORMAL = 1006

Inspect = Callable[["Wire", bytes], None]  # every message of the daemon, and every request


class _Way:
    """One direction: messages in order, each due at its time."""

    def __init__(self, window: float) -> None:
        self.sender, self.receiver = trio.open_memory_channel[tuple[float, bytes]](window)
        self._due_s = 0.0

    async def put(self, delay_s: float, data: bytes) -> None:
        self._due_s = max(self._due_s, trio.current_time() + delay_s)
        await self.sender.send((self._due_s, data))

    async def take(self) -> bytes:
        due_s, data = await self.receiver.receive()
        await trio.sleep_until(due_s)
        return data

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


class Wire:
    """One connection; also the `stream` that the client's dialler holds."""

    def __init__(self, network: "Network", number: int, life: "Life") -> None:
        self.network = network
        self.number = number
        self.life = life  # the life whose daemon is at the other end
        self.name = f"wire:{number}"
        self.is_cut = False
        self.is_silent = False
        self.down, self.up = _Way(WINDOW), _Way(float("inf"))
        self.farewell: CloseReason | None = None
        self._cut = trio.CancelScope()  # inside of it everybody waits on the wire

    def cut(self) -> None:
        """Both ends find it closed; what was on its way is lost."""
        if not self.is_cut:
            self.is_cut = True
            self.network.wires.pop(self, None)
            self.down.close()
            self.up.close()

    async def aclose(self) -> None:
        """The client's stream is closed."""
        self.cut()
        await trio.lowlevel.checkpoint()

    def suffer(self) -> float:
        """Apply the weather to one message; return its delay in seconds."""
        weather = self.network.weather
        if weather.strikes("connection torn"):
            self.cut()
        elif weather.strikes("connection silent"):
            self.is_silent = True
        return weather.draw_s(*LATENCY_S) if weather.strikes("message slow") else LATENCY_S[0]


class DaemonEnd:
    """The `Transport` of the daemon."""

    def __init__(self, wire: Wire) -> None:
        self.name = wire.name
        self._wire = wire

    async def receive(self) -> bytes:
        try:
            data = await self._wire.up.take()
        except (trio.EndOfChannel, trio.ClosedResourceError, trio.BrokenResourceError):
            raise PeerClosed from None
        if not self._wire.life.is_on:
            raise PeerClosed
        self._wire.network.on_request(self._wire, data)
        return data

    async def send(self, messages: Sequence[bytes]) -> None:
        wire = self._wire
        for message in messages:
            wire.life.effect(f"send {wire.name}", PeerClosed)
            wire.network.on_reply(wire, message)
            delay_s = wire.suffer()
            if wire.is_silent:
                await trio.sleep_forever()
            try:
                await wire.down.put(delay_s, message)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise PeerClosed from None

    async def close(self, code: int, reason: str) -> None:
        wire = self._wire
        if wire.life.is_on and not wire.is_silent:
            wire.network.trace.add(wire.name, f"the daemon closes: {code} {reason}")
            wire.farewell = wire.farewell or CloseReason(code, reason)
        wire.down.sender.close()
        wire.up.receiver.close()
        await trio.lowlevel.checkpoint()


class ClientEnd:
    """The part of `WebSocketConnection` that a client's link uses."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def get_message(self) -> str:
        wire = self._wire
        weather = wire.network.weather
        if weather.strikes("reader stalls"):
            await trio.sleep(STALL_S)
        try:
            data = await wire.down.take()
        except (trio.EndOfChannel, trio.ClosedResourceError, trio.BrokenResourceError):
            raise self._closed() from None
        return data.decode()

    async def send_message(self, text: str) -> None:
        wire = self._wire
        delay_s = wire.suffer()
        if wire.is_silent:
            await trio.sleep_forever()
        try:
            await wire.up.put(delay_s, text.encode())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise self._closed() from None

    async def ping(self) -> None:
        """As the real one: returns with the pong."""
        await trio.lowlevel.checkpoint()
        if self._wire.is_silent:
            await trio.sleep_forever()
        if self._wire.is_cut:
            raise self._closed()

    async def aclose(self) -> None:
        await self._wire.aclose()

    def _closed(self) -> ConnectionClosed:
        return ConnectionClosed(self._wire.farewell or CloseReason(ABNORMAL, "torn"))


class Network:
    """The listening daemon and all connections."""

    def __init__(self, weather: Weather, trace: Trace) -> None:
        self.weather = weather
        self.trace = trace
        self.wires: dict[Wire, None] = {}
        self.listening: Life | None = None
        self.on_request: Inspect = lambda _wire, _data: None
        self.on_reply: Inspect = lambda _wire, _data: None
        self._numbers = itertools.count(1)

    async def open_stream(self, _url: str) -> Wire:
        """Replace dialling TCP.  Raises OSError without a listener."""
        await trio.sleep(LATENCY_S[0])
        life = self.listening
        if life is None or not life.is_on:
            raise OSError("connection refused")
        wire = Wire(self, next(self._numbers), life)
        self.wires[wire] = None
        if not life.welcome(wire):
            wire.cut()
            raise OSError("connection refused")
        return wire

    async def upgrade(self, _nursery: trio.Nursery, stream: Any, _url: str) -> ClientEnd:
        """Replace making a WebSocket of a stream."""
        await trio.lowlevel.checkpoint()
        return ClientEnd(stream)

    def cut_all(self, life: "Life | None" = None) -> None:
        """Tear every connection, or those of one life."""
        for wire in list(self.wires):
            if life is None or wire.life is life:
                wire.cut()
