"""Files with limited retention, next to the journal: artifacts and file checkpoints.

Each file is private, written atomically, and starts with one line of JSON that describes it.  The
total is bounded in bytes and age, by one sweep: at a write, and when retention is applied.  Files in
use are left out (`core.journal.retention.InUse`).  Over the bound in bytes, files are evicted from the
folder with the most bytes, oldest first, so that one session cannot evict the files of the others.
All methods block and may be called from any thread.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from palyra.core.journal.retention import InUse
from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

SWEEP_MS = 3_600_000  # between two sweeps for old files
EVICTED = ".evicted"  # names of a folder that sweeps deleted, with time and bound
_DRAFT = ".draft"
_FULL = 0.9  # share of the bound that a sweep leaves, so that not every put sweeps


class _Entry(NamedTuple):
    modified_ms: int
    size_bytes: int
    path: Path


class Pruned(NamedTuple):
    """Deleted files, or files to delete."""

    files: int
    size_bytes: int


Bound = Literal["days", "mib"]  # end of the key of `[retention]`


class Evicted(NamedTuple):
    """A file that a sweep deleted."""

    name: str
    at_ms: int
    bound: Bound


class FolderBounds(NamedTuple):
    """Bounds of a folder; its time is that by which content ages (`age_clock`)."""

    max_bytes: int = 0  # 0: no bound
    max_age_ms: int = 0  # 0: no bound
    now_ms: Callable[[], int] = lambda: 0
    # Owners of files in use; conversations with a run that ended since then are in use as well.
    find_in_use: Callable[[int], InUse] = lambda _since_ms: InUse()


class RetainedFiles:
    """A folder of such files; a name may contain one subfolder (`ses_…/digest`)."""

    def __init__(
        self,
        root: Path,
        rules: FolderBounds,
        find_owner: Callable[[str], str | None] = lambda _name: None,
        *,
        remembers: bool = False,
    ) -> None:
        """`find_owner` returns the session of a file, None if that is unknown.

        With `remembers` each folder lists what was evicted from it (`list_evicted`).
        """
        self.root = root
        self.rules = rules
        self._find_owner = find_owner
        self._remembers = remembers
        # Two threads may update it at once and lose a little; the next sweep counts again.
        self._used_bytes = 0
        self._swept_ms: int | None = None

    def put(self, name: str, head: bytes, body: Iterable[bytes], *, owner: str = "") -> None:
        """Store or replace the file of a session, durably.  Raises Unavailable."""
        path, most = self.root / name, self.rules.max_bytes
        content = b"".join([head, b"\n", *body])
        if most and len(content) > most:
            raise Unavailable(f"{len(content)} bytes are more than {self.root.name} may keep")
        if self._is_due(len(content)):
            self.sweep(len(content), owner)
        if most and self._used_bytes + len(content) > most:
            raise Unavailable(
                f"{self.root.name} is full of what is in use, {self._used_bytes} of {most} bytes: "
                f"raise retention.{self.root.name}_mib, or remove marks and pins of sessions"
            )
        try:
            for folder in dict.fromkeys((self.root, path.parent)):
                private_files.make_directory(folder)
            draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_DRAFT}")
            private_files.create_file(path, content, draft=draft)
        except OSError as error:
            raise cannot_write(path, error) from error
        self._used_bytes += len(content)

    def find(self, name: str) -> tuple[bytes, bytes] | None:
        """Return head line and body, None if absent or evicted.  Raises Unavailable."""
        try:
            content = private_files.read_file(self.root / name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unavailable(f"{self.root / name}: cannot be read: {error.strerror}") from error
        head, _, body = content.partition(b"\n")
        return head, body

    def find_head(self, name: str) -> bytes | None:
        """Return the head line only."""
        try:
            with private_files.open_file(self.root / name) as file:
                return file.readline().removesuffix(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unavailable(f"{self.root / name}: cannot be read: {error.strerror}") from error

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder, sorted; empty if it does not exist.  Raises Unavailable."""
        try:
            found = os.listdir(self.root / folder)  # noqa: PTH208 - names, not paths
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Unavailable(f"{self.root / folder}: cannot be read: {error.strerror}") from error
        return sorted(name for name in found if name != EVICTED and not name.endswith(_DRAFT))

    def drop(self, name: str) -> None:
        """Delete the file durably, if it is there.  Raises Unavailable."""
        path = self.root / name
        try:
            path.unlink(missing_ok=True)
            private_files.sync_directory(path.parent)  # also after a deletion that was cut off
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise Unavailable(f"{path}: cannot be deleted: {error}") from error

    def drop_folder(self, folder: str) -> int:
        """Delete a folder with its files, drafts too, durably; return their number.

        Raises Unavailable.
        """
        root, deleted = self.root / folder, 0
        try:
            for path in list(root.iterdir()) if root.is_dir() else ():
                path.unlink(missing_ok=True)
                deleted += path.name != EVICTED
            _remove_durably(root)
        except OSError as error:
            raise Unavailable(f"{root}: cannot be deleted: {error}") from error
        return deleted

    # --- bounds

    def _is_due(self, coming_bytes: int) -> bool:
        max_bytes, _, now_ms, _ = self.rules
        if self._swept_ms is None or now_ms() - self._swept_ms > SWEEP_MS:
            return True
        return bool(max_bytes) and self._used_bytes + coming_bytes > max_bytes

    def sweep(self, coming_bytes: int = 0, writer: str = "", *, is_dry: bool = False) -> Pruned:
        """Evict files over the age, then files over the bytes with those that come.

        A session that writes makes room among its own files too, unless it has a mark or a pin.  With
        `is_dry` only count.  The deletion is not synced: it makes room, and promises nothing.  Raises
        Unavailable.
        """
        now_ms = self.rules.now_ms()
        try:
            old, excess, used_bytes = self._choose(now_ms, coming_bytes, writer)
            if not is_dry:
                self._evict(old, "days", now_ms)
                self._evict(excess, "mib", now_ms)
        except OSError as error:
            raise Unavailable(f"{self.root}: cannot be swept: {error}") from error
        if not is_dry:
            self._swept_ms, self._used_bytes = now_ms, used_bytes
        evicted = (*old, *excess)
        return Pruned(len(evicted), sum(each.size_bytes for each in evicted))

    def _evict(self, entries: Sequence[_Entry], bound: Bound, now_ms: int) -> None:
        """Delete the files; where they are remembered, write that down first, durably."""
        by_folder: dict[Path, list[str]] = {}
        for entry in entries if self._remembers else ():
            line = f"{entry.path.name} {now_ms} {bound}\n"
            by_folder.setdefault(entry.path.parent, []).append(line)
        for folder, lines in by_folder.items():
            descriptor = private_files.open_regular(
                folder / EVICTED, os.O_WRONLY | os.O_APPEND | os.O_CREAT
            )
            with os.fdopen(descriptor, "a", encoding="ascii") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(descriptor)
        for entry in entries:
            entry.path.unlink(missing_ok=True)

    def list_evicted(self, folder: str) -> list[Evicted]:
        """List what was evicted from a folder, oldest first; empty if nothing was remembered."""
        return read_evicted(self.root / folder)

    def _choose(
        self, now_ms: int, coming_bytes: int, writer: str
    ) -> tuple[list[_Entry], list[_Entry], int]:
        """Return the files over the age, those over the bytes, and the bytes of the others.

        Raises OSError, Unavailable.
        """
        max_bytes, max_age_ms, _, find_in_use = self.rules
        old_ms = now_ms - max_age_ms if max_age_ms else -1
        in_use = find_in_use(old_ms)
        old, excess, folders = list[_Entry](), list[_Entry](), dict[Path, list[_Entry]]()
        for entry in self._entries():
            if entry.modified_ms < old_ms and not self._is_in_use(entry, in_use):
                old.append(entry)
            else:
                folders.setdefault(entry.path.parent, []).append(entry)
        used = {folder: sum(each.size_bytes for each in has) for folder, has in folders.items()}
        if max_bytes and sum(used.values()) + coming_bytes > max_bytes:
            room = max(0, int(max_bytes * _FULL) - coming_bytes)
            excess += self._choose_oldest(folders, used, room, in_use.without(writer))
        return old, excess, sum(used.values())

    def _choose_oldest(
        self,
        folders: dict[Path, list[_Entry]],
        used: dict[Path, int],
        room: int,
        in_use: InUse,
    ) -> Iterator[_Entry]:
        """Yield the oldest of the fullest folder, but what is in use, until the rest has room."""
        for entries in folders.values():
            entries.sort(reverse=True)  # the oldest is the last
        while folders and sum(used.values()) > room:
            fullest = max(folders, key=lambda folder: used[folder])
            if not folders[fullest]:
                del folders[fullest]
                continue
            oldest = folders[fullest].pop()
            if not self._is_in_use(oldest, in_use):
                used[fullest] -= oldest.size_bytes
                yield oldest

    def _is_in_use(self, entry: _Entry, in_use: InUse) -> bool:
        name = entry.path.relative_to(self.root).as_posix()
        if name.endswith(_DRAFT):
            return False
        return name in in_use.checkpoints or in_use.has_session(self._find_owner(name))

    def _entries(self) -> Iterator[_Entry]:
        for folder, folders, names in os.walk(self.root):
            for name in (each for each in names if each != EVICTED):
                path = Path(folder) / name
                with suppress(FileNotFoundError):
                    found = path.stat()
                    yield _Entry(found.st_mtime_ns // 1_000_000, found.st_size, path)
            if not folders and not names and Path(folder) != self.root:
                with suppress(OSError):  # created again when needed
                    Path(folder).rmdir()


def _remove_durably(folder: Path) -> None:
    """Remove an empty folder, if it is there, also after a removal that was cut off."""
    with suppress(FileNotFoundError, NotADirectoryError):
        folder.rmdir()
    with suppress(FileNotFoundError, NotADirectoryError):
        private_files.sync_directory(folder.parent)


def read_evicted(folder: Path) -> list[Evicted]:
    """Read the list of what was evicted from a folder; damaged lines are left out.  Raises Unavailable."""
    try:
        lines = private_files.read_file(folder / EVICTED).decode("ascii", "replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Unavailable(f"{folder / EVICTED}: cannot be read: {error.strerror}") from error
    found = list[Evicted]()
    for name, at_ms, bound in (line.split(" ") for line in lines if line.count(" ") == 2):  # noqa: PLR2004 - of its three fields
        if at_ms.isdecimal():
            found.append(Evicted(name, int(at_ms), "mib" if bound == "mib" else "days"))
    return found
