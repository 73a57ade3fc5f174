"""A jailed command while it runs: its streams, its processes, its exit."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import trio

from palyra.core.text.visible import visible
from palyra.tools.sandbox.cgroups import Group
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.start import ChildPipes

DEATH_S = 10.0  # for the exit of a killed jail; a process can hang in disk I/O
_SIGNAL_BASE = 128  # shells and bubblewrap report a signal as this plus its number
_SIGNALS = frozenset(signal.Signals)
_LIMIT_SIGNALS = {"SIGXCPU": "cpu", "SIGXFSZ": "file size"}


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """Exit of a command."""

    exit_code: int | None  # None: by a signal
    signal: str = ""  # SIGKILL …
    limit: str = ""  # the limit it hit: memory, processes, cpu, file size, or a limit of the caller


class JailedProcess:
    """One command.  `Sandbox.open` creates and ends it."""

    def __init__(
        self, pid: int, pipes: ChildPipes, *, kill_all: Callable[[int], None] | None = None
    ) -> None:
        """`pid`: our child and the ancestor of every process in the jail, bubblewrap or the reaper.

        `kill_all` kills everything, given a pidfd of the first process, where no process namespace
        does so when that process dies.
        """
        self.pid = pid
        self._kill_all = kill_all
        self.init_pid = 0  # of the jail's first process; 0: not known yet
        self.enforcement = ""
        self.restored: tuple[str, ...] = ()  # after the block: protected paths it had changed
        self.group: Group | None = None  # that limits all its processes together
        self.stdin = None if pipes.stdin is None else trio.lowlevel.FdStream(pipes.stdin)
        self.stdout: trio.abc.ReceiveStream = trio.lowlevel.FdStream(pipes.stdout)
        self.stderr = None if pipes.stderr is None else trio.lowlevel.FdStream(pipes.stderr)
        self.egress = None if pipes.egress is None else _socket(pipes.egress)
        self.info = trio.lowlevel.FdStream(pipes.info)
        self._gate = pipes.gate
        self._alive = pipes.alive
        os.set_blocking(self._alive, False)
        self._has_started = False
        self._jail_error = b""
        self._pidfd = pipes.process
        self._init_pidfd: int | None = None
        self._ending: ProcessExit | None = None
        self._watching = trio.Lock()

    def set_init(self, pid: int) -> None:
        """Set the jail's first process, whose exit means that no other process is left.

        Raises SandboxFailure.
        """
        try:
            self._init_pidfd = os.pidfd_open(pid)
        except OSError as error:
            raise SandboxFailure(f"the jail cannot be watched: {error}") from None
        self.init_pid = pid

    def open_gate(self) -> None:
        """Open the gate.  Raises SandboxFailure if the jail has ended already."""
        try:
            os.write(self._gate, b"1")
        except BrokenPipeError:
            raise SandboxFailure("the jail ended before its command began") from None

    def without_jail_error(self, piece: bytes) -> bytes:
        """Return the command's part of the output; anything before its start is the jail's error."""
        if self._has_started or self._read_start():
            return piece
        self._jail_error += piece
        return b""

    def find_failure(self) -> str:
        """Return why nothing of the command ran although its jail was built; "" if it started."""
        if self._has_started:
            return ""
        said = visible(self._jail_error.decode(errors="replace").strip()) or "the jail ended"
        return (
            f"nothing ran, its jail could not be entered: {said}; the owner of the folder it is to "
            "run in must be able to enter it (chmod u+rwx)"
        )

    def check_started(self) -> None:
        """Raise SandboxFailure if nothing of the command ran; for use after the block."""
        if failure := self.find_failure():
            raise SandboxFailure(failure)

    def _read_start(self) -> bool:
        """True if the jail has reported the start of the command, which is its last action."""
        with suppress(BlockingIOError):
            self._has_started = bool(os.read(self._alive, 1))
        return self._has_started

    @property
    def ending(self) -> ProcessExit | None:
        """Exit of the command; None until a `wait` has seen it."""
        return self._ending

    async def wait(self) -> ProcessExit:
        """Wait for the exit.  Any number of tasks may wait.

        Cancellation: the command keeps running until its block is left.
        """
        while self._ending is None:
            async with self._watching:
                if self._ending is None:
                    await trio.lowlevel.wait_readable(self._pidfd)
                    self._collect()
        return self._ending

    def kill(self) -> None:
        """Kill all its processes."""
        if self._kill_all is not None and self._init_pidfd is not None:
            self._kill_all(self._init_pidfd)
            return
        for fd in (self._init_pidfd, self._pidfd):
            if fd is not None and fd >= 0:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)

    async def end(self) -> None:
        """Kill, wait until no process is alive, and close every descriptor.

        The kernel lets the first process of a namespace exit only after all others.  Raises
        SandboxFailure if that takes longer than DEATH_S.  Cancellation: shielded.
        """
        with trio.CancelScope(shield=True):
            with trio.move_on_after(DEATH_S) as scope:
                self.kill()
                if self._init_pidfd is not None:
                    await trio.lowlevel.wait_readable(self._init_pidfd)
                await self.wait()
            await self._close()
        if scope.cancelled_caught:
            raise SandboxFailure(f"process {self.init_pid or self.pid} cannot be killed: see dmesg")

    async def _close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr, self.info):
            if stream is not None:
                await trio.aclose_forcefully(stream)
        if self.egress is not None:
            self.egress.close()
        for fd in (self._alive, self._gate, self._pidfd, self._init_pidfd):
            if fd is not None:
                os.close(fd)

    def _collect(self) -> None:
        found, status = os.waitpid(self.pid, os.WNOHANG)
        if found:
            self._has_started = self._has_started or self._read_start()
            limit = self.group.find_limit() if self.group else ""
            self._ending = _read_status(status, limit)


def _socket(fd: int) -> trio.socket.SocketType:
    return trio.socket.from_stdlib_socket(socket.socket(fileno=fd))


def _read_status(status: int, limit: str) -> ProcessExit:
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - _SIGNAL_BASE
    name = signal.Signals(number).name if number in _SIGNALS else ""
    return ProcessExit(None if name else code, name, limit or _LIMIT_SIGNALS.get(name, ""))
