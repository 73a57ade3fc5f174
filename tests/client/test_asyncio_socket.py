"""The asyncio driver against servers that misbehave, over real sockets."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from wsproto import ConnectionType, WSConnection, events

from palyra.client import aio
from palyra.core.backoff import Backoff
from palyra.errors import (
    Forbidden,
    PalyraError,
    ProtocolError,
    Unauthenticated,
    Unavailable,
)
from tests.client.fake_daemon import HELLO
from tests.rows import every_row

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("_no_pauses")]

WITHIN_S = 120.0  # a bound against hanging, not a promise
WELCOME = {
    "principal": "owner",
    "role": "operator",
    "scopes": ["*"],
    "granted": [],
    "declined": [],
    "state": "ready",
}
LONG = '{"jsonrpc": "2.0", "method": "odd", "params": {"a": "%s"}}' % ("x" * 17_000_000)
Serve = Callable[["Peer"], Awaitable[None]]


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnects follow at once."""
    monkeypatch.setattr("palyra.client.reconnecting.BACKOFF", Backoff(base_s=0.001, cap_s=0.002))


class Peer:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._protocol = WSConnection(ConnectionType.SERVER)

    def send(self, event: events.Event) -> None:
        self.writer.write(self._protocol.send(event))

    def say(self, frame: dict[str, Any]) -> None:
        self.send(events.TextMessage(data=msgspec.json.encode(frame).decode()))

    async def events(self) -> AsyncGenerator[events.Event]:
        while data := await self.reader.read(65_536):
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                yield event

    async def greet(self) -> None:
        """Upgrade and say hello."""
        async for event in self.events():
            assert isinstance(event, events.Request)
            self.send(events.AcceptConnection(subprotocol="palyra.v1"))
            self.say({"jsonrpc": "2.0", "method": "hello", "params": {**HELLO, "instance_id": "i"}})
            return

    async def answer(self, on_ping: Callable[[], None]) -> None:
        """Welcome the client and answer `ping` after `on_ping`, until the end."""
        async for event in self.events():
            match event:
                case events.TextMessage(data=text):
                    request = msgspec.json.decode(text)
                    if request["method"] == "ping":
                        on_ping()
                    result = WELCOME if request["method"] == "connect" else {"now_ms": 1}
                    self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})
                case events.CloseConnection():
                    self.send(event.response())
                    return
                case _:
                    pass


@asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[str]:
    """A server; each connection is closed when `serve` has returned."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(Peer(reader, writer))
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/ws"
    finally:
        server.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, WITHIN_S))


async def dial(serve: Serve, **options: Any) -> None:
    async with serving(serve) as url, aio.connect(url, token="t", **options) as client:
        await client.ping()


async def hang_up(peer: Peer) -> None:
    await peer.reader.read(10)


async def talk_ssh(peer: Peer) -> None:
    peer.writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
    await peer.reader.read()


async def refuse_401(peer: Peer) -> None:
    peer.writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    await peer.reader.read()


async def refuse_403(peer: Peer) -> None:
    peer.writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    await peer.reader.read()


async def close_4401(peer: Peer) -> None:
    await peer.greet()
    peer.send(events.CloseConnection(code=4401, reason="unknown token"))
    await peer.reader.read()


async def hang_up_after_hello(peer: Peer) -> None:
    await peer.greet()


@every_row(
    ("serve", "kind"),
    [
        (hang_up, Unavailable),
        (talk_ssh, ProtocolError),
        (refuse_401, Unauthenticated),
        (refuse_403, Forbidden),
        (close_4401, Unauthenticated),
        (hang_up_after_hello, Unavailable),
    ],
)
def test_a_server_that_is_no_daemon(serve: Serve, kind: type[PalyraError]) -> None:
    """Connecting raises the typed error at once."""
    with pytest.raises(kind):
        run(dial(serve))


def test_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never answers is given up after the time for opening."""

    async def be_silent(peer: Peer) -> None:
        await peer.reader.read()

    monkeypatch.setattr("palyra.client.aio.OPEN_WITHIN_S", 0.1)
    with pytest.raises(Unavailable, match="did not answer"):
        run(dial(be_silent))


