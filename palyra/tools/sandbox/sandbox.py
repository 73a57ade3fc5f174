"""`Sandbox.open`: one isolated command, with a guarantee that no process of it is left.

Order of a start: bubblewrap builds the jail and waits at its gate.  The daemon reads the id of the
jail's first process, puts it into a control group and writes a record of it.  Only then it opens the
gate, and the command starts.  So a daemon killed at any moment leaves no running command that its
next start cannot find.

Source: bwrap(1), pidfd_open(2), pid_namespaces(7).
"""

import json
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import trio

from palyra.core.text.visible import visible
from palyra.errors import PalyraError
from palyra.tools.sandbox.child import JailedProcess
from palyra.tools.sandbox.command import Command, Level, SandboxFailure
from palyra.tools.sandbox.shared_host import kill_group
from palyra.tools.sandbox.spawner import JailLeftovers, Spawner
from palyra.tools.sandbox.survivors import find_remains

START_S = 20.0  # for building a jail; takes milliseconds except under extreme load
_MESSAGE_BYTES = 4_096  # of bubblewrap's error message

T = TypeVar("T")


class SpawnThread(Protocol):
    """One thread, such as `actors.kernel.threads.DedicatedThread`."""

    async def call(self, fn: Callable[..., T], *args: object) -> T: ...


class Sandbox:
    """Level A: bubblewrap; level B: a reaper.  One per daemon."""

    def __init__(
        self,
        thread: SpawnThread,
        *,
        records: Path | None = None,
        bubblewrap: str | None = None,
        is_proved: bool = True,
    ) -> None:
        """`thread` is the parent of all jails: the kernel kills them when it ends.

        It must be used for nothing else, because it may get a mount namespace of its own.
        `records`: see `Spawner`; `bubblewrap`: its path, None to search for it; `is_proved`: True
        if commands may start at once, False if they wait for the first `set_level`.
        """
        self._thread = thread
        self._spawner = Spawner(records, bubblewrap=bubblewrap)
        self.closed_for = ""  # why no command may start; "": commands may start
        self.level: Level = "A"  # of commands that start now
        self._running: set[JailedProcess] = set()
        self._is_decided = trio.Event()
        if is_proved:
            self._is_decided.set()
        self.on_failure: Callable[[], None] = lambda: None  # called if a jail could not be built

    @property
    def is_installed(self) -> bool:
        """True if bubblewrap is installed."""
        return bool(self._spawner.bubblewrap)

    @property
    def enforcement(self) -> str:
        """Name the isolation layers that hold on this machine."""
        return self._spawner.enforcement(self.level)

    def find_obstacle(self, workspace: Path) -> str:
        """Return why level B is impossible with that workspace; "" if it can be probed.  Blocks."""
        return self._spawner.find_obstacle(workspace)

    async def reap(self) -> int:
        """Clean up after a killed daemon; return the number of processes killed."""
        return await self._thread.call(self._spawner.reap)

    def set_level(self, level: Level, problem: str) -> None:
        """Start commands at that level from now on, or none because of the problem."""
        self.level, self.closed_for = level, problem
        self._is_decided.set()

    def kill_all(self) -> None:
        """Kill all running commands, because their isolation does not hold."""
        for child in self._running:
            child.kill()

    @asynccontextmanager
    async def open(
        self, command: Command, *, probed: Level | None = None
    ) -> AsyncGenerator[JailedProcess]:
        """Run a command for the length of the block; afterwards no process of it is alive.

        Waits for the first `set_level`, except with `probed`, the level of a command that itself
        probes the isolation.  Raises SandboxFailure if it could not be started.  Cancellation: the
        command is killed, and its exit awaited.
        """
        if probed is None:
            await self._is_decided.wait()
            self._check(self.level)
        level = probed or self.level
        spawn = self._spawner.spawn if level == "A" else self._spawner.spawn_shared
        pid, pipes, cleanup = await self._thread.call(spawn, command)
        child = JailedProcess(
            pid,
            pipes,
            find_remains=partial(self._thread.call, find_remains),
            kill_all=kill_group if level == "B" else None,
        )
        child.prevented = cleanup.prevented
        child.enforcement = self._spawner.enforcement(level)
        self._running.add(child)
        try:
            await self._prepare(child, command, cleanup)
            if probed is None:
                self._check(level)  # the level may have changed during the start
            child.open_gate()
            if command.tells_survivors and level == "A":
                await child.hold()
            with await _attach(child, command):
                yield child
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await child.end()  # noqa: ASYNC102 - a killed process exits
                finally:
                    self._running.discard(child)
                    await self._thread.call(self._spawner.clean_up, cleanup)  # noqa: ASYNC102 - a thread hop
                    child.restored = tuple(cleanup.restored)

    def _check(self, level: Level) -> None:
        """Raise SandboxFailure unless commands may start at that level."""
        if self.closed_for or level != self.level:
            why = self.closed_for or f"level {level} does not hold any more"
            raise SandboxFailure(f"no program can be run: {why}")

    async def _prepare(
        self, child: JailedProcess, command: Command, cleanup: JailLeftovers
    ) -> None:
        """Wait until the jail is built, then limit and record it."""
        info: dict[str, Any] = {}
        # Shielded: without the id of the first process the whole jail could not be killed.
        with trio.move_on_after(START_S, shield=True):
            info = json.loads(await _read(child.info) or b"{}")
        if "child-pid" not in info:
            self.on_failure()
            raise SandboxFailure(f"the jail could not be built: {await _read_error(child)}")
        child.set_init(info["child-pid"])
        await self._thread.call(
            self._spawner.limit, child.pid, child.init_pid, command.limits, cleanup
        )
        child.group = cleanup.group


async def _attach(child: JailedProcess, command: Command) -> AbstractContextManager[object]:
    """Receive the jail's listening socket and attach the command's egress to it."""
    if command.network is None or child.egress is None:
        return nullcontext()
    with trio.move_on_after(START_S):
        await trio.lowlevel.wait_readable(child.egress)
        with socket.socket(fileno=os.dup(child.egress.fileno())) as channel:
            _, fds, _, _ = socket.recv_fds(channel, 1, 1)
        if fds:
            listener = socket.socket(fileno=fds[0])
            listener.settimeout(0)
            try:
                return command.network.attach(listener)
            except PalyraError as error:
                raise SandboxFailure(f"no egress for the command: {error.message}") from None
    raise SandboxFailure("the jail sent no listening socket for its egress")


async def _read(stream: trio.abc.ReceiveStream, at_most: int = _MESSAGE_BYTES) -> bytes:
    """Read until the other end closes, or the bound is reached."""
    found = b""
    while len(found) < at_most and (more := await stream.receive_some(at_most)):
        found += more
    return found


async def _read_error(child: JailedProcess) -> str:
    """Kill the jail and return bubblewrap's error message."""
    child.kill()
    text = b""
    with trio.move_on_after(1.0):
        text = await _read(child.stderr or child.stdout)
    return visible(text.decode(errors="replace").strip()) or "no message"
