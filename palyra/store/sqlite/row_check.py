"""Check of stored rows: a record decodes, and its columns are the fields that they copy.

Queries search by the columns and decode the record, so a row whose two halves differ can be found
in the place of another.  A daemon checks some rows a sweep, `palyra doctor` all of a stopped home.
A row of a tape is checked by its chain hash.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apsw
import msgspec

from palyra.core.journal.purged_row import read_tombstone
from palyra.core.journal.records import MemoryRecord
from palyra.core.journal.tape_row import GENESIS, link
from palyra.errors import InvariantBroken
from palyra.store.sqlite.connection import Row
from palyra.store.sqlite.decoding import UNDECODED, decode_row, name_of
from palyra.store.sqlite.queries import TABLES
from palyra.store.sqlite.tapes import Tapes

PAGE_ROWS = 1_000  # numbers of rows, read at a time


class CheckedTable(NamedTuple):
    """A table of records: the columns of its key, all that copy fields, and how a record makes them."""

    name: str
    kind: type[msgspec.Struct]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    make: Callable[[Any, str], Row] | None  # None: the record is made of the columns
    row: str = "rowid"


CHECKED: tuple[CheckedTable, ...] = (
    *(
        CheckedTable(each.name, kind, each.key, each.columns, each.row)
        for kind, each in TABLES.items()
    ),
    CheckedTable("memories", MemoryRecord, ("memory_id",), ("memory_id",), None, "row"),
    CheckedTable(
        "memory_versions", MemoryRecord, ("memory_id", "revision"), ("memory_id", "revision"), None
    ),
)


class Fault(NamedTuple):
    """A damaged row, and what is wrong with it."""

    name: str  # `table:key`
    why: str


def list_rows(
    connection: apsw.Connection, table: CheckedTable, after: int, limit: int
) -> list[int]:
    """Return the next rows of the table."""
    found = connection.execute(
        f"SELECT {table.row} FROM {table.name} WHERE {table.row} > ? ORDER BY {table.row} LIMIT ?",  # noqa: S608 - literals of this package
        (after, limit),
    )
    return [row for (row,) in found]


def find_faults(connection: apsw.Connection, table: CheckedTable) -> Iterator[Fault | None]:
    """Yield the fault of each row of the table, None for a sound one.  Raises as `find_fault`."""
    after = -1
    while rows := list_rows(connection, table, after, PAGE_ROWS):
        yield from (find_fault(connection, table, row) for row in rows)
        after = rows[-1]


def find_fault(connection: apsw.Connection, table: CheckedTable, row: int) -> Fault | None:
    """Return what is wrong with the row; None for a sound one, or for none.

    Raises apsw errors of a damaged page.
    """
    where = f"FROM {table.name} WHERE {table.row} = ?"
    try:
        found = connection.execute(
            f"SELECT CAST(record AS BLOB), {', '.join(table.columns)} {where}",
            (row,),
        ).fetchall()
        for text, *columns in found:
            decode_row(table.kind, text, columns, table.make)
    except (*UNDECODED, apsw.SQLError) as error:
        return Fault(_name(connection, table, row), str(error))
    return None


def _name(connection: apsw.Connection, table: CheckedTable, row: int) -> str:
    keys = ", ".join(f"CAST({column} AS BLOB)" for column in table.key)
    found = connection.execute(
        f"SELECT {keys} FROM {table.name} WHERE {table.row} = ?",  # noqa: S608 - as above
        (row,),
    ).fetchall()
    return name_of(table.name, found[0] if found else (f"row {row}",))


def find_tape_faults(
    connection: apsw.Connection, after: int, limit: int
) -> tuple[list[Fault], int]:
    """Return the faults of the next events of all tapes, and the last position; 0 at their end.

    An event is compared with its chain hash; verification also finds what is missing.
    """
    tapes, faults = Tapes(connection), list[Fault]()
    found = tapes.scan(after=after, through=after + limit)
    for position, digest, row in found:
        before = tapes.find_before(row.run_id, row.seq)
        if read_tombstone(row.data) is not None or (before is None and row.seq):
            continue  # purged, or without the event that its hash covers
        try:
            is_sound = link(GENESIS if before is None else before.hash, position, row) == digest
        except (InvariantBroken, TypeError):
            is_sound = False
        if not is_sound:
            faults.append(Fault(f"tape:{row.run_id}:{row.seq}", "it does not match its chain hash"))
    last = connection.execute("SELECT coalesce(max(position), 0) FROM tape").get
    return faults, after + limit if after + limit < last else 0


class RowSweep:
    """Check of all rows in steps: of each table in turn, then of the tapes, then again."""

    def __init__(self) -> None:
        self._table = 0  # of `CHECKED`; behind the last one are the tapes
        self._after = -1

    def step(self, connection: apsw.Connection, limit: int) -> list[Fault]:
        """Check the next rows, at most `limit` records or events.  Raises apsw errors of the pages."""
        if self._table == len(CHECKED):
            faults, through = find_tape_faults(connection, max(self._after, 0), limit)
            self._table, self._after = (self._table, through) if through else (0, -1)
            return faults
        table = CHECKED[self._table]
        rows = list_rows(connection, table, self._after, limit)
        if rows:
            self._after = rows[-1]
        else:
            self._table, self._after = self._table + 1, -1
        return [fault for row in rows if (fault := find_fault(connection, table, row))]
