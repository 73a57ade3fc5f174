"""Files and directories that only their owner may read: directories 0700, files 0600.

A file is created atomically: written under a temporary name, synced, then renamed.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from palyra.errors import DiskFull, Unavailable
from palyra.store.files.free_space import NO_ROOM

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077  # any permission bit of group and world
# Reasons that the system's own words do not explain.
_REASONS = {
    errno.ELOOP: "it is a symbolic link: put the file itself there",
    errno.ENODEV: "it is no regular file: put the file itself there",
    errno.ENXIO: "it is no regular file: put the file itself there",  # a socket
}


def make_directory(path: Path) -> None:
    """Create the directory, or remove the permissions of group and world.

    Raises Unavailable when it cannot be made private (no permission, or another owner).
    """
    try:
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        path.chmod(DIRECTORY_MODE)
    except OSError as error:
        if error.errno == errno.EROFS:
            raise Unavailable(
                f"{path}: the file system is read-only: mount it writable, or choose another place"
            ) from error
        if error.errno == errno.EEXIST:
            raise Unavailable(f"{path}: it is no directory: choose another place") from error
        kind = DiskFull if error.errno in NO_ROOM else Unavailable
        raise kind(f"{path}: cannot be made a private directory: {error}") from error


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor, which child processes do not inherit.

    A pipe in its place would block the open or the first read for ever, and a device may have
    no end.  Raises OSError, which names the file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENODEV
    raise OSError(number, _REASONS.get(number, os.strerror(number)), str(path))


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading.  Raises OSError, also for a pipe, a socket or a device."""
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def read_file(path: Path) -> bytes:
    """Return the content of a regular file.  Raises OSError as `open_file` does."""
    with open_file(path) as file:
        return file.read()


def touch_file(path: Path) -> None:
    """Create the file if absent and make it private; keep its content.  Raises OSError."""
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)


def create_file(path: Path, content: bytes, *, draft: Path | None = None) -> None:
    """Create or replace the file, durably and atomically.  Raises OSError.

    Concurrent writers of one path need a `draft` each, a free name in the same directory.
    """
    draft = draft or path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)  # left by a crash
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_secret(path: Path) -> bytes | None:
    """Read the file, None if it does not exist.

    Raises Unavailable when it is no regular file, cannot be read, or group or world may read it.
    """
    try:
        descriptor = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if mode & _OTHERS:
                raise Unavailable(f"{path}: others may read it (mode {mode & 0o777:o}): chmod 600")
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror)
        raise Unavailable(f"{path}: cannot be read: {reason}") from error
