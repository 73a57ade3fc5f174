"""Queries of the memory index: facts of the rows, postings, vectors, and the rows of a filter.

The index (`store.vectors`) keeps facts about all items in memory and reads here what changed: the
log of memory says which items, by the number of its entry.  Text stays in the database.

Postings come as one text of row numbers, because a step of SQLite per row would cost more than the
search (see `queries`): 70 ns a row against 500.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple, TypeVar, cast

import apsw
import msgspec

from palyra.core.journal.changes import MemoryFilter, UnembeddedItem
from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.items import VECTORS_DAMAGED, WORDS_DAMAGED
from palyra.core.memory.vectors import StoredVector, VectorSpace, checksum_of
from palyra.errors import Unavailable
from palyra.store.sqlite.decoding import DamageNotes, read_found
from palyra.store.sqlite.memories import (
    VECTORS,
    ItemQueries,
    get_items,
    match_any,
    narrow,
    read_rows,
    select_items,
    vector_row,
)

ITEM_FACTS = (
    "json_array(row, principal, scope, channel, session_id, kind, author, at_ms, expires_ms,"
    " superseded_by IS NULL, never_recall, length(text), previous_row, next_row) AS found"
)

# A component is at most 127 times the scale, and 1 at most.  A vector with another scale is damaged,
# and as good as none.
_SOUND = "length(vector) > 0 AND scale BETWEEN 0 AND 1"
_IN_SPACE = f"embedder = ? AND length(vector) = ? AND {_SOUND}"

T = TypeVar("T")


class MemoryFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Facts of one row, in the order of the query."""

    row: int
    principal: str
    scope: str
    channel: str | None
    session_id: str | None
    kind: str
    author: str | None
    at_ms: int
    expires_ms: int | None
    is_current: int  # 1: no other item supersedes it
    is_hidden: int  # 1: never recalled
    chars: int
    previous_row: int | None
    next_row: int | None


class MemoryChanges(msgspec.Struct, frozen=True, gc=False):
    """Items that changed after an entry of the log; `is_lossy` if some of them are gone."""

    last_entry: int
    rows: list[int]
    is_lossy: bool


class VectorRow(msgspec.Struct, frozen=True, gc=False):
    row: int
    scale: float
    vector: bytes


class CandidateRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An item as ranking needs it, in the order of the query."""

    row: int
    text: str
    author: str | None
    session_id: str | None
    at_ms: int


class IndexedTables(NamedTuple):
    """Tables that an index reads: those of the items, or those of the turns of conversations."""

    items: str
    vectors: str
    text: str  # index
    facts: str  # expression of `MemoryFacts`
    private_author: str | None = None  # whose texts no provider embeds
    indexed: str = "memories"  # table whose rows all have words in the text index
    is_whole: str = "1"  # condition under which they have


ITEM_TABLES = IndexedTables(
    "memories",
    "memory_vectors",
    "memory_fts",
    ITEM_FACTS,
    is_whole="coalesce((SELECT row >= through_row FROM memory_mark), TRUE)",
)
PROVED_ENTRIES, PROVED_WORDS = 16, 6  # of a proof by searches
_WORD = re.compile(r"(?<!\w)[a-z]{3,16}(?!\w)")


class IndexQueries(ABC):
    """Queries of one index; see `store.vectors.index.MemorySource`."""

    tables = ITEM_TABLES
    damaged: DamageNotes  # found by these queries

    @abstractmethod
    def _read(self, query: Callable[[apsw.Connection], T]) -> T: ...

    def last_memory_entry(self) -> int:
        """Return the number of the last entry of the log; 0 without one."""
        statement = "SELECT coalesce(max(entry), 0) FROM memory_log"
        last: int = self._read(lambda c: c.execute(statement).get)
        return last

    def list_memory_changes(self, after_entry: int) -> MemoryChanges:
        """Return the items with a log entry after this one, and the last entry."""
        last = self.last_memory_entry()
        if last == after_entry:
            return MemoryChanges(last, [], is_lossy=False)
        changed = self._read(
            lambda c: read_rows(
                c,
                "SELECT json_array(l.memory_id, m.row) AS found FROM (SELECT DISTINCT memory_id"
                " FROM memory_log WHERE entry > ? AND entry <= ?) AS l"
                " LEFT JOIN memories AS m USING (memory_id)",
                (after_entry, last),
            )
        )
        rows = [row for _, row in changed if row is not None]
        return MemoryChanges(last, rows, is_lossy=len(rows) < len(changed))

    def list_memory_facts(self, *, after_row: int, limit: int) -> list[MemoryFacts]:
        """Return the facts of the next rows, in order."""
        return self._read_facts("row > ? ORDER BY row LIMIT ?", (after_row, limit))

    def get_memory_facts(self, rows: Sequence[int]) -> list[MemoryFacts]:
        """Return the facts of those of the rows that exist, in order."""
        return self._read_facts(
            "row IN (SELECT value FROM json_each(?)) ORDER BY row", (_json(rows),)
        )

    def list_memory_rows(self) -> str:
        """Return the numbers of all rows, separated by commas."""
        return self._read_text(f"SELECT group_concat(row) FROM {self.tables.items}", ())  # noqa: S608 - only literals of this package

    def find_index_damage(self) -> str:
        """Check the text index by itself, against its rows and by a search, and each vector.

        Return "" if all are sound; otherwise the text starts with `WORDS_DAMAGED` or `VECTORS_DAMAGED`.
        Reads the whole text index and all vectors.
        """
        for find, part in (
            (find_text_damage, WORDS_DAMAGED),
            (find_vector_damage, VECTORS_DAMAGED),
        ):
            try:
                damage = self._read(partial(find, tables=self.tables))
            except Unavailable as error:
                damage = error.message
            if damage:
                return f"{part}: {damage}"
        return ""

    def list_matching_rows(self, wanted: MemoryFilter) -> str:
        """Return the numbers of the rows that match the filter, separated by commas."""
        where, values = narrow(select_items(), wanted).condition
        return self._read_text(
            f"SELECT group_concat(row) FROM {self.tables.items} WHERE {where}",  # noqa: S608 - only literals of this package
            values,
        )

    def is_text_whole(self) -> bool:
        """True unless the text index is being made, so that rows may lack their words."""
        is_whole = f"SELECT {self.tables.is_whole}"
        return bool(self._read(lambda c: c.execute(is_whole).get))

    def list_postings(
        self, column: str, words: Sequence[str], limit: int, *, after_row: int = 0
    ) -> str:
        """Return the newest rows with one of the words in the column, separated by commas."""
        match = match_any(words)
        if not match:
            return ""
        return self._read_text(
            f"SELECT group_concat(rowid) FROM (SELECT rowid FROM {self.tables.text}"  # noqa: S608 - only literals of this package
            f" WHERE {self.tables.text} MATCH ? AND rowid > ? ORDER BY rowid DESC LIMIT ?)",
            (f"{{{column}}} : ({match})", after_row, limit),
        )

    def list_candidates(self, wanted: MemoryFilter, rows: Sequence[int]) -> list[CandidateRow]:
        """Return those of the rows that match the filter now."""
        return self._read(
            lambda c: self._list_matching(
                c, CandidateRow, "row, text, author, session_id, at_ms", wanted, rows
            )
        )

    def get_memories(
        self, wanted: MemoryFilter, rows: Sequence[int]
    ) -> list[tuple[int, MemoryRecord]]:
        """Return the items of those of the rows that match the filter now."""

        def read(connection: apsw.Connection) -> list[tuple[int, MemoryRecord]]:
            ids = self._list_matching(connection, list[Any], "row, memory_id", wanted, rows)
            return get_items(connection, self.tables.items, dict(ids), self.damaged)

        return self._read(read)

    def _list_matching(
        self,
        connection: apsw.Connection,
        kind: type[T],
        columns: str,
        wanted: MemoryFilter,
        rows: Sequence[int],
    ) -> list[T]:
        where, values = narrow(select_items(), wanted).condition
        # CROSS JOIN fixes the order: SQLite would read all items of the principal first.
        statement = (
            f"SELECT json_array({columns}) AS found FROM json_each(?) AS wanted"  # noqa: S608 - only literals of this package
            f" CROSS JOIN {self.tables.items} ON row = wanted.value WHERE {where}"
        )
        return read_found(connection, kind, statement, (_json(rows), *values))

    def find_dimensions(self, embedder: str) -> int | None:
        """Return the size of the newest vector of this embedder; None without one."""
        statement = (
            f"SELECT length(vector) FROM {self.tables.vectors} WHERE embedder = ?"  # noqa: S608 - only literals of this package
            f" AND {_SOUND} ORDER BY row DESC LIMIT 1"
        )
        found: int | None = self._read(lambda c: c.execute(statement, (embedder,)).get)
        return found

    def list_vectors(self, space: VectorSpace, *, after_row: int, limit: int) -> list[VectorRow]:
        """Return the next vectors of the space, in the order of their rows."""
        return self._read_vectors(
            f"{_IN_SPACE} AND row > ? ORDER BY row LIMIT ?", (*space, after_row, limit)
        )

    def get_vectors(self, space: VectorSpace, rows: Sequence[int]) -> list[VectorRow]:
        """Return the vectors of the space that the rows have, in order."""
        return self._read_vectors(
            f"{_IN_SPACE} AND row IN (SELECT value FROM json_each(?)) ORDER BY row",  # noqa: S608 - only literals of this file
            (*space, _json(rows)),
        )

    def list_vector_rows(self, space: VectorSpace) -> str:
        """Return the rows that have a vector of the space, separated by commas."""
        return self._read_text(
            f"SELECT group_concat(row) FROM {self.tables.vectors} WHERE {_IN_SPACE}",  # noqa: S608 - only literals of this package
            space,
        )

    @property
    def private_author(self) -> str | None:
        """Author whose texts no provider embeds; None for no such author."""
        return self.tables.private_author

    def get_unembedded(self, rows: Sequence[int]) -> list[UnembeddedItem]:
        """Return the texts of those of the rows that a search may return now, newest first."""
        found = self._read(
            lambda c: read_rows(
                c,
                "SELECT json_array(row, principal, text_hash, coalesce(text, '')) AS found"  # noqa: S608 - only literals of this package
                f" FROM {self.tables.items} WHERE superseded_by IS NULL AND NOT never_recall"
                " AND row IN (SELECT value FROM json_each(?)) ORDER BY row DESC",
                (_json(rows),),
            )
        )
        return list(starmap(UnembeddedItem, found))

    def _read_facts(self, where: str, values: tuple[Any, ...]) -> list[MemoryFacts]:
        statement = f"SELECT {self.tables.facts} FROM {self.tables.items} WHERE {where}"  # noqa: S608 - only literals of this package
        return self._read(lambda c: read_found(c, MemoryFacts, statement, values))

    def _read_text(self, statement: str, values: Sequence[Any]) -> str:
        return self._read(lambda c: c.execute(statement, tuple(values)).get) or ""

    def _read_vectors(self, where: str, values: tuple[Any, ...]) -> list[VectorRow]:
        statement = f"SELECT row, scale, vector FROM {self.tables.vectors} WHERE {where}"  # noqa: S608 - only literals of this package
        found: list[Any] = self._read(lambda c: c.execute(statement, values).fetchall())
        return list(starmap(VectorRow, found))


class MemorySearchQueries(IndexQueries, ItemQueries):
    """Queries of the memory and its index, in one file."""


def _json(rows: Sequence[int] | Sequence[str]) -> str:
    return msgspec.json.encode(rows).decode()


def append_vectors(
    connection: apsw.Connection, embedder: str, vectors: Sequence[tuple[int, StoredVector]]
) -> None:
    """Write vectors of rows, in the caller's transaction.  Raises apsw.ConstraintError."""
    VECTORS.append(
        connection,
        [vector_row(row, embedder, vector.scale, vector.values) for row, vector in vectors],
    )


