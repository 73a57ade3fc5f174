"""Start of one jail, in the thread that is the parent of all jails: descriptors, options, process.

A jail inherits nothing of the daemon: descriptors are close-on-exec and passed by number, the
environment is empty, standard input is empty unless the command takes input.
"""

import fcntl
import os
import socket
import subprocess  # noqa: S404 - bubblewrap and the reaper are started, nothing else
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from palyra.tools.sandbox.bubblewrap import (
    LAUNCHER,
    Descriptors,
    Sources,
    render_options,
    system_copies,
)
from palyra.tools.sandbox.command import Command, SandboxFailure
from palyra.tools.sandbox.git_folders import GitFolder
from palyra.tools.sandbox.inside import GIT_IGNORE, build_inside
from palyra.tools.sandbox.protected_paths import PathMask, ignored_by_git, open_sources
from palyra.tools.sandbox.seccomp import Sockets, build_filter


@dataclass(slots=True)
class ChildPipes:
    """The daemon's ends of a jail's pipes."""

    process: int  # a pidfd of bubblewrap's process, or the reaper's
    info: int  # the jail writes its first process id
    gate: int  # the command begins when something is written
    stdin: int | None
    stdout: int
    stderr: int | None
    alive: int  # a byte: the command starts; the jail sees it close when the daemon dies
    egress: int | None  # a socket; the jail's listening socket arrives here


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """Everything bubblewrap needs for one command."""

    bubblewrap: str
    name: str  # argv[0] of its processes
    uid: int | None  # None: the daemon's own
    command: Command
    sources: Sources
    masks: tuple[PathMask, ...]
    landlock_abi: int  # 0: none
    git: GitFolder | None = None


def spawn(start: SpawnRequest) -> tuple[int, ChildPipes]:
    """Start bubblewrap; return its process id and the daemon's ends of the pipes.

    It builds the jail and waits at its gate.  The caller must collect its exit.  Raises
    SandboxFailure.
    """
    git = ("", ()) if start.git is None else (start.git.source, start.git.masks)
    try:
        with (
            open_sources(start.sources.workspace, start.masks) as sources,
            open_sources(*git) as git_sources,
        ):
            return with_ends(start.command, partial(_spawn, start, sources, git_sources))
    except OSError as error:
        raise SandboxFailure(f"the workspace was changed meanwhile: {error}") from None


class JailEnds:
    """Descriptors made for one start: the jail's, and the daemon's."""

    def __init__(self) -> None:
        self.theirs: list[int] = []
        self.ours: list[int] = []

    def inward(self) -> tuple[int, int]:
        """Make a pipe that the jail reads; return its end and ours."""
        read, write = os.pipe2(os.O_CLOEXEC)
        return self._keep(read, write)

    def outward(self) -> tuple[int, int]:
        """Make a pipe that the jail writes; return its end and ours."""
        read, write = os.pipe2(os.O_CLOEXEC)
        return self._keep(write, read)

    def outward_one_by_one(self) -> tuple[int, int]:
        """Make a pipe in which a write waits until we have read the one before it."""
        read, write = os.pipe2(os.O_CLOEXEC | os.O_DIRECT)  # each write is a packet of its own
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1)  # rounded up to one packet
        return self._keep(write, read)

    def both_ways(self) -> tuple[int, int]:
        """Make a pair of sockets; return the jail's and ours."""
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return self._keep(theirs.detach(), ours.detach())

    def sealed(self, content: bytes) -> int:
        """Return a descriptor from which the jail can read exactly this content, once."""
        fd = os.memfd_create("palyra", os.MFD_CLOEXEC)
        self.theirs.append(fd)
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _keep(self, theirs: int, ours: int) -> tuple[int, int]:
        self.theirs.append(theirs)
        self.ours.append(ours)
        return theirs, ours


def with_ends(
    command: Command, make: Callable[[JailEnds], tuple[int, ChildPipes]]
) -> tuple[int, ChildPipes]:
    """Call `make`; close the jail's ends afterwards, and on failure ours.  Raises SandboxFailure."""
    ends = JailEnds()
    try:
        return make(ends)
    except (OSError, ValueError) as error:
        _close(ends.ours)
        raise SandboxFailure(f"{command.argv[0]} cannot be started: {error}") from None
    finally:
        _close(ends.theirs)


def _spawn(
    start: SpawnRequest, sources: Mapping[str, int], git: Mapping[str, int], ends: JailEnds
) -> tuple[int, ChildPipes]:
    command = start.command
    info, gate, stdout = ends.outward(), ends.inward(), ends.outward()
    alive = ends.outward_one_by_one()
    stdin = ends.inward() if command.takes_input else (None, None)
    stderr = (None, None) if command.merges_errors else ends.outward()
    egress = ends.both_ways() if command.network else (None, None)
    launcher = build_inside(
        command, start.landlock_abi, git=start.git, alive_fd=alive[0], egress_fd=egress[0]
    )
    copies = {LAUNCHER: launcher, **system_copies()}
    fds = Descriptors(
        info=info[0],
        gate=gate[0],
        filter=ends.sealed(build_filter(sockets=_sockets_of(command, start.landlock_abi))),
        copies=[(path, ends.sealed(content)) for path, content in copies.items()],
        files=[(path, ends.sealed(content)) for path, content in _files(start).items()],
        sources=sources,
        git=git,
    )
    words = render_options(command, start.sources, start.masks, fds, start.git)
    options = ends.sealed(b"".join(os.fsencode(word) + b"\0" for word in words))
    pid, process = popen(
        start.bubblewrap,
        [start.name, "--args", str(options), "--", LAUNCHER, *command.argv],
        (stdin[0], stdout[0], stderr[0]),
        [*ends.theirs, *sources.values(), *git.values()],
        uid=start.uid,
    )
    return pid, ChildPipes(
        process, info[1], gate[1], stdin[1], stdout[1], stderr[1], alive[1], egress[1]
    )


def _sockets_of(command: Command, landlock_abi: int) -> Sockets:
    if command.has_loopback:
        is_masked = command.workspace is None or command.is_writable
        return "local" if landlock_abi and is_masked else "loopback"
    return "none" if command.network is None else "network"


def _files(start: SpawnRequest) -> dict[str, bytes]:
    """Files mounted over the jail's folders: the command's sealed copies, and git's ignore list."""
    ignored = ignored_by_git(start.masks)
    return {**({GIT_IGNORE: ignored} if ignored else {}), **start.command.files}


def popen(
    program: str,
    argv: list[str],
    streams: tuple[int | None, int, int | None],
    handed_over: Iterable[int],
    *,
    uid: int | None = None,
) -> tuple[int, int]:
    """Start the program; return its process id and a pidfd.  Raises OSError."""
    stdin, stdout, stderr = streams
    process = subprocess.Popen(  # noqa: S603 - a list, no shell, isolated
        argv,
        executable=program,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=subprocess.STDOUT if stderr is None else stderr,
        cwd="/",
        env={},
        pass_fds=[fd for fd in handed_over if fd not in streams],
        start_new_session=True,  # a terminal's Ctrl-C is for the daemon
        umask=0o022,
        user=uid,  # by the child itself, before it becomes bubblewrap
        group=uid,
        extra_groups=None if uid is None else [],
    )
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # out of descriptors: without one its exit could not be awaited
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # `JailedProcess` collects it, not this object
    return process.pid, descriptor


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
