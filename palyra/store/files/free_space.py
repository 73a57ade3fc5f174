"""Room on a disk: which errors say that there is none, and how much is left.

A full disk goes away by itself or is cleared, so a failure for want of room is `DiskFull`, which a
service manager may try again, and never a plain `Unavailable`.
"""

import errno
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from palyra.errors import DiskFull, Unavailable

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE_BYTES = 65_536  # more than SQLite adds in one step to a file that is not there yet


class Room(NamedTuple):
    """What an unprivileged process may still use of a file system."""

    free_bytes: int
    free_files: int  # inodes


def cannot_write(path: Path | str, error: OSError) -> Unavailable:
    """The refusal for a file or directory that could not be written."""
    kind = DiskFull if error.errno in NO_ROOM else Unavailable
    return kind(f"{path}: cannot be written: {error.strerror or error}")


def is_want_of_room(error: BaseException) -> bool:
    """Whether the error, or a cause of it, says that the disk is full or the quota used up."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DiskFull) or (isinstance(cause, OSError) and cause.errno in NO_ROOM):
            return True
        cause = cause.__cause__
    return False


def is_full(directory: Path) -> bool:
    """Whether a new file of 64 KiB does not fit: SQLite does not always say why a write failed."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            file.write(bytes(_PROBE_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in NO_ROOM
    return False


def find_room(path: Path) -> Room | None:
    """What is free where the path is, or would be made; None when the system does not say."""
    for place in (path, *path.parents):
        try:
            found = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return Room(found.f_bavail * found.f_frsize, found.f_favail)
    return None
