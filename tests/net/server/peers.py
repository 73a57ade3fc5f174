"""The other side of the wire for the transport tests: sockets, raw frames, handshakes."""

import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from palyra.net.server.request_head import (
    Names,
    UpgradeRequest,
    check_upgrade,
    read_head,
    replay_rest,
)
from palyra.net.server.transport import PeerClosed, Transport
from palyra.net.server.websocket import WebSocketLimits, serve_websocket

PORT = 7420
MASK = b"\x01\x02\x03\x04"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\n"
    b"Host: 127.0.0.1:7420\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
    b"\r\n"
)
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # the answer to that key in RFC 6455 section 1.3
TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 0x1, 0x2, 0x8, 0x9, 0xA, 0x0

Serve = Callable[[Transport], Awaitable[None]]


async def echo(transport: Transport) -> None:
    """Send every message back; the peer's end is the end.  A bad frame is a crash on purpose."""
    try:
        while True:
            await transport.send([await transport.receive()])
    except PeerClosed:
        return


def open_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    """Two ends of one connection."""
    near, far = trio.socket.socketpair()
    return trio.SocketStream(near), trio.SocketStream(far)


def mask(payload: bytes) -> bytes:
    """Mask a payload as a client must."""
    keys = (MASK * (len(payload) // 4 + 1))[: len(payload)]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(keys, "big")
    return masked.to_bytes(len(payload), "big")


def frame(opcode: int, payload: bytes = b"", *, first: int = 0x80, masked: bool = True) -> bytes:
    """One client frame; `first` holds FIN and the reserved bits."""
    size, mask_bit = len(payload), 0x80 if masked else 0
    if size <= 125:
        head = struct.pack("!BB", first | opcode, mask_bit | size)
    elif size <= 65_535:
        head = struct.pack("!BBH", first | opcode, mask_bit | 126, size)
    else:
        head = struct.pack("!BBQ", first | opcode, mask_bit | 127, size)
    return head + (MASK + mask(payload) if masked else payload)


class RawPeer:
    """A client that writes bytes as it likes and reads server frames one by one."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.answer = b""
        self._read = bytearray()
        self._writing = trio.Lock()

    async def send(self, data: bytes) -> None:
        async with self._writing:
            await self.stream.send_all(data)

    async def read_until(self, end: bytes) -> bytes:
        """Everything up to and with `end`."""
        while end not in self._read:
            await self._read_more()
        return self._take(self._read.index(end) + len(end))

    async def read_frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next server frame, which must be whole and unmasked."""
        first, second = await self._read_exactly(2)
        assert first & 0xF0 == 0x80
        size = second
        if second == 126:
            (size,) = struct.unpack("!H", await self._read_exactly(2))
        elif second == 127:
            (size,) = struct.unpack("!Q", await self._read_exactly(8))
        return first & 0x0F, await self._read_exactly(size)

    async def read_close(self) -> int:
        """The code of the close frame that comes next; 1006 when the connection just ends."""
        opcode, payload = PING, b""
        try:
            while opcode == PING:
                opcode, payload = await self.read_frame()
        except EOFError:
            return 1006
        assert opcode == CLOSE
        return int.from_bytes(payload[:2], "big")

    async def read_to_end(self) -> bytes:
        try:
            while True:
                await self._read_more()
        except EOFError:
            return self._take(len(self._read))

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            await self._read_more()
        return self._take(size)

    async def _read_more(self) -> None:
        try:
            data = await self.stream.receive_some(65_536)
        except trio.BrokenResourceError as error:
            raise EOFError("reset") from error
        if not data:
            raise EOFError("end")
        self._read += data

    def _take(self, size: int) -> bytes:
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken


async def serve_socket(stream: trio.SocketStream, serve: Serve, limits: WebSocketLimits) -> None:
    """Serve an admitted upgrade as the listener does."""
    head, parser = await read_head(stream, timeout_s=5)
    admission = check_upgrade(head, Names(PORT))
    assert isinstance(admission, UpgradeRequest)
    replay = replay_rest(stream, parser)
    await serve_websocket(replay, head, admission, limits, serve, name="ws:test")


@asynccontextmanager
async def connected(
    serve: Serve = echo,
    *,
    extra: bytes = b"",
    early: bytes = b"",
    limits: WebSocketLimits | None = None,
    scope: trio.CancelScope | None = None,
) -> AsyncGenerator[RawPeer, None]:
    """A raw client that was just answered 101; leaving waits for the server side to end.

    `extra` are header lines of the upgrade, `early` bytes sent with it; `scope` cancels the
    server side.
    """
    near, far = open_pair()

    async def serve_far() -> None:
        with scope or trio.CancelScope():
            await serve_socket(far, serve, limits or WebSocketLimits())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_far)
        peer = RawPeer(near)
        try:
            await peer.send(UPGRADE.removesuffix(b"\r\n") + extra + b"\r\n" + early)
            peer.answer = await peer.read_until(b"\r\n\r\n")
            yield peer
        finally:
            near.socket.close()
