"""Files of an open journal that were removed, replaced, shortened or written from outside.

An open file outlives its name: a daemon whose database was removed goes on reading and committing,
and everything since then is gone when it ends.  So each file is compared with the identity it had
at the opening (one `stat` a file), and an intact copy is made from the open handles.  A file whose
time of modification has changed while the journal wrote nothing to it was written by another program:
the pages that SQLite has in memory hide that for a while.

The files are never opened by name here: closing any descriptor of a file ends all POSIX locks that
the process holds on it.  Source: https://www.sqlite.org/howtocorrupt.html, section 2.2.
"""

import os
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

import apsw

from palyra.store.files import private_files
from palyra.store.files.disk import File

HEADER_BYTES = 100
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24  # https://www.sqlite.org/fileformat2.html


class OpenFiles:
    """Identities of files at the opening, and their times of modification after the last own write."""

    def __init__(
        self, least_bytes: Mapping[Path, Callable[[], int]], written_ns: MutableMapping[str, int]
    ) -> None:
        """A file is lost below its least size; one that does not exist yet is not watched.

        The journal notes each write in `written_ns`, by path; a time that is missing there is read here.
        """
        self._least_bytes = least_bytes
        self._written_ns = written_ns
        self._known: dict[Path, tuple[int, int]] = {}
        for path in least_bytes:
            with suppress(OSError):
                found = path.lstat()
                self._known[path] = found.st_dev, found.st_ino
                written_ns[str(path)] = found.st_mtime_ns

    def find_losses(self) -> dict[Path, str]:
        """Return what happened to each file that is not as it was; some microseconds a file."""
        losses: dict[Path, str] = {}
        for path, known in self._known.items():
            try:
                found = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                losses[path] = "was removed"
                continue
            if (found.st_dev, found.st_ino) != known:
                losses[path] = "was replaced by another file"
            elif found.st_size < self._least_bytes[path]():
                losses[path] = f"was shortened to {found.st_size} bytes"
            elif found.st_mtime_ns != self._written_ns.setdefault(str(path), found.st_mtime_ns):
                losses[path] = "was written by another program"
        return losses


def database_bytes(connection: apsw.Connection) -> int:
    """Return the size of the database file by its own header, read from the open descriptor.

    A checkpoint writes the header after the file has grown, and cuts the file after the header.
    """
    _, header = connection.read("main", 0, 0, HEADER_BYTES)
    page_bytes = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return max(HEADER_BYTES, pages * (65_536 if page_bytes == 1 else page_bytes))


def log_bytes(page_bytes: int, pages: int) -> int:
    """Return the least size of a write-ahead log with so many pages."""
    return pages and WAL_HEADER_BYTES + pages * (FRAME_HEADER_BYTES + page_bytes)


def copy_database(connection: apsw.Connection, path: Path) -> None:
    """Replace `path` by a copy of the open database with its log, durably.

    Raises apsw.Error, OSError, and then `path` is as before.
    """
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    private_files.touch_file(draft)
    try:
        copy = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with copy.backup("main", connection, "main") as backup:
                backup.step(-1)
        finally:
            copy.close()
        draft.replace(path)
        private_files.sync_directory(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def require_sound(path: Path) -> None:
    """Check the pages of a copy.  Raises apsw.Error for a damaged one."""
    copy = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        finding = copy.execute("PRAGMA quick_check(1)").get
    finally:
        copy.close()
    if finding != "ok":
        raise apsw.CorruptError(finding)


def copy_file(file: File, path: Path) -> None:
    """Replace `path` by the content of an open file.  Raises OSError."""
    private_files.create_file(path, file.read(0, file.size_bytes()))


def describe(losses: Mapping[Path, str]) -> str:
    """Name each file with its fate."""
    return "; ".join(f"{os.fspath(path)} {fate}" for path, fate in losses.items())
