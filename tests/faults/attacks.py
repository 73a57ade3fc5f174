"""The attacks: raw sockets that break one rule each, and how their connection may end.

`hostile_sockets` runs them; each is entered into `ATTACKS` under its own name.
"""

import random
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from palyra.net.server.accept import EdgeSettings
from palyra.net.server.websocket import WebSocketLimits
from tests.net.server.peers import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    UPGRADE,
    RawPeer,
    frame,
)

MAX_MESSAGE_BYTES = 65_536
SETTINGS = EdgeSettings(
    max_connections=64,
    head_timeout_s=0.5,
    websocket=WebSocketLimits(
        max_message_bytes=MAX_MESSAGE_BYTES,
        send_timeout_s=1.0,
        close_timeout_s=0.5,
        ping_every_s=0.5,  # short, so that the deaf are found; no shorter than a busy machine needs
        pong_within_s=3.0,
    ),
)
FLOOD_SOCKETS = 100  # more than the cap

FULL = b"HTTP/1.1 503 "
END = "end"  # the connection just ended, or was reset
ECHO = "echo"  # it was served as if nothing had happened


class TurnedAway(Exception):
    """The edge is full of other attackers: try again."""


@dataclass
class Target:
    """The edge under attack, and how hard to try."""

    port: int
    frames: int
    rng: random.Random

    async def dial(self) -> RawPeer:
        return RawPeer(await trio.open_tcp_stream("127.0.0.1", self.port))

    @property
    def upgrade(self) -> bytes:
        return UPGRADE.replace(b"7420", b"%d" % self.port)

    async def open(self, early: bytes = b"") -> RawPeer:
        """Open a connection and upgrade it.  Raises TurnedAway when the edge is full."""
        peer = await self.dial()
        answer = await self._read_answer(peer, early)
        if answer.startswith(b"HTTP/1.1 101 "):
            return peer
        peer.stream.socket.close()
        assert answer in {b"", FULL}, answer
        raise TurnedAway

    async def _read_answer(self, peer: RawPeer, early: bytes) -> bytes:
        """The answer to the upgrade, of a refusal only the beginning; empty when there is none."""
        try:
            await peer.send(self.upgrade + early)
            answer = await peer.read_until(b"\r\n\r\n")
        except (EOFError, trio.BrokenResourceError):
            return b""
        return FULL if answer.startswith(FULL) else answer


Attack = Callable[[Target], Awaitable[str]]
ATTACKS: dict[str, tuple[Attack, set[str]]] = {}


def attack(*allowed: str) -> Callable[[Attack], Attack]:
    """Enter the function into the table, with the ends its connection may come to."""

    def enter(function: Attack) -> Attack:
        ATTACKS[function.__name__] = (function, set(allowed))
        return function

    return enter


async def read_status(peer: RawPeer) -> str:
    """`http 400`, or the bare end."""
    data = await peer.read_to_end()
    return f"http {data[9:12].decode()}" if data.startswith(b"HTTP/1.1 ") else END


async def read_end(peer: RawPeer) -> str:
    """Return how the connection ended (`close 1002` or the bare end), skipping other frames."""
    try:
        while True:
            opcode, payload = await peer.read_frame()
            if opcode == CLOSE:
                return f"close {int.from_bytes(payload[:2], 'big')}"
    except EOFError:
        return END


async def read_echo(peer: RawPeer, text: bytes) -> str:
    """`echo` when that text is what comes next but for control frames; pings are answered."""
    try:
        opcode, payload = PONG, b""
        while opcode in {PING, PONG}:
            opcode, payload = await peer.read_frame()
            if opcode == PING:
                await peer.send(frame(PONG, payload))
    except (EOFError, trio.BrokenResourceError):
        return END
    return ECHO if (opcode, payload) == (TEXT, text) else f"frame {opcode}"


async def send_bad_head(target: Target, data: bytes) -> str:
    peer = await target.dial()
    async with peer.stream:
        await peer.send(data)
        return refuse_full(await read_status(peer))


def refuse_full(end: str) -> str:
    if end == "http 503":
        raise TurnedAway
    return end


async def send_bad_frame(target: Target, data: bytes) -> str:
    peer = await target.open()
    async with peer.stream:
        await peer.send(data)
        return await read_end(peer)


