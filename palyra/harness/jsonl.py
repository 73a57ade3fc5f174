"""Append-only file of JSON lines, and atomic replacement of whole files.

Theory: a line is complete when its newline is in the file.  A crash can leave at most one
incomplete line, at the end; opening the file truncates it.  A failed append truncates the file to
its previous length.  Appends become durable with `sync`.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from palyra.errors import InvalidParams, PalyraError

FILE_MODE = 0o600


class CannotWrite(PalyraError):
    """Failure to write a file of the results, for example for lack of space or permission."""

    code = "unavailable"


class LineLog:
    """Append-only log of JSON values, one a line; each is in the file completely or not at all.

    On opening, `on_line` is called with every existing line.  Raises InvalidParams with the line's
    number if `on_line` raises a decoding error, and CannotWrite if the file cannot be opened.
    """

    def __init__(self, path: Path, on_line: Callable[[bytes], None]) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder()
        self._is_dirty = False
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise cannot_write(path, error) from None
        self._end = self._read(on_line)

    def _read(self, on_line: Callable[[bytes], None]) -> int:
        """Read all complete lines, truncate the file after the last one and return its end."""
        end = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    on_line(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise InvalidParams(
                        f"{self.path}, line {number}: {error}: restore the file, "
                        "or begin in another directory"
                    ) from None
                end += len(line)
        os.ftruncate(self._fd, end)
        return end

    def append(self, value: object) -> None:
        """Append one line.  Raises CannotWrite; the file is then unchanged."""
        line = self._encoder.encode(value) + b"\n"
        try:
            _write_at(self._fd, line, self._end)
        except OSError as error:
            os.ftruncate(self._fd, self._end)
            raise cannot_write(self.path, error) from None
        self._end += len(line)
        self._is_dirty = True

    def sync(self) -> None:
        """Flush appended lines to the disk (fsync).  Raises CannotWrite."""
        if not self._is_dirty:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise cannot_write(self.path, error) from None
        self._is_dirty = False

    def close(self) -> None:
        """Close the file; no further append is allowed."""
        os.close(self._fd)


def _write_at(fd: int, content: bytes, offset: int) -> None:
    while content:
        written = os.pwrite(fd, content, offset)
        content, offset = content[written:], offset + written


def cannot_write(path: Path, error: OSError) -> CannotWrite:
    """Return a CannotWrite with the path, the cause and a remedy."""
    return CannotWrite(
        f"{path} cannot be written: {error.strerror}; mend that, and the same command goes on"
    )


def write_whole(path: Path, content: bytes, *, is_synced: bool) -> None:
    """Create or replace the file atomically.

    With `is_synced` the content is flushed to the disk before the replacement.
    Raises CannotWrite; the old file then remains.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        _write_draft(draft, content, is_synced=is_synced)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise cannot_write(path, error) from None


def _write_draft(draft: Path, content: bytes, *, is_synced: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, FILE_MODE), "wb") as file:
        file.write(content)
        file.flush()
        if is_synced:
            os.fsync(file.fileno())
