"""Walk of the files below a workspace folder, each opened from its folder's descriptor.

No link is followed and no path is resolved twice: each step opens one name below an open descriptor,
so a concurrent rename cannot lead outside.  Places for secrets and the stores of version control are
left out, and what ignore files name if the walk has `ignores`.  Names that are not UTF-8 are as `os.fsdecode`
returns them.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from palyra.core.tool.paths import is_private
from palyra.tools.files.ignores import NAMES, STORES, Ignores, Scope
from palyra.tools.files.workspace import READ_FLAGS, Workspace

MAX_ENTRIES = 200_000
MAX_DEPTH = 64
TIME_S = 5.0  # half of the tool's deadline: a thread cannot be interrupted
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_END = ("", False)  # no entry has this name


class _Listing(NamedTuple):
    """Entries of a folder: names of files and folders in the order of their paths."""

    entries: list[tuple[str, bool]]  # (name, is a folder)
    special: set[str]  # those of `ignores.NAMES`, of any kind


class _Level(NamedTuple):
    """A folder that a walk is in."""

    fd: int
    prefix: str  # of the paths in it
    scope: Scope
    entries: Iterator[tuple[str, bool]]  # not yet visited

    def close(self, *, is_top: bool) -> None:
        """Close the descriptor; that of the top belongs to the caller of the walk."""
        if not is_top:
            os.close(self.fd)


class Found(NamedTuple):
    """A regular file: its path in the workspace, and how to open it."""

    path: str
    folder_fd: int  # valid until the next step of the walk
    name: str


@dataclass(slots=True)
class WorkspaceWalk:
    """One walk, which also records whether it was complete."""

    workspace: Workspace
    top: str = ""  # folder or file to start at, resolved; it is walked even if it is ignored
    ignores: Ignores | None = None  # None: the walk is complete
    ends_s: float = field(default_factory=lambda: monotonic() + TIME_S)
    entries: int = 0
    closed: int = 0  # folders that were not entered: too deep, or without permission
    stopped: str | None = None  # reason for an incomplete walk

    @property
    def prefix(self) -> str:
        """Prefix of all paths below the top."""
        return f"{self.top}/" if self.top else ""

    @property
    def is_cut(self) -> bool:
        """True if the walk is incomplete."""
        return self.stopped is not None

    def files(self) -> Iterator[Found]:
        """Yield every file, sorted by path; the top may be a file.  Blocks.

        Raises ToolFailure only for the top itself.
        """
        folder, _, name = self.top.rpartition("/")
        if name:
            with self.workspace.open_folder(folder) as fd:
                if _is_file(fd, name):
                    yield Found(self.top, fd, name)
                    return
        with self.workspace.open_folder(self.top) as fd:
            scope = Scope() if self.ignores is None else self.ignores.above(self.top)
            yield from self._below(fd, self.top, scope)

    def is_over(self) -> bool:
        """True if the bound on time or entries is reached."""
        if self.entries > MAX_ENTRIES:
            self.stopped = f"after {MAX_ENTRIES} entries"
        elif monotonic() > self.ends_s:
            self.stopped = f"after {TIME_S:g} s"
        return self.stopped is not None

    def _below(self, fd: int, folder: str, scope: Scope) -> Iterator[Found]:
        """Yield the files below an open folder.

        One generator with a stack of its own: a chain of generators costs each file its depth.
        """
        stack = [self._level(fd, folder, scope)]
        try:
            while stack and not self.is_over():
                level = stack[-1]
                name, is_folder = next(level.entries, _END)
                if not name:
                    stack.pop().close(is_top=not stack)
                elif not is_folder:
                    yield Found(level.prefix + name, level.fd, name)
                elif len(stack) > MAX_DEPTH:
                    self.closed += 1
                elif (inner := self._enter(level, name)) is not None:
                    stack.append(inner)
        finally:
            while stack:
                stack.pop().close(is_top=not stack)

    def _enter(self, level: "_Level", name: str) -> "_Level | None":
        """Open a folder; None if it was removed, was replaced by a link, or is not readable."""
        try:
            fd = os.open(name, _FOLDER, dir_fd=level.fd)
        except PermissionError:
            self.closed += 1
            return None
        except OSError:
            return None
        try:
            return self._level(fd, level.prefix + name, level.scope)
        except OSError:
            os.close(fd)
            return None

    def _level(self, fd: int, folder: str, scope: Scope) -> "_Level":
        entries, special = self._entries(fd)
        if self.ignores is not None and special:
            scope = self.ignores.enter(scope, folder, special)
        prefix = f"{folder}/" if folder else ""
        return _Level(fd, prefix, scope, self._kept(entries, prefix, scope))

    def _kept(
        self, entries: list[tuple[str, bool]], prefix: str, scope: Scope
    ) -> Iterator[tuple[str, bool]]:
        """Yield the entries that are neither private, nor a store, nor ignored."""
        ignores = self.ignores
        may_ignore = scope.may_ignore
        for each in entries:
            name, is_folder = each
            path = prefix + name
            if name in STORES or is_private(path):
                continue
            if (
                ignores is not None
                and may_ignore(name)
                and ignores.leaves_out(scope, path, name, is_folder=is_folder)
            ):
                if self.is_over():  # a hostile ignore file may take long for each name
                    return
                continue
            yield each

    def _entries(self, fd: int) -> _Listing:
        """List the folder."""
        found: list[tuple[str, bool]] = []
        special: set[str] = set()
        with os.scandir(fd) as entries:
            for entry in entries:
                self.entries += 1
                if self.entries > MAX_ENTRIES:
                    break
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
