"""What is compared before and after: links, and orders that were not there.

A mount on a link lands where the link leads, so a link can only be put back.  Names of the table
(`core.orders`) that are not held are not worth a mount at each start; `.git/commondir`, which makes
git take its configuration from elsewhere, and `alternates` bear none, not even an empty one.  So
what was made there while a program ran is set aside when it ends, and so is a new link on the way.
The folders are listed and each entry is judged by the rules themselves, so that patterns and other
spellings count as well.  For links and `commondir`, jails of one workspace that overlap are compared
with the state before the first of them: the changes of one are not the baseline of the next.

All functions block.
"""

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
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
from palyra.tools.sandbox.protected_paths import COMMON_DIR, HELD_IN_GIT, WATCHED_IN_GIT, parents

# Placeholders lie there while jails run: only a link can be new.
_HELD = frozenset({*PLACEHOLDER_NAMES, BARE_REPOSITORY, *HELD_IN_GIT})
_IN_GIT = sorted({
    each
    for path in (*HELD_IN_GIT, *WATCHED_IN_GIT)
    for each in (path, *parents(path))
    if each != ".git"
})  # fmt: skip
_SET_ASIDE = re.compile(r"\.set-aside-[0-9a-f]{8}\Z")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE_OR_CLOSED = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG,
})  # fmt: skip
_Found = dict[str, str | None]  # the target of a link, None for anything else; by path


@dataclass(frozen=True, slots=True)
class Before:
    """How a workspace was: paths are relative to it."""

    links: Mapping[str, str] = field(default_factory=dict)  # targets
    lacks_common_dir: bool = False  # in a repository that is a folder
    there: frozenset[str] | None = None  # of the table; None: what is new may be anyone's


class RestoredPaths:
    """How workspaces were before their first jail, as long as there are any."""

    def __init__(self) -> None:
        self._before: dict[str, Before] = {}
        self._jails: Counter[str] = Counter()

    def take(self, root: str, *, lasts: bool = False) -> Before:
        """Record the state that must be the same after a jail of that workspace, for `leave`.

        `lasts`: what is new when it ends may be anyone's, and is left there.
        """
        found = _look(root)
        if not self._jails[root]:
            links = {path: target for path, target in found.items() if target is not None}
            has_git = ".git" in found and ".git" not in links
            self._before[root] = Before(links, has_git and COMMON_DIR not in found)
        self._jails[root] += 1
        first = self._before[root]
        return Before(first.links, first.lacks_common_dir, None if lasts else frozenset(found))

    def leave(self, root: str, before: Before) -> list[str]:
        """Restore that state when the jail is gone; the paths that had changed."""
        changed = put_back(root, before)
        self._jails[root] -= 1
        if not self._jails[root]:
            del self._jails[root], self._before[root]
        return changed


def put_back(root: str, before: Before) -> list[str]:
    """Restore that state; the paths that had changed."""
    changed: list[str] = []
    with suppress(OSError), ExitStack() as stack:
        top = os.open(root, _FOLDER)
        stack.callback(os.close, top)
        found = _look(root)
        for path in sorted({*found, *before.links}):  # outer before inner
            is_link = found.get(path) is not None
            if path not in before.links and not _is_new(path, before, is_link=is_link):
                continue
            with suppress(OSError):
                changed += _put_in_place(top, path, before.links.get(path))
    return changed


def _is_new(path: str, before: Before, *, is_link: bool) -> bool:
    """Whether something of the table is there now that no one but the jail can have made."""
    if path == COMMON_DIR:
        return before.lacks_common_dir
    if before.there is None or (path.startswith(".git/") and ".git" not in before.there):
        return False
    if path in _HELD or _is_way(path):
        return is_link
    return path not in before.there


def _is_way(path: str) -> bool:
    is_in_git = path in _IN_GIT and path not in WATCHED_IN_GIT
    return is_in_git or (is_on_the_way(path) and not _is_marked(path))


def _is_marked(path: str) -> bool:
    return is_private(path) or is_configuration(path)


def _look(root: str) -> _Found:
    """What is at the names of the table, and links on the way to them."""
    found: _Found = {}
    with ExitStack() as stack:
        top = os.open(root, _FOLDER)
        stack.callback(os.close, top)
        folders = [""]
        while folders:
            with _passing_over_what_is_closed():
                folders += _look_into(top, folders.pop(), found)
        for path in _IN_GIT if found.get(".git", "") is None else ():
            with _passing_over_what_is_closed():
                mode = os.lstat(f"{root}/{path}").st_mode
                found[path] = os.readlink(f"{root}/{path}") if stat.S_ISLNK(mode) else None  # noqa: PTH115 - as text
    return found


@contextmanager
def _passing_over_what_is_closed() -> Generator[None]:
    """Ignore what is gone, a link, or closed to the daemon: a jail finds a closed folder masked.

    Anything else is raised: a state that could not be read is no baseline.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE_OR_CLOSED:
            raise


def _look_into(top: int, folder: str, found: _Found) -> Iterator[str]:
    """Add what one folder holds; the folders in it that lead further."""
    fd = walk(top, folder, _FOLDER)
    try:
        with os.scandir(fd) as listing:
            entries = list(listing)
        for entry in entries:
            path = f"{folder}/{entry.name}".lstrip("/")
            is_marked = may_be_marked(folder, entry.name) and _is_marked(path)
            if _SET_ASIDE.search(entry.name):  # patterns match it as well
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


def _put_in_place(top: int, path: str, target: str | None) -> Iterator[str]:
    folder, _, name = path.rpartition("/")
    fd = walk(top, folder, _FOLDER)
    try:
        now = _find(fd, name)
        if now is None and target is None:
            return
        if now is not None and stat.S_ISLNK(now) and os.readlink(name, dir_fd=fd) == target:
            return
        if now is not None:
            _take_away(fd, name)
        if target is not None:
            os.symlink(target, name, dir_fd=fd)
        yield path
    finally:
        os.close(fd)


def _take_away(fd: int, name: str) -> None:
    """Rename it: out of its place, but not lost."""
    with suppress(FileNotFoundError):
        os.rename(name, f"{name}.set-aside-{os.urandom(4).hex()}", src_dir_fd=fd, dst_dir_fd=fd)


def _find(fd: int, name: str) -> int | None:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    return None
