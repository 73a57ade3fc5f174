"""The listener: one port, one accept loop per address; each socket is passed on at once.

Owns: the listening sockets.  Talks to: the edge server.
Never: reads from a connection, or ends because of one.
Restart: transient; a crash opens the same port again, `Binding.close` ends it for good.
"""

import errno
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
import trio

from palyra.errors import Unavailable

log = structlog.get_logger("palyra.listener")

BACKOFF_S = 0.1  # trio's own value when descriptors run out: others must be closed first

# accept(2): out of resources for now, or a connection that died in the queue.
SURVIVED_ERRNOS = frozenset(
    {
        errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EPERM,
        errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTDOWN,
        errno.EHOSTUNREACH, errno.ENETUNREACH,
    }
)  # fmt: skip

OnAccept = Callable[[trio.SocketStream], Awaitable[None]]


@dataclass(slots=True)
class EdgeCounters:
    """Counts since the process started; written from one thread."""

    accepted: int = 0
    accept_errors: int = 0  # EMFILE and similar
    turned_away: int = 0  # the connection cap was reached
    websockets: int = 0
    http_connections: int = 0
    silent: int = 0  # disconnected before a whole request was read
    refused: Counter[int] = field(default_factory=Counter)  # by HTTP status


class Binding:
    """Address to listen on.  Outlives the listener's incarnations: a restart takes the same port."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port  # 0 until the system has chosen one
        self._prepared: list[trio.SocketListener] = []
        self._closed = trio.Event()

    @property
    def url(self) -> str:
        """The address for a browser, once listening."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def local_url(self) -> str:
        """The address for a browser of this machine, also if every address is listened on."""
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not listened on
        name = anywhere.get(self.host)
        return self.url if name is None else f"http://{name}:{self.port}"

    async def prepare(self) -> None:
        """Open the port before the listener starts: clients wait in the kernel's queue.

        A port that cannot be opened is then an error of startup, not a crash of the listener.
        Raises Unavailable.
        """
        self._prepared = await self._listen()

    async def open(self) -> list[trio.SocketListener]:
        """Return listening sockets, one per address of the host: the prepared ones, or new ones.

        Raises Unavailable.
        """
        prepared, self._prepared = self._prepared, []
        return prepared or await self._listen()

    async def _listen(self) -> list[trio.SocketListener]:
        """Open the sockets.

        With port 0 the system chooses a port for each address; only the first address is kept, so
        that there is one port.
        """
        try:
            listeners = await trio.open_tcp_listeners(self.port, host=self.host)
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {self.host}:{self.port}: {error}; {_remedy(error)}"
            ) from error
        if self.port == 0:
            for surplus in listeners[1:]:
                surplus.socket.close()
            del listeners[1:]
            self.port = listeners[0].socket.getsockname()[1]
        return listeners

    def close(self) -> None:
        """Stop accepting permanently."""
        self._closed.set()

    async def wait_closed(self) -> None:
        await self._closed.wait()


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "name an address of this machine with --host"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "choose a port from 1024 on with --port"
    return "another daemon may be running, or choose a port with --port"


async def listen(
    binding: Binding,
    accept_socket: OnAccept,
    counters: EdgeCounters,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept until the binding is closed; ready when connections are accepted.

    Cancellation: the port is closed; accepted sockets are not touched.
    """
    listeners = await binding.open()
    try:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(accept_all, listener, accept_socket, counters)
            log.info("listening", url=binding.url)
            task_status.started()
            await binding.wait_closed()
            nursery.cancel_scope.cancel(reason="accepting has been stopped")
    finally:
        for listener in listeners:
            listener.socket.close()


async def accept_all(
    listener: trio.SocketListener, accept_socket: OnAccept, counters: EdgeCounters
) -> None:
    """Pass on every connection; wait after a transient error.  Never returns."""
    is_failing = False
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in SURVIVED_ERRNOS:
                raise
            counters.accept_errors += 1
            if not is_failing:  # log the first error of a series only
                log.warning("cannot accept connections", error=str(error))
            is_failing = True
            await trio.sleep(BACKOFF_S)
        else:
            is_failing = False
            counters.accepted += 1
            await accept_socket(stream)
