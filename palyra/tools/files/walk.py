"""Walk of the files below a workspace folder, each opened from its folder's descriptor.

No link is followed and no path is resolved twice: each step opens one name below an open descriptor,
so a concurrent rename cannot lead outside.  Places for secrets, the stores of version control and
names that are not UTF-8 are left out, and what ignore files name if the walk has `ignores`.
"""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from palyra.core.tool.paths import is_private, normal_path
from palyra.tools.files.ignores import NAMES, STORES, Ignores, Scope
from palyra.tools.files.workspace import READ_FLAGS, Workspace, usable

MAX_ENTRIES = 200_000
MAX_DEPTH = 64
TIME_S = 5.0  # half of the tool's deadline: a thread cannot be interrupted
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Listing(NamedTuple):
    """Entries of a folder: names of files and folders in the order of their paths."""

    entries: list[tuple[str, bool]]  # (name, is a folder)
    special: set[str]  # those of `ignores.NAMES`, of any kind


class Found(NamedTuple):
    """A regular file: its path in the workspace, and how to open it."""

    path: str
    folder_fd: int  # valid until the next step of the walk
    name: str


@dataclass(slots=True)
class WorkspaceWalk:
    """One walk, which also records whether it was complete."""

    workspace: Workspace
    top: str = ""  # folder or file to start at; it is walked even if it is ignored
    ignores: Ignores | None = None  # None: the walk is complete
    ends_s: float = field(default_factory=lambda: monotonic() + TIME_S)
    entries: int = 0
    stopped: str | None = None  # reason for an incomplete walk

    @property
    def prefix(self) -> str:
        """Prefix of all paths below the top."""
        normal = normal_path(self.top)
        return f"{normal}/" if normal else ""

    @property
    def is_cut(self) -> bool:
        """True if the walk is incomplete."""
        return self.stopped is not None

    def files(self) -> Iterator[Found]:
        """Yield every file, sorted by path; the top may be a file.  Blocks.

        Raises ToolFailure only for the top itself.
        """
        normal = usable(self.top)
        folder, _, name = normal.rpartition("/")
        if name:
            with self.workspace.open_folder(folder) as fd:
                if _is_file(fd, name):
                    yield Found(normal, fd, name)
                    return
        with self.workspace.open_folder(self.top) as fd:
            scope = Scope() if self.ignores is None else self.ignores.above(normal)
            yield from self._below(fd, normal, scope, 0)

    def is_over(self) -> bool:
        """True if the bound on time or entries is reached."""
        if self.entries > MAX_ENTRIES:
            self.stopped = f"after {MAX_ENTRIES} entries"
        elif monotonic() > self.ends_s:
            self.stopped = f"after {TIME_S:g} s"
        return self.stopped is not None

    def _below(self, fd: int, folder: str, scope: Scope, depth: int) -> Iterator[Found]:
        entries, special = self._entries(fd)
        ignores = self.ignores
        if ignores is not None and special:
            scope = ignores.enter(scope, folder, special)
        for name, is_folder in entries:
            if self.is_over():
                return
            path = f"{folder}/{name}" if folder else name
            if name in STORES or is_private(path):
                continue
            if ignores is not None and ignores.leaves_out(scope, path, name, is_folder=is_folder):
                continue
            if not is_folder:
                yield Found(path, fd, name)
            elif depth < MAX_DEPTH:
                yield from self._inside(fd, path, scope, depth + 1)

    def _inside(self, fd: int, path: str, scope: Scope, depth: int) -> Iterator[Found]:
        with _opened(fd, path.rpartition("/")[2]) as inner:
            if inner is not None:
                yield from self._below(inner, path, scope, depth)

    def _entries(self, fd: int) -> _Listing:
        """List the folder."""
        found: list[tuple[str, bool]] = []
        special: set[str] = set()
        with os.scandir(fd) as entries:
            for entry in entries:
                self.entries += 1
                if self.entries > MAX_ENTRIES:
                    break
                if not _is_utf8(entry.name):
                    continue
                if entry.name in NAMES:
                    special.add(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    found.append((entry.name, True))
                elif entry.is_file(follow_symlinks=False):
                    found.append((entry.name, False))
        return _Listing(
            sorted(found, key=lambda each: f"{each[0]}/" if each[1] else each[0]), special
        )


def read_plain(found: Found, most_bytes: int) -> bytes | None:
    """Return the content; None if it is no plain file, is larger than the bound, or was removed."""
    try:
        fd = os.open(found.name, READ_FLAGS, dir_fd=found.folder_fd)
    except OSError:
        return None
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1 or seen.st_size > most_bytes:
            return None
        return os.read(fd, seen.st_size) if seen.st_size else b""
    except OSError:
        return None
    finally:
        os.close(fd)


def _is_file(folder_fd: int, name: str) -> bool:
    try:
        found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode)


@contextmanager
def _opened(folder_fd: int, name: str) -> Generator[int | None]:
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder_fd)
    except OSError:  # removed, replaced by a link, or not readable
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _is_utf8(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
