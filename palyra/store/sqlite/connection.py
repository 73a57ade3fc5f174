"""Connections to the journal's SQLite file: settings, errors, transactions, bulk inserts.

Every setting is read back: a pragma that silently had no effect (a read-only directory, a file
system without locks) must stop the daemon, not weaken it.
Source of the settings: https://www.sqlite.org/wal.html and /pragma.html.

Every step of SQLite releases the interpreter lock and must win it back from a busy main thread.
`executemany` steps once per row; one statement with many rows (`BulkInsert`) steps once.
"""

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from palyra.errors import DiskFull, Unavailable
from palyra.store.files.disk import Disk
from palyra.store.files.free_space import NO_ROOM, is_full

Synchronous = Literal["full", "normal"]

# Errors of the storage.  SQLError is one of them because every statement of this program has a test:
# if one is invalid, the schema of the file was changed from outside.
STORAGE_ERRORS = (
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.IOError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.NotADBError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.ReadOnlyError,
    apsw.SQLError,
)
_UNEXPLAINED = (apsw.IOError, apsw.CantOpenError)  # a failed sync, a quota, a log without room
# Two writers overlap only briefly, when an actor restarts while its last call still runs.
BUSY_TIMEOUT_MS = 5_000
_LEVELS = {"normal": 1, "full": 2}
_CACHED_STATEMENTS = 256  # one per table and chunk size, and the reads; far below this


@contextmanager
def storage_errors(doing: str, path: Path | None = None) -> Generator[None, None, None]:
    """Raise storage errors as Unavailable, with `doing` in the message.

    With the `path` of the database, an error that SQLite does not explain is DiskFull if the file
    system of that path is full.
    """
    try:
        yield
    except apsw.BusyError as error:
        raise Unavailable(f"journal: {doing}: it is in use by another process") from error
    except apsw.FullError as error:
        raise DiskFull(f"journal: {doing}: {error}: free space on its disk") from error
    except STORAGE_ERRORS as error:
        has_no_room = isinstance(error, _UNEXPLAINED) and path is not None and is_full(path.parent)
        kind = DiskFull if has_no_room else Unavailable
        raise kind(f"journal: {doing}: {error}") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Unavailable(f"journal: {doing}: a record is damaged: {error}") from error
    except OSError as error:
        kind = DiskFull if error.errno in NO_ROOM else Unavailable
        raise kind(f"journal: {doing}: {_describe(error, path)}") from error


def _describe(error: OSError, path: Path | None) -> str:
    """Return the error's reason, behind the name of its file unless that is the database."""
    reason = error.strerror or str(error)
    is_other = isinstance(error.filename, str) and error.filename != str(path)
    return f"{error.filename}: {reason}" if is_other else reason


READER_CACHE_KIB = 256  # of each of some twenty readers; other pages are in the kernel's cache


def open_writer(path: Path, disk: Disk, synchronous: Synchronous) -> apsw.Connection:
    """Open the writing connection, with every setting read back.  Raises Unavailable."""
    disk.touch_file(path)  # SQLite gives the write-ahead log the mode of the database
    connection = _connect(path, disk, apsw.SQLITE_OPEN_READWRITE)
    wanted: list[tuple[str, str | int, str | int]] = [
        ("locking_mode", "normal", "normal"),
        ("journal_mode", "wal", "wal"),
        ("synchronous", synchronous, _LEVELS[synchronous]),
        ("foreign_keys", "on", 1),
        ("recursive_triggers", "on", 1),  # else REPLACE deletes a row without firing its trigger
        ("trusted_schema", "off", 0),
        ("cell_size_check", "on", 1),
        ("temp_store", "memory", 2),
        ("secure_delete", "on", 1),  # overwrite what is deleted: a forgotten item leaves no bytes
        ("wal_autocheckpoint", 0, 0),  # checkpoints are made between commits, not inside one
        ("journal_size_limit", 67_108_864, 67_108_864),  # truncate a log that has grown
    ]
    for name, value, expected in wanted:
        _set_pragma(connection, name, value, expected)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection


def open_reader(path: Path, disk: Disk) -> apsw.Connection:
    """Open a read-only connection."""
    connection = _connect(path, disk, apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    _set_pragma(connection, "trusted_schema", "off", 0)
    _set_pragma(connection, "cache_size", -READER_CACHE_KIB, -READER_CACHE_KIB)
    return connection


def _connect(path: Path, disk: Disk, flags: int) -> apsw.Connection:
    connection = apsw.Connection(
        str(path), flags=flags, vfs=disk.vfs, statementcachesize=_CACHED_STATEMENTS
    )
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    return connection


def _set_pragma(
    connection: apsw.Connection, name: str, value: str | int, expected: str | int
) -> None:
    connection.execute(f"PRAGMA {name} = {value}").get  # noqa: B018 - runs the statement
    found = connection.pragma(name)
    if found != expected:
        raise Unavailable(f"journal: PRAGMA {name} is {found!r}, must be {expected!r}")


@contextmanager
def transaction(connection: apsw.Connection) -> Generator[None, None, None]:
    """Commit all writes of the block or none; waits for the write lock at its start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class Readers:
    """Pool of reading connections; each is used by one thread at a time."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._idle: deque[apsw.Connection] = deque()  # its append and pop are atomic
        self._is_open = True

    @contextmanager
    def borrow(self) -> Generator[apsw.Connection, None, None]:
        """Lend a connection for the block.  Raises Unavailable once closed."""
        if not self._is_open:
            raise Unavailable("journal: it is closed")
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = open_reader(self._path, self._disk)
        try:
            yield connection
        finally:
            self._take_back(connection)

    def close(self) -> None:
        """Close the idle connections now, the borrowed ones when they are returned."""
        self._is_open = False
        self._close_idle()

    def _take_back(self, connection: apsw.Connection) -> None:
        self._idle.append(connection)
        if not self._is_open:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


SQLValue = None | int | float | str | bytes
Row = tuple[SQLValue, ...]

# Each size is one cached statement.  256 rows of ten columns stay below SQLite's limit of 32 766
# parameters and below the statement length that apsw still caches.
CHUNKS = (256, 64, 16, 4, 1)


class BulkInsert:
    """`INSERT INTO table (columns) VALUES …` for any number of rows; `suffix` is its ON CONFLICT."""

    __slots__ = ("_statements",)

    def __init__(self, table: str, columns: Sequence[str], suffix: str = "") -> None:
        places = f"({', '.join('?' * len(columns))})"
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "  # noqa: S608 - names of our own tables
        self._statements = tuple(
            (size, head + ", ".join([places] * size) + f" {suffix}") for size in CHUNKS
        )

    def append(self, connection: apsw.Connection, rows: Sequence[Row]) -> None:
        """Insert the rows in order.  Raises apsw.ConstraintError."""
        start = 0
        for size, statement in self._statements:
            while len(rows) - start >= size:
                values = tuple(chain.from_iterable(rows[start : start + size]))
                connection.execute(statement, values)
                start += size
