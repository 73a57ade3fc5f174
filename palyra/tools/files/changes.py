"""Atomic change of several workspace files: all of them, or none.

    look      read each file and remember its identity
    stage     write each new content under a spare name in the same folder, synced
    check     verify that each path still leads to the file that was read, in the same folder
    keep      write a checkpoint, durable before any file changes
    commit    swap names, one file after the other; the swapped-out file must be the one read
    undo      swap back in reverse order if one swap failed

Swapping and then comparing, instead of comparing and then replacing, leaves no moment in which a
write by another program could be lost unseen.  A crash leaves some files as before and some as after;
the checkpoint has both.  All functions block.
"""

import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from palyra.core.text.visible import visible
from palyra.core.tool.checkpoints import Content
from palyra.core.tool.paths import is_configuration
from palyra.core.tool.spec import ToolFailure
from palyra.tools.files.syscalls import move, swap
from palyra.tools.files.workspace import Workspace, as_failure, refusal

MAX_FILE_BYTES = 16_777_216  # a larger one has no checkpoint, so it is not changed
Contents = Mapping[str, Content | None]  # by normal path; None: there is no file
Keep = Callable[
    [Contents, Contents], Callable[[], None]
]  # (before, after) -> function that deletes the checkpoint
_Identity = tuple[int, int, int, int]


@dataclass(slots=True)
class _Target:
    """One file of a change."""

    path: str
    name: str
    folder: str
    folder_fd: int
    seen: _Identity | None  # the file that was read
    data: bytes | None  # of the file that was read, to compare; None: its identity is enough
    content: Content | None
    owner: tuple[int, int] | None  # of the file that was read
    spare: str  # in the same folder: the new content, and after the commit the old file
    is_committed: bool = False
    undo_failed: bool = False  # the undo failed: the spare name has the old file


@dataclass(slots=True)
class Changes:
    """One change: `look` at every file first, then `make` it once."""

    workspace: Workspace
    most_bytes: int = MAX_FILE_BYTES
    documents: frozenset[str] = frozenset()  # configuration that this change may write
    compares_content: bool = False  # a write within one tick of the file's clock counts as a change
    before: dict[str, Content | None] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)  # as the folders have them
    _seen: dict[str, tuple[_Identity, tuple[int, int]]] = field(default_factory=dict)
    _made: list[tuple[int, str]] = field(
        default_factory=list
    )  # created folders, with the descriptor of their parent

    def look(self, path: str) -> Content | None:
        """Return the file's present content, None for no file; `path` is normal.  Raises ToolFailure."""
        if not path or (path not in self.documents and is_configuration(path)):
            raise refusal(path)
        if path not in self.before:
            self._names[path] = self.workspace.resolve(path)
            self.before[path] = self._read(path)
        return self.before[path]

    def _read(self, path: str) -> Content | None:
        with self.workspace.find_file(self._names[path]) as fd:
            if fd is None:
                return None
            found = os.fstat(fd)
            if found.st_size > self.most_bytes:
                raise ToolFailure(
                    f"{visible(path)} has {found.st_size} bytes; a file of more than "
                    f"{self.most_bytes} is not changed"
                )
            with as_failure(path):
                data = os.read(fd, found.st_size + 1) if found.st_size else b""
            self._seen[path] = _identity(found), (found.st_uid, found.st_gid)
            return Content(data, stat.S_IMODE(found.st_mode) & 0o777)

    def make(self, after: Contents, keep: Keep | None = None) -> None:
        """Write the new contents durably; files that have them already are not touched.

        `keep` is called before any file changes and returns a function that deletes the checkpoint.
        Raises ToolFailure; then every file is as before, except those the failure names.
        """
        changed = {path: to for path, to in after.items() if to != self.before[path]}
        if not changed:
            return
        targets: list[_Target] = []
        is_made = False
        with ExitStack() as stack:
            try:
                for path, content in changed.items():
                    targets.append(self._open(path, content, stack))
                    _stage(targets[-1])
                for target in targets:
                    self._check(target)
                forget = (
                    None
                    if keep is None
                    else keep({path: self.before[path] for path in changed}, changed)
                )
                _commit(targets, forget)
                is_made = True
            finally:
                _clear(targets)
                if not is_made:
                    self._remove_made()

    # --- the steps

    def _open(self, path: str, content: Content | None, stack: ExitStack) -> _Target:
        folder, _, name = self._names[path].rpartition("/")
        self._make_folders(folder, stack)
        fd = stack.enter_context(self.workspace.open_folder(folder))
        seen, owner = self._seen.get(path, (None, None))
        before = self.before[path] if self.compares_content else None
        data = None if before is None else before.data
        spare = f".palyra-{secrets.token_hex(8)}.tmp"
        return _Target(path, name, folder, fd, seen, data, content, owner, spare)

    def _make_folders(self, folder: str, stack: ExitStack) -> None:
        names = folder.split("/") if folder else []
        for depth, name in enumerate(names):
            path = "/".join(names[: depth + 1])
            fd = stack.enter_context(self.workspace.open_folder("/".join(names[:depth])))
            with as_failure(path), suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
                self._made.append((fd, name))
                os.fsync(fd)

    def _remove_made(self) -> None:
        for fd, name in reversed(self._made):
            with suppress(OSError):  # another program has put a file there
                os.rmdir(name, dir_fd=fd)

    def _check(self, target: _Target) -> None:
        """Raise ToolFailure if the path leads to another folder, or to another file than was read."""
        with self.workspace.open_folder(target.folder) as fd:
            if not os.path.samestat(os.fstat(fd), os.fstat(target.folder_fd)):
                raise _changed(target)
        if not _is_as_read(target, target.name):
            raise _changed(target)


