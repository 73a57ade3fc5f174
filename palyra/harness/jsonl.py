"""A file that only grows, by whole lines; a line that a crash tore is taken back."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from palyra.errors import InvalidParams, PalyraError

FILE_MODE = 0o600


class CannotWrite(PalyraError):
    """The results cannot be kept: there is no room, or no permission."""

    code = "unavailable"


class LineLog:
    """Appends JSON values; each is complete in the file, or not there at all.

    `on_line` is given every line that is there already.  Raises InvalidParams, with the line's
    number, for one that it or the decoder refuses.
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
        """Where the last whole line ends; what follows it is cut off."""
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
        """Add one line.  Raises CannotWrite; then the file is as it was."""
        line = self._encoder.encode(value) + b"\n"
        try:
            _write_at(self._fd, line, self._end)
        except OSError as error:
            os.ftruncate(self._fd, self._end)
            raise cannot_write(self.path, error) from None
        self._end += len(line)
        self._is_dirty = True

    def sync(self) -> None:
        """Make what was appended durable.  Raises CannotWrite."""
        if not self._is_dirty:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise cannot_write(self.path, error) from None
        self._is_dirty = False

    def close(self) -> None:
        """Give the file back; nothing may be appended any more."""
        os.close(self._fd)


def _write_at(fd: int, content: bytes, offset: int) -> None:
    while content:
        written = os.pwrite(fd, content, offset)
        content, offset = content[written:], offset + written


def cannot_write(path: Path, error: OSError) -> CannotWrite:
    """The error as somebody can act on it."""
    return CannotWrite(
        f"{path} cannot be written: {error.strerror}; mend that, and the same command goes on"
    )


def write_whole(path: Path, content: bytes, *, is_synced: bool) -> None:
    """Create or replace the file in one step.  Raises CannotWrite; then the old one is there."""
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
