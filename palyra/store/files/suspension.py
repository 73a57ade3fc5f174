"""The suspension of a daemon as a file of its data directory, which a restart finds.

Never: takes a damaged file for a daemon that is not suspended.
"""

from pathlib import Path

import msgspec

from palyra.core.suspension import Suspension
from palyra.errors import Unavailable
from palyra.store.files import private_files

FILE_NAME = "suspended.json"


class SuspensionFile:
    """The file; all methods block."""

    def __init__(self, data: Path) -> None:
        self._path = data / FILE_NAME

    def read(self) -> Suspension | None:
        """Return the stored suspension, None without one.  Raises Unavailable.

        A damaged file is a suspension by an unknown operator.
        """
        text = private_files.read_secret(self._path)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=Suspension)
        except msgspec.MsgspecError:
            changed_ms = self._path.stat().st_mtime_ns // 1_000_000
            return Suspension(by="?", since_ms=changed_ms, reason=f"{self._path} is damaged")

    def write(self, suspension: Suspension | None) -> None:
        """Store the suspension, durably; None removes it.  Raises Unavailable."""
        try:
            if suspension is None:
                self._path.unlink(missing_ok=True)
            else:
                private_files.create_file(self._path, msgspec.json.encode(suspension))
        except OSError as error:
            raise Unavailable(f"{self._path}: cannot be written: {error.strerror}") from None
