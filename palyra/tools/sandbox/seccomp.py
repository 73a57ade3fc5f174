"""The system call filter of a jail, and the small assembler that writes it.

The filter refuses calls that lead out of a jail or into rarely used parts of the kernel: sockets
(see `Sockets`), namespaces and mounts, other processes' memory, keyrings, io_uring, bpf, modules, clocks.  A call
younger than `LAST_KNOWN` fails with ENOSYS, as on an older kernel.  Source: seccomp(2); the numbers
are those of asm/unistd_64.h and asm-generic/unistd.h.

The filter is a program in classic BPF (bpf(4)): a list of tests.  A test that holds jumps forward to
a named target, otherwise the next line runs.  The order is: architecture, number of the call, then
for a few calls one argument, each part ending in a verdict.
"""

import errno
import platform
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from palyra.tools.sandbox.command import SandboxFailure

_LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_RETURN = 0x06  # BPF_RET | BPF_K
_MAX_JUMP = 255
TESTS: Mapping[str, int] = {"==": 0x15, ">": 0x25, ">=": 0x35, "&": 0x45}

# Offsets into struct seccomp_data; arguments are 64 bit, and the low word comes first on the two
# architectures we know.
NUMBER, ARCHITECTURE = 0, 4


def argument(index: int) -> int:
    """Offset of the low word of a system call's argument."""
    return 16 + 8 * index


@dataclass(frozen=True, slots=True)
class Load:
    """Load a word of struct seccomp_data into the accumulator."""

    offset: int


@dataclass(frozen=True, slots=True)
class JumpIf:
    """Jump forward to a target if the accumulator passes the test, or else to `otherwise`."""

    test: str  # of TESTS
    value: int
    to: str = ""  # "": the next line
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class Return:
    """End with a verdict."""

    action: int


@dataclass(frozen=True, slots=True)
class JumpTarget:
    """A name for the next line."""

    name: str


Line = Load | JumpIf | Return | JumpTarget


def assemble(lines: Sequence[Line]) -> bytes:
    """Return the program as an array of struct sock_filter.  Raises ValueError for a jump too far."""
    places: dict[str, int] = {}
    count = 0
    for line in lines:
        if isinstance(line, JumpTarget):
            places[line.name] = count
        else:
            count += 1
    real = [line for line in lines if not isinstance(line, JumpTarget)]
    return b"".join(_encode(line, at, places) for at, line in enumerate(real))


def _encode(line: Load | JumpIf | Return, at: int, places: Mapping[str, int]) -> bytes:
    match line:
        case Load(offset):
            return struct.pack("=HBBI", _LOAD_WORD, 0, 0, offset)
        case Return(action):
            return struct.pack("=HBBI", _RETURN, 0, 0, action)
        case JumpIf(test, value, to, otherwise):
            yes, no = (places[name] - at - 1 if name else 0 for name in (to, otherwise))
            if not (0 <= yes <= _MAX_JUMP and 0 <= no <= _MAX_JUMP):
                raise ValueError(f"the jump to {to or otherwise} is too far or leads back")
            return struct.pack("=HBBI", TESTS[test], yes, no, value)


KILL_PROCESS = 0x80000000
ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

# name: (x86_64, aarch64); None where the architecture has no such call.
Numbers = dict[str, tuple[int | None, int | None]]

