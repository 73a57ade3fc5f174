"""A jailed command while it runs: its streams, its first process, its end."""

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

DEATH_S = 10.0  # how long a killed jail may take to be gone; a disk can hold a process
_SIGNAL_BASE = 128  # how shells, and bubblewrap, tell a signal in an exit code
_SIGNALS = frozenset(signal.Signals)
_LIMIT_SIGNALS = {"SIGXCPU": "cpu", "SIGXFSZ": "file size"}


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a command ended."""

    exit_code: int | None  # None: by a signal
    signal: str = ""  # SIGKILL …
    limit: str = ""  # what it ran into: memory, processes, cpu, file size


class JailedProcess:
    """One command.  Made by `Sandbox.open`, which also ends it."""

    def __init__(
        self, pid: int, pipes: ChildPipes, *, kill_all: Callable[[int], None] | None = None
    ) -> None:
        """`pid`: the parent of everything in the jail, bubblewrap or the reaper; our child.

        `kill_all` kills everything, given a pidfd of the first process, where no process namespace
        does so when that process dies.
        """
        self.pid = pid
        self._kill_all = kill_all
        self.init_pid = 0  # of the jail's first process; 0: there is none yet
        self.enforcement = ""
        self.restored: tuple[str, ...] = ()  # after the block: what it had changed and must not
        self.group: Group | None = None  # whose limits it is under
        self.stdin = None if pipes.stdin is None else trio.lowlevel.FdStream(pipes.stdin)
        self.stdout: trio.abc.ReceiveStream = trio.lowlevel.FdStream(pipes.stdout)
        self.stderr = None if pipes.stderr is None else trio.lowlevel.FdStream(pipes.stderr)
        self.egress = None if pipes.egress is None else _socket(pipes.egress)
        self.info = trio.lowlevel.FdStream(pipes.info)
        self._gate = pipes.gate
        self._alive = pipes.alive
        os.set_blocking(self._alive, False)
        self._has_begun = False
        self._complaint = b""
        self._pidfd = pipes.process
        self._init_pidfd: int | None = None
        self._ending: ProcessExit | None = None
        self._watching = trio.Lock()

    def meet_init(self, pid: int) -> None:
        """From now on the jail's first process is known: its end is everybody's end.

        Raises SandboxFailure.
        """
        try:
            self._init_pidfd = os.pidfd_open(pid)
        except OSError as error:
            raise SandboxFailure(f"the jail cannot be watched: {error}") from None
        self.init_pid = pid

    def begin(self) -> None:
        """Let the command begin.  Raises SandboxFailure when the jail is not there any more."""
        try:
            os.write(self._gate, b"1")
        except BrokenPipeError:
            raise SandboxFailure("the jail ended before its command began") from None

    def without_complaint(self, piece: bytes) -> bytes:
        """What the command wrote of this output; before it began, it is the jail that complains."""
        if self._has_begun or self._notice_begin():
            return piece
        self._complaint += piece
        return b""

    def find_failure(self) -> str:
        """Why nothing of the command ran although its jail stood; "" when it began."""
        if self._has_begun:
            return ""
        said = visible(self._complaint.decode(errors="replace").strip()) or "the jail ended"
        return (
            f"nothing ran, its jail could not be entered: {said}; whoever owns the folder it is to "
            "run in must be able to enter it (chmod u+rwx)"
        )

    def check_begun(self) -> None:
        """Raise SandboxFailure if nothing of the command ran; asked after its block."""
        if failure := self.find_failure():
            raise SandboxFailure(failure)

    def _notice_begin(self) -> bool:
        """Whether the command begins; the last thing its jail does is to say so."""
        with suppress(BlockingIOError):
            self._has_begun = bool(os.read(self._alive, 1))
        return self._has_begun

    @property
    def ending(self) -> ProcessExit | None:
        """How it ended; None as long as nobody has waited for it."""
        return self._ending

    async def wait(self) -> ProcessExit:
        """How it ended.  Any number of tasks may wait.

        Cancellation: it goes on running, until its block is left.
        """
        while self._ending is None:
            async with self._watching:
                if self._ending is None:
                    await trio.lowlevel.wait_readable(self._pidfd)
                    self._collect()
        return self._ending

    def kill(self) -> None:
        """Kill everything of it."""
        if self._kill_all is not None and self._init_pidfd is not None:
            self._kill_all(self._init_pidfd)
            return
        for fd in (self._init_pidfd, self._pidfd):
            if fd is not None and fd >= 0:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)

    async def end(self) -> None:
        """Kill, and return when nothing of it is alive and every descriptor is closed.

        The kernel lets the jail's first process go only after all others.  Raises SandboxFailure
        if that takes longer than DEATH_S.  Cancellation: not heard.
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
            self._has_begun = self._has_begun or self._notice_begin()
            limit = self.group.find_limit() if self.group else ""
            self._ending = _read_status(status, limit)


def _socket(fd: int) -> trio.socket.SocketType:
    return trio.socket.from_stdlib_socket(socket.socket(fileno=fd))


def _read_status(status: int, limit: str) -> ProcessExit:
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - _SIGNAL_BASE
    name = signal.Signals(number).name if number in _SIGNALS else ""
    return ProcessExit(None if name else code, name, limit or _LIMIT_SIGNALS.get(name, ""))
