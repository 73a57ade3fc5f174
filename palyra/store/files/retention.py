"""Files with limited retention, next to the journal: artifacts and file checkpoints.

Each file is private, written atomically, and starts with one line of JSON that describes it.  The
total is bounded in bytes and age.  Over the bound, files are evicted from the folder with the most
bytes, oldest first, so that one session cannot evict the files of the others.
All methods block and may be called from any thread.
"""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

SWEEP_MS = 3_600_000  # between two sweeps for old files
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


class RetainedFiles:
    """A folder of such files; a name may contain one subfolder (`ses_…/digest`)."""

    def __init__(
        self, root: Path, *, max_bytes: int, max_age_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self.root = root
        self._max_bytes = max_bytes
        self._max_age_ms = max_age_ms
        self._now_ms = now_ms
        # Two threads may update it at once and lose a little; the next sweep counts again.
        self._used_bytes = 0
        self._swept_ms: int | None = None

    def put(self, name: str, head: bytes, body: Iterable[bytes]) -> None:
        """Store or replace the file, durably.  Raises Unavailable."""
        path = self.root / name
        content = b"".join([head, b"\n", *body])
        if len(content) > self._max_bytes:
            raise Unavailable(f"{len(content)} bytes are more than {self.root.name} may keep")
        try:
            if self._is_due(len(content)):
                self._sweep(len(content))
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
            content = (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unavailable(f"{self.root / name}: cannot be read: {error.strerror}") from error
        head, _, body = content.partition(b"\n")
        return head, body

    def find_head(self, name: str) -> bytes | None:
        """Return the head line only."""
        try:
            with (self.root / name).open("rb") as file:
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
        return sorted(name for name in found if not name.endswith(_DRAFT))

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
                deleted += 1
            _remove_durably(root)
        except OSError as error:
            raise Unavailable(f"{root}: cannot be deleted: {error}") from error
        return deleted

    def prune(
        self,
        *,
        max_bytes: int,
        max_age_ms: int,
        is_kept: Callable[[str], bool],
        is_dry: bool,
    ) -> Pruned:
        """Delete the files over a bound (0: none), oldest first, but those that are kept.

        With `is_dry` only count them.  The deletion is not synced: it makes room, and promises nothing.
        """
        now_ms, found = self._now_ms(), sorted(self._entries())
        used = sum(each.size_bytes for each in found)
        files = freed = 0
        for entry in found:
            is_old = bool(max_age_ms) and now_ms - entry.modified_ms > max_age_ms
            is_excess = bool(max_bytes) and used - freed > max_bytes
            if not is_old and not is_excess:
                break
            name = entry.path.relative_to(self.root).as_posix()
            if name.endswith(_DRAFT) or is_kept(name):
                continue
            if not is_dry:
                entry.path.unlink(missing_ok=True)
            files, freed = files + 1, freed + entry.size_bytes
        return Pruned(files, freed)

    # --- bounds

    def sweep(self) -> int:
        """Evict what is over a bound now; return the number of files.  Raises Unavailable."""
        before = sum(1 for _ in self._entries())
        try:
            self._sweep(0)
        except OSError as error:
            raise Unavailable(f"{self.root}: cannot be swept: {error}") from error
        return max(0, before - sum(1 for _ in self._entries()))

    def _is_due(self, coming_bytes: int) -> bool:
        if self._swept_ms is None or self._now_ms() - self._swept_ms > SWEEP_MS:
            return True
        return self._used_bytes + coming_bytes > self._max_bytes

    def _sweep(self, coming_bytes: int) -> None:
        """Evict files over the age, then files over the bytes."""
        self._swept_ms = self._now_ms()
        folders: dict[Path, list[_Entry]] = {}
        for entry in self._entries():
            if self._swept_ms - entry.modified_ms > self._max_age_ms:
                entry.path.unlink(missing_ok=True)
            else:
                folders.setdefault(entry.path.parent, []).append(entry)
        for entries in folders.values():
            entries.sort(reverse=True)  # the oldest is the last
        used = {folder: sum(each.size_bytes for each in has) for folder, has in folders.items()}
        room = int(self._max_bytes * _FULL) - coming_bytes
        while sum(used.values()) > max(0, room):
            fullest = max(used, key=lambda folder: used[folder])
            oldest = folders[fullest].pop()
            oldest.path.unlink(missing_ok=True)
            used[fullest] -= oldest.size_bytes
        self._used_bytes = sum(used.values())

    def _entries(self) -> Iterator[_Entry]:
        for folder, folders, names in os.walk(self.root):
            for name in names:
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
