"""The egress branch: one child for each running command that has network.

Owns: the listening socket of each command (made inside the command's jail and handed out of it),
and its connections.  Talked to by: `Egress.attach`, from the task that runs the command.
Never: decides what may be reached; the gate it was given does (`tools.web.proxy`).
Restart: temporary; a proxy that falls takes its connections with it, and the command sees them cut.
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
Admit = Callable[[Stream], Awaitable[tuple[Stream, bool] | None]]  # the way, and whether two-way
PORT = 3128  # of 127.0.0.1 inside the jail: what proxies are usually found at
MAX_COMMANDS = 512  # more than programs can run at the same time
MAX_CONNECTIONS = 64  # of one command; further ones wait
GRACE_S = 1.0
_CHUNK_BYTES = 65_536


class Egress:
    """The way out of one command."""

    def __init__(self, branch: DynamicSupervisor, child_id: str, admit: Admit) -> None:
        self._branch = branch
        self._child_id = child_id
        self._admit = admit

    @property
    def port(self) -> int:
        """Where the command finds it, on its own loopback."""
        return PORT

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells programs about it, in both usual spellings."""
        address = f"http://127.0.0.1:{PORT}"
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        return {**dict.fromkeys(names, address), "no_proxy": "", "NO_PROXY": ""}

    def attach(self, listener: socket.socket) -> AbstractContextManager[None]:
        """Serve the listening socket until the block is left; then it closes, connections are cut.

        Begins at once and waits for nothing.  Raises ActorGone while the daemon stops, Overloaded
        over MAX_COMMANDS; the listener is closed then.
        """
        with ExitStack() as cleanup:
            cleanup.callback(listener.close)
            serve = partial(serve_listener, listener, self._admit)
            self._branch.spawn_child(
                ChildSpec(self._child_id, serve, "temporary", GRACE_S, close=listener.close)
            )
            cleanup.pop_all()  # from here on the child closes it, whatever becomes of it
        return self._attached()

    @contextmanager
    def _attached(self) -> Generator[None]:
        try:
            yield
        finally:
            self._branch.cancel_child(self._child_id, "its command has ended")


class EgressBranch:
    """Makes ways out; `child_spec` is its place in the tree."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._supervisor = DynamicSupervisor("egress", max_children=MAX_COMMANDS)

    def open(self, admit: Admit) -> Egress:
        """The way out of one command, whose connections `admit` decides."""
        return Egress(self._supervisor, f"egress:{next(self._numbers)}", admit)

    def child_spec(self) -> ChildSpec:
        """Permanent."""
        return self._supervisor.child_spec()


async def serve_listener(
    listener: socket.socket,
    admit: Admit,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve connections until cancelled; the listener is closed then, and so are they."""
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    places = trio.Semaphore(MAX_CONNECTIONS)
    task_status.started()
    async with accepting, trio.open_nursery() as nursery:
        while True:
            await places.acquire()
            nursery.start_soon(_serve, await accepting.accept(), admit, places)


async def _serve(client: Stream, admit: Admit, places: trio.Semaphore) -> None:
    """One connection to its end; a broken one is its own trouble."""
    try:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await carry(client, admit)
    finally:
        places.release()


async def carry(client: Stream, admit: Admit) -> None:
    """One connection to its end.  Raises trio.BrokenResourceError when it breaks."""
    async with client:
        way = await admit(client)
        if way is not None:
            await _copy(client, *way)


async def _copy(client: Stream, upstream: Stream, is_two_way: bool) -> None:  # noqa: FBT001 - of a pair
    async with upstream:
        if not is_two_way:
            await _pump(upstream, client)
            return
        async with trio.open_nursery() as nursery:
            for source, sink in ((client, upstream), (upstream, client)):
                nursery.start_soon(_pump_or_cut, source, sink, nursery.cancel_scope)


async def _pump_or_cut(source: Stream, sink: Stream, both: trio.CancelScope) -> None:
    """One direction; when it breaks the other goes with it."""
    try:
        await _pump(source, sink)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        both.cancel("one direction broke")


async def _pump(source: Stream, sink: Stream) -> None:
    """Everything from the one to the other, and its end."""
    while chunk := await source.receive_some(_CHUNK_BYTES):
        await sink.send_all(chunk)
    await sink.send_eof()
