"""What folders hold, remembered for as long as nobody changes them.

Every start of a jail asks for every name in the workspace.  A folder's change time tells whether its
names are still those that were read: every new, gone or other entry sets it to the present, and no
program can set it otherwise (inode(7); mtime it can).  So a folder is read again only if it is
another one, or was changed since; what it costs otherwise is one look at its inode.  The rules:

- A folder that was changed right before it was read is not remembered: the clock of a file system
  goes in steps, and a change within the same step would not show.
- What is remembered goes by device, inode and change time as they were before the folder was read,
  so that a change meanwhile shows, and one folder put in another's place as well.
- Only file systems are trusted that keep the rule above, with times of this machine: `KEEPERS`.
  What is mounted below a workspace is read each time.
- When the clock was set back, everything is forgotten: a time that has been might come again.

Nothing here is believed of files: they count by name alone.  All functions block, in one thread.
"""

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from palyra.core.tool.paths import may_be_marked

# Of statfs(2): ext2, 3 and 4, XFS, btrfs, tmpfs, F2FS.
KEEPERS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010})
SETTLED_NS = 2_000_000_000  # far above the steps of any of their clocks
SET_BACK_NS = 500_000_000  # below the time above; less is the clock's own drift
MAX_REMEMBERED = (
    65_536  # folders and those of their entries that count, of all workspaces: some 20 MB
)
_LIBC = ctypes.CDLL(None, use_errno=True)
# Of these errors alone it is known that there is no folder, or none that a path leads to.
_NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderEntry(NamedTuple):
    """One that a walk has to look at: a folder, or a name that may be marked."""

    name: str
    is_folder: bool
    is_link: bool
    may_be_marked: bool


class Listing(NamedTuple):
    """What a folder holds."""

    total: int  # of all its entries
    entries: tuple[FolderEntry, ...] = ()
    is_closed: bool = False  # it is there and could not be read


_Mark = tuple[int, int, int]  # device, inode, change time


class _Known(NamedTuple):
    mark: _Mark
    listing: Listing


class Folders:
    """The folders of all workspaces, as they were last read."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._ahead_ns = 0  # the clock of times before the one that nobody sets
        self._known: dict[str, dict[str, _Known]] = {}  # by workspace, by path

    def begin(self, root: str) -> "FolderWalk":
        """A walk through the whole workspace; one that is not handed to `keep` leaves nothing."""
        self._forget_if_set_back()
        return FolderWalk(root, self._known.pop(root, {}), self._now_ns)

    def keep(self, walk: "FolderWalk") -> None:
        """Remember what was seen in a walk that came to its end."""
        self._known[walk.root] = walk.seen
        while len(self._known) > 1 and sum(map(_weight, self._known.values())) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]

    def _forget_if_set_back(self) -> None:
        ahead_ns = self._now_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if ahead_ns < self._ahead_ns - SET_BACK_NS:
            self._known.clear()
        if not self._known:
            self._ahead_ns = ahead_ns
        self._ahead_ns = max(self._ahead_ns, ahead_ns)


class FolderWalk:
    """One walk: what was known before it, and what is after it."""

    def __init__(self, root: str, known: Mapping[str, _Known], now_ns: Callable[[], int]) -> None:
        self.root = root
        self._known, self._now_ns = known, now_ns
        self._device = _find_device(root)
        self._room = MAX_REMEMBERED
        self.seen: dict[str, _Known] = {}

    def look(self, path: str) -> Listing:
        """What the folder holds; nothing when it is gone, or something else is in its place."""
        try:
            known = self._known.get(path)
            if known is not None and known.mark == _mark(os.lstat(path)):
                return self._keep(path, known).listing
            return self._read(path)
        except OSError as error:
            return Listing(0, is_closed=error.errno not in _NO_FOLDER)

    def _read(self, path: str) -> Listing:
        is_root = path == self.root
        folder = os.open(path, _FOLDER if is_root else _FOLDER | os.O_NOFOLLOW)
        try:
            began_ns, found = self._now_ns(), os.fstat(folder)
            if not os.access(path, os.X_OK):  # its names could be read, and nothing below
                return Listing(0, is_closed=True)
            listing = _list(folder, "" if is_root else path.rpartition("/")[2])
        finally:
            os.close(folder)
        is_settled = found.st_ctime_ns < began_ns - SETTLED_NS
        if found.st_dev == self._device and is_settled:
            self._keep(path, _Known(_mark(found), listing))
        return listing

    def _keep(self, path: str, known: _Known) -> _Known:
        self._room -= 1 + len(known.listing.entries)
        if self._room >= 0:
            self.seen[path] = known
        return known


def _mark(found: os.stat_result) -> _Mark:
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _weight(known: Mapping[str, _Known]) -> int:
    return sum(1 + len(each.listing.entries) for each in known.values())


def _list(folder: int, name: str) -> Listing:
    total, entries = 0, list[FolderEntry]()
    with os.scandir(folder) as found:
        for entry in found:
            total += 1
            is_folder = entry.is_dir(follow_symlinks=False)
            is_told = may_be_marked(name, entry.name)
            if is_folder or is_told:
                entries.append(FolderEntry(entry.name, is_folder, entry.is_symlink(), is_told))
    return Listing(total, tuple(entries))


def _find_device(root: str) -> int | None:
    """The device of a workspace whose file system keeps change times; None for any other."""
    try:
        folder = os.open(root, _FOLDER)
    except OSError:
        return None
    try:
        found = ctypes.create_string_buffer(512)
        if _LIBC.fstatfs(folder, found):
            return None
        kind = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
        return os.fstat(folder).st_dev if kind in KEEPERS else None
    finally:
        os.close(folder)
