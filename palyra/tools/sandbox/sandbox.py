"""Sandbox.open: one command behind its walls, and certainly gone afterwards.

Order of a start: bubblewrap builds the jail and stops at its gate; its first process is known by
then; only then the gate opens, and the command begins.

Source: bwrap(1), pidfd_open(2), pid_namespaces(7).
"""

import json
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import trio

from palyra.core.display import visible
from palyra.tools.sandbox.bubblewrap import Sources
from palyra.tools.sandbox.child import Child
from palyra.tools.sandbox.command import Command, Limits, SandboxFailure
from palyra.tools.sandbox.control_groups import ControlGroups, Group, find_control_groups
from palyra.tools.sandbox.landlock import find_abi
from palyra.tools.sandbox.masks import Placeholders, find_masks
from palyra.tools.sandbox.stage import Stage
from palyra.tools.sandbox.start import Pipes, Start, spawn

# Outside, a jail of root's daemon is this user: between the numbers of people and those that
# systemd gives away, so nobody else is.
JAIL_UID = 60_999
BUBBLEWRAP = "/usr/bin/bwrap"
START_S = 20.0  # for a jail to be built; milliseconds, except on a machine that is drowning
_MESSAGE_BYTES = 4_096  # of what bubblewrap complains

T = TypeVar("T")


class Thread(Protocol):
    """One thread, such as `actors.blocking.DedicatedThread`."""

    async def call(self, fn: Callable[..., T], *args: object) -> T: ...


class Sandbox:
    """Level A: bubblewrap.  One per daemon."""

    def __init__(self, thread: Thread, *, bubblewrap: str = BUBBLEWRAP) -> None:
        """`thread` is the parent of all jails: when it ends they are killed.

        It must be used for nothing else, because it may get a mount namespace of its own.
        """
        self._thread = thread
        self._bubblewrap = bubblewrap
        self._uid = JAIL_UID if os.geteuid() == 0 else None
        self._stage: Stage | None = None
        self._is_staged = False
        self._placeholders = Placeholders()
        self._abi = find_abi()
        self._groups = find_control_groups()
        self.enforcement = self._describe()

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Child]:
        """The running command; after the block nothing of it is alive.

        Raises SandboxFailure when it could not be started.  Cancellation: it is killed, and this
        waits until it is gone.
        """
        pid, pipes, placeholders = await self._thread.call(self._spawn, command)
        child = Child(pid, pipes)
        try:
            await self._meet(child, command)
            child.begin()
            with await _attach(child, command):
                yield child
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await child.end()
                finally:
                    await self._thread.call(self._clear, child, placeholders)

    def _clear(self, child: Child, placeholders: list[str]) -> None:
        self._placeholders.leave(placeholders)
        if child.group is not None:
            child.group.remove()

    def _describe(self) -> str:
        landlock = f"landlock{self._abi}" if self._abi else ""
        group = f"cgroup-{self._groups.kind}" if self._groups else ""
        walls = ("bubblewrap", "seccomp", landlock, "rlimits", group)
        return "A:" + "+".join(filter(None, walls))

    async def _meet(self, child: Child, command: Command) -> None:
        """Wait until the jail stands, and limit it as a whole."""
        info: dict[str, Any] = {}
        with trio.move_on_after(START_S):
            info = json.loads(await _read(child.info) or b"{}")
        if "child-pid" not in info:
            raise SandboxFailure(f"the jail could not be built: {await _complaint(child)}")
        child.meet_init(info["child-pid"])
        child.enforcement = self.enforcement
        if self._groups is not None:
            child.group = await self._thread.call(self._join, self._groups, child, command.limits)

    # --- in the thread

    def _spawn(self, command: Command) -> tuple[int, Pipes, list[str]]:
        root = command.workspace
        masks = find_masks(str(root)) if root is not None and command.is_writable else []
        sources = self._find_sources(command)
        placeholders = self._placeholders.take(str(root), masks)
        try:
            pid, pipes = spawn(
                Start(self._bubblewrap, self._uid, command, sources, tuple(masks), self._abi)
            )
        except SandboxFailure:
            self._placeholders.leave(placeholders)
            raise
        return pid, pipes, placeholders

    @staticmethod
    def _join(groups: ControlGroups, child: Child, limits: Limits) -> Group:
        try:
            group = groups.make(limits)
        except OSError as error:
            raise SandboxFailure(f"no control group for the jail: {error}") from None
        try:
            group.add((child.pid, child.init_pid))
        except OSError as error:
            group.remove()
            raise SandboxFailure(f"the jail cannot join its control group: {error}") from None
        return group

    def _find_sources(self, command: Command) -> Sources:
        """Where the jail's user finds the command's folders."""
        stage = self._find_stage()
        if stage is None:
            return Sources(str(command.workspace), tuple(str(b.source) for b in command.binds))
        workspace = (
            "" if command.workspace is None else stage.bind(command.workspace, as_owner=True)
        )
        return Sources(
            workspace, tuple(stage.bind(bind.source, as_owner=False) for bind in command.binds)
        )

    def _find_stage(self) -> Stage | None:
        if not self._is_staged and self._uid is not None:
            try:
                self._stage = Stage(self._bubblewrap, self._uid)
            except OSError:
                self._stage = None  # not allowed in this container; what is readable must do
        self._is_staged = True
        return self._stage


async def _attach(child: Child, command: Command) -> AbstractContextManager[object]:
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
            return command.network.attach(listener)
    raise SandboxFailure("the jail gave no way to its proxy")


async def _read(stream: trio.abc.ReceiveStream, at_most: int = _MESSAGE_BYTES) -> bytes:
    """What comes until the other end closes."""
    found = b""
    while len(found) < at_most and (more := await stream.receive_some(at_most)):
        found += more
    return found


async def _complaint(child: Child) -> str:
    """What bubblewrap said when it gave up."""
    child.kill()
    text = b""
    with trio.move_on_after(1.0):
        text = await _read(child.stderr or child.stdout)
    return visible(text.decode(errors="replace").strip()) or "it said nothing"
