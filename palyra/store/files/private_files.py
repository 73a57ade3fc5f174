"""Files and directories that only their owner may read: directories 0700, files 0600.

A file is created atomically: written under a temporary name, synced, then renamed.
"""

import errno
import os
from pathlib import Path

from palyra.errors import DiskFull, Unavailable
from palyra.store.files.free_space import NO_ROOM

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077  # any permission bit of group and world


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
        kind = DiskFull if error.errno in NO_ROOM else Unavailable
        raise kind(f"{path}: cannot be made a private directory: {error}") from error


def touch_file(path: Path) -> None:
    """Create the file if absent and make it private; keep its content."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
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

    Raises Unavailable when group or world may read it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path}: cannot be read: {error}") from error
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if mode & _OTHERS:
            raise Unavailable(f"{path}: others may read it (mode {mode & 0o777:o}): chmod 600")
        return file.read()
