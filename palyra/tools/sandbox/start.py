"""The start of one jail, in the thread that is the parent of all: descriptors, words, process.

Nothing of the daemon gets in: descriptors are made close-on-exec and handed over by number, the
environment is empty, standard input is empty unless asked for.
"""

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
from palyra.tools.sandbox.inside import GIT_IGNORE, build_inside
from palyra.tools.sandbox.protected_paths import PathMask, ignored_by_git, open_sources
from palyra.tools.sandbox.seccomp import build_filter


@dataclass(slots=True)
class ChildPipes:
    """The daemon's ends."""

    process: int  # a pidfd of bubblewrap's process, or the reaper's
    info: int  # it says who the jail's first process is
    gate: int  # the command begins when something is written
    stdin: int | None
    stdout: int
    stderr: int | None
    alive: int  # closed, it tells that the daemon is not there any more; a byte: the command begins
    egress: int | None  # a socket; the jail's listening socket arrives here


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """Who starts what from where."""

    bubblewrap: str
    name: str  # that its processes are seen under
    uid: int | None  # None: who the daemon is
    command: Command
    sources: Sources
    masks: tuple[PathMask, ...]
    landlock_abi: int  # 0: none


def spawn(start: SpawnRequest) -> tuple[int, ChildPipes]:
    """The process id of bubblewrap, which waits at its gate, and the daemon's ends of the pipes.

    Its end is the caller's to collect.  Raises SandboxFailure.
    """
    if not start.masks:
        return _guarded(start.command, partial(_spawn, start, {}))
    try:
        with open_sources(start.sources.workspace, start.masks) as sources:
            return _guarded(start.command, partial(_spawn, start, sources))
    except OSError as error:
        raise SandboxFailure(f"the workspace was changed meanwhile: {error}") from None


class _Ends:
    """Descriptors made for one start: those of the jail, and those of the daemon."""

    def __init__(self) -> None:
        self.theirs: list[int] = []
        self.ours: list[int] = []

    def inward(self) -> tuple[int, int]:
        """A pipe that the jail reads: its end, ours."""
        read, write = os.pipe2(os.O_CLOEXEC)
        return self._keep(read, write)

    def outward(self) -> tuple[int, int]:
        """A pipe that the jail writes: its end, ours."""
        read, write = os.pipe2(os.O_CLOEXEC)
        return self._keep(write, read)

    def both_ways(self) -> tuple[int, int]:
        """A pair of sockets: the jail's, ours."""
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return self._keep(theirs.detach(), ours.detach())

    def sealed(self, content: bytes) -> int:
        """A descriptor from which the jail can read exactly this content, once."""
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


def _guarded(
    command: Command, make: Callable[[_Ends], tuple[int, ChildPipes]]
) -> tuple[int, ChildPipes]:
    """What is made with descriptors of which none stays open that should not."""
    ends = _Ends()
    try:
        return make(ends)
    except (OSError, ValueError) as error:
        _close(ends.ours)
        raise SandboxFailure(f"{command.argv[0]} cannot be started: {error}") from None
    finally:
        _close(ends.theirs)


def _spawn(start: SpawnRequest, sources: Mapping[str, int], ends: _Ends) -> tuple[int, ChildPipes]:
    command = start.command
    info, gate, alive, stdout = ends.outward(), ends.inward(), ends.outward(), ends.outward()
    stdin = ends.inward() if command.takes_input else (None, None)
    stderr = (None, None) if command.merges_errors else ends.outward()
    egress = ends.both_ways() if command.network else (None, None)
    launcher = build_inside(command, start.landlock_abi, alive_fd=alive[0], egress_fd=egress[0])
    copies = {LAUNCHER: launcher, **system_copies()}
    fds = Descriptors(
        info=info[0],
        gate=gate[0],
        filter=ends.sealed(build_filter(has_network=command.network is not None)),
        copies=[(path, ends.sealed(content)) for path, content in copies.items()],
        files=[(path, ends.sealed(content)) for path, content in _files(start).items()],
        sources=sources,
    )
    words = render_options(command, start.sources, start.masks, fds)
    options = ends.sealed(b"".join(os.fsencode(word) + b"\0" for word in words))
    pid, process = _popen(
        start.bubblewrap,
        [start.name, "--args", str(options), "--", LAUNCHER, *command.argv],
        (stdin[0], stdout[0], stderr[0]),
        [*ends.theirs, *sources.values()],
        uid=start.uid,
    )
    return pid, ChildPipes(
        process, info[1], gate[1], stdin[1], stdout[1], stderr[1], alive[1], egress[1]
    )


def _files(start: SpawnRequest) -> dict[str, bytes]:
    """What is laid over the jail's folders: the command's sealed copies, and a list for git."""
    ignored = ignored_by_git(start.masks)
    return {**({GIT_IGNORE: ignored} if ignored else {}), **start.command.files}


def _popen(
    program: str,
    argv: list[str],
    streams: tuple[int | None, int, int | None],
    handed_over: Iterable[int],
    *,
    uid: int | None = None,
) -> tuple[int, int]:
    """Its number, and a descriptor of it.  Raises OSError."""
    stdin, stdout, stderr = streams
    process = subprocess.Popen(  # noqa: S603 - a list, no shell, walls round it
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
    except OSError:  # no descriptor left: then nobody could ever tell its end
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # `Child` collects it, not this object
    return process.pid, descriptor


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
