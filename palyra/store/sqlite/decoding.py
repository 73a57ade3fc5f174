"""Decoding of stored records and rows: the only place of the store that does it.

A record that does not decode costs itself: it is left out of every list, and `DamageNotes` notes it
by table and key.  Its bytes stay where they are.  A damaged record grants nothing, since no query
finds it.

Reading takes one step of SQLite per query: the rows are joined into one JSON array inside the
database and decoded at once.  Every step releases the interpreter lock and has to win it back
from a busy event loop, so a step per row would cost more than the rows do.  Only where the array
does not decode, or SQLite cannot make it, are the rows read one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from palyra.core.journal.records import Record
from palyra.store.sqlite.connection import Row, SQLValue

R = TypeVar("R", bound=Record)
T = TypeVar("T")

NO_LIMIT = -1  # LIMIT -1 reads every row
MAX_DAMAGED = 1_000  # each is an incident


class ColumnsDiffer(Exception):
    """The columns of a row are not those of its record: a query may have taken it for another."""

    def __init__(self) -> None:
        super().__init__("its columns are not those of its record")


# Errors of a text that is no record: of its JSON, its types, its UTF-8, its depth; of no text.
UNDECODED = (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError, ColumnsDiffer)
# Errors of SQLite on a value in the row: malformed JSON, a blob in JSON.
_UNREADABLE = (apsw.SQLError, apsw.MismatchError)


class DamageNotes:
    """Records that did not decode when they were last read, as `table:key`.  Thread-safe."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def note(self, name: str) -> None:
        """Add one; at most `MAX_DAMAGED` are kept."""
        if len(self._names) < MAX_DAMAGED:
            self._names[name] = None

    def names(self) -> tuple[str, ...]:
        """Return them, in the order in which they were found."""
        return tuple(self._names.copy())


class RecordRows(NamedTuple):
    """Rows with a column `record`: a table or view, its key, and the rows that are meant."""

    table: str
    key: Sequence[str]
    where: str
    values: Sequence[SQLValue]
    order: str
    limit: int = NO_LIMIT
    row: str = "rowid"  # column that identifies a row
    # Columns that must be those of the record, and how it makes them; else each row is trusted.
    columns: Sequence[str] = ()
    make: Callable[[Any, str], Row] | None = None


def read_records(
    connection: apsw.Connection,
    kind: type[R],
    source: RecordRows,
    damaged: DamageNotes,
) -> list[R]:
    """Return the records of the rows in this order; those that do not decode go to `damaged`."""
    if source.make is not None:
        return _read_one_by_one(connection, kind, source, damaged)
    try:
        found, rows = connection.execute(
            "SELECT CAST('[' || group_concat(record, ',') || ']' AS BLOB), count(*) FROM"  # noqa: S608 - only literals of this package
            f" (SELECT record FROM {source.table} WHERE {source.where}"
            f" ORDER BY {source.order} LIMIT ?)",
            (*source.values, source.limit),
        ).get
        records: list[R] = [] if found is None else msgspec.json.decode(found, type=list[kind])  # type: ignore[valid-type]  # chosen at run time
    except (*UNDECODED, *_UNREADABLE):
        return _read_one_by_one(connection, kind, source, damaged)
    if len(records) != rows:  # an empty record, or one of several objects with commas
        return _read_one_by_one(connection, kind, source, damaged)
    return records


def _read_one_by_one(
    connection: apsw.Connection,
    kind: type[R],
    source: RecordRows,
    damaged: DamageNotes,
) -> list[R]:
    """Return as many records as the limit that decode, whatever is between them."""
    keys = ", ".join(f"CAST({column} AS BLOB)" for column in source.key)
    rows = connection.execute(
        f"SELECT {source.row}, {keys} FROM {source.table} WHERE {source.where} ORDER BY {source.order}",  # noqa: S608 - only literals of this package
        tuple(source.values),
    )
    found = list[R]()
    for row, *key in rows:
        if len(found) == source.limit:
            break
        try:
            ((text, *columns),) = connection.execute(
                f"SELECT {', '.join(('CAST(record AS BLOB)', *source.columns))} FROM {source.table}"  # noqa: S608 - only literals of this package
                f" WHERE {source.row} = ?",
                (row,),
            ).fetchall()
            found.append(decode_row(kind, text, columns, source.make))
        except (*UNDECODED, *_UNREADABLE):
            damaged.note(name_of(source.table, key))
    return found


def decode_row(
    kind: type[T],
    text: Any,  # noqa: ANN401 - of SQLite: bytes or None
    columns: Sequence[Any],
    make: Callable[[Any, str], Row] | None,
) -> T:
    """Decode the record of a row; compare its columns, if it makes them.  Raises one of `UNDECODED`."""
    record = decode_record(kind, text)
    if make is not None and [*make(record, "")][:-1] != [*columns]:
        raise ColumnsDiffer
    return record


def decode_record(kind: type[T], text: Any) -> T:  # noqa: ANN401 - of SQLite: bytes or None
    """Decode one record.  Raises one of `UNDECODED`."""
    return msgspec.json.decode(text or b"", type=kind)


def name_of(table: str, key: Sequence[Any]) -> str:
    """Return the name of a row in incidents: its table and its key."""
    table = "tape" if table == "turn_items" else table  # a view of the tape
    parts = (
        each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in key
    )
    return f"{table}:{':'.join(parts)}"


def read_found(
    connection: apsw.Connection,
    kind: type[T],
    statement: str,
    values: Sequence[Any] | Mapping[str, Any] = (),
) -> list[T]:
    """Return the rows of a SELECT of one JSON value a row, called `found`, in one step of SQLite.

    Those that do not decode, and those that are NULL, are left out.
    """
    text = connection.execute(
        f"SELECT CAST('[' || group_concat(found, ',') || ']' AS BLOB) FROM ({statement})",  # noqa: S608 - only literals of this package
        values,
    ).get
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]  # the same
    except UNDECODED:
        return list(_read_sound(connection, kind, statement, values))


def _read_sound(
    connection: apsw.Connection,
    kind: type[T],
    statement: str,
    values: Sequence[Any] | Mapping[str, Any],
) -> Iterator[T]:
    rows = connection.execute(
        f"SELECT CAST(found AS BLOB) FROM ({statement})",  # noqa: S608 - only literals of this package
        values,
    )
    for (text,) in rows:
        try:
            yield decode_record(kind, text)
        except UNDECODED:
            continue
