"""A disk in memory that loses power, fails or fills up on request.

What a program writes is visible to it at once and durable after a sync.  When the power goes,
each sector written since then may have arrived or not, in any order, and one of them in part.
SQLite reaches the disk as an apsw VFS; locks and shared memory are those of real, empty files.
"""

import errno
import random
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

import apsw

from palyra.store.files.disk import Disk

SECTOR_BYTES = 512
_BASE = "unix-excl"
_numbers = count()
Operation = Literal["write", "truncate", "sync", "delete"]


@dataclass(slots=True)
class Content:
    """One file: what is durable, what the program sees, and the changes in between."""

    durable: bytes = b""
    visible: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut off there

    def write(self, offset: int, content: bytes) -> None:
        self.pending.append((offset, content))
        _apply(self.visible, offset, content)

    def truncate(self, size_bytes: int) -> None:
        self.pending.append((size_bytes, None))
        _apply(self.visible, size_bytes, None)

    def sync(self) -> None:
        self.durable = bytes(self.visible)
        self.pending.clear()

    def survive(self, rng: random.Random) -> "Content":
        """The file after a power cut."""
        image = bytearray(self.durable)
        share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))  # of the writes in progress
        for offset, content in self.pending:
            if content is None:
                if rng.random() < share:
                    _apply(image, offset, None)
            else:
                for start, piece in _tear(offset, content, rng, share):
                    _apply(image, start, piece)
        return Content(durable=bytes(image), visible=image)


def _apply(image: bytearray, offset: int, content: bytes | None) -> None:
    if content is None:
        del image[offset:]
        return
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(content)] = content


def _tear(
    offset: int, content: bytes, rng: random.Random, share: float
) -> Iterator[tuple[int, bytes]]:
    """The parts of one write that arrive: whole sectors, now and then the head of one."""
    start = 0
    while start < len(content):
        end = start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES
        if rng.random() < share:
            end_of_piece = end if rng.random() < 0.99 else rng.randrange(start, end)
            yield offset + start, content[start:end_of_piece]
        start = end


class SimulatedDisk:
    """Files by path, and the trouble that is planned for them."""

    def __init__(self, files: dict[str, Content] | None = None) -> None:
        self.files: dict[str, Content] = files or {}
        self.operations = 0
        self.counts: Counter[str] = Counter()
        self.cut_at: tuple[Operation | None, int] | None = None  # the n-th of a kind, or of all
        self.cut_during: Operation | None = None  # which kind that was
        self.fail_at: int | None = None  # the operation that fails, once
        self.capacity_bytes: int | None = None
        self.is_on = True

    @property
    def used_bytes(self) -> int:
        return sum(len(file.visible) for file in self.files.values())

    def begin(self, operation: Operation) -> None:
        """Count one operation.  Raises OSError when it fails."""
        self._require_power()
        self.operations += 1
        self.counts[operation] += 1
        if self.cut_at in {(None, self.operations), (operation, self.counts[operation])}:
            self.is_on, self.cut_during = False, operation
        if self.operations == self.fail_at:
            raise OSError(errno.EIO, "injected failure")

    def write(self, path: str, offset: int, content: bytes) -> None:
        self.begin("write")
        self._require_space(path, offset + len(content))
        self.files[path].write(offset, content)
        self._require_power()

    def truncate(self, path: str, size_bytes: int) -> None:
        self.begin("truncate")
        self.files[path].truncate(size_bytes)
        self._require_power()

    def sync(self, path: str) -> None:
        self.begin("sync")
        self._require_power()  # when the power goes during a sync, nothing is promised
        self.files[path].sync()

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Reading changes nothing: it fails without power, but is not a moment of its own."""
        self._require_power()
        return bytes(self.files[path].visible[offset : offset + size_bytes])

    def survive(self, rng: random.Random) -> "SimulatedDisk":
        """The disk when the power is back."""
        return SimulatedDisk({path: file.survive(rng) for path, file in self.files.items()})

    def _require_power(self) -> None:
        if not self.is_on:
            raise OSError(errno.EIO, "the power is off")

    def _require_space(self, path: str, end: int) -> None:
        if self.capacity_bytes is None:
            return
        growth = max(0, end - len(self.files[path].visible))
        if self.used_bytes + growth > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "the disk is full")

    @contextmanager
    def mount(self) -> Generator[Disk, None, None]:
        """The disk as the journal knows disks."""
        vfs = _Vfs(f"simulated-{next(_numbers)}", self)
        try:
            yield Disk(vfs.name, lambda path: _PlainFile(self, str(path)), self._touch)
        finally:
            vfs.unregister()

    def _touch(self, path: Path) -> None:
        self._require_power()
        self.files.setdefault(str(path), Content())
        path.touch()  # for the locks


class _PlainFile:
    """A `palyra.store.files.disk.File` on a simulated disk."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        disk.files.setdefault(path, Content())
        self._disk, self._path = disk, path

    def size_bytes(self) -> int:
        return len(self._disk.files[self._path].visible)

    def read(self, offset: int, size_bytes: int) -> bytes:
        return self._disk.read(self._path, offset, size_bytes)

    def write(self, offset: int, content: bytes) -> None:
        self._disk.write(self._path, offset, content)

    def truncate(self, size_bytes: int) -> None:
        self._disk.truncate(self._path, size_bytes)

    def sync(self) -> None:
        self._disk.sync(self._path)

    def close(self) -> None:
        pass


class _AsSqlite:
    """Errors as SQLite knows them; a class, because it is entered at every operation."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            kind = apsw.FullError if error.errno == errno.ENOSPC else apsw.IOError
            raise kind(str(error)) from None


_as_sqlite = _AsSqlite()


class _Vfs(apsw.VFS):
    def excepthook(self, *_: object) -> bool:
        """Do not print planned failures that SQLite cannot return to a caller."""
        return True

    def __init__(self, name: str, disk: SimulatedDisk) -> None:
        self.name = name
        self._disk = disk
        super().__init__(name, _BASE)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _VfsFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - SQLite's shape
        with _as_sqlite:
            self._disk.begin("delete")
        self._disk.files.pop(filename, None)
        super().xDelete(filename, syncdir)

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: ARG002, N802 - SQLite's shape
        return pathname in self._disk.files


class _VfsFile(apsw.VFSFile):
    def excepthook(self, *_: object) -> bool:
        """Do not print planned failures that SQLite cannot return to a caller."""
        return True

    def __init__(
        self, disk: SimulatedDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        disk.files.setdefault(self._path, Content())
        super().__init__(_BASE, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        with _as_sqlite:
            return self._disk.read(self._path, offset, amount)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        with _as_sqlite:
            self._disk.write(self._path, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        with _as_sqlite:
            self._disk.truncate(self._path, newsize)

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802 - SQLite's shape
        with _as_sqlite:
            self._disk.sync(self._path)

    def xFileSize(self) -> int:  # noqa: N802 - SQLite's name
        return len(self._disk.files[self._path].visible)