REFUSED: Numbers = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "syslog": (103, 116), "acct": (163, 89), "swapon": (167, 224), "swapoff": (168, 225),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "uselib": (134, None), "sysfs": (139, None),
    "nfsservctl": (180, 42), "lookup_dcookie": (212, 18), "vhangup": (153, 58),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "memfd_secret": (447, 447),
    # keyrings
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # namespaces and mounts
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "sethostname": (170, 161), "setdomainname": (171, 162),
    # files by number instead of by name
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # clocks
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
}  # fmt: skip
# A program without these falls back on calls whose arguments the filter can test: clone, open, poll.
UNKNOWN: Numbers = {
    "clone3": (435, 435), "openat2": (437, 437), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
LAST_KNOWN = 451  # cachestat; what came later, among it fchmodat2, does not exist
SOCKET: Numbers = {"socket": (41, 198)}
# Harmless without a socket; with an inherited one they reach sockets in the file system.
NETWORK: Numbers = {
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
}  # fmt: skip
SOCKETPAIR: Numbers = {"socketpair": (53, 199)}
CLONE: Numbers = {"clone": (56, 220)}
IOCTL: Numbers = {"ioctl": (16, 29)}
# A set-user-ID file would outlive the jail.  With the index of the argument that is the mode.
MODES: tuple[tuple[Numbers, int], ...] = (
    ({"chmod": (90, None), "fchmod": (91, 52), "creat": (85, None), "mknod": (133, None)}, 1),
    ({"fchmodat": (268, 53), "mknodat": (259, 33)}, 2),
)
# Calls that may create a file, with the index of their flags; the mode follows the flags.
OPENS: tuple[tuple[Numbers, int], ...] = (
    ({"open": (2, None)}, 1),
    ({"openat": (257, 56)}, 2),
)
_MAKES_FILE = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_SET_ID = 0o6000
# CLONE_NEWTIME NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_NEW_NAMESPACES = 0x7E020080
# Sockets that a jail may make.  none: pairs of local streams only.  network: also streams over IP, for
# a program whose only egress is a proxy.  loopback: also datagrams over IP, which its network namespace
# keeps on its own loopback.  local: also local streams.  A namespace does not bound the sockets of the
# file system, so where a program may make local ones, masks cover those of the workspace, and Landlock
# keeps it from making any there.
Sockets = Literal["none", "network", "loopback", "local"]
_UNIX, _INET, _INET6 = 1, 2, 10
_STREAM, _DATAGRAM = 1, 2
_TYPE_FLAGS = 0o2004000  # SOCK_NONBLOCK, SOCK_CLOEXEC
_PUSH_BACK_INPUT, _PASTE = 0x5412, 0x541C  # TIOCSTI, TIOCLINUX: characters typed into the terminal

_VERDICTS = {
    "refuse": _ERRNO | errno.EPERM,
    "unknown": _ERRNO | errno.ENOSYS,
    "family": _ERRNO | errno.EAFNOSUPPORT,
    "kill": KILL_PROCESS,
    "allow": ALLOW,
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A processor family the filter can be written for."""

    name: str
    audit: int  # AUDIT_ARCH_*
    column: int  # in the tables above
    x32_bit: int | None  # calls with it belong to another interface


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000003E, 0, 0x40000000),
    "aarch64": Architecture("aarch64", 0xC00000B7, 1, None),
}


@dataclass(frozen=True, slots=True)
class FilterExtension:
    """Further tests of a call's number, and the parts of the filter they jump to."""

    tests: Callable[[Architecture], Iterator[Line]]
    parts: Callable[[], Iterator[Line]]


def build_filter(
    *, sockets: Sockets, extension: FilterExtension | None = None, machine: str | None = None
) -> bytes:
    """Return the filter for this machine.

    Raises SandboxFailure for a processor without a table.
    """
    architecture = ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        raise SandboxFailure("the system call filter knows x86_64 and aarch64 only")
    return assemble(list(_lines(architecture, extension, sockets)))


def _lines(
    here: Architecture, extension: FilterExtension | None, sockets: Sockets
) -> Iterator[Line]:
    yield Load(ARCHITECTURE)
    yield JumpIf("==", here.audit, otherwise="kill")
    yield Load(NUMBER)
    if here.x32_bit is not None:
        yield JumpIf(">=", here.x32_bit, to="kill")
    yield JumpIf(">", LAST_KNOWN, to="unknown")
    yield from each_call(here, UNKNOWN, "unknown")
    yield from each_call(here, REFUSED, "refuse")
    if extension is not None:
        yield from extension.tests(here)
    yield from each_call(here, CLONE, "clone")
    yield from each_call(here, IOCTL, "ioctl")
    yield from each_call(here, SOCKET, "socket")
    yield from each_call(here, SOCKETPAIR, "socketpair")
    if sockets == "none":
        yield from each_call(here, NETWORK, "refuse")
    for calls, index in MODES:
        yield from each_call(here, calls, f"mode{index}")
    for calls, index in OPENS:
        yield from each_call(here, calls, f"open{index}")
    yield Return(ALLOW)
    yield from _argument_tests()
    yield from _sockets(sockets)
    if extension is not None:
        yield from extension.parts()
    for name, action in _VERDICTS.items():
        yield JumpTarget(name)
        yield Return(action)


def _argument_tests() -> Iterator[Line]:
    """Decide by arguments; each part ends in a verdict."""
    yield JumpTarget("clone")
    yield Load(argument(0))
    yield JumpIf("&", _NEW_NAMESPACES, to="refuse", otherwise="allow")
    yield JumpTarget("ioctl")
    yield Load(argument(1))
    yield JumpIf("==", _PUSH_BACK_INPUT, to="refuse")
    yield JumpIf("==", _PASTE, to="refuse", otherwise="allow")
    for _, index in OPENS:
        yield JumpTarget(f"open{index}")
        yield Load(argument(index))
        yield JumpIf("&", _MAKES_FILE, otherwise="allow")
        yield from _without_set_id(index + 1)
    for _, index in MODES:
        yield JumpTarget(f"mode{index}")
        yield from _without_set_id(index)


def _sockets(sockets: Sockets) -> Iterator[Line]:
    yield JumpTarget("socket")
    if sockets == "none":
        yield Return(_ERRNO | errno.EAFNOSUPPORT)
    else:
        yield Load(argument(0))
        if sockets == "local":
            yield JumpIf("==", _UNIX, to="stream")
        yield JumpIf("==", _INET, to="ip")
        yield JumpIf("==", _INET6, otherwise="family")
        yield JumpTarget("ip")
        if sockets != "network":
            yield Load(argument(1))
            yield from _allow_kind(_DATAGRAM)
        yield JumpTarget("stream")
        yield from _only_streams(1)
    yield JumpTarget("socketpair")
    yield Load(argument(0))
    yield JumpIf("==", _UNIX, otherwise="family")
    yield from _only_streams(1)  # a pair of datagram sockets can be pointed at a third


def _without_set_id(index: int) -> Iterator[Line]:
    yield Load(argument(index))
    yield JumpIf("&", _SET_ID, to="refuse", otherwise="allow")


def _only_streams(index: int) -> Iterator[Line]:
    """Allow if that argument is SOCK_STREAM, with or without flags."""
    yield Load(argument(index))
    yield from _allow_kind(_STREAM)
    yield Return(_ERRNO | errno.EAFNOSUPPORT)


def _allow_kind(kind: int) -> Iterator[Line]:
    for flags in (0, 0o4000, 0o2000000, _TYPE_FLAGS):
        yield JumpIf("==", kind | flags, to="allow")


def each_call(here: Architecture, calls: Numbers, to: str) -> Iterator[Line]:
    for numbers in calls.values():
        number = numbers[here.column]
        if number is not None:
            yield JumpIf("==", number, to=to)
