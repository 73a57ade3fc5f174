"""Paths that no mount can protect: restored or quarantined when a program ends.

A mount on a link lands where the link leads, so a changed link can only be *restored*.  A name of the
table without a placeholder is not worth a mount at each start, and `.git/commondir`, which makes git
read its configuration from elsewhere, and `alternates` must not exist at all, not even empty.  Such a
name that appeared while a program ran is *quarantined* when the program ends: renamed, never deleted,
because a person may have made it.  So is a new link on the way to such a name.

A *snapshot* before the start records the links and the names that are there.  It lists folders and
asks the rules about each entry, so patterns and other spellings count as well.  For links and
`commondir`, overlapping jails of one workspace share the snapshot of the first: a change by one jail
must not become the baseline of the next.

All functions block.
"""

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from palyra.core.tool.paths import (
    BARE_REPOSITORY,
    PLACEHOLDER_NAMES,
    is_configuration,
    is_on_the_way,
    is_private,
    may_be_marked,
)
from palyra.tools.files.workspace import walk
from palyra.tools.sandbox.protected_paths import COMMON_DIR, MASKED_IN_GIT, RESTORED_IN_GIT, parents

# Placeholders or mounts cover these while jails run: only a link can be new.
_COVERED = frozenset({*PLACEHOLDER_NAMES, BARE_REPOSITORY, *MASKED_IN_GIT})
_IN_GIT = sorted({
    each
    for path in (*MASKED_IN_GIT, *RESTORED_IN_GIT)
    for each in (path, *parents(path))
    if each != ".git"
})  # fmt: skip
_QUARANTINED = re.compile(r"\.set-aside-[0-9a-f]{8}\Z")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE_OR_CLOSED = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG,
})  # fmt: skip
_Found = dict[str, str | None]  # by path: the target of a link, None for anything else


@dataclass(frozen=True, slots=True)
class PathSnapshot:
    """Protected paths of a workspace before a jail; paths are relative to it."""

    links: Mapping[str, str] = field(default_factory=dict)  # targets
    lacks_common_dir: bool = False  # the workspace is a repository without that file
    there: frozenset[str] | None = None  # names of the table; None: a new one may be a person's
    absent: tuple[str, ...] = ()  # full paths, outside of the workspace, at which nothing may be


class RestoredPaths:
    """Snapshots of the workspaces that have jails, each taken before the first of them."""

    def __init__(self) -> None:
        self._first: dict[str, PathSnapshot] = {}
        self._jails: Counter[str] = Counter()

    def snapshot(self, root: str, *, lasts: bool = False) -> PathSnapshot:
        """Return what `restore` compares with after one jail of that workspace.

        `lasts`: the jail runs as long as the daemon, and a new file may be a person's; it is kept.
        """
        found = _scan(root)
        if not self._jails[root]:
            links = {path: target for path, target in found.items() if target is not None}
            has_git = ".git" in found and ".git" not in links
            self._first[root] = PathSnapshot(links, has_git and COMMON_DIR not in found)
        self._jails[root] += 1
        first = self._first[root]
        return PathSnapshot(
            first.links, first.lacks_common_dir, None if lasts else frozenset(found)
        )

    def restore(self, root: str, before: PathSnapshot) -> list[str]:
        """Restore the workspace once the jail is gone; return the paths that had changed."""
        changed = restore(root, before)
        self._jails[root] -= 1
        if not self._jails[root]:
            del self._jails[root], self._first[root]
        return changed


def restore(root: str, before: PathSnapshot) -> list[str]:
    """Restore links and quarantine new names; return the paths that had changed."""
    changed = _quarantine(before.absent)
    with suppress(OSError), ExitStack() as stack:
        top = os.open(root, _FOLDER)
        stack.callback(os.close, top)
        found = _scan(root)
        for path in sorted({*found, *before.links}):  # outer before inner
            is_link = found.get(path) is not None
            if path not in before.links and not _is_new(path, before, is_link=is_link):
                continue
            with suppress(OSError):
                changed += _restore_path(top, path, before.links.get(path))
    return changed


def _is_new(path: str, before: PathSnapshot, *, is_link: bool) -> bool:
    """True if only the jail can have made what is there now."""
    if path == COMMON_DIR:
        return before.lacks_common_dir
    if before.there is None or (path.startswith(".git/") and ".git" not in before.there):
        return False
    if path in _COVERED or _is_above_protected(path):
        return is_link
    return path not in before.there


def _is_above_protected(path: str) -> bool:
    is_in_git = path in _IN_GIT and path not in RESTORED_IN_GIT
    return is_in_git or (is_on_the_way(path) and not _is_marked(path))


def _is_marked(path: str) -> bool:
    return is_private(path) or is_configuration(path)


def _scan(root: str) -> _Found:
    """Find what is at the names of the table, and links on the way to them."""
    found: _Found = {}
    with ExitStack() as stack:
        top = os.open(root, _FOLDER)
        stack.callback(os.close, top)
        folders = [""]
        while folders:
            with _ignoring_closed_paths():
                folders += _scan_folder(top, folders.pop(), found)
        for path in _IN_GIT if found.get(".git", "") is None else ():
            with _ignoring_closed_paths():
                mode = os.lstat(f"{root}/{path}").st_mode
                found[path] = os.readlink(f"{root}/{path}") if stat.S_ISLNK(mode) else None  # noqa: PTH115 - as text
    return found


@contextmanager
def _ignoring_closed_paths() -> Generator[None]:
    """Suppress errors of a path that is gone, a link, or closed to the daemon.

    A jail finds a closed folder masked.  Other errors are raised: a snapshot must be complete.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE_OR_CLOSED:
            raise


def _scan_folder(top: int, folder: str, found: _Found) -> Iterator[str]:
    """Add one folder's protected entries to `found`; yield its folders above further names."""
    fd = walk(top, folder, _FOLDER)
    try:
        with os.scandir(fd) as listing:
            entries = list(listing)
        for entry in entries:
            path = f"{folder}/{entry.name}".lstrip("/")
            is_marked = may_be_marked(folder, entry.name) and _is_marked(path)
            if _QUARANTINED.search(entry.name):  # patterns of the table match it
                continue
            if not is_marked and not is_on_the_way(path):
                continue
            if entry.is_symlink():
                found[path] = os.readlink(entry.name, dir_fd=fd)
            elif is_marked:
                found[path] = None
            elif entry.is_dir(follow_symlinks=False):
                yield path
    finally:
        os.close(fd)


def _restore_path(top: int, path: str, target: str | None) -> Iterator[str]:
    """Make the path that link, or nothing if `target` is None; yield the path if it had changed."""
    folder, _, name = path.rpartition("/")
    fd = walk(top, folder, _FOLDER)
    try:
        now = _find_mode(fd, name)
        if now is None and target is None:
            return
        if now is not None and stat.S_ISLNK(now) and os.readlink(name, dir_fd=fd) == target:
            return
        if now is not None:
            with suppress(FileNotFoundError):
                quarantined = f"{name}.set-aside-{os.urandom(4).hex()}"
                os.rename(name, quarantined, src_dir_fd=fd, dst_dir_fd=fd)
        if target is not None:
            os.symlink(target, name, dir_fd=fd)
        yield path
    finally:
        os.close(fd)


def _quarantine(paths: Iterable[str]) -> list[str]:
    """Rename what is at paths at which nothing may be; return those."""
    found = []
    for path in paths:
        with suppress(OSError):
            os.rename(path, f"{path}.set-aside-{os.urandom(4).hex()}")  # noqa: PTH104 - as text
            found.append(path)
    return found


def _find_mode(fd: int, name: str) -> int | None:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    return None