def find_vector_damage(connection: apsw.Connection, tables: IndexedTables) -> str:
    """Return how many vectors do not have their checksum; "" if all have, or have none."""
    if not connection.execute(
        "SELECT 1 FROM pragma_table_info(?) WHERE name = 'crc'", (tables.vectors,)
    ).get:
        return ""  # a journal of an older version, which a start migrates
    damaged = count = 0
    for row, embedder, scale, values, crc in connection.execute(
        f"SELECT row, embedder, scale, vector, crc FROM {tables.vectors}"  # noqa: S608 - a literal of this package
    ):
        damaged += crc not in {None, checksum_of(row, embedder, scale, values)}
        count += 1
    return f"{damaged} of {count} have other values than were stored" if damaged else ""


def find_text_damage(connection: apsw.Connection, tables: IndexedTables) -> str:
    """Return what is wrong with a text index; "" if its check, its rows and searches agree."""
    # The check covers a virtual table since SQLite 3.44: https://www.sqlite.org/pragma.html
    finding = connection.execute(f"PRAGMA integrity_check({tables.text})").get
    if finding != "ok":
        return " ".join(str(finding).split())
    missing = connection.execute(
        f"SELECT count(*) FROM {tables.indexed} WHERE {tables.is_whole}"  # noqa: S608 - only literals of this package
        f" AND row NOT IN (SELECT id FROM {tables.text}_docsize)"
    ).get
    if missing:
        return f"{missing} entries are missing"
    sample = connection.execute(
        f"SELECT row, CAST(lower(text) AS BLOB) FROM {tables.items} WHERE {tables.is_whole}"  # noqa: S608 - only literals of this package
        f" AND row IN (SELECT row FROM {tables.indexed} ORDER BY random() LIMIT ?)",
        (PROVED_ENTRIES,),
    ).fetchall()
    for row, text in sample:
        for word in sorted(
            set(_WORD.findall(cast("bytes", text).decode("utf-8", "replace") if text else ""))
        )[-PROVED_WORDS:]:
            found = connection.execute(
                f"SELECT 1 FROM {tables.text} WHERE {tables.text} MATCH ? AND rowid = ?",  # noqa: S608 - only literals of this package
                (match_any([word]), row),
            ).get
            if not found:
                return f"a search for a word of entry {row} does not find it"
    return ""
