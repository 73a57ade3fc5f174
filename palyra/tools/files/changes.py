"""Changing files of a workspace: every file of a change, or none.

    look      each file, and remember which one it was
    stage     every new content beside its place, on the disk
    check     that every file is still the one that was looked at, in the folder it was in
    keep      a checkpoint, durable before anything is touched
    commit    swap names, one file after the other; what comes out must be what was looked at
    undo      in reverse order, if one of them failed

What a crash leaves is some files as before and some as after; the checkpoint knows both.  All
functions block.
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

MAX_FILE_BYTES = 16_777_216  # a larger one is not kept, so it is not changed either
Contents = Mapping[str, Content | None]  # by normal path; None: there is no file
Keep = Callable[[Contents, Contents], Callable[[], None]]  # (before, after) -> forget it
_Identity = tuple[int, int, int, int]


@dataclass(slots=True)
class _Target:
    """One file of a change."""

    path: str
    name: str
    folder: str
    folder_fd: int
    seen: _Identity | None  # the file that was looked at
    content: Content | None
    owner: tuple[int, int] | None  # of the file that was looked at
    spare: str  # beside it: first the new content, then, once committed, the old file
    is_committed: bool = False
    is_lost: bool = False  # could not be undone: the spare name has the old file


@dataclass(slots=True)
class Changes:
    """One change.  `look` at every file first, then `make` it; not used again after that."""

    workspace: Workspace
    most_bytes: int = MAX_FILE_BYTES
    before: dict[str, Content | None] = field(default_factory=dict)
    _seen: dict[str, tuple[_Identity, tuple[int, int]]] = field(default_factory=dict)
    _made: list[tuple[int, str]] = field(default_factory=list)  # folders, with the one above

    def look(self, path: str) -> Content | None:
        """The file as it is, None for none; `path` is normal.  Raises ToolFailure."""
        if not path or is_configuration(path):
            raise refusal(path)
        if path not in self.before:
            self.before[path] = self._read(path)
        return self.before[path]

    def _read(self, path: str) -> Content | None:
        with self.workspace.find_file(path) as fd:
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
        """Make every file what it is to be, durably; what already is so stays untouched.

        `keep` is called before anything is touched; it gives a function that forgets again.
        Raises ToolFailure, and then every file is as it was (or the failure names those that are
        not).
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
        folder, _, name = path.rpartition("/")
        self._make_folders(folder, stack)
        fd = stack.enter_context(self.workspace.open_folder(folder))
        seen, owner = self._seen.get(path, (None, None))
        return _Target(
            path, name, folder, fd, seen, content, owner, f".palyra-{secrets.token_hex(8)}.tmp"
        )

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
            with suppress(OSError):  # somebody else has put something there by now
                os.rmdir(name, dir_fd=fd)

    def _check(self, target: _Target) -> None:
        """The folder is still the one the path leads to, and the file the one that was seen."""
        with self.workspace.open_folder(target.folder) as fd:
            if not os.path.samestat(os.fstat(fd), os.fstat(target.folder_fd)):
                raise _changed(target)
        if _find(target.folder_fd, target.name) != target.seen:
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
            target.is_lost = not _undo(target)
        lost = [target for target in targets if target.is_lost]
        if lost:
            raise _lost(failure, lost) from failure
        if forget is not None:
            forget()
        raise


def _lost(failure: ToolFailure, targets: list[_Target]) -> ToolFailure:
    names = ", ".join(f"{visible(target.path)} (now {target.spare})" for target in targets)
    return ToolFailure(
        f"{failure.message}; and these could not be put back: {names}; their checkpoint has them"
    )


def _clear(targets: list[_Target]) -> None:
    """Remove what lies under the spare names: drafts, or old files that are replaced."""
    for target in targets:
        if not target.is_lost:
            with suppress(FileNotFoundError):
                os.unlink(target.spare, dir_fd=target.folder_fd)


# --- one file ------------------------------------------------------------------------------------


def _stage(target: _Target) -> None:
    """The new content, whole and on the disk, under the spare name."""
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
    """As far as this process may give files away."""
    if owner is not None:
        with suppress(PermissionError):
            os.fchown(fd, *owner)


def _mode(content: Content, made: int) -> int:
    if content.mode is not None:
        return content.mode & 0o777
    return made | (made & 0o444) >> 2 if content.is_executable else made


def _commit_one(target: _Target) -> None:
    """Put it in place; whatever came out must be the file that was seen."""
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
    if _find(target.folder_fd, target.spare) != target.seen:
        raise _changed(target)


def _undo(target: _Target) -> bool:
    """Whether the file is as it was before."""
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


def _changed(target: _Target) -> ToolFailure:
    return ToolFailure(
        f"{visible(target.path)} was changed by somebody else meanwhile: read it again"
    )


def _find(folder_fd: int, name: str) -> _Identity | None:
    try:
        return _identity(os.stat(name, dir_fd=folder_fd, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
