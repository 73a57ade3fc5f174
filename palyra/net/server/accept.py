"""The door: what happens to one accepted socket, from its first byte to its last.

Owns: one socket.  Used by: the listener, as the start function of `connection:<n>`.
Reads the request's head, checks who is asked for and by whom, and hands the socket to the
WebSocket transport or to the HTTP server.  Never: reads past the head before the checks.
Restart: temporary; a crash here costs this connection alone.

The edge: the listener and its connections, as one branch of the supervision tree.

Owns: the connections' supervisor and the binding.  Talked to by: the composition root.
Restart: the branch is permanent; a connection is temporary and costs nobody else.
"""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Protocol

import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.supervisor import Supervisor
from palyra.errors import ActorGone, Overloaded
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.server.counters import EdgeCounters
from palyra.net.server.listener import Binding, listen
from palyra.net.server.request_head import (
    WEBSOCKET_PATH,
    BadHead,
    HeadParser,
    HttpRefusal,
    Names,
    RequestHead,
    judge_request,
    judge_upgrade,
    read_head,
    replay_all,
    replay_rest,
)
from palyra.net.server.stream import PrefixedStream
from palyra.net.server.transport import Peer, Transport
from palyra.net.server.websocket import WebSocketLimits, WebSocketTransport, serve_websocket

REFUSE_WITHIN_S = 2.0
REFUSE_DROP_BYTES = 65_536  # of a body that nobody will read

Serve = Callable[[Transport, Peer], Awaitable[None]]


class HttpServer(Protocol):
    """Serves plain HTTP on a stream that begins with a request."""

    async def serve(self, stream: PrefixedStream) -> None:
        """Serve the connection to its end.  Cancellation: the socket is closed at once."""


@dataclass(frozen=True, slots=True)
class ConnectionAcceptor:
    """What every connection of one listener shares."""

    names: Callable[[], Names]
    serve: Serve
    http: HttpServer
    tally: EdgeCounters
    limits: WebSocketLimits
    head_timeout_s: float
    redact: Redact

    async def pass_through(self, stream: trio.SocketStream, address: str) -> None:
        """Serve one accepted socket to its end; it is closed afterwards, come what may."""
        try:
            await self._pass_through(stream, address)
        finally:
            stream.socket.close()

    async def _pass_through(self, stream: trio.SocketStream, address: str) -> None:
        try:
            head, parser = await read_head(stream, timeout_s=self.head_timeout_s)
        except EOFError:
            self.tally.silent += 1
        except BadHead as bad:
            await self._refuse(PrefixedStream(stream), bad.refusal)
        else:
            await self._hand_over(stream, address, head, parser)

    async def _hand_over(
        self, stream: trio.SocketStream, address: str, head: RequestHead, parser: HeadParser
    ) -> None:
        if head.is_websocket and head.path == WEBSOCKET_PATH:
            await self._open_websocket(replay_rest(stream, parser), address, head)
        elif refusal := judge_request(head, self.names()) or _judge_upgrade_elsewhere(head):
            await self._refuse(PrefixedStream(stream), refusal)
        else:
            self.tally.http_connections += 1
            await self.http.serve(replay_all(stream, parser))

    async def _open_websocket(
        self, stream: PrefixedStream, address: str, head: RequestHead
    ) -> None:
        admission = judge_upgrade(head, self.names())
        if isinstance(admission, HttpRefusal):
            await self._refuse(stream, admission)
            return
        self.tally.websockets += 1

        async def serve(transport: WebSocketTransport) -> None:
            await self.serve(transport, Peer(address, admission.bearer))

        name = f"ws:{address}"
        await serve_websocket(stream, head, admission, self.limits, serve, name=name)

    async def _refuse(self, stream: PrefixedStream, refusal: HttpRefusal) -> None:
        """Answer and close, bounded in time."""
        self.tally.refused[refusal.status.value] += 1
        with trio.move_on_after(REFUSE_WITHIN_S):
            try:
                await stream.send_all(refusal.render(self.redact))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # it did not wait for the answer
            await stream.linger(max_bytes=REFUSE_DROP_BYTES)


