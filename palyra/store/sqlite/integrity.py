"""Page check: consistency of the database file after an unclean shutdown.

SQLite's write-ahead log makes a crash harmless; pages are damaged by storage that acknowledged
writes it lost, or by another program.  So a start does not wait for a check of the whole file: the
journal opens and serves while a thread checks all pages.  (The end of the journal is verified at
every start anyway.)  Damage is recorded in a marker file next to the database.  While that file
exists, an opening runs the check first and fails until the check passes.
Why: docs/decisions/0010-background-integrity-check.md.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock

import apsw

from palyra.errors import Unavailable
from palyra.store.files import private_files

STEPS = 1_000  # pages or cells between two polls of the stop flag: about a millisecond


class PageCheck:
    """The result of the page check of one database, in memory and in its marker file."""

    def __init__(self, path: Path) -> None:
        self.note_path = path.with_name(f"{path.stem}.suspect")
        self.is_walk_due = False  # no shutdown counts as clean before it is done
        self._damage: str | None = None  # found in this process
        self._walking = Lock()
        self._is_stopped = False

    def require_sound(self, connection: apsw.Connection) -> None:
        """Check at once if the marker file exists.  Raises Unavailable for damaged pages."""
        self._is_stopped = False
        if self._damage is None and self.note_path.exists():
            self._damage = _find_damage(connection)
            if self._damage is None:
                self.note_path.unlink()
        if self._damage is not None:
            raise Unavailable(_describe(self._damage))

    def walk(self, connection: apsw.Connection, is_stopped: Callable[[], bool]) -> str | None:
        """Check all pages; return a description of the damage, None if there is none or if stopped.

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
            with suppress(OSError):  # the finding itself ends this process
                private_files.create_file(self.note_path, f"{damage}\n".encode())
            return _describe(damage)
        self.is_walk_due = self._is_stopped
        return None

    @property
    def finding(self) -> str | None:
        """Damage that a check of this process found."""
        return None if self._damage is None else _describe(self._damage)

    def stop(self) -> None:
        """Stop a running check; none starts before the next `require_sound`."""
        self._is_stopped = True
        with self._walking:
            pass


def _find_damage(connection: apsw.Connection) -> str | None:
    """Return the first finding of SQLite's own check of all pages."""
    try:
        finding: str = connection.execute("PRAGMA quick_check(1)").get
    except (apsw.CorruptError, apsw.IOError, apsw.NotADBError) as error:
        return str(error)
    return None if finding == "ok" else " ".join(finding.split())


def _describe(damage: str) -> str:
    return f"journal: the database is damaged ({damage}): restore it from a backup"
