"""The real connection over real WebSockets: what the parts promise, kept by the whole."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.connection.connection import serve_connection
from palyra.net.server.transport import Peer, Transport
from tests.net.api.fake_services import RUN, Daemon, open_daemon, row
from tests.net.server.edges import WITHIN_S, RunningEdge, running_edge
from tests.net.server.peers import BINARY, CLOSE, PING, PONG, TEXT, RawPeer, frame

pytestmark = pytest.mark.real

Json = dict[str, Any]


class Client:
    """A client that speaks the protocol over a raw peer."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer

    async def receive(self) -> Json:
        """The next message; pings are answered."""
        while True:
            opcode, payload = await self.peer.read_frame()
            if opcode == PING:
                await self.peer.send(frame(PONG, payload))
            elif opcode == CLOSE:
                raise Closed(int.from_bytes(payload[:2], "big"), payload[2:].decode())
            else:
                return dict(json.loads(payload))

    async def ask(self, method: str, **params: object) -> Json:
        """The reply; notifications before it are dropped."""
        request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        await self.peer.send(frame(TEXT, json.dumps(request).encode()))
        while "id" not in (message := await self.receive()):
            pass
        return message

    async def read_close(self) -> tuple[int, str]:
        """Code and reason of the close frame, whatever comes before it."""
        try:
            while True:
                await self.receive()
        except Closed as closed:
            return closed.code, closed.reason


class Closed(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


@asynccontextmanager
async def serving(
    limits: ConnectionLimits | None = None,
) -> AsyncGenerator[tuple[Daemon, RunningEdge], None]:
    async with open_daemon(limits) as daemon:

        async def serve(transport: Transport, peer: Peer) -> None:
            await serve_connection(transport, peer, daemon.backend)

        async with running_edge(serve) as running:
            yield daemon, running


async def dial(running: RunningEdge, token: str | None = "tok-ann") -> Client:
    """A client after hello; with a token, on the upgrade, also after connect."""
    header = f"Authorization: Bearer {token}\r\n".encode() if token else b""
    client = Client(await running.open_websocket(header))
    hello = await client.receive()
    assert "hello" == hello["method"]
    if token:
        reply = await client.ask("connect", client={"name": "test"})
        assert "ann" == reply["result"]["principal"]
    return client


async def test_token_of_the_upgrade_opens_the_connection() -> None:
    """A token in the Authorization header needs no repetition in connect."""
    async with serving() as (_, running):
        client = await dial(running)
        async with client.peer.stream:
            assert "ready" == (await client.ask("system.status"))["result"]["state"]


async def test_wrong_token_of_the_upgrade_is_4401() -> None:
    """The close frame says that the token is not known, and does not repeat it."""
    async with serving() as (_, running):
        client = Client(await running.open_websocket(b"Authorization: Bearer tok-wrong\r\n"))
        async with client.peer.stream:
            await client.receive()
            assert "unauthenticated" == (await client.ask("connect"))["error"]["data"]["code"]
            code, reason = await client.read_close()
    assert 4401 == code
    assert "tok-wrong" not in reason


async def test_silence_after_hello_is_4401() -> None:
    """A client that does not connect in time is closed."""
    async with serving(ConnectionLimits(connect_timeout_s=0.05)) as (_, running):
        client = await dial(running, token=None)
        async with client.peer.stream:
            assert 4401 == (await client.read_close())[0]


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (1003, frame(BINARY, b"{}")),
        (1007, frame(TEXT, b'"\xff"')),
        (1009, frame(TEXT, b"x" * 1_048_577)),
        (1002, frame(TEXT, b"{}", first=0xF0)),
        (1002, frame(TEXT, b"{}", masked=False)),
    ],
)
async def test_bad_frame_closes_with_its_code(code: int, data: bytes) -> None:
    """The client that broke a rule learns which; its neighbour is served on."""
    async with serving() as (_, running):
        good, bad = await dial(running), await dial(running)
        async with good.peer.stream, bad.peer.stream:
            await bad.peer.send(data)
            assert code == (await bad.read_close())[0]
            assert "result" in await good.ask("ping")


async def test_stalled_reader_is_closed_while_another_sees_everything() -> None:
    """A client that stops reading gets 1013 and its last seq; the other one misses nothing."""
    limits = ConnectionLimits(outbox_bytes=400_000, stall_s=0.3)
    rows = [row(seq, text="x" * 50_000) for seq in range(200)]
    async with serving(limits) as (daemon, running):
        slow, quick = await dial(running), await dial(running)
        async with slow.peer.stream, quick.peer.stream:
            for client in (slow, quick):
                assert "result" in await client.ask("tape.subscribe", run_id=RUN, after_seq=-1)
            seen = []
            for one in rows:
                daemon.commit(one)
                daemon.publish(one)
                seen.append(await next_seq(quick))
            code, reason = await slow.read_close()
    assert [one.seq for one in rows] == seen
    assert 1013 == code
    assert reason.startswith("slow consumer: last seq ")


async def next_seq(client: Client) -> int:
    with trio.fail_after(WITHIN_S):
        while (message := await client.receive())["method"] != "tape.event":
            pass
    return int(message["params"]["seq"])
