"""The launcher of a jail: what a process must do to itself before it becomes the command.

In this order: report over the `alive` pipe that the command starts; hand the listening socket of the
egress proxy to the daemon; close every inherited descriptor; set resource limits, which count within
the jail's user namespace only from inside or by the jail's own user (decision 18); give up the right
to gain privileges; restrict itself with Landlock.
"""

import platform
import resource
import socket
import struct
from collections.abc import Callable, Iterator

from palyra.tools.sandbox.command import Command, CommandLimits
from palyra.tools.sandbox.git_folders import GitFolder
from palyra.tools.sandbox.landlock import (
    DEVICE,
    MAKE_SOCKET,
    READ,
    READ_DIR,
    READ_FILE,
    WRITE,
    restrict,
)
from palyra.tools.sandbox.launcher import LauncherWords, SystemCall, build_launcher

HOME = "/home/palyra"
GIT_IGNORE = f"{HOME}/.config/git/ignore"  # where git looks for it by default
TEMPORARY = "/tmp"  # noqa: S108 - inside
PRIVATE_FOLDERS = ("/dev/shm", TEMPORARY, HOME)  # noqa: S108 - inside
NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
EVERY_DESCRIPTOR = 0xFFFFFFFF
_HANDED_OVER_BY, _LISTENER = 3, 4  # descriptors; see `_hand_over_listener`
_BACKLOG = 128
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/etc")


def build_inside(
    command: Command,
    abi: int,
    *,
    git: GitFolder | None = None,
    alive_fd: int,
    egress_fd: int | None = None,
    machine: str | None = None,
) -> bytes:
    """Return the launcher for this command.

    `abi`: the kernel's version of Landlock, 0 for none.  `alive_fd`: a pipe that the daemon reads
    as long as it lives.  bubblewrap's gate opens also when the daemon is killed; the write then
    fails, and the command does not start.  `egress_fd`: the socket over which the listening socket
    of the command's egress is sent to the daemon.  Raises SandboxFailure for a processor without an
    instruction table.
    """
    begin = SystemCall("write", (alive_fd, b"!", 1))
    # The pipe has room for one write: the second waits until the daemon holds the jail.
    begins = [begin, begin] if command.tells_survivors else [begin]
    calls = [*begins, *_calls(command, abi, egress_fd, git)]
    return build_launcher(calls, machine or platform.machine())


def _calls(
    command: Command, abi: int, egress_fd: int | None, git: GitFolder | None
) -> Iterator[SystemCall]:
    if command.network is not None and egress_fd is not None:
        yield from _hand_over_listener(command.network.port, egress_fd)
    yield SystemCall("close_range", (3, EVERY_DESCRIPTOR, 0))
    yield from limit_calls(command.limits)
    yield SystemCall("prctl", (NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    if abi:
        has_ports = command.has_loopback or command.network is not None
        yield from restrict(abi, rights_of(command, git), has_network=has_ports)


def _hand_over_listener(port: int, egress_fd: int) -> Iterator[SystemCall]:
    """Listen on the jail's loopback, and send the socket to the daemon.  Source: unix(7), SCM_RIGHTS."""
    yield SystemCall("dup3", (egress_fd, _HANDED_OVER_BY, 0))
    yield SystemCall("close_range", (_HANDED_OVER_BY + 1, EVERY_DESCRIPTOR, 0))
    yield SystemCall("socket", (socket.AF_INET, socket.SOCK_STREAM, 0))
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, b"\x7f\0\0\1")
    yield SystemCall("bind", (_LISTENER, address, len(address)))
    yield SystemCall("listen", (_LISTENER, _BACKLOG))
    rights = struct.pack("=QiiIxxxx", 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, _LISTENER)
    text = LauncherWords((b"!", 1))  # one struct iovec
    message = LauncherWords((0, 0, text, 1, rights, len(rights), 0))
    yield SystemCall("sendmsg", (_HANDED_OVER_BY, message, 0))


def rights_of(command: Command, git: GitFolder | None = None) -> dict[str, int]:
    """Return the Landlock rights of the command, by path."""
    rights = {"/": READ_DIR, "/proc": READ, "/dev": DEVICE}
    rights |= dict.fromkeys(_SYSTEM, READ)
    # A right holds in everything below, also in a folder of the host that is mounted there.
    shown = [str(command.workspace), "" if git is None else git.place]
    for place in PRIVATE_FOLDERS:
        has_sockets = command.has_loopback and not any(map(lies_below(place), shown))
        rights[place] = WRITE | MAKE_SOCKET if has_sockets else WRITE
    rights |= {
        bind.place: READ if bind.source.is_dir() else READ & ~READ_DIR for bind in command.binds
    }
    if command.workspace is not None:
        rights[str(command.workspace)] = WRITE if command.is_writable else READ
    if git is not None:
        rights[git.place] = READ
        rights |= {f"{git.place}/{path}".rstrip("/"): WRITE for path in git.writable}
    return rights | dict.fromkeys(command.files, READ_FILE | 1)


def lies_below(place: str) -> Callable[[str], bool]:
    """Return a test for paths below that one."""
    return lambda path: path.startswith(f"{place}/")


def limit_calls(limits: CommandLimits) -> Iterator[SystemCall]:
    """Yield the calls that set the resource limits of the calling process.

    A limit above the daemon's own hard limit, which a jail inherits and may not raise, is that one.
    """
    wanted = {
        resource.RLIMIT_AS: limits.address_space_bytes,
        resource.RLIMIT_NPROC: limits.processes,  # counted within the jail's user namespace
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for kind, limit in wanted.items():
        if limit is not None:
            _, most = resource.getrlimit(kind)
            limit = limit if most == resource.RLIM_INFINITY else min(limit, most)  # noqa: PLW2901 - the same limit
            # The soft limit sends SIGXCPU, which names the limit.
            hard = limit + 1 if kind == resource.RLIMIT_CPU and limit != most else limit
            yield SystemCall("prlimit64", (0, kind, struct.pack("=QQ", limit, hard), 0))
