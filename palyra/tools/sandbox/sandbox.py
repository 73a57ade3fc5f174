"""Sandbox.open: one command behind its walls, and certainly gone afterwards.

Order of a start: bubblewrap builds the jail and stops at its gate; its first process is known by
then, is limited and written down; only then the gate opens, and the command begins.

Source: bwrap(1), pidfd_open(2), pid_namespaces(7).
"""

import json
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

import trio

from palyra.core.text.visible import visible
from palyra.errors import PalyraError
from palyra.tools.sandbox.child import JailedProcess
from palyra.tools.sandbox.command import Command, Level, SandboxFailure
from palyra.tools.sandbox.shared_host import kill_group
from palyra.tools.sandbox.spawner import Cleanup, Spawner

START_S = 20.0  # for a jail to be built; milliseconds, except on a machine that is drowning
_MESSAGE_BYTES = 4_096  # of what bubblewrap complains

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
        """`thread` is the parent of all jails: when it ends they are killed.

        It must be used for nothing else, because it may get a mount namespace of its own.
        `records`: see `Jailer`; `bubblewrap`: its path, None: where systems have it; `is_proved`:
        whether commands may start at once, or wait until `judge` was called.
        """
        self._thread = thread
        self._jailer = Spawner(records, bubblewrap=bubblewrap)
        self.closed_for = ""  # why no command may be started; "": they may
        self.level: Level = "A"  # at which they are
        self._running: set[JailedProcess] = set()
        self._judged = trio.Event()
        if is_proved:
            self._judged.set()
        self.on_failure: Callable[[], None] = lambda: None  # a jail could not be built

    @property
    def is_installed(self) -> bool:
        """Whether bubblewrap is there at all."""
        return bool(self._jailer.bubblewrap)

    @property
    def enforcement(self) -> str:
        """The walls that hold on this machine."""
        return self._jailer.enforcement(self.level)

    def find_obstacle(self, workspace: Path) -> str:
        """Why there can be no level B with that workspace; "" when it can be tried.  Blocks."""
        return self._jailer.find_obstacle(workspace)

    async def reap(self) -> int:
        """End what an earlier life of the daemon left; how many processes had to be killed."""
        return await self._thread.call(self._jailer.reap)

    def judge(self, level: Level, problem: str) -> None:
        """From now on commands start at that level, or not at all because of the problem."""
        self.level, self.closed_for = level, problem
        self._judged.set()

    def kill_all(self) -> None:
        """Kill whatever runs: the walls round it do not hold."""
        for child in self._running:
            child.kill()

    @asynccontextmanager
    async def open(
        self, command: Command, *, tried: Level | None = None
    ) -> AsyncGenerator[JailedProcess]:
        """The running command; after the block nothing of it is alive.

        The first ones wait until the walls are judged; `tried` is the level of a command that
        itself tries them.  Raises SandboxFailure when it could not be started.  Cancellation: it
        is killed, and this waits until it is gone.
        """
        if tried is None:
            await self._judged.wait()
            self._check(self.level)
        level = tried or self.level
        spawn = self._jailer.spawn if level == "A" else self._jailer.spawn_shared
        pid, pipes, traces = await self._thread.call(spawn, command)
        child = JailedProcess(pid, pipes, kill_all=kill_group if level == "B" else None)
        child.enforcement = self._jailer.enforcement(level)
        self._running.add(child)
        try:
            await self._prepare(child, command, traces)
            if tried is None:
                self._check(level)  # the walls may have been judged anew meanwhile
            child.begin()
            with await _attach(child, command):
                yield child
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await child.end()  # noqa: ASYNC102 - what is killed ends
                finally:
                    self._running.discard(child)
                    await self._thread.call(self._jailer.clear, traces)  # noqa: ASYNC102 - a thread hop
                    child.restored = tuple(traces.restored)

    def _check(self, level: Level) -> None:
        """Raise SandboxFailure unless commands may begin at that level."""
        if self.closed_for or level != self.level:
            why = self.closed_for or f"level {level} does not hold any more"
            raise SandboxFailure(f"no program can be run: {why}")

    async def _prepare(self, child: JailedProcess, command: Command, traces: Cleanup) -> None:
        """Wait until the jail stands, and limit it as a whole."""
        info: dict[str, Any] = {}
        # Not cancelled: as long as its first process is not known, not all of it can be killed.
        with trio.move_on_after(START_S, shield=True):
            info = json.loads(await _read(child.info) or b"{}")
        if "child-pid" not in info:
            self.on_failure()
            raise SandboxFailure(f"the jail could not be built: {await _complaint(child)}")
        child.meet_init(info["child-pid"])
        await self._thread.call(
            self._jailer.limit, child.pid, child.init_pid, command.limits, traces
        )
        child.group = traces.group


async def _attach(child: JailedProcess, command: Command) -> AbstractContextManager[object]:
    """The command's way out, in the hands of whom it was promised to."""
    if command.network is None or child.egress is None:
        return nullcontext()
    with trio.move_on_after(START_S):
        await trio.lowlevel.wait_readable(child.egress)
        with socket.socket(fileno=os.dup(child.egress.fileno())) as line:
            _, fds, _, _ = socket.recv_fds(line, 1, 1)
        if fds:
            listener = socket.socket(fileno=fds[0])
            listener.settimeout(0)
            try:
                return command.network.attach(listener)
            except PalyraError as error:
                raise SandboxFailure(f"no way out for the command: {error.message}") from None
    raise SandboxFailure("the jail gave no way to its proxy")


async def _read(stream: trio.abc.ReceiveStream, at_most: int = _MESSAGE_BYTES) -> bytes:
    """What comes until the other end closes."""
    found = b""
    while len(found) < at_most and (more := await stream.receive_some(at_most)):
        found += more
    return found


async def _complaint(child: JailedProcess) -> str:
    """What bubblewrap said when it gave up."""
    child.kill()
    text = b""
    with trio.move_on_after(1.0):
        text = await _read(child.stderr or child.stdout)
    return visible(text.decode(errors="replace").strip()) or "it said nothing"