# --- all files -----------------------------------------------------------------------------------


def _commit(targets: list[_Target], forget: Callable[[], None] | None) -> None:
    try:
        for target in targets:
            with as_failure(target.path):
                _commit_one(target)
        for target in targets:
            with as_failure(target.path):
                os.fsync(target.folder_fd)
    except ToolFailure as failure:
        for target in reversed(targets):
            target.undo_failed = not _undo(target)
        failed = [target for target in targets if target.undo_failed]
        if failed:
            raise _undo_failure(failure, failed) from failure
        if forget is not None:
            forget()
        raise


def _undo_failure(failure: ToolFailure, targets: list[_Target]) -> ToolFailure:
    names = ", ".join(f"{visible(target.path)} (now {target.spare})" for target in targets)
    return ToolFailure(
        f"{failure.message}; and these could not be put back: {names}; their checkpoint has them"
    )


def _clear(targets: list[_Target]) -> None:
    """Remove the files under spare names: drafts, or replaced files."""
    for target in targets:
        if not target.undo_failed:
            with suppress(FileNotFoundError):
                os.unlink(target.spare, dir_fd=target.folder_fd)


# --- one file ------------------------------------------------------------------------------------


def _stage(target: _Target) -> None:
    """Write the new content under the spare name, and sync it."""
    content = target.content
    if content is None:
        return
    is_new = content.mode is None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with as_failure(target.path):
        fd = os.open(target.spare, flags, 0o666 if is_new else 0o600, dir_fd=target.folder_fd)
        with os.fdopen(fd, "wb") as file:
            _own(fd, target.owner)
            os.fchmod(fd, _mode(content, stat.S_IMODE(os.fstat(fd).st_mode)))
            file.write(content.data)
            file.flush()
            os.fsync(fd)


def _own(fd: int, owner: tuple[int, int] | None) -> None:
    """Set the owner, if this process may."""
    if owner is not None:
        with suppress(PermissionError):
            os.fchown(fd, *owner)


def _mode(content: Content, made: int) -> int:
    if content.mode is not None:
        return content.mode & 0o777
    return made | (made & 0o444) >> 2 if content.is_executable else made


def _commit_one(target: _Target) -> None:
    """Swap the file in; raise ToolFailure if the swapped-out file is not the one that was read."""
    if target.seen is None:
        try:
            move(target.folder_fd, target.spare, target.name)
        except FileExistsError:
            raise _changed(target) from None
        target.is_committed = True
        return
    if target.content is None:
        move(target.folder_fd, target.name, target.spare)
    else:
        swap(target.folder_fd, target.spare, target.name)
    target.is_committed = True
    if not _is_as_read(target, target.spare):
        raise _changed(target)


def _undo(target: _Target) -> bool:
    """Undo one file; True if it is as before."""
    if target.is_committed:
        try:
            _undo_one(target)
        except OSError:
            return False
    return True


def _undo_one(target: _Target) -> None:
    if target.seen is None:
        move(target.folder_fd, target.name, target.spare)
    elif target.content is None:
        move(target.folder_fd, target.spare, target.name)
    else:
        swap(target.folder_fd, target.spare, target.name)


def _is_as_read(target: _Target, name: str) -> bool:
    """True if this name has the file that was read, with the same content if that is compared."""
    if _find(target.folder_fd, name) != target.seen:
        return False
    if target.data is None:
        return True
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=target.folder_fd), "rb") as file:
        return file.read(len(target.data) + 1) == target.data


class ChangedMeanwhile(ToolFailure):
    """A file was changed by another program after it was read."""


def _changed(target: _Target) -> ToolFailure:
    return ChangedMeanwhile(f"{visible(target.path)} was changed meanwhile: read it again")


def _find(folder_fd: int, name: str) -> _Identity | None:
    try:
        return _identity(os.stat(name, dir_fd=folder_fd, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
