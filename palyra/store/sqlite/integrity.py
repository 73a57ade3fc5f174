"""Whether the pages of the database fit together, after an end that was not clean.

SQLite's log makes a crash harmless: what spoils pages is storage that lied, or a stranger's write.
So nobody waits for a walk over the whole file.  The journal opens, serves, and is walked meanwhile;
the part of it that is verified at every start is read at once all the same.  Damage that the walk
finds is noted in a file beside the database: the journal is not opened again before a walk, which
then comes first, finds everything in order.  Why: docs/decisions/0010-the-file-is-walked-beside-the-work.md.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock

import apsw

from palyra.errors import Unavailable
from palyra.store.files import private_files

STEPS = 1_000  # pages or cells between two looks whether to go on: about a millisecond


class PageCheck:
    """What is known of one database's pages, in memory and in the note beside it."""

    def __init__(self, path: Path) -> None:
        self.note_path = path.with_name(f"{path.stem}.suspect")
        self.is_walk_due = False  # until it was done no end counts as clean
        self._damage: str | None = None  # found in this process
        self._walking = Lock()
        self._is_stopped = False

    def require_sound(self, connection: apsw.Connection) -> None:
        """Walk at once if there is a note.  Raises Unavailable when the pages do not fit."""
        self._is_stopped = False
        if self._damage is None and self.note_path.exists():
            self._damage = _find_damage(connection)
            if self._damage is None:
                self.note_path.unlink()
        if self._damage is not None:
            raise Unavailable(_describe(self._damage))

    def walk(self, connection: apsw.Connection, is_stopped: Callable[[], bool]) -> str | None:
        """What is wrong, in words; None when nothing is, or when it was stopped before the end.

        Reads the whole file, about 1 GB/s from memory, and closes the connection.
        """
        with self._walking, closing(connection):
            connection.set_progress_handler(lambda: self._is_stopped or is_stopped(), STEPS)
            try:
                damage = None if self._is_stopped else _find_damage(connection)
            except apsw.InterruptError:
                return None
        if damage is not None:
            self._damage = damage
            with suppress(OSError):  # the finding itself is not lost: it ends this process
                private_files.create_file(self.note_path, f"{damage}\n".encode())
            return _describe(damage)
        self.is_walk_due = self._is_stopped
        return None

    @property
    def finding(self) -> str | None:
        """What a walk of this process found."""
        return None if self._damage is None else _describe(self._damage)

    def stop(self) -> None:
        """End a walk under way; none begins before the next `require_sound`."""
        self._is_stopped = True
        with self._walking:
            pass


def _find_damage(connection: apsw.Connection) -> str | None:
    """The first finding of SQLite's own walk over all pages."""
    try:
        finding: str = connection.execute("PRAGMA quick_check(1)").get
    except (apsw.CorruptError, apsw.IOError, apsw.NotADBError) as error:
        return str(error)
    return None if finding == "ok" else " ".join(finding.split())


def _describe(damage: str) -> str:
    return f"journal: the database is damaged ({damage}): restore it from a backup"
