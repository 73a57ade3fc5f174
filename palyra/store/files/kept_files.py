"""Small files that a home needs, kept in memory while a daemon runs.

A file that was removed or changed from outside is found by one `stat` and, if that differs, a read; its
last good content is saved beside.  A static file has its first content for ever; another one may be
replaced by any content that is valid.
All methods block; one thread calls them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from palyra.errors import Unavailable
from palyra.store.files import private_files

Check = Callable[[bytes], bool]
SAVED = "saved"  # folder of a home for copies of lost files
MAX_BYTES = 1 << 24  # a larger file is not kept
_Stamp = tuple[int, int, int, int]


def is_static(_content: bytes) -> bool:
    """Mark a file that is never rewritten while a daemon runs."""
    return True


class KeptFiles:
    """Files by path, each with the check of its content; one that appears later is watched from then on."""

    def __init__(self, files: Mapping[Path, Check], saved: Path) -> None:
        """`saved` is the folder for copies; it is created when it is needed."""
        self._files = files
        self._saved = saved
        self._good: dict[Path, bytes] = {}
        self._stamps: dict[Path, _Stamp] = {}
        self.copies: dict[Path, Path] = {}  # of lost files

    def find_losses(self) -> dict[Path, str]:
        """Return what happened to each file that is not as it was, and save what it had."""
        losses: dict[Path, str] = {}
        for path, check in self._files.items():
            fate = self._look(path, check)
            if fate:
                losses[path] = fate
                self._save(path)
            else:
                self.copies.pop(path, None)
        return losses

    def restore(self, path: Path) -> None:
        """Write the last good content to its place.  Raises OSError."""
        private_files.create_file(path, self._good[path])

    def _look(self, path: Path, check: Check) -> str:
        """Return the fate of a file; "" for one that is good, or that never was."""
        try:
            found = path.lstat()
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if self._stamps.get(path) == stamp:
                return ""
            content = b"" if found.st_size > MAX_BYTES else private_files.read_file(path)
        except (FileNotFoundError, NotADirectoryError):
            self._stamps.pop(path, None)
            return "was removed" if path in self._good else ""
        except OSError as error:
            return f"cannot be read: {error.strerror}" if path in self._good else ""
        known = self._good.get(path)
        is_good = content == known or (check is not is_static and check(content))
        if not is_good and (known is not None or not check(content)):
            self._stamps.pop(path, None)
            return "" if known is None else "was changed"
        self._good[path], self._stamps[path] = content, stamp
        return ""

    def _save(self, path: Path) -> None:
        """Save the last good content once, as well as the disk allows."""
        if path in self.copies:
            return
        copy = self._saved / path.name
        try:
            private_files.make_directory(self._saved)
            private_files.create_file(copy, self._good[path])
        except (OSError, Unavailable):
            return
        self.copies[path] = copy
