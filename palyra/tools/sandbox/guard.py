"""What no mount can lie on, looked at before and after: links, and two files that git obeys.

A mount on a link lands where the link leads, so a link can only be put back.  `.git/commondir` must
not be there at all: it tells git to take its configuration from elsewhere, and an empty one, to be
mounted on, would break the repository.  So would an empty folder `.git/objects/info/alternates`,
which leads git to other objects: it would be warned of.  Jails of one workspace that overlap are
held to how it was before the first of them: what one has changed is no model for the next.

All functions block.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from palyra.core.paths import BARE_REPOSITORY
from palyra.tools.confine import walk
from palyra.tools.sandbox.masks import ALTERNATES, COMMON_DIR, IN_GIT, TOP, parents

_LINKED = tuple(
    dict.fromkeys(
        each
        for path in (*TOP, BARE_REPOSITORY, *IN_GIT, COMMON_DIR, ALTERNATES)
        for each in (path, *parents(path))
    )
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Guarded:
    """One path, and what it was."""

    path: str  # relative to the workspace
    target: str | None  # of the link; None: nothing was there


class Guards:
    """How workspaces were before their first jail, as long as there are any."""

    def __init__(self) -> None:
        self._before: dict[str, list[Guarded]] = {}
        self._jails: Counter[str] = Counter()

    def take(self, root: str) -> list[Guarded]:
        """A jail of that workspace begins; what must be the same after it."""
        if not self._jails[root]:
            self._before[root] = _look(root)
        self._jails[root] += 1
        return self._before[root]

    def leave(self, root: str) -> list[str]:
        """It is gone: make everything as it was; the paths that were not."""
        changed = put_back(root, self._before[root])
        self._jails[root] -= 1
        if not self._jails[root]:
            del self._jails[root], self._before[root]
        return changed


def _look(root: str) -> list[Guarded]:
    """What must be the same afterwards."""
    found = [Guarded(path, _read_link(f"{root}/{path}")) for path in _LINKED]
    links = [each for each in found if each.target is not None]
    if not os.path.isdir(f"{root}/.git"):  # noqa: PTH112 - as text
        return links
    absent = [path for path in (COMMON_DIR, ALTERNATES) if not os.path.lexists(f"{root}/{path}")]
    return [*links, *(Guarded(path, None) for path in absent)]


def put_back(root: str, before: Iterable[Guarded]) -> list[str]:
    """Make it as it was; the paths that were not."""
    changed: list[str] = []
    for each in before:
        with suppress(OSError):
            changed += _put_one_back(root, each)
    return changed


def _put_one_back(root: str, each: Guarded) -> Iterator[str]:
    folder, _, name = each.path.rpartition("/")
    top = os.open(root, _FOLDER)
    try:
        fd = walk(top, folder, _FOLDER)
    finally:
        os.close(top)
    try:
        now = _find(fd, name)
        if now is None and each.target is None:
            return
        if now is not None and stat.S_ISLNK(now) and os.readlink(name, dir_fd=fd) == each.target:
            return
        if now is not None:
            _take_away(fd, name)
        if each.target is not None:
            os.symlink(each.target, name, dir_fd=fd)
        yield each.path
    finally:
        os.close(fd)


def _take_away(fd: int, name: str) -> None:
    """Out of its place, but not lost."""
    with suppress(FileNotFoundError):
        os.rename(name, f"{name}.set-aside-{os.urandom(4).hex()}", src_dir_fd=fd, dst_dir_fd=fd)


def _find(fd: int, name: str) -> int | None:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    return None


def _read_link(path: str) -> str | None:
    with suppress(OSError):
        return os.readlink(path)  # noqa: PTH115 - as text
    return None