def make_message(data: str | bytes) -> events.Event:
    if isinstance(data, bytes):
        return events.BytesMessage(data=data)
    return events.TextMessage(data=data)


@pytest.mark.parametrize(
    "message", ["{", "[1]", b"binary", LONG], ids=["half", "no object", "binary", "long"]
)
def test_nonsense_costs_a_connection_only(message: str | bytes) -> None:
    """A message that is no JSON-RPC, or too long, ends the connection; the client makes another."""
    served: list[Peer] = []

    async def serve(peer: Peer) -> None:
        served.append(peer)
        await peer.greet()
        if len(served) > 1:
            await peer.answer(lambda: None)
            return
        await peer.answer(lambda: peer.send(make_message(message)))

    async def main() -> None:
        async with serving(serve) as url, aio.connect(url, token="t") as client:
            assert 1 == (await client.ping()).now_ms

    run(main())
    assert 2 == len(served)


def test_a_message_in_fragments() -> None:
    """Fragments are joined, with control frames between them."""

    async def serve(peer: Peer) -> None:
        await peer.greet()

        def interrupt() -> None:
            peer.send(
                events.TextMessage(data='{"jsonrpc": "2.0", "method"', message_finished=False)
            )
            peer.send(events.Ping(payload=b"x"))
            peer.send(events.TextMessage(data=': "odd", "params": {"a": "\u00e4"}}'))

        await peer.answer(interrupt)

    async def main() -> None:
        async with (
            serving(serve) as url,
            aio.connect(url, token="t") as client,
            client.notices() as notices,
        ):
            await client.ping()
            assert {"a": "\u00e4"} == (await anext(notices)).params

    run(main())


def test_a_dead_peer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that keeps the connection open but answers no ping is replaced."""
    monkeypatch.setattr("palyra.client.connection.PING_EVERY_S", 0.02)
    monkeypatch.setattr("palyra.client.connection.PONG_WITHIN_S", 0.1)
    served: list[Peer] = []
    replaced = asyncio.Event()

    async def serve(peer: Peer) -> None:
        served.append(peer)
        if len(served) > 1:  # a busy machine answers late, too: this one must not be judged
            monkeypatch.setattr("palyra.client.connection.PONG_WITHIN_S", WITHIN_S)
            replaced.set()
        await peer.greet()
        await peer.answer(lambda: None)  # but no ping of the WebSocket

    async def main() -> None:
        async with serving(serve) as url, aio.connect(url, token="t") as client:
            await replaced.wait()
            await client.wait_connected()
            assert 1 == (await client.ping()).now_ms

    run(main())


def test_cancelling_a_call_leaves_the_connection() -> None:
    """A cancelled call frees its slot; the late reply to it is ignored."""
    pings: list[int] = []
    arrived = asyncio.Event()

    def hold(peer: Peer, request_id: int) -> None:
        """Answer the first ping after the second has come."""
        pings.append(request_id)
        arrived.set()
        for one in pings if len(pings) > 1 else ():
            peer.say({"jsonrpc": "2.0", "id": one, "result": {"now_ms": one}})

    async def serve(peer: Peer) -> None:
        await peer.greet()
        texts = (
            event.data async for event in peer.events() if isinstance(event, events.TextMessage)
        )
        async for text in texts:
            request = msgspec.json.decode(text)
            if request["method"] == "ping":
                hold(peer, request["id"])
            else:
                peer.say({"jsonrpc": "2.0", "id": request["id"], "result": WELCOME})

    async def main() -> None:
        async with serving(serve) as url, aio.connect(url, token="t") as client:
            call = asyncio.create_task(client.ping())
            await arrived.wait()
            call.cancel()
            assert pings[0] + 1 == (await client.ping()).now_ms
            assert client.is_connected

    run(main())
