"""renameat2(2): swap two names in one step, and move a name only where there is none.

File systems that cannot (network ones, mostly) get the same result in several steps; then what
somebody else does in between is not met.
"""

import ctypes
import errno
import os

_NOREPLACE, _EXCHANGE = 0x1, 0x2
_LIBC = ctypes.CDLL(None, use_errno=True)
_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})


def swap(folder_fd: int, one: str, other: str) -> None:
    """Each name now means what the other meant.  Raises OSError."""
    if _rename(folder_fd, one, other, _EXCHANGE):
        return
    spare = f"{one}.spare"
    os.link(other, spare, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    os.rename(one, other, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    os.rename(spare, one, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)


def move(folder_fd: int, name: str, free: str) -> None:
    """The thing has the other name now.  Raises OSError, EEXIST where that name is taken."""
    if _rename(folder_fd, name, free, _NOREPLACE):
        return
    os.link(name, free, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    os.unlink(name, dir_fd=folder_fd)


def _rename(folder_fd: int, source: str, target: str, flags: int) -> bool:
    """Whether it is done; False where this cannot be done in one step."""
    if not hasattr(_LIBC, "renameat2"):
        return False
    found = _LIBC.renameat2(
        ctypes.c_int(folder_fd),
        ctypes.c_char_p(os.fsencode(source)),
        ctypes.c_int(folder_fd),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_uint(flags),
    )
    if found == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code))
