"""The data directory: private, and owned by one daemon at a time.

Owns: `daemon.lock`, which holds the owner's pid and an advisory lock.  The lock belongs to the
open file, so the kernel releases it when the owner ends in any way; the file itself stays.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write


class DataDirectory:
    """A data directory that this process owns until `close`."""

    def __init__(self, path: Path) -> None:
        """Create or tighten the directory and take its lock.

        Raises Unavailable when another process holds it, naming the pid.
        """
        self.path = path
        private_files.make_directory(path)
        self._lock = _lock(path / "daemon.lock")

    @property
    def keys(self) -> Path:
        """The directory of keys and of the operator's token."""
        return self.path / "keys"

    def close(self) -> None:
        """Release the directory; a second call changes nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def is_locked(path: Path) -> bool:
    """Return True if a process owns the data directory; nothing is created.  Raises no error."""
    try:
        descriptor = private_files.open_regular(path / "daemon.lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # which ends the lock
    return False


def _lock(path: Path) -> int:
    """Lock the file and return its descriptor, which child processes do not inherit."""
    try:
        descriptor = private_files.open_regular(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise Unavailable(_describe_owner(path.parent, owner)) from error
    try:
        os.fchmod(descriptor, private_files.FILE_MODE)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(descriptor)
        raise cannot_write(path, error) from error
    return descriptor


def _describe_owner(directory: Path, pid: str) -> str:
    """Describe the owner and how to stop it; `pid` is the content of the lock file."""
    named = pid.isdecimal()  # it is written just after the lock is taken
    return (
        f"a daemon{f' (pid {pid})' if named else ''} already runs with the data directory {directory}: "
        f"`palyra status` shows it, {f'`kill {pid}`' if named else 'SIGTERM'} stops it, and --home "
        "gives another one a directory of its own"
    )
