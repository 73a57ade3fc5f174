"""The egress branch: one proxy child for each running command that has network access.

Owns: the listening socket of each command (created inside the command's sandbox and passed out of
it), and its connections.  Called by: the task that runs the command, through `Egress.attach`.
Never: decides about destinations; the given `admit` does (`tools.web.proxy`).
Restart: temporary; when a proxy crashes, the command sees its connections cut.
"""

import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from itertools import count

import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor

Stream = trio.abc.HalfCloseableStream
Admit = Callable[[Stream], Awaitable[tuple[Stream, bool] | None]]  # upstream; True if two-way
PORT = 3128  # of 127.0.0.1 inside the sandbox: the usual port of proxies
OWN = "localhost,127.0.0.1,::1"  # names of the loopback, which need no proxy
MAX_COMMANDS = 512  # more than can run at the same time
MAX_CONNECTIONS = 64  # of one command; further ones wait
GRACE_S = 1.0
_CHUNK_BYTES = 65_536


class Egress:
    """Network access of one command."""

    def __init__(self, branch: DynamicSupervisor, child_id: str, admit: Admit) -> None:
        self._branch = branch
        self._child_id = child_id
        self._admit = admit

    @property
    def port(self) -> int:
        """Port of the proxy on the loopback interface of the command."""
        return PORT

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that point programs to the proxy, in both usual spellings.

        The loopback of the jail is its own: a program reaches its own servers there directly.
        """
        address = f"http://127.0.0.1:{PORT}"
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        return {**dict.fromkeys(names, address), "no_proxy": OWN, "NO_PROXY": OWN}

    def attach(self, listener: socket.socket) -> AbstractContextManager[None]:
        """Serve the listening socket until the block ends; then close it and cut its connections.

        Starts at once and waits for nothing.  Raises ActorGone while the daemon stops, Overloaded
        over MAX_COMMANDS; the listener is closed then.
        """
        with ExitStack() as cleanup:
            cleanup.callback(listener.close)
            serve = partial(serve_listener, listener, self._admit)
            self._branch.spawn_child(
                ChildSpec(self._child_id, serve, "temporary", GRACE_S, close=listener.close)
            )
            cleanup.pop_all()  # from here on the child closes it
        return self._attached()

    @contextmanager
    def _attached(self) -> Generator[None]:
        try:
            yield
        finally:
            self._branch.cancel_child(self._child_id, "its command has ended")


class EgressBranch:
    """Creates the egress of commands; `child_spec` is its place in the tree."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._supervisor = DynamicSupervisor("egress", max_children=MAX_COMMANDS)

    def open(self, admit: Admit) -> Egress:
        """Create the egress of one command; `admit` decides about each connection."""
        return Egress(self._supervisor, f"egress:{next(self._numbers)}", admit)

    def child_spec(self) -> ChildSpec:
        """Return the spec of the branch: permanent."""
        return self._supervisor.child_spec()


async def serve_listener(
    listener: socket.socket,
    admit: Admit,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve connections until cancelled; then close them and the listener."""
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    places = trio.Semaphore(MAX_CONNECTIONS)
    task_status.started()
    async with accepting, trio.open_nursery() as nursery:
        while True:
            await places.acquire()
            nursery.start_soon(_serve, await accepting.accept(), admit, places)


async def _serve(client: Stream, admit: Admit, places: trio.Semaphore) -> None:
    """Serve one connection; a broken one affects no other."""
    try:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await carry(client, admit)
    finally:
        places.release()


async def carry(client: Stream, admit: Admit) -> None:
    """Copy one connection to its end.  Raises trio.BrokenResourceError when it breaks."""
    async with client:
        admitted = await admit(client)
        if admitted is not None:
            await _copy(client, *admitted)


async def _copy(client: Stream, upstream: Stream, is_two_way: bool) -> None:  # noqa: FBT001 - of a pair
    async with upstream:
        if not is_two_way:
            await _pump(upstream, client)
            return
        async with trio.open_nursery() as nursery:
            for source, sink in ((client, upstream), (upstream, client)):
                nursery.start_soon(_pump_or_cut, source, sink, nursery.cancel_scope)


async def _pump_or_cut(source: Stream, sink: Stream, both: trio.CancelScope) -> None:
    """Copy one direction; if it breaks, cancel both."""
    try:
        await _pump(source, sink)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        both.cancel("one direction broke")


async def _pump(source: Stream, sink: Stream) -> None:
    """Copy all bytes from source to sink, then the end of the stream."""
    while chunk := await source.receive_some(_CHUNK_BYTES):
        await sink.send_all(chunk)
    await sink.send_eof()
