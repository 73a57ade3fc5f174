"""The protocol by hand: frames over a plain socket, nothing of the client library."""

import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import trio

from tests.net.server.peers import CLOSE, PING, PONG, TEXT, UPGRADE, RawPeer, frame

Json = dict[str, Any]
WITHIN_S = 120.0  # a bound against hanging, not a promise


class Closed(Exception):
    """The daemon closed the connection."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class Wire:
    """One connection; for one task at a time."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.notices: deque[Json] = deque()  # read while waiting for something else
        self.seen: list[bytes] = []  # every text message, as it came
        self._ids = count(1)
        self._replies: dict[object, Json] = {}

    async def send(self, message: object) -> None:
        """One message, as JSON."""
        await self.peer.send(frame(TEXT, msgspec.json.encode(message)))

    async def ask(self, method: str, **params: object) -> int:
        """Send a request; its id."""
        number = next(self._ids)
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    async def reply(self, request_id: object) -> Json:
        """The whole reply to that request.  Raises Closed."""
        while request_id not in self._replies:
            await self._read()
        return self._replies.pop(request_id)

    async def request(self, method: str, **params: object) -> Json:
        """The whole reply, result or error."""
        return await self.reply(await self.ask(method, **params))

    async def call(self, method: str, **params: object) -> Any:
        """The result; an error fails the test."""
        reply = await self.request(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    async def refused(self, method: str, **params: object) -> Json:
        """The `data` of the error; a result fails the test."""
        reply = await self.request(method, **params)
        assert "error" in reply, reply
        data: Json = reply["error"]["data"]
        return data

    async def notice(self, wanted: Callable[[Json], bool] = lambda _: True) -> Json:
        """The next notification that is wanted; the others are dropped.  Raises Closed."""
        while True:
            while self.notices:
                found = self.notices.popleft()
                if wanted(found):
                    return found
            await self._read()

    async def named(self, method: str) -> Json:
        """The params of the next notification of that name."""
        found: Json = (await self.notice(lambda one: one["method"] == method))["params"]
        return found

    async def closed(self) -> Closed:
        """The close code of the daemon; other frames are kept."""
        while True:
            try:
                await self._read()
            except Closed as closed:
                return closed

    async def _read(self) -> None:
        try:
            opcode, payload = await self.peer.read_frame()
        except EOFError:
            raise Closed(1006, "no goodbye") from None
        if opcode == PING:
            await self.peer.send(frame(PONG, payload))
        elif opcode == CLOSE:
            code = struct.unpack("!H", payload[:2])[0] if payload else 1005
            raise Closed(code, payload[2:].decode())
        elif opcode == TEXT:
            self.seen.append(payload)
            value = msgspec.json.decode(payload)
            for message in value if isinstance(value, list) else [value]:
                self._sort(message)

    def _sort(self, message: Json) -> None:
        if "method" in message:
            self.notices.append(message)
        else:
            self._replies[message["id"]] = message

    def vanish(self) -> None:
        """End the connection by a reset: no close frame, no FIN."""
        raw = self.peer.stream.socket
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()


async def dial(port: int, *, room: int | None = None) -> RawPeer:
    """A plain TCP connection to the daemon with a receive buffer of `room` bytes."""
    raw = trio.socket.socket()
    if room is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    await raw.connect(("127.0.0.1", port))
    return RawPeer(trio.SocketStream(raw))


def upgrade_request(port: int, *lines: str) -> bytes:
    """A good handshake with more header lines."""
    request = UPGRADE.replace(b"7420", b"%d" % port)
    return (
        request.removesuffix(b"\r\n") + b"".join(f"{line}\r\n".encode() for line in lines) + b"\r\n"
    )


@asynccontextmanager
async def open_wire(
    port: int, *lines: str, early: bytes = b"", room: int | None = None
) -> AsyncGenerator[Wire]:
    """A connection after the 101 response, before `connect`."""
    peer = await dial(port, room=room)
    with trio.fail_after(WITHIN_S):
        async with peer.stream:
            await peer.send(upgrade_request(port, *lines) + early)
            peer.answer = await peer.read_until(b"\r\n\r\n")
            assert peer.answer.startswith(b"HTTP/1.1 101 "), peer.answer
            yield Wire(peer)


@asynccontextmanager
async def connected(
    port: int, token: str, *want: str, room: int | None = None
) -> AsyncGenerator[Wire]:
    """A connection after hello and connect."""
    async with open_wire(port, room=room) as wire:
        await wire.named("hello")
        await wire.call("connect", token=token, client={"name": "e2e"}, want=list(want))
        yield wire


async def reach_all(
    port: int, token: str, run_ids: Sequence[str], kind: str, *, after_seq: int = -1
) -> dict[str, Json]:
    """The first such event after `after_seq` of each of these runs, once all are committed."""
    found: dict[str, Json] = {}
    committed = dict.fromkeys(run_ids, -1)
    async with connected(port, token, "batch") as wire:
        for run_id in run_ids:
            await wire.call("tape.subscribe", run_id=run_id, kinds=[kind], after_seq=after_seq)
        while not (
            len(found) == len(run_ids)
            and all(committed[run_id] >= event["seq"] for run_id, event in found.items())
        ):
            told = await wire.notice(lambda one: one["method"] in {"tape.event", "tape.committed"})
            run_id = told["params"]["run_id"]
            if told["method"] == "tape.event":
                found.setdefault(run_id, told["params"])
            committed[run_id] = max(committed[run_id], told["params"]["committed"])
    return found