def reset(peer: RawPeer) -> None:
    """Vanish: the connection is torn down without a FIN."""
    peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.stream.socket.close()


# --- before the upgrade


@attack("http 400", END)
async def garbage(target: Target) -> str:
    return await send_bad_head(target, target.rng.randbytes(300) + b"\r\n\r\n")


@attack("http 400")
async def tls_hello(target: Target) -> str:
    return await send_bad_head(target, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


@attack("http 431")
async def giant_head(target: Target) -> str:
    return await send_bad_head(target, target.upgrade[:-2] + b"X: " + b"x" * 30_000)


@attack("http 408")
async def half_head(target: Target) -> str:
    return await send_bad_head(target, target.upgrade[: target.rng.randrange(1, 80)])


@attack(END)
async def silence(target: Target) -> str:
    return await send_bad_head(target, b"")


@attack("http 408", END)
async def slow_head(target: Target) -> str:
    peer = await target.dial()
    async with peer.stream:
        for byte in target.upgrade[:60]:
            with trio.move_on_after(0.02):
                return refuse_full(await read_status(peer))
            await peer.send(bytes((byte,)))
        return refuse_full(await read_status(peer))


@attack("http 403")
async def foreign_host(target: Target) -> str:
    return await send_bad_head(target, target.upgrade.replace(b"127.0.0.1", b"evil.example"))


@attack("http 403")
async def foreign_origin(target: Target) -> str:
    return await send_bad_head(target, target.upgrade[:-2] + b"Origin: null\r\n\r\n")


@attack(END)
async def vanish_in_head(target: Target) -> str:
    peer = await target.dial()
    await peer.send(target.upgrade[:50])
    reset(peer)
    return END


@attack(END)
async def vanish_after_head(target: Target) -> str:
    peer = await target.dial()
    await peer.send(target.upgrade)
    reset(peer)
    return END


@attack("served or turned away")
async def connect_flood(target: Target) -> str:
    """More sockets at once than the cap; each is served or answered 503."""
    peers = [await target.dial() for _ in range(FLOOD_SOCKETS)]
    ends: Counter[str] = Counter()
    for peer in peers:
        async with peer.stream:
            ends[await send_to_the_crowd(peer)] += 1
    is_expected = set(ends) <= {"http 400", "http 503", END}
    return "served or turned away" if is_expected else str(dict(ends))


async def send_to_the_crowd(peer: RawPeer) -> str:
    try:
        await peer.send(b"nonsense\r\n\r\n")
    except trio.BrokenResourceError:
        return await read_status(peer)
    return await read_status(peer)


# --- with and after the upgrade


@attack(ECHO)
async def early_frames(target: Target) -> str:
    peer = await target.open(early=frame(TEXT, b"early") + frame(PING, b"p"))
    async with peer.stream:
        return await read_echo(peer, b"early")


@attack("close 1002", "close 1003", "close 1007", "close 1009", END)
async def early_garbage(target: Target) -> str:
    peer = await target.open(early=b"\xff" + target.rng.randbytes(200))
    async with peer.stream:
        return await read_end(peer)


BAD_FRAMES = {
    "reserved_bit_1": (frame(TEXT, b"x", first=0xC0), "close 1002"),
    "reserved_bit_2": (frame(TEXT, b"x", first=0xA0), "close 1002"),
    "reserved_bit_3": (frame(TEXT, b"x", first=0x90), "close 1002"),
    "reserved_opcode": (frame(3, b"x"), "close 1002"),
    "reserved_control": (frame(11, b"x"), "close 1002"),
    "unmasked": (frame(TEXT, b"x", masked=False), "close 1002"),
    "fragmented_ping": (frame(PING, first=0), "close 1002"),
    "fragmented_close": (frame(CLOSE, first=0), "close 1002"),
    "long_control": (frame(PING, b"x" * 126), "close 1002"),
    "binary": (frame(BINARY, b"x" * 1_000), "close 1003"),
    "invalid_utf8": (frame(TEXT, b"\xf0\x28\x8c\xbc"), "close 1007"),
    "too_big": (frame(TEXT, b"x" * (MAX_MESSAGE_BYTES + 1)), "close 1009"),
    "polite_close": (frame(CLOSE, b"\x03\xe8bye"), "close 1000"),
}
ATTACKS |= {
    name: (partial(send_bad_frame, data=data), {end}) for name, (data, end) in BAD_FRAMES.items()
}


@attack("close 1009", END)
async def endless_message(target: Target) -> str:
    """A frame that announces 2^62 bytes, and some of them."""
    peer = await target.open()
    async with peer.stream:
        await peer.send(b"\x81\xff" + (1 << 62).to_bytes(8, "big") + b"\x00" * 4)
        try:
            for _ in range(64):
                await peer.send(b"x" * MAX_MESSAGE_BYTES)
        except trio.BrokenResourceError:
            return END
        return await read_end(peer)


@attack(END)
async def vanish_in_frame(target: Target) -> str:
    peer = await target.open()
    await peer.send(frame(TEXT, b"x" * 1_000)[: target.rng.randrange(1, 900)])
    reset(peer)
    return END


@attack(END)
async def vanish_while_answered(target: Target) -> str:
    peer = await target.open()
    await peer.send(frame(TEXT, b"x" * 60_000) * 4)
    reset(peer)
    return END


@attack("close 1013", END)
async def stall(target: Target) -> str:
    """Ask for megabytes, read none of them until the server has given up."""
    peer = await target.open()
    async with peer.stream:
        request = frame(TEXT, b"x" * 60_000)
        with trio.move_on_after(3):
            for _ in range(200):
                await peer.send(request)
        return await read_end(peer)


@attack(END, "close 1006")
async def deaf(target: Target) -> str:
    """Answer no ping."""
    peer = await target.open()
    async with peer.stream:
        return await read_end(peer)


# --- floods, `frames` of each


@attack(ECHO)
async def empty_fragments(target: Target) -> str:
    fragment = frame(CONTINUATION, first=0)
    begin, end = frame(TEXT, b"ab", first=0), frame(CONTINUATION, b"c")
    return await flood(target, begin, fragment, end, expected=b"abc")


@attack(ECHO)
async def pong_flood(target: Target) -> str:
    return await flood(target, b"", frame(PONG, b"x"), frame(TEXT, b"there?"), expected=b"there?")


@attack(ECHO)
async def ping_flood(target: Target) -> str:
    return await flood(target, b"", frame(PING, b"x"), frame(TEXT, b"there?"), expected=b"there?")


@attack(END)
async def ping_flood_unread(target: Target) -> str:
    peer = await target.open()
    with trio.move_on_after(2):
        await send_many(peer, frame(PING, b"x" * 125), target.frames)
    reset(peer)
    return END


async def flood(target: Target, begin: bytes, data: bytes, end: bytes, *, expected: bytes) -> str:
    """Send `data` again and again between the others, while reading what comes back."""
    peer = await target.open()
    async with peer.stream, trio.open_nursery() as nursery:
        nursery.start_soon(send_flood, peer, begin, data, end, target.frames)
        result = await read_echo(peer, expected)
        nursery.cancel_scope.cancel(reason="it has ended")
    return result


async def send_flood(peer: RawPeer, begin: bytes, data: bytes, end: bytes, count: int) -> None:
    try:
        await peer.send(begin)
        await send_many(peer, data, count)
        await peer.send(end)
    except trio.BrokenResourceError:
        return  # a reading client sees it too


async def send_many(peer: RawPeer, data: bytes, count: int) -> None:
    for _ in range(count // 100):
        await peer.send(data * 100)
    await peer.send(data * (count % 100))


@attack("fuzzed")
async def random_frames(target: Target) -> str:
    """Headers and payloads at random, a connection after the other, until the frames are used."""
    left = target.frames
    while left > 0:
        peer = await target.open()
        async with peer.stream:
            left -= await send_random_frames(peer, target.rng, min(left, 50))
    return "fuzzed"


async def send_random_frames(peer: RawPeer, rng: random.Random, count: int) -> int:
    for sent in range(count):
        size = rng.choice([0, 1, 125, 126, 300])
        first = rng.choice([0x80, 0x80, 0x80, 0x00, rng.randrange(256) & 0xF0])
        opcode = rng.choice([TEXT, TEXT, CONTINUATION, PING, PONG, rng.randrange(16)])
        try:
            await peer.send(frame(opcode, rng.randbytes(size), first=first))
        except trio.BrokenResourceError:
            return sent + 1
    return count
