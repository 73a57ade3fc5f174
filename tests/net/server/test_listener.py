"""The listener and its connections: one port, a child per socket, isolated from each other."""

import errno
import socket

import pytest
import trio
from trio.testing import MockClock, open_stream_to_socket_listener

from palyra.errors import Unavailable
from palyra.net.server.accept import EdgeSettings
from palyra.net.server.listener import Binding, EdgeCounters, accept_all
from palyra.net.server.transport import Peer, Transport
from palyra.net.server.websocket import WebSocketLimits
from tests.net.server.edges import running_edge, wait_for_connections
from tests.net.server.peers import CLOSE, TEXT, RawPeer, frame

WITHIN_S = 120.0  # a bound against hanging, not a promise

pytestmark = pytest.mark.real

FAREWELL = frame(CLOSE, b"\x03\xe9")


async def check_echo(peer: RawPeer) -> None:
    await peer.send(frame(TEXT, b"hello"))
    assert (TEXT, b"hello") == await peer.read_frame()


async def test_port_zero_takes_a_free_port() -> None:
    """With port 0 the system chooses, and the binding says what it chose."""
    async with running_edge() as running:
        assert running.port > 0
        assert f"http://127.0.0.1:{running.port}" == running.edge.binding.url
        async with (await running.open_websocket()).stream:
            pass


async def test_taken_port_is_an_error_with_advice() -> None:
    """A port in use is Unavailable, and the message names it and the option."""
    async with running_edge() as running:
        with pytest.raises(Unavailable, match=rf"127.0.0.1:{running.port}.*--port"):
            await Binding("127.0.0.1", running.port).open()


async def test_peer_is_known_by_address_and_token() -> None:
    """The handler learns the peer's address and the token of the upgrade; a repr hides it."""
    peers: list[Peer] = []

    async def serve(transport: Transport, peer: Peer) -> None:
        assert transport.name == f"ws:{peer.address}"
        peers.append(peer)
        await transport.close(1000, "")

    async with running_edge(serve) as running:
        client = await running.open_websocket(b"Authorization: Bearer pal_secret\r\n")
        async with client.stream:
            assert 1000 == await client.read_close()
            port = client.stream.socket.getsockname()[1]
    assert [Peer(f"127.0.0.1:{port}", "pal_secret")] == peers
    assert "pal_secret" not in repr(peers)


async def test_crash_of_one_connection_is_its_own() -> None:
    """An exception in one connection closes it with 1011; another continues."""

    async def serve(transport: Transport, _peer: Peer) -> None:
        message = await transport.receive()
        if message == b"crash":
            raise ZeroDivisionError
        await transport.send([message])
        await transport.receive()

    async with running_edge(serve) as running:
        good, bad = await running.open_websocket(), await running.open_websocket()
        async with good.stream, bad.stream:
            await bad.send(frame(TEXT, b"crash"))
            assert 1011 == await bad.read_close()
            await check_echo(good)
        async with (await running.open_websocket()).stream as third:
            await check_echo(RawPeer(third))


async def test_connection_cap_turns_the_next_away() -> None:
    """Over the cap a client gets 503 at once; when one leaves there is room again."""
    async with running_edge(settings=EdgeSettings(max_connections=2)) as running:
        first, second = await running.open_websocket(), await running.open_websocket()
        async with second.stream:
            async with first.stream:
                answer = await running.ask(b"")
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"server.max_connections" in answer
                assert 1 == running.counters.turned_away
            await wait_for_connections(running, 1)
            async with (await running.open_websocket()).stream as third:
                await check_echo(RawPeer(third))


async def test_stop_accepting_keeps_connections() -> None:
    """The first step of a drain refuses new connections and keeps open ones."""
    async with running_edge() as running:
        peer = await running.open_websocket()
        async with peer.stream:
            running.edge.stop_accepting()
            await wait_until_refused(running.port)
            await check_echo(peer)


async def wait_until_refused(port: int) -> None:
    with trio.fail_after(WITHIN_S):
        while await is_open(port):
            await trio.lowlevel.checkpoint()


async def is_open(port: int) -> bool:
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port):
            return True
    except OSError:
        return False


async def test_stop_closes_every_connection_with_1001() -> None:
    """Stopping the edge closes all connections with 1001 at the same time."""
    peers: list[RawPeer] = []
    async with running_edge() as running:
        peers.extend([await running.open_websocket() for _ in range(5)])
        running.edge.connections.stop("going down")
        for peer in peers:
            assert 1001 == await peer.read_close()
            await peer.send(FAREWELL)
            await peer.stream.aclose()


