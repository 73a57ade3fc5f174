"""Landlock: an isolation layer independent of mounts and namespaces.

A process lists the rights it keeps, by path.  The kernel then refuses it all other files, and, as far
as its Landlock version can, TCP ports, abstract sockets, and signals to processes outside.
Source: landlock(7).
"""

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from palyra.tools.sandbox.launcher import SystemCall

_CREATE_RULESET = 444  # the same number everywhere
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_LIBC = ctypes.CDLL(None, use_errno=True)

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILE = (
    EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
)  # the rights that apply to a file itself
DEVICE = READ | WRITE_FILE | TRUNCATE | IOCTL_DEVICE
# All rights but creating devices and sockets.
WRITE = (
    READ | WRITE_FILE | TRUNCATE
    | 1 << 4 | 1 << 5  # remove folders and files
    | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12  # make folders, files, FIFOs, links
    | 1 << 13  # move and link between folders
)  # fmt: skip
MAKE_SOCKET = 1 << 9
# By version of the interface: all its rights on files, on TCP, and its scopes.
_HANDLED = {
    1: (0x1FFF, 0, 0), 2: (0x3FFF, 0, 0), 3: (0x7FFF, 0, 0), 4: (0x7FFF, 3, 0),
    5: (0xFFFF, 3, 0), 6: (0xFFFF, 3, 3),
}  # fmt: skip
NOTHING: Mapping[str, int] = MappingProxyType({})
SCOPED_ABI = 6  # the first version that restricts abstract sockets and signals
_OPEN_PATH = 0o12000000  # O_PATH | O_CLOEXEC
_NO_LINKS = struct.pack("=QQQ", _OPEN_PATH, 0, 0x04)  # struct open_how, RESOLVE_NO_SYMLINKS
_HERE = -100  # AT_FDCWD
_PATH_BENEATH = 1
_RULESET, _OPENED = 3, 4  # descriptors, with 0 to 2 in use and nothing else


def find_abi() -> int:
    """Return the kernel's version of Landlock; 0 for none."""
    return max(0, int(_LIBC.syscall(ctypes.c_long(_CREATE_RULESET), None, 0, _VERSION)))


def restrict(
    abi: int, rights: Mapping[str, int], *, has_network: bool, strict: Mapping[str, int] = NOTHING
) -> Iterator[SystemCall]:
    """Yield calls that restrict the process to these rights at and below each path.

    A missing path is skipped; a `strict` one also if it leads through a link.  Requires
    no_new_privs, and that descriptors from 3 on are free.
    """
    files, ports, scopes = _HANDLED[min(abi, max(_HANDLED))]
    ports = 0 if has_network else ports
    words = (files,) if abi < 4 else (files, ports) if abi < SCOPED_ABI else (files, ports, scopes)  # noqa: PLR2004 - as the interface grew
    attributes = struct.pack(f"={len(words)}Q", *words)
    yield SystemCall("landlock_create_ruleset", (attributes, len(attributes), 0))
    for path, right in rights.items():
        opened = SystemCall("openat", (_HERE, os.fsencode(path) + b"\0", _OPEN_PATH, 0), skips=2)
        yield from _grant(opened, right & files)
    for path, right in strict.items():
        name = os.fsencode(path) + b"\0"
        opened = SystemCall("openat2", (_HERE, name, _NO_LINKS, len(_NO_LINKS)), skips=2)
        yield from _grant(opened, right & files)
    yield SystemCall("landlock_restrict_self", (_RULESET, 0))
    yield SystemCall("close", (_RULESET,))


def _grant(opened: SystemCall, right: int) -> Iterator[SystemCall]:
    yield opened
    rule = struct.pack("=Qi", right, _OPENED)
    yield SystemCall("landlock_add_rule", (_RULESET, _PATH_BENEATH, rule, 0))
    yield SystemCall("close", (_OPENED,))
