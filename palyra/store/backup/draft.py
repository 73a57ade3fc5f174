"""A folder that appears complete or not at all: filled as a draft, synced, then renamed.

The draft is next to its target, is private, and is locked by its process; the kernel releases the
lock when the process ends in any way.  So the next one that fills a draft there removes the drafts
without an owner.  No draft has the name of a finished folder.
"""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from palyra.errors import Conflict, DiskFull, IllegalState, Unavailable
from palyra.store.files.free_space import NO_ROOM, cannot_write
from palyra.store.files.private_files import DIRECTORY_MODE, FILE_MODE, sync_directory

SUFFIX = ".palyra-draft"
SYNCED_FILES = 512  # synced one by one; with more, one call for the whole file system costs less
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BackupDraft:
    """The folder before it has its name."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self._target = target
        self._files = 0
        self.is_published = False

    @contextmanager
    def new_file(self, name: str) -> Generator[int]:
        """Create a private file below the draft, folders included.  Raises OSError."""
        path = self.path / name
        for folder in reversed(path.relative_to(self.path).parents[:-1]):
            (self.path / folder).mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(path, _NEW, FILE_MODE)
        self._files += 1
        try:
            yield descriptor
            if self._files <= SYNCED_FILES:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def publish(self) -> None:
        """Make everything durable and give the folder its name.  Raises Conflict, OSError."""
        if self._files > SYNCED_FILES:
            _sync_file_system(self.path)
        else:
            for folder, _, _ in os.walk(self.path):
                sync_directory(Path(folder))
        try:
            self.path.rename(self._target)
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise Conflict(f"{self._target}: it was created meanwhile") from error
            if error.errno in {errno.EBUSY, errno.EXDEV}:
                raise IllegalState(
                    f"{self._target}: it is a mount point: name a folder in it that does not exist"
                ) from error
            raise
        self.is_published = True
        sync_directory(self._target.parent)


@contextmanager
def make_draft(target: Path) -> Generator[BackupDraft]:
    """Create the draft of a folder for the block; removed at its end unless it was published.

    Raises IllegalState while another process fills the same one, Unavailable, DiskFull.
    """
    path = target.with_name(f".{target.name}{SUFFIX}")
    try:
        remove_abandoned(target.parent)
        path.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        raise IllegalState(f"{target}: another process is writing it") from None
    except OSError as error:
        raise cannot_write(path, error) from error
    owner = _lock(path)
    if owner is None:
        raise IllegalState(f"{target}: another process is writing it")
    draft = BackupDraft(path, target)
    try:
        yield draft
    except OSError as error:
        kind = DiskFull if error.errno in NO_ROOM else Unavailable
        raise kind(f"{error.filename or path}: {error.strerror or error}") from error
    finally:
        if not draft.is_published:
            shutil.rmtree(path, ignore_errors=True)
        os.close(owner)


def find_abandoned(folder: Path) -> list[Path]:
    """Return the drafts in a folder whose process has ended; empty if it cannot be read."""
    found = []
    with suppress(OSError):
        for path in sorted(folder.glob(f".*{SUFFIX}")):
            owner = _lock(path)
            if owner is not None:
                os.close(owner)
                found.append(path)
    return found


def remove_abandoned(folder: Path) -> None:
    """Remove the drafts whose process has ended."""
    for path in folder.glob(f".*{SUFFIX}"):
        owner = _lock(path)
        if owner is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(owner)


def _lock(path: Path) -> int | None:
    """Lock the folder and return its descriptor; None if it is locked, gone or no folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_same = os.fstat(descriptor).st_ino == path.stat().st_ino
    except OSError:
        is_same = False
    if is_same:
        return descriptor
    os.close(descriptor)
    return None


def _sync_file_system(path: Path) -> None:
    """Sync all files of the file system, those of other programs too.  Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def require_absolute(path: Path) -> Path:
    """Return the path with links of its folder resolved.  Raises IllegalState, Unavailable."""
    if not path.is_absolute():
        raise IllegalState(f"{path}: not an absolute path: begin it with /")
    try:
        folder = path.parent.resolve(strict=True)
    except FileNotFoundError:
        raise IllegalState(f"{path.parent}: no such folder: create it first") from None
    except (OSError, RuntimeError) as error:
        raise Unavailable(f"{path.parent}: cannot be used: {error}") from error
    if path.name in {"", ".", ".."}:
        raise IllegalState(f"{path}: name a folder that does not exist yet")
    return folder / path.name
