"""What is put up from inside the jail: limits, Landlock, and every inherited descriptor closed."""

import platform
import resource
import signal
import socket
import struct
from collections.abc import Iterator, Mapping

from palyra.tools.sandbox.command import Command, CommandLimits
from palyra.tools.sandbox.landlock import DEVICE, READ, READ_DIR, READ_FILE, WRITE, restrict
from palyra.tools.sandbox.launcher import LauncherWords, SystemCall, build_launcher
from palyra.tools.sandbox.seccomp import build_filter

HOME = "/home/palyra"
GIT_IGNORE = f"{HOME}/.config/git/ignore"  # where git looks for it by default
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG
_SET_MODE_FILTER = 1  # SECCOMP_SET_MODE_FILTER
_EVERY_DESCRIPTOR = 0xFFFFFFFF
_HANDED_OVER_BY, _LISTENER = 3, 4  # descriptors; see `_hand_over_listener`
_BACKLOG = 128
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/etc")


def build_inside(
    command: Command,
    abi: int,
    *,
    alive_fd: int,
    egress_fd: int | None = None,
    machine: str | None = None,
) -> bytes:
    """The launcher for this command.

    `abi`: the kernel's version of Landlock, 0 for none.  `alive_fd`: a pipe that the daemon reads
    as long as it lives: bubblewrap's gate opens also when the daemon is killed, and its command
    must not begin then.  `egress_fd`: the socket over which the
    listening socket of the command's way out is handed to the daemon.  Raises SandboxFailure for a
    processor it cannot be written for.
    """
    begin = SystemCall("write", (alive_fd, b"!", 1))
    calls = [begin, *_calls(command, abi, egress_fd)]
    return build_launcher(calls, machine or platform.machine())


def build_walls(
    limits: CommandLimits,
    abi: int,
    rights: Mapping[str, int],
    strict: Mapping[str, int],
    *,
    machine: str | None = None,
) -> bytes:
    """The launcher of a command that no namespace surrounds: every wall of it is put up here.

    `rights` and `strict`: as `landlock.restrict` takes them.  Raises SandboxFailure likewise.
    """
    program = build_filter(has_network=False, is_shared=True, machine=machine)
    lines = LauncherWords((len(program) // 8, program))  # struct sock_fprog
    calls = [
        SystemCall("close_range", (3, _EVERY_DESCRIPTOR, 0)),
        SystemCall("prctl", (_DEATH_OF_PARENT, signal.SIGKILL, 0, 0, 0)),
        *_limits(limits),
        SystemCall("prctl", (_NO_NEW_PRIVILEGES, 1, 0, 0, 0)),
        *restrict(abi, rights, has_network=False, strict=strict),
        SystemCall("seccomp", (_SET_MODE_FILTER, 0, lines)),
    ]
    return build_launcher(calls, machine or platform.machine())


def _calls(command: Command, abi: int, egress_fd: int | None) -> Iterator[SystemCall]:
    if command.network is not None and egress_fd is not None:
        yield from _hand_over_listener(command.network.port, egress_fd)
    yield SystemCall("close_range", (3, _EVERY_DESCRIPTOR, 0))
    yield from _limits(command.limits)
    yield SystemCall("prctl", (_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    if abi:
        yield from restrict(abi, rights_of(command), has_network=command.network is not None)


def _hand_over_listener(port: int, egress_fd: int) -> Iterator[SystemCall]:
    """Listen on the jail's loopback, and send the socket out.  Source: unix(7), SCM_RIGHTS."""
    yield SystemCall("dup3", (egress_fd, _HANDED_OVER_BY, 0))
    yield SystemCall("close_range", (_HANDED_OVER_BY + 1, _EVERY_DESCRIPTOR, 0))
    yield SystemCall("socket", (socket.AF_INET, socket.SOCK_STREAM, 0))
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, b"\x7f\0\0\1")
    yield SystemCall("bind", (_LISTENER, address, len(address)))
    yield SystemCall("listen", (_LISTENER, _BACKLOG))
    rights = struct.pack("=QiiIxxxx", 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, _LISTENER)
    text = LauncherWords((b"!", 1))  # one struct iovec
    message = LauncherWords((0, 0, text, 1, rights, len(rights), 0))
    yield SystemCall("sendmsg", (_HANDED_OVER_BY, message, 0))


def rights_of(command: Command) -> dict[str, int]:
    """What the command may do where."""
    rights = {"/": READ_DIR, "/proc": READ, "/dev": DEVICE}
    rights |= dict.fromkeys(_SYSTEM, READ)
    rights |= dict.fromkeys(("/dev/shm", "/tmp", HOME), WRITE)  # noqa: S108 - inside
    rights |= {
        bind.place: READ if bind.source.is_dir() else READ & ~READ_DIR for bind in command.binds
    }
    if command.workspace is not None:
        rights[str(command.workspace)] = WRITE if command.is_writable else READ
    return rights | dict.fromkeys(command.files, READ_FILE | 1)


def _limits(limits: CommandLimits) -> Iterator[SystemCall]:
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
            # SIGXCPU comes first, and tells why.
            hard = limit + 1 if kind == resource.RLIMIT_CPU else limit
            yield SystemCall("prlimit64", (0, kind, struct.pack("=QQ", limit, hard), 0))
