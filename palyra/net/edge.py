"""The edge: the listener and its connections, as one branch of the supervision tree.

Owns: the connections' supervisor and the binding.  Talked to by: the composition root.
Restart: the branch is permanent; a connection is temporary and costs nobody else.
"""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

import trio

from palyra.actors.child import ChildSpec
from palyra.actors.dynamic import DynamicSupervisor
from palyra.actors.supervisor import Supervisor
from palyra.errors import ActorGone, Overloaded
from palyra.net.door import Door, HttpServer, Serve
from palyra.net.engine import WebSocketLimits
from palyra.net.listener import Binding, listen
from palyra.net.rpc import Redact
from palyra.net.sniff import Refusal
from palyra.net.tally import Tally
from palyra.net.upgrade import Names

# Each connection holds one descriptor and, idle, 31 KB; the usual limit is 1 024 descriptors.
MAX_CONNECTIONS = 512
CONNECTION_GRACE_S = 5.0  # more than `WebSocketLimits.close_timeout_s`
TURN_AWAY_WITHIN_S = 0.1  # a fresh socket has room for the answer: this never waits

FULL = Refusal(
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


class Edge:
    """One listening port and everybody connected to it."""

    def __init__(
        self,
        settings: EdgeSettings,
        serve: Serve,
        http: HttpServer,
        tally: Tally,
        redact: Redact,
    ) -> None:
        self.binding = Binding(settings.host, settings.port)
        self.tally = tally
        self.connections = DynamicSupervisor("connections", max_children=settings.max_connections)
        self._settings = settings
        self._redact = redact
        self._numbers = itertools.count(1)
        self._door = Door(
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
