"""openat2(2): open a path that the kernel itself keeps below a directory.

Linux 5.6 and later; the C library has no wrapper for it.  The system call has the same number on
every architecture.
"""

import ctypes
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
    """A descriptor for a path below the folder, without following any link.

    Raises OSError: EXDEV for a path that leaves the folder, ELOOP for a link on the way, EAGAIN
    when a rename meanwhile made the answer uncertain.
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
    """Whether the kernel has it and lets this process use it (a seccomp filter may not)."""
    try:
        os.close(open_beneath(folder_fd, ".", os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return False
    return True
