"""The listener: one port, one accept loop per address, every socket handed on at once.

Owns: the listening sockets.  Talks to: whoever welcomes accepted sockets.
Never: reads from a connection, or ends because of one.
Restart: transient; a crash opens the same port again, `Binding.close` ends it for good.
"""

import errno
import socket
from collections.abc import Awaitable, Callable

import structlog
import trio

from palyra.errors import Unavailable
from palyra.net.server.counters import EdgeCounters

log = structlog.get_logger("palyra.listener")

BACKOFF_S = 0.1  # trio's own value for a full table of descriptors: others must close some first

# accept(2): no room now, or a connection that died in the queue.  Neither is the listener's end.
SURVIVED_ERRNOS = frozenset(
    {
        errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EPERM,
        errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTDOWN,
        errno.EHOSTUNREACH, errno.ENETUNREACH,
    }
)  # fmt: skip

Welcome = Callable[[trio.SocketStream], Awaitable[None]]


class Binding:
    """Where to listen.  Outlives the listener's incarnations: a restart takes the same port."""

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

    async def prepare(self) -> None:
        """Open the port before there is anybody to accept: callers wait in the kernel's queue.

        A port that cannot be had is then the starter's error, not a crash of the listener.
        Raises Unavailable.
        """
        self._prepared = await self._listen()

    async def open(self) -> list[trio.SocketListener]:
        """Listening sockets, one per address of the host: the prepared ones, or others.

        Raises Unavailable.
        """
        prepared, self._prepared = self._prepared, []
        return prepared or await self._listen()

    async def _listen(self) -> list[trio.SocketListener]:
        """Fresh sockets.

        With port 0 the system's choice for the first address holds, and the others are left out:
        each would get a port of its own.
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
        """Accept nothing any more, for good."""
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
    welcome: Welcome,
    tally: EdgeCounters,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept until the binding is closed; ready when connections are taken.

    Cancellation: the port is closed; accepted sockets are not touched.
    """
    listeners = await binding.open()
    try:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(accept_all, listener, welcome, tally)
            log.info("listening", url=binding.url)
            task_status.started()
            await binding.wait_closed()
            nursery.cancel_scope.cancel(reason="accepting has been stopped")
    finally:
        for listener in listeners:
            listener.socket.close()


async def accept_all(listener: trio.SocketListener, welcome: Welcome, tally: EdgeCounters) -> None:
    """Hand on every connection; errors of the moment are waited out.  Never returns."""
    is_failing = False
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in SURVIVED_ERRNOS:
                raise
            tally.accept_errors += 1
            if not is_failing:  # one line per spell, not ten a second
                log.warning("cannot accept connections", error=str(error))
            is_failing = True
            await trio.sleep(BACKOFF_S)
        else:
            is_failing = False
            tally.accepted += 1
            await welcome(stream)