async def test_stop_is_bounded_when_a_client_does_not_listen() -> None:
    """A client that neither reads nor answers delays the stop by the close timeout only."""
    limits = WebSocketLimits(close_timeout_s=0.2)
    stuck = []

    async def serve(transport: Transport, _peer: Peer) -> None:
        await transport.send([b"x" * 1_000_000] * 20)

    with trio.fail_after(WITHIN_S):
        async with running_edge(serve, settings=EdgeSettings(websocket=limits)) as running:
            stuck.append(await running.open_websocket())
    await stuck[0].stream.aclose()


class FailingListener:
    """A listener whose next accepts fail with the given errors."""

    def __init__(self, listener: trio.SocketListener, errnos: list[int]) -> None:
        self._listener = listener
        self._errnos = errnos

    async def accept(self) -> trio.SocketStream:
        if self._errnos:
            raise OSError(self._errnos.pop(0), "as the test wants it")
        return await self._listener.accept()


async def accept_after(errnos: list[int]) -> tuple[int, int]:
    """The number of errors survived, and of connections accepted, until the first one."""
    counters, stop = EdgeCounters(), trio.CancelScope()

    async def accept_socket(stream: trio.SocketStream) -> None:
        await stream.aclose()
        stop.cancel(reason="one is enough")

    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    failing = FailingListener(listener, errnos)
    async with listener, await open_stream_to_socket_listener(listener):
        with stop:
            await accept_all(failing, accept_socket, counters)  # type: ignore[arg-type]  # only `accept` is used
    return counters.accept_errors, counters.accepted


async def test_full_descriptor_table_is_waited_out(autojump_clock: MockClock) -> None:
    """EMFILE and its kin are counted, waited out, and end nothing."""
    began = autojump_clock.current_time()
    errnos = [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ECONNABORTED]
    assert (4, 1) == await accept_after(errnos)
    assert pytest.approx(0.4, abs=0.05) == autojump_clock.current_time() - began


async def test_a_foreign_address_has_its_own_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of another machine has another remedy than a port in use."""

    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(trio, "open_tcp_listeners", refuse)
    with pytest.raises(Unavailable, match=r"999\.1\.1\.1:7.*with --host") as caught:
        await Binding("999.1.1.1", 7).open()
    assert "another daemon" not in str(caught.value)


async def test_other_accept_errors_crash_the_listener() -> None:
    """An error that does not pass is a crash for the supervisor."""
    with pytest.raises(OSError, match="as the test wants it"):
        await accept_after([errno.EBADF])


async def test_restarted_listener_keeps_its_port() -> None:
    """After a crash the same port is open again, though the system had chosen it."""
    binding = Binding("127.0.0.1", 0)
    for listener in await binding.open():
        await listener.aclose()
    chosen = binding.port
    for listener in await binding.open():
        assert chosen == listener.socket.getsockname()[1]
        await listener.aclose()


@pytest.mark.parametrize(
    ("status", "request_head"),
    [
        (b"403", b"GET /v1/ws HTTP/1.1\r\nHost: evil.example\r\nUPGRADE\r\n\r\n"),
        (b"403", b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        (
            b"403",
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: http://evil.example\r\n\r\n",
        ),
        (b"400", b"GET /other HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nUPGRADE\r\n\r\n"),
        (b"400", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nUpgrade: h2c\r\n\r\n"),
        (b"400", b"GET /v1/ws?token=x HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nUPGRADE\r\n\r\n"),
        (b"426", b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nUPGRADE\r\n\r\n"),
        (b"400", b"nonsense\r\n\r\n"),
        (b"204", b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n"),
    ],
)
async def test_refusals_are_sent_before_any_handler(status: bytes, request_head: bytes) -> None:
    """A refused request gets its answer from the edge; plain HTTP goes to the HTTP server."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket"
    async with running_edge() as running:
        answer = await running.ask(request_head.replace(b"UPGRADE", upgrade))
        assert b"HTTP/1.1 " + status == answer[:12]
        assert 0 == running.counters.websockets


async def test_refusals_are_counted_by_status() -> None:
    """The counters have the number of refusals by status, and of silent connections."""
    async with running_edge() as running:
        await running.ask(b"nonsense\r\n\r\n")
        await running.ask(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        async with (await running.dial()).stream:
            pass
        await wait_for_connections(running, 0)
        assert {400: 1, 403: 1} == dict(running.counters.refused)
        assert (3, 1) == (running.counters.accepted, running.counters.silent)
