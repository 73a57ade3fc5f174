"""The edge: one listening port, and its connections as actors of one supervision branch.

Owns: the binding, the supervisor of the connections, and each accepted socket.
Restart: the branch is permanent; a connection is temporary, and its crash ends no other.

An accepted socket passes these steps:

1. `EdgeServer` starts an actor `connection:<n>` for it, or answers 503 if there are too many.
2. `read_head` reads the request's head within a deadline; nothing after the head is read yet.
3. The head is checked (`palyra.net.server.request_head`): Host, Origin, no token in the URL.
4. An upgrade at WEBSOCKET_PATH goes to the WebSocket transport, any other request to the HTTP
   server, which gets the bytes of the head again.
"""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import closing
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
from palyra.net.server.listener import Binding, EdgeCounters, listen
from palyra.net.server.request_head import (
    WEBSOCKET_PATH,
    BadHead,
    HeadParser,
    HttpRefusal,
    Names,
    RequestHead,
    check_request,
    check_upgrade,
    read_head,
    replay_all,
    replay_rest,
)
from palyra.net.server.stream import PrefixedStream
from palyra.net.server.transport import Peer, Transport
from palyra.net.server.websocket import WebSocketLimits, WebSocketTransport, serve_websocket

REFUSE_WITHIN_S = 2.0
REFUSE_DROP_BYTES = 65_536  # of a refused body, read so that the client can read the answer

Serve = Callable[[Transport, Peer], Awaitable[None]]


class HttpServer(Protocol):
    """Server of plain HTTP on a stream that begins with a request."""

    async def serve(self, stream: PrefixedStream) -> None:
        """Serve the connection to its end.  Cancellation: the socket is closed at once."""


# Each connection holds one descriptor and, idle, 31 KB; the usual limit is 1 024 descriptors.
MAX_CONNECTIONS = 512
CONNECTION_GRACE_S = 5.0  # more than `WebSocketLimits.close_timeout_s`
REJECT_WITHIN_S = 0.1  # the send buffer of a new socket has room for the answer: this does not wait

FULL = HttpRefusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too many connections; server.max_connections sets the limit",
    (("Retry-After", "1"),),
)


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """Address, names and limits of the listener."""

    host: str = "127.0.0.1"
    port: int = 7467
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    public_origin: str | None = None
    max_connections: int = MAX_CONNECTIONS
    websocket: WebSocketLimits = field(default_factory=WebSocketLimits)
    head_timeout_s: float = 10.0  # as long as a client has for `connect`


class EdgeServer:
    """One listening port and its connections."""

    def __init__(
        self,
        settings: EdgeSettings,
        serve: Serve,
        http: HttpServer,
        counters: EdgeCounters,
        redact: Redact,
    ) -> None:
        self.binding = Binding(settings.host, settings.port)
        self.counters = counters
        self.connections = DynamicSupervisor("connections", max_children=settings.max_connections)
        self._settings = settings
        self._serve = serve
        self._http = http
        self._redact = redact
        self._numbers = itertools.count(1)

    def names(self) -> Names:
        """Return the names that requests may use; the port is known once the listener is ready."""
        given = self._settings
        return Names(self.binding.port, given.hosts, given.origins, given.public_origin)

    def stop_accepting(self) -> None:
        """Close the port and keep open connections: the first step of a drain."""
        self.binding.close()

    def child_spec(self) -> ChildSpec:
        """Return the branch; it is ready when the port accepts connections."""
        start = partial(listen, self.binding, self.accept_socket, self.counters)
        listener = ChildSpec("listener", start, restart="transient", grace_s=1.0)
        connections = self.connections.child_spec(grace_s=2 * CONNECTION_GRACE_S + 1)
        edge = Supervisor("edge", [connections, listener], strategy="one_for_one")
        return edge.child_spec()

    async def accept_socket(self, stream: trio.SocketStream) -> None:
        """Start a child for an accepted socket, or answer 503 if there are too many."""
        try:
            host, port, *_ = stream.socket.getpeername()
            self.connections.spawn_child(self._connection_spec(stream, f"{host}:{port}"))
        except Overloaded:
            await self._reject(stream)
        except (ActorGone, OSError):  # the daemon is stopping, or the peer has disconnected
            stream.socket.close()

    def _connection_spec(self, stream: trio.SocketStream, address: str) -> ChildSpec:
        start = partial(self._serve_socket, stream, address)
        name = f"connection:{next(self._numbers)}"
        return ChildSpec(name, start, restart="temporary", grace_s=CONNECTION_GRACE_S)

    async def _serve_socket(
        self, stream: trio.SocketStream, address: str, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Serve one accepted socket to its end; it is closed in any case."""
        task_status.started()
        with closing(stream.socket):
            try:
                head, parser = await read_head(stream, timeout_s=self._settings.head_timeout_s)
            except EOFError:
                self.counters.silent += 1
            except BadHead as bad:
                await self._refuse(PrefixedStream(stream), bad.refusal)
            else:
                await self._dispatch(stream, address, head, parser)

    async def _dispatch(
        self, stream: trio.SocketStream, address: str, head: RequestHead, parser: HeadParser
    ) -> None:
        if head.is_websocket and head.path == WEBSOCKET_PATH:
            await self._open_websocket(replay_rest(stream, parser), address, head)
        elif refusal := check_request(head, self.names()) or _check_other_upgrade(head):
            await self._refuse(PrefixedStream(stream), refusal)
        else:
            self.counters.http_connections += 1
            await self._http.serve(replay_all(stream, parser))

    async def _open_websocket(
        self, stream: PrefixedStream, address: str, head: RequestHead
    ) -> None:
        admission = check_upgrade(head, self.names())
        if isinstance(admission, HttpRefusal):
            await self._refuse(stream, admission)
            return
        self.counters.websockets += 1

        async def serve(transport: WebSocketTransport) -> None:
            await self._serve(
                transport, Peer(address, admission.bearer, cookie_halves=admission.cookie_halves)
            )

        limits, name = self._settings.websocket, f"ws:{address}"
        await serve_websocket(stream, head, admission, limits, serve, name=name)

    async def _refuse(self, stream: PrefixedStream, refusal: HttpRefusal) -> None:
        """Answer and close, bounded in time."""
        self.counters.refused[refusal.status.value] += 1
        with trio.move_on_after(REFUSE_WITHIN_S):
            try:
                await stream.send_all(refusal.render(self._redact))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # the peer did not wait for the answer
            await stream.linger(max_bytes=REFUSE_DROP_BYTES)

    async def _reject(self, stream: trio.SocketStream) -> None:
        self.counters.turned_away += 1
        with trio.move_on_after(REJECT_WITHIN_S):
            try:
                await stream.send_all(FULL.render(self._redact))
                await stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the peer did not wait for the answer
        stream.socket.close()


def _check_other_upgrade(head: RequestHead) -> HttpRefusal | None:
    """Refuse an upgrade at another path, or to another protocol."""
    if not head.values(b"upgrade"):
        return None
    path = WEBSOCKET_PATH.decode()
    return HttpRefusal(HTTPStatus.BAD_REQUEST, f"the only upgrade is to websocket, at {path}")
