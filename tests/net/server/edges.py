"""An edge on a free port for tests, with whatever serves its connections."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from palyra.actors.kernel.supervisor import Supervisor
from palyra.core.redaction.redactor import Redactor
from palyra.net.server.accept import EdgeServer, EdgeSettings, HttpServer, Serve
from palyra.net.server.listener import EdgeCounters
from palyra.net.server.stream import PrefixedStream
from palyra.net.server.transport import BadFrame, Peer, PeerClosed, Transport
from tests.net.server.peers import UPGRADE, RawPeer

WITHIN_S = 120.0  # a bound against hanging, not a promise


async def echo(transport: Transport, _peer: Peer) -> None:
    """Send every message back; say why after a bad frame."""
    try:
        while True:
            await transport.send([await transport.receive()])
    except PeerClosed:
        return
    except BadFrame as bad:
        await transport.close(bad.code, bad.reason)


class NoHttp:
    """A substitute for the HTTP server in tests of other parts."""

    async def serve(self, stream: PrefixedStream) -> None:
        await stream.send_all(b"HTTP/1.1 204 No Content\r\n\r\n")


class RunningEdge:
    """An edge that listens, and clients for it."""

    def __init__(self, edge: EdgeServer) -> None:
        self.edge = edge
        self.port = edge.binding.port
        self.counters = edge.counters

    async def dial(self) -> RawPeer:
        return RawPeer(await trio.open_tcp_stream("127.0.0.1", self.port))

    async def ask(self, request: bytes) -> bytes:
        """Send the request (PORT is filled in) and read to the end."""
        peer = await self.dial()
        async with peer.stream:
            await peer.send(request.replace(b"PORT", b"%d" % self.port))
            return await peer.read_to_end()

    async def open_websocket(self, extra: bytes = b"") -> RawPeer:
        peer = await self.dial()
        request = UPGRADE.replace(b"7420", b"%d" % self.port)
        await peer.send(request.removesuffix(b"\r\n") + extra + b"\r\n")
        peer.answer = await peer.read_until(b"\r\n\r\n")
        assert peer.answer.startswith(b"HTTP/1.1 101 "), peer.answer
        return peer


async def wait_for_connections(running: RunningEdge, count: int) -> None:
    """Wait until the edge serves that many."""
    with trio.fail_after(WITHIN_S):
        while len(running.edge.connections) != count:
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def running_edge(
    serve: Serve = echo,
    *,
    make_http: Callable[[Callable[[], EdgeServer]], HttpServer] | None = None,
    settings: EdgeSettings | None = None,
) -> AsyncGenerator[RunningEdge, None]:
    """An edge on 127.0.0.1 and a free port, under a supervisor of its own."""
    edges: list[EdgeServer] = []
    http = make_http(lambda: edges[0]) if make_http else NoHttp()
    redact = Redactor([]).redact_bytes
    edge = EdgeServer(
        replace(settings or EdgeSettings(), port=0), serve, http, EdgeCounters(), redact
    )
    edges.append(edge)
    root = Supervisor("root", [edge.child_spec()], strategy="one_for_one")
    async with trio.open_nursery() as nursery:
        await nursery.start(root.run)
        try:
            yield RunningEdge(edge)
        finally:
            root.stop("the test is over")
