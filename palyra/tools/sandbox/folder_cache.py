"""Cache of folder listings, validated by each folder's change time.

Every start of a jail needs every name in the workspace.  The kernel sets a folder's change time to
the present whenever an entry is added, removed or replaced, and no program can set it (inode(7);
mtime can be set).  So an unchanged ctime proves that the names are unchanged, and a cached folder
costs one `lstat` instead of a listing.  The rules that make this safe:

- A listing is cached only if the folder's last change lies `SETTLED_NS` before the read: file system
  clocks advance in steps, and a change within the same step would not show.
- A cached listing is keyed by device, inode and ctime from before the read.  A change during the read
  shows as a newer ctime, a replaced folder as another inode.
- Only file systems that keep the rule with this machine's clock are trusted (`TRUSTED_TYPES`), and
  only on the workspace's own device.
- If the clock was set back, the whole cache is dropped: an old time might come again.

The cache holds names only, never the contents of files.  All functions block, in one thread.
"""

import ctypes
import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from palyra.core.tool.paths import may_be_marked

# Of statfs(2): ext2, 3 and 4, XFS, btrfs, tmpfs, F2FS.
TRUSTED_TYPES = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010})
SETTLED_NS = 2_000_000_000  # far above the clock step of any of them
SET_BACK_NS = 500_000_000  # below SETTLED_NS, above the clock's own drift
MAX_REMEMBERED = (
    65_536  # folders and those of their entries that count, of all workspaces: some 20 MB
)
_LIBC = ctypes.CDLL(None, use_errno=True)
# After these errors, and no others, there is certainly no folder at the path.
_NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderEntry(NamedTuple):
    """An entry that a walk must visit: a folder, a socket, or a name that may be protected."""

    name: str
    is_folder: bool
    is_link: bool
    may_be_marked: bool
    is_socket: bool = False


class Listing(NamedTuple):
    """Entries of one folder."""

    total: int  # number of all entries
    entries: tuple[FolderEntry, ...] = ()
    is_closed: bool = False  # it exists and could not be read


_Version = tuple[int, int, int]  # device, inode, change time


class _CachedListing(NamedTuple):
    version: _Version
    listing: Listing


class FolderCache:
    """Listings of the folders of all workspaces."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._ahead_ns = 0  # wall clock minus boot clock, which cannot be set
        self._known: dict[str, dict[str, _CachedListing]] = {}  # by workspace, by path

    def walk(self, root: str) -> "FolderWalk":
        """Start a walk through the workspace; its cached listings are dropped until `store`."""
        self._drop_if_clock_was_set_back()
        return FolderWalk(root, self._known.pop(root, {}), self._now_ns)

    def store(self, walk: "FolderWalk") -> None:
        """Cache the listings of a complete walk; evict the oldest workspaces beyond the bound."""
        self._known[walk.root] = walk.seen
        while len(self._known) > 1 and sum(map(_weight, self._known.values())) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]

    def _drop_if_clock_was_set_back(self) -> None:
        ahead_ns = self._now_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if ahead_ns < self._ahead_ns - SET_BACK_NS:
            self._known.clear()
        if not self._known:
            self._ahead_ns = ahead_ns
        self._ahead_ns = max(self._ahead_ns, ahead_ns)


class FolderWalk:
    """One walk through a workspace: reads cached listings and collects new ones."""

    def __init__(
        self, root: str, known: Mapping[str, _CachedListing], now_ns: Callable[[], int]
    ) -> None:
        self.root = root
        self._known, self._now_ns = known, now_ns
        self._device = _find_device(root)
        self._room = MAX_REMEMBERED
        self.seen: dict[str, _CachedListing] = {}

    def list(self, path: str) -> Listing:
        """List a folder; empty if it is gone or is no folder any more."""
        try:
            known = self._known.get(path)
            if known is not None and known.version == _version(os.lstat(path)):
                return self._keep(path, known).listing
            return self._read(path)
        except OSError as error:
            return Listing(0, is_closed=error.errno not in _NO_FOLDER)

    def _read(self, path: str) -> Listing:
        is_root = path == self.root
        folder = os.open(path, _FOLDER if is_root else _FOLDER | os.O_NOFOLLOW)
        try:
            began_ns, found = self._now_ns(), os.fstat(folder)
            if not os.access(path, os.X_OK):  # its names can be read, but nothing below
                return Listing(0, is_closed=True)
            listing = _list(folder, "" if is_root else path.rpartition("/")[2])
        finally:
            os.close(folder)
        is_settled = found.st_ctime_ns < began_ns - SETTLED_NS
        if found.st_dev == self._device and is_settled:
            self._keep(path, _CachedListing(_version(found), listing))
        return listing

    def _keep(self, path: str, known: _CachedListing) -> _CachedListing:
        self._room -= 1 + len(known.listing.entries)
        if self._room >= 0:
            self.seen[path] = known
        return known


def _version(found: os.stat_result) -> _Version:
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _weight(known: Mapping[str, _CachedListing]) -> int:
    return sum(1 + len(each.listing.entries) for each in known.values())


def _list(folder: int, name: str) -> Listing:
    total, entries = 0, list[FolderEntry]()
    with os.scandir(folder) as found:
        for entry in found:
            total += 1
            is_folder = entry.is_dir(follow_symlinks=False)
            may_be_protected = may_be_marked(name, entry.name)
            is_socket = not is_folder and _is_socket(entry)
            if is_folder or may_be_protected or is_socket:
                is_link = entry.is_symlink()
                entries.append(
                    FolderEntry(entry.name, is_folder, is_link, may_be_protected, is_socket)
                )
    return Listing(total, tuple(entries))


def _is_socket(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_symlink():
        return False  # known from the listing
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def _find_device(root: str) -> int | None:
    """Return the device of a workspace on a trusted file system; None for any other."""
    try:
        folder = os.open(root, _FOLDER)
    except OSError:
        return None
    try:
        found = ctypes.create_string_buffer(512)
        if _LIBC.fstatfs(folder, found):
            return None
        kind = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
        return os.fstat(folder).st_dev if kind in TRUSTED_TYPES else None
    finally:
        os.close(folder)
