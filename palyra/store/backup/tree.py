"""Folder trees that may be hostile: walked by descriptors, in a fixed order, without following links.

A backup is a folder that others may have changed.  So no path of it is ever opened by name: each
folder is opened relative to its parent and each file relative to its folder, links are findings,
and a restore writes below its own folder by the names that the walk has seen.

Order: the units of `UNITS`, one after another, and by name within each.  The list of files of a
backup has the same order, so both are compared line by line and neither is held in memory.
"""

import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from palyra.errors import Unavailable

DATABASE, ROOTS = "journal.sqlite3", "journal.roots.ndjson"
CONFIG, KEYS, VAULT, POLICIES = "palyra.toml", "keys", "vault.sealed", "policies"
# In the order of copying.  Vectors come before the database: an index that is older than the
# journal catches up, a newer one would name rows that do not exist.  Artifacts and checkpoints come
# after it: each was stored before the event that names it.
UNITS = (
    "vectors",
    DATABASE,
    ROOTS,
    "artifacts",
    "checkpoints",
    "skills",
    POLICIES,
    CONFIG,
    KEYS,
    VAULT,
)
CHUNK_BYTES = 1_048_576
SYNC_BYTES = 16 * CHUNK_BYTES  # so that no large amount of dirty pages delays the journal's sync
MAX_DEPTH = 8
_RANKS = {name: rank for rank, name in enumerate(UNITS)}
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

IsStopped = Callable[[], bool]
Key = tuple[int, tuple[str, ...]]


def never() -> bool:
    """Return False: a call that is not stopped."""
    return False


class Digest(NamedTuple):
    """Content of a file, as far as it is compared."""

    size_bytes: int
    sha256: str  # hex


class FoundFile(NamedTuple):
    """An entry that is no folder; `folder` is a descriptor that is open until the next entry."""

    path: str  # with slashes
    folder: int
    problem: str  # "": a regular file

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def open(self) -> int:
        """Return a descriptor for reading.  Raises OSError."""
        return os.open(self.name, _FILE, dir_fd=self.folder)


def sort_key(path: str) -> Key:
    """Return the place of a path in the order of the walk."""
    parts = tuple(path.split("/"))
    return _RANKS.get(parts[0], len(UNITS)), parts


@contextmanager
def open_folder(name: str | os.PathLike[str], folder: int | None = None) -> Generator[int]:
    """Open a folder, which is no link unless it is the start, for the block.  Raises OSError."""
    flags = _DIRECTORY if folder is not None else _DIRECTORY & ~os.O_NOFOLLOW
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def walk(folder: int, names: Sequence[str] | None = None, above: str = "") -> Iterator[FoundFile]:
    """Yield all entries below a folder, those of its `names` only if given.  Raises OSError."""
    listed = sorted(os.listdir(folder))
    for name in listed if names is None else [name for name in names if name in listed]:
        path = f"{above}{name}"
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:  # evicted meanwhile
            continue
        if not stat.S_ISDIR(found.st_mode):
            yield FoundFile(path, folder, _find_problem(found))
        elif path.count("/") >= MAX_DEPTH:
            yield FoundFile(path, folder, "too deep a folder")
        else:
            with open_folder(name, folder) as below:
                yield from walk(below, above=f"{path}/")


def _find_problem(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    return "" if stat.S_ISREG(found.st_mode) else "no regular file"


def read_digest(
    descriptor: int, is_stopped: IsStopped, target: int | None = None, limit: int | None = None
) -> Digest:
    """Read a file to its end, or to `limit` bytes, writing it to `target` if given.

    Raises OSError, Unavailable.
    """
    digest, size, unsynced = sha256(), 0, 0
    while chunk := os.read(
        descriptor, CHUNK_BYTES if limit is None else min(CHUNK_BYTES, limit - size)
    ):
        raise_if_stopped(is_stopped)
        digest.update(chunk)
        size += len(chunk)
        if target is None:
            continue
        write_all(target, chunk)
        unsynced += len(chunk)
        if unsynced >= SYNC_BYTES:
            os.fdatasync(target)
            unsynced = 0
    return Digest(size, digest.hexdigest())


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes.  Raises OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def raise_if_stopped(is_stopped: IsStopped) -> None:
    """Raise Unavailable once the request was cancelled."""
    if is_stopped():
        raise Unavailable("it was stopped before its end")
