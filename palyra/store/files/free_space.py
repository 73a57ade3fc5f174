"""Free space on a disk: errors that mean there is none, and the amount left.

A full disk is a passing condition, so a failure for lack of space is `DiskFull`, after which a
service manager may start the daemon again, and never a plain `Unavailable`.
"""

import errno
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from palyra.errors import DiskFull, Unavailable

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE_BYTES = 65_536  # more than SQLite adds in one step to a new file


class Room(NamedTuple):
    """Space of a file system that an unprivileged process may still use."""

    free_bytes: int
    free_files: int  # inodes


def cannot_write(path: Path | str, error: OSError) -> Unavailable:
    """Return the error for a file or directory that could not be written."""
    kind = DiskFull if error.errno in NO_ROOM else Unavailable
    return kind(f"{path}: cannot be written: {error.strerror or error}")


def is_want_of_room(error: BaseException) -> bool:
    """True if the error or one of its causes is a full disk or an exhausted quota."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DiskFull) or (isinstance(cause, OSError) and cause.errno in NO_ROOM):
            return True
        cause = cause.__cause__
    return False


def is_full(directory: Path) -> bool:
    """True if a new file of 64 KiB does not fit; SQLite does not always say why a write failed."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            file.write(bytes(_PROBE_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in NO_ROOM
    return False


def find_room(path: Path) -> Room | None:
    """Return the free space at the path, or at its nearest existing parent; None if unknown."""
    for place in (path, *path.parents):
        try:
            found = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return Room(found.f_bavail * found.f_frsize, found.f_favail)
    return None
