"""The journal's access to storage: an SQLite VFS and one appended file.

Tests replace both by a simulated disk that loses power or runs out of space on demand.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from palyra.store.files import private_files


class File(Protocol):
    """A file addressed by offset.  All methods raise OSError."""

    def size_bytes(self) -> int: ...
    def read(self, offset: int, count: int) -> bytes: ...
    def write(self, offset: int, content: bytes) -> None: ...
    def truncate(self, size_bytes: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class OsFile:
    """A private file of the operating system; its name is durable once it is open."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        self._descriptor = private_files.open_regular(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(self._descriptor, private_files.FILE_MODE)
        private_files.sync_directory(path.parent)

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, offset)

    def write(self, offset: int, content: bytes) -> None:
        while content:
            written = os.pwrite(self._descriptor, content, offset)
            content, offset = content[written:], offset + written

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class ReadOnlyFile(OsFile):
    """A file that is not changed, and not created; its writing methods fail."""

    __slots__ = ()

    def __init__(self, path: Path) -> None:
        self._descriptor = private_files.open_regular(path, os.O_RDONLY)


@dataclass(frozen=True, slots=True)
class Disk:
    """The storage of a journal.

    `unix-excl` keeps an exclusive lock against every other process while connections of this
    process work concurrently (their shared memory is on the heap).
    """

    vfs: str = "unix-excl"
    open_file: Callable[[Path], File] = OsFile
    touch_file: Callable[[Path], None] = private_files.touch_file


REAL_DISK = Disk()