def _judge_upgrade_elsewhere(head: RequestHead) -> HttpRefusal | None:
    """Only one path speaks WebSocket, and nothing here speaks another protocol."""
    if not head.values(b"upgrade"):
        return None
    place = WEBSOCKET_PATH.decode()
    return HttpRefusal(HTTPStatus.BAD_REQUEST, f"the only upgrade is to websocket, at {place}")


# Each connection holds one descriptor and, idle, 31 KB; the usual limit is 1 024 descriptors.
MAX_CONNECTIONS = 512
CONNECTION_GRACE_S = 5.0  # more than `WebSocketLimits.close_timeout_s`
TURN_AWAY_WITHIN_S = 0.1  # a fresh socket has room for the answer: this never waits

FULL = HttpRefusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too many connections; the setting server.max_connections says how many",
    (("Retry-After", "1"),),
)


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """Where to listen, under which names, for how many."""

    host: str = "127.0.0.1"
    port: int = 7467
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    max_connections: int = MAX_CONNECTIONS
    websocket: WebSocketLimits = field(default_factory=WebSocketLimits)
    head_timeout_s: float = 10.0  # as long as a client has for `connect`


class EdgeServer:
    """One listening port and everybody connected to it."""

    def __init__(
        self,
        settings: EdgeSettings,
        serve: Serve,
        http: HttpServer,
        tally: EdgeCounters,
        redact: Redact,
    ) -> None:
        self.binding = Binding(settings.host, settings.port)
        self.tally = tally
        self.connections = DynamicSupervisor("connections", max_children=settings.max_connections)
        self._settings = settings
        self._redact = redact
        self._numbers = itertools.count(1)
        self._door = ConnectionAcceptor(
            names=self.names,
            serve=serve,
            http=http,
            tally=tally,
            limits=settings.websocket,
            head_timeout_s=settings.head_timeout_s,
            redact=redact,
        )

    def names(self) -> Names:
        """What requests may call us; the port is known once the listener is ready."""
        return Names(self.binding.port, self._settings.hosts, self._settings.origins)

    def stop_accepting(self) -> None:
        """The first step of a drain: the port closes, open connections stay."""
        self.binding.close()

    def child_spec(self) -> ChildSpec:
        """The branch; ready when the port accepts connections."""
        start = partial(listen, self.binding, self.welcome, self.tally)
        listener = ChildSpec("listener", start, restart="transient", grace_s=1.0)
        connections = self.connections.child_spec(grace_s=2 * CONNECTION_GRACE_S + 1)
        edge = Supervisor("edge", [connections, listener], strategy="one_for_one")
        return edge.child_spec()

    async def welcome(self, stream: trio.SocketStream) -> None:
        """Give an accepted socket a child of its own, or turn it away."""
        try:
            host, port, *_ = stream.socket.getpeername()
            self.connections.spawn_child(self._connection_spec(stream, f"{host}:{port}"))
        except Overloaded:
            await self._turn_away(stream)
        except (ActorGone, OSError):  # we are stopping; or the peer has left already
            stream.socket.close()

    def _connection_spec(self, stream: trio.SocketStream, address: str) -> ChildSpec:
        start = partial(_serve_one, self._door.pass_through, stream, address)
        name = f"connection:{next(self._numbers)}"
        return ChildSpec(name, start, restart="temporary", grace_s=CONNECTION_GRACE_S)

    async def _turn_away(self, stream: trio.SocketStream) -> None:
        self.tally.turned_away += 1
        with trio.move_on_after(TURN_AWAY_WITHIN_S):
            try:
                await stream.send_all(FULL.render(self._redact))
                await stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # it did not wait for the answer
        stream.socket.close()


async def _serve_one(
    pass_through: Callable[[trio.SocketStream, str], Awaitable[None]],
    stream: trio.SocketStream,
    address: str,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    task_status.started()
    await pass_through(stream, address)
