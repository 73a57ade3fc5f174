"""What is looked at before and after: links, and orders that were not there.

A mount on a link lands where the link leads, so a link can only be put back.  What other programs
obey only when somebody does something (`WATCHED`) is not worth a mount at each start; `.git/commondir`,
which tells git to take its configuration from elsewhere, and `alternates` bear none, not even an empty
one.  So what was made there while a program ran is set aside when it ends, whoever made it; and so is a
new link on the way.  Of links and `commondir`, jails of one workspace that overlap are held to how it
was before the first of them: what one has changed is no model for the next.

All functions block.
"""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import starmap

from palyra.core.paths import BARE_REPOSITORY
from palyra.tools.confine import walk
from palyra.tools.sandbox.masks import (
    COMMON_DIR,
    HELD,
    HELD_IN_GIT,
    WATCHED,
    WATCHED_IN_GIT,
    parents,
)

_PATHS = (*HELD, BARE_REPOSITORY, *HELD_IN_GIT, *WATCHED, *WATCHED_IN_GIT)
_LINKS = sorted({each for path in _PATHS for each in (path, *parents(path))})  # outer before inner
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Guarded:
    """One path, and what it was."""

    path: str  # relative to the workspace
    target: str | None  # of the link; None: nothing was there

    @property
    def is_shared(self) -> bool:
        """Whether it counts how it was before the first of the jails that overlap.

        Of what people make themselves it counts what was there when each began.
        """
        return self.target is not None or self.path == COMMON_DIR


class Guards:
    """How workspaces were before their first jail, as long as there are any."""

    def __init__(self) -> None:
        self._before: dict[str, list[Guarded]] = {}
        self._jails: Counter[str] = Counter()

    def take(self, root: str, *, lasts: bool = False) -> list[Guarded]:
        """A jail of that workspace begins; what must be the same after it, for `leave`.

        `lasts`: what is new when it ends may be anybody's, and is left there.
        """
        now = _look(root)
        if not self._jails[root]:
            self._before[root] = [each for each in now if each.is_shared]
        self._jails[root] += 1
        own = [each for each in now if not each.is_shared and not lasts]
        return [*self._before[root], *own]

    def leave(self, root: str, before: Collection[Guarded]) -> list[str]:
        """It is gone: make everything as it was; the paths that were not."""
        changed = put_back(root, before)
        self._jails[root] -= 1
        if not self._jails[root]:
            del self._jails[root], self._before[root]
        return changed


def _look(root: str) -> list[Guarded]:
    """What must be the same afterwards."""
    targets = {path: _read_link(f"{root}/{path}") for path in _LINKS}
    links = {path: target for path, target in targets.items() if target is not None}
    absent = [
        path
        for path in (*WATCHED, *WATCHED_IN_GIT)
        if not os.path.lexists(f"{root}/{path}") and not links.keys() & set(parents(path))
    ]
    if not os.path.lexists(f"{root}/.git"):  # held as a whole
        absent = [path for path in absent if not path.startswith(".git/")]
    return [
        *starmap(Guarded, links.items()),
        *(Guarded(path, None) for path in absent),
    ]


def put_back(root: str, before: Collection[Guarded]) -> list[str]:
    """Make it as it was; the paths that were not."""
    changed: list[str] = []
    absent = {each.path for each in before if each.target is None}
    above = sorted({folder for path in absent for folder in parents(path)})  # none was a link
    with suppress(OSError), ExitStack() as stack:
        top = os.open(root, _FOLDER)
        stack.callback(os.close, top)
        for folder in above:
            with suppress(OSError):
                changed += _put_in_place(top, folder, None, only_links=True)
        there = (each for each in before if each.target or os.path.lexists(f"{root}/{each.path}"))
        for each in there:
            with suppress(OSError):
                changed += _put_in_place(top, each.path, each.target)
    return changed


def _put_in_place(
    top: int, path: str, target: str | None, *, only_links: bool = False
) -> Iterator[str]:
    folder, _, name = path.rpartition("/")
    fd = walk(top, folder, _FOLDER)
    try:
        now = _find(fd, name)
        is_link = now is not None and stat.S_ISLNK(now)
        if (now is None and target is None) or (only_links and not is_link):
            return
        if is_link and os.readlink(name, dir_fd=fd) == target:
            return
        if now is not None:
            _take_away(fd, name)
        if target is not None:
            os.symlink(target, name, dir_fd=fd)
        yield path
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
