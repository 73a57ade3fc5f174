"""A jailed command while it runs: its streams, its processes, its exit."""

import json
import os
import select
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import trio

from palyra.core.text.visible import visible
from palyra.tools.sandbox.cgroups import Group
from palyra.tools.sandbox.command import SandboxFailure
from palyra.tools.sandbox.start import ChildPipes
from palyra.tools.sandbox.survivors import JailRemains, find_child

HOLD_S = 20.0  # for the start of the program in a jail that is built
# For helpers that end with their program, such as multiprocessing's resource tracker.
GRACE_S = 0.1
DEATH_S = 10.0  # for the exit of a killed jail; a process can hang in disk I/O
_REPORT_BYTES = 65_536  # the reaper's, more than a pipe's packet holds
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
        self,
        pid: int,
        pipes: ChildPipes,
        *,
        find_remains: Callable[[int, int], Awaitable[JailRemains]],
        kill_all: Callable[[int], None] | None = None,
    ) -> None:
        """`pid`: our child and the ancestor of every process in the jail, bubblewrap or the reaper.

        `find_remains` inspects the jail once its program has exited.
        `kill_all` kills everything, given a pidfd of the first process, where no process namespace
        does so when that process dies.
        """
        self.pid = pid
        self._find_remains = find_remains
        self._kill_all = kill_all
        self.init_pid = 0  # of the jail's first process; 0: not known yet
        self.enforcement = ""
        self.restored: tuple[str, ...] = ()  # after the block: protected paths it had changed
        self.prevented: tuple[str, ...] = ()  # names in the workspace it finds held and cannot make
        self.remains = JailRemains()  # known if the command tells its survivors
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
        self._program: tuple[int, int] | None = None  # id and pidfd, while the jail is held
        self._is_killed = False
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

    async def hold(self) -> None:
        """Let the command start in a jail that its exit does not end before `wait` has counted.

        bubblewrap's outer process takes everything along when it exits, which it does when the
        command has exited; so it is stopped until then.  Nothing depends on its running: signals
        that kill reach it.  Raises SandboxFailure.  Cancellation: the command has not started.
        """
        with trio.move_on_after(HOLD_S) as scope:
            await trio.lowlevel.wait_readable(self._alive)
        if scope.cancelled_caught:
            raise SandboxFailure(f"the command did not start within {HOLD_S:g} s")
        program = find_child(self.init_pid)
        if program is not None:
            with suppress(OSError):  # it has exited: killed from outside
                self._program = (program, os.pidfd_open(program))
                signal.pidfd_send_signal(self._pidfd, signal.SIGSTOP)
        self._has_started = self._has_started or self._read_start()

    def is_held_by_survivors(self) -> bool:
        """True if the program has exited and `wait` has not ended the rest of its jail yet."""
        if self._program is None:
            return False
        poll = select.poll()
        poll.register(self._program[1], select.POLLIN)
        return bool(poll.poll(0))

    async def _release(self) -> None:
        """Wait for the exit of the program, name the processes left, and end the jail."""
        if self._program is None:
            return
        pid, pidfd = self._program
        await trio.lowlevel.wait_readable(pidfd)
        if not self._is_killed:
            self.remains = await self._find_remains(self.init_pid, pid)
            with trio.move_on_after(GRACE_S):
                while self.remains.survivors:
                    await trio.sleep(GRACE_S / 5)
                    self.remains = await self._find_remains(self.init_pid, pid)
        if self._program is not None:  # no other task came first
            self._program = None
            os.close(pidfd)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)

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
            self._has_started = os.read(self._alive, 1) == b"!"
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
                    await self._release()
                    await trio.lowlevel.wait_readable(self._pidfd)
                    self._collect()
        return self._ending

    def kill(self) -> None:
        """Kill all its processes."""
        self._is_killed = True
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
        held = () if self._program is None else (self._program[1],)
        for fd in (self._alive, self._gate, self._pidfd, self._init_pidfd, *held):
            if fd is not None:
                os.close(fd)

    def _read_remains(self) -> None:
        """Read the reaper's report, of level B; there is none of level A, or of a killed one."""
        with suppress(BlockingIOError, ValueError):
            found = json.loads(os.read(self._alive, _REPORT_BYTES))
            self.remains = JailRemains(tuple(found["survivors"]), found["written_bytes"])

    def _collect(self) -> None:
        found, status = os.waitpid(self.pid, os.WNOHANG)
        if found:
            self._has_started = self._has_started or self._read_start()
            self._read_remains()
            limit = self.group.find_limit() if self.group else ""
            self._ending = _read_status(status, limit)


def _socket(fd: int) -> trio.socket.SocketType:
    return trio.socket.from_stdlib_socket(socket.socket(fileno=fd))


def _read_status(status: int, limit: str) -> ProcessExit:
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - _SIGNAL_BASE
    name = signal.Signals(number).name if number in _SIGNALS else ""
    return ProcessExit(None if name else code, name, limit or _LIMIT_SIGNALS.get(name, ""))
