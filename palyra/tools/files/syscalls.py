"""System calls: openat2(2), which the kernel confines below a directory, and renameat2(2).

Linux 5.6 and later; the C library has no wrapper for it.  The system call has the same number on
every architecture.

renameat2(2): swap two names in one step, and move a name only where there is none.

On file systems without it (mostly network ones) several steps give the same result; a change by
another program between these steps is then not detected.
"""

import ctypes
import errno
import os

_SYSCALL = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_RESOLVE = _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS
_LIBC = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_beneath(folder_fd: int, path: str, flags: int) -> int:
    """Open a path below the folder without following links.

    Raises OSError: EXDEV for a path that leaves the folder, ELOOP for a link on the way, EAGAIN
    if a concurrent rename made the result uncertain.
    """
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=_RESOLVE)
    found = _LIBC.syscall(
        ctypes.c_long(_SYSCALL),
        ctypes.c_long(folder_fd),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)


def is_supported(folder_fd: int) -> bool:
    """True if the kernel has openat2 and no seccomp filter refuses it."""
    try:
        os.close(open_beneath(folder_fd, ".", os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return False
    return True


_NOREPLACE, _EXCHANGE = 0x1, 0x2
_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})


def swap(folder_fd: int, one: str, other: str) -> None:
    """Exchange two names.  Raises OSError."""
    if _rename(folder_fd, one, other, _EXCHANGE):
        return
    spare = f"{one}.spare"
    os.link(other, spare, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    os.rename(one, other, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    os.rename(spare, one, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)


def move(folder_fd: int, name: str, free: str) -> None:
    """Rename without replacing.  Raises OSError, EEXIST if the new name exists."""
    if _rename(folder_fd, name, free, _NOREPLACE):
        return
    os.link(name, free, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    os.unlink(name, dir_fd=folder_fd)


def _rename(folder_fd: int, source: str, target: str, flags: int) -> bool:
    """Call renameat2; False if the file system does not support the flags."""
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
