"""Items of memory: their rows, their neighbours, the text index, and the queries on them.

Writing takes a fixed number of statements for any number of items (see `connection`), and is one
transaction with the rest of its change:

1. The rows.  Triggers refuse a revision out of turn and keep the revision before.
2. The neighbours.  Items of one conversation form a list in the order of their time; a new item is
   linked between its neighbours, a deleted one is cut out.
3. The text index, from the rows of the changed items.  Search adds the scores of neighbours itself.
4. The log, one line for each change.

A change of an item's text deletes its vector; the embedding task makes the next one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import groupby, islice
from math import log
from operator import itemgetter
from typing import Any, TypeAlias

import apsw
import msgspec

from palyra.core.journal.changes import (
    MemoryCounts,
    MemoryFilter,
    MemoryLogLine,
    ScoredMemory,
)
from palyra.core.journal.records import (
    FROM_THE_START,
    IndexedItem,
    MemoryRecord,
    MemoryReindex,
    MemoryRemoval,
    MemoryUseRecord,
    MemoryVectors,
    Record,
)
from palyra.core.memory.changes import key_words
from palyra.core.memory.fields import (
    ASKED_KEYS,
    duplicate_keys,
    is_unspaced_character,
    search_fields,
    searchable,
)
from palyra.core.memory.vectors import checksum_of
from palyra.errors import InvariantBroken
from palyra.store.sqlite.connection import BulkInsert, Row, transaction
from palyra.store.sqlite.decoding import DamageNotes, read_found
from palyra.store.sqlite.queries import Queries, Select

MERGE_PAGES = 32  # written by one step: some 20 ms
_TEXT_INDEXES = ("memory_fts", "turn_fts")
_MERGED_CHANGES = 2  # of a step that had something to merge
EXPIRED_AT_ONCE = 200  # deleted by one seal, so that a commit never waits long
_FTS_WEIGHTS = "1.0, 0.5"  # of text, when
REINDEX_ROWS = 256  # of one change, so that no commit waits long
ALIKE_POSTINGS = 100  # of one word of a search for duplicates, the newest
KEYED_CHARS = 2_000  # of a text, whose terms are in the search for duplicates
ALIKE_ROWS = 32  # with the rarest common words, which are read
_MAX_WORDS = 64  # of one query

# Columns that a record has under the same name.
_COLUMNS = MemoryRecord.__struct_fields__
_JSON = ("tags", "lineage")
_KEY = "memory_id"
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name != _KEY)
_ITEMS = BulkInsert("memories", _COLUMNS, f"ON CONFLICT ({_KEY}) DO UPDATE SET {_CHANGES}")
_LOG = BulkInsert("memory_log", ("principal", "memory_id", "action", "at_ms", "by"))
VECTORS = BulkInsert(
    "memory_vectors",
    ("row", "embedder", "scale", "vector", "crc"),
    "ON CONFLICT (row) DO UPDATE SET embedder = excluded.embedder, scale = excluded.scale,"
    " vector = excluded.vector, crc = excluded.crc",
)
_FTS = BulkInsert("memory_fts", ("rowid", "text", '"when"'))

# Nearest item of the same conversation before and after one, by time and then by row.
_CONVERSATION = (
    "n.principal = memories.principal AND n.session_id = memories.session_id"
    " AND n.channel IS memories.channel"
)
_PREVIOUS = (
    f"(SELECT n.row FROM memories AS n WHERE {_CONVERSATION}"  # noqa: S608 - only literals of this file
    " AND (n.at_ms, n.row) < (memories.at_ms, memories.row)"
    " ORDER BY n.at_ms DESC, n.row DESC LIMIT 1)"
)
_NEXT = (
    f"(SELECT n.row FROM memories AS n WHERE {_CONVERSATION}"  # noqa: S608 - only literals of this file
    " AND (n.at_ms, n.row) > (memories.at_ms, memories.row)"
    " ORDER BY n.at_ms, n.row LIMIT 1)"
)
_PLACE = ("principal", "scope", "channel", "session_id", "kind", "author")
_INDEXED = ("text", "at_ms", *_PLACE)  # columns on which an entry of the text index depends
_IN_ROWS = "row IN (SELECT value FROM json_each(?))"

MemoryChange: TypeAlias = MemoryRecord | MemoryRemoval | MemoryReindex


# --- writing -------------------------------------------------------------------------------------


def append(connection: apsw.Connection, records: Iterable[Record]) -> None:
    """Write items, removals and reindexing in their order.  Raises apsw.ConstraintError."""
    for kind, batch in groupby(records, type):
        changes: Any = list(batch)
        if kind is MemoryRecord:
            _put(connection, changes)
        elif kind is MemoryRemoval:
            _remove(connection, changes)
        elif kind is MemoryReindex:
            _reindex(connection, changes)
        elif kind is MemoryVectors:
            _put_vectors(connection, changes)
        else:
            raise InvariantBroken(f"no table for {kind.__name__}")


def delete_expired(connection: apsw.Connection, *, now_ms: int) -> bool:
    """Delete some of the items whose time to live has ended; False if there were none."""
    found = read_rows(
        connection,
        "SELECT json_array(principal, memory_id) AS found FROM memories WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?",
        (now_ms, EXPIRED_AT_ONCE),
    )
    if not found:
        return False
    removals = [
        MemoryRemoval(
            principal=principal,
            memory_ids=tuple(memory_id for _, memory_id in items),
            at_ms=now_ms,
            by="",
            action="expired",
        )
        for principal, items in groupby(sorted(found), itemgetter(0))
    ]
    with transaction(connection):
        _remove(connection, removals)
    return True


def merge_index(connection: apsw.Connection, *, begins: bool) -> bool:
    """Take one step of a merge of the text indexes; return False once nothing is left to merge.

    The index keeps the words of a deleted entry until the segment that holds them is merged.
    Source: https://www.sqlite.org/fts5.html#the_merge_command.
    """
    merged = [_merge_table(connection, table, begins=begins) for table in _TEXT_INDEXES]
    return any(merged)


def recreate_text_index(connection: apsw.Connection, table: str) -> None:
    """Drop a text index with all its damage, and create it empty."""
    statement = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get
    connection.execute(f"DROP TABLE {table}")
    connection.execute(statement)


def _merge_table(connection: apsw.Connection, table: str, *, begins: bool) -> bool:
    before = connection.total_changes()
    pages = -MERGE_PAGES if begins else MERGE_PAGES
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))  # noqa: S608 - only literals of this file
    return connection.total_changes() - before >= _MERGED_CHANGES


def _put(connection: apsw.Connection, items: Sequence[MemoryRecord]) -> None:
    old = _read_old(connection, items)
    _ITEMS.append(connection, [_row(item) for item in items])
    _LOG.append(
        connection,
        [(i.principal, i.memory_id, i.action, i.changed_ms, i.changed_by) for i in items],
    )
    changed = {
        item.memory_id for item in items if old.get(item.memory_id, ())[1:] != _content(item)
    }
    if not changed:
        return
    links = read_rows(
        connection,
        f"SELECT json_array(row, previous_row, next_row, {_PREVIOUS}, {_NEXT}) AS found FROM memories"  # noqa: S608 - only literals of this file
        " WHERE memory_id IN (SELECT value FROM json_each(?))",
        (_json(changed),),
    )
    reworded = [row for key, (row, *_) in old.items() if key in changed]
    connection.execute(f"DELETE FROM memory_vectors WHERE {_IN_ROWS}", (_json(reworded),))  # noqa: S608 - only literals of this file
    _link(connection, {row for link in links for row in link if row is not None})
    _index(connection, {row for row, *_ in links})


def _read_old(
    connection: apsw.Connection, items: Sequence[MemoryRecord]
) -> dict[str, tuple[Any, ...]]:
    """Return row and content of the items that are stored already, as `_content` gives it."""
    known = [item.memory_id for item in items if item.revision > 1]
    if not known:
        return {}
    found = read_rows(
        connection,
        f"SELECT json_array(memory_id, row, {', '.join(_INDEXED)}) AS found FROM memories"  # noqa: S608 - only literals of this file
        " WHERE memory_id IN (SELECT value FROM json_each(?))",
        (_json(known),),
    )
    return {memory_id: tuple(content) for memory_id, *content in found}


def _content(item: MemoryRecord) -> tuple[Any, ...]:
    """Return the fields that the text index and the neighbours depend on."""
    return tuple(getattr(item, name) for name in _INDEXED)


def _row(item: MemoryRecord) -> Row:
    return tuple(
        _json(getattr(item, name)) if name in _JSON else getattr(item, name) for name in _COLUMNS
    )


def _remove(connection: apsw.Connection, removals: Sequence[MemoryRemoval]) -> None:
    for removal in removals:
        if removal.memory_ids is None:
            _purge(connection, removal)
            continue
        gone = read_rows(
            connection,
            "WITH RECURSIVE gone (memory_id) AS (SELECT value FROM json_each(?1)"
            " UNION SELECT m.memory_id FROM memories AS m JOIN gone ON m.superseded_by = gone.memory_id)"
            " SELECT json_array(row, previous_row, next_row, memory_id) AS found FROM memories"
            " WHERE principal = ?2 AND memory_id IN gone ORDER BY row",
            (_json(removal.memory_ids), removal.principal),
        )
        _delete_rows(connection, gone)
        _LOG.append(
            connection,
            [
                (removal.principal, memory_id, removal.action, removal.at_ms, removal.by)
                for *_, memory_id in gone
            ],
        )


def _purge(connection: apsw.Connection, removal: MemoryRemoval) -> None:
    principal = removal.principal
    gone = read_rows(
        connection,
        "SELECT json_array(row, NULL, NULL, memory_id) AS found FROM memories WHERE principal = ?",
        (principal,),
    )
    _delete_rows(connection, gone)
    connection.execute("DELETE FROM memory_uses WHERE principal = ?", (principal,))
    connection.execute("DELETE FROM memory_log WHERE principal = ?", (principal,))
    connection.execute("DELETE FROM candidates WHERE principal = ?", (principal,))
    connection.execute("DELETE FROM reflections WHERE principal = ?", (principal,))
    _LOG.append(connection, [(principal, "*", removal.action, removal.at_ms, removal.by)])


def _delete_rows(connection: apsw.Connection, gone: Sequence[Sequence[Any]]) -> None:
    """Delete items with all that belongs to them, and close the gaps between their neighbours."""
    rows, ids = [row for row, *_ in gone], [memory_id for *_, memory_id in gone]
    connection.execute(
        "DELETE FROM memory_fts WHERE rowid IN (SELECT value FROM json_each(?))", (_json(rows),)
    )
    connection.execute(
        "DELETE FROM memory_versions WHERE memory_id IN (SELECT value FROM json_each(?))",
        (_json(ids),),
    )
    connection.execute(  # what was learned goes with its item, or its text would stay
        "DELETE FROM candidates WHERE memory_id IN (SELECT value FROM json_each(?))", (_json(ids),)
    )
    connection.execute(f"DELETE FROM memories WHERE {_IN_ROWS}", (_json(rows),))  # noqa: S608 - only literals of this file
    beside = {row for _, before, after, _ in gone for row in (before, after) if row is not None}
    _link(connection, beside.difference(rows))


def plan_reindex(connection: apsw.Connection) -> MemoryReindex | None:
    """Return the next entries of an index that is made again; None if it is whole."""
    mark, through = connection.execute(
        "SELECT row, through_row FROM memory_mark UNION ALL SELECT 0, 0 LIMIT 1"
    ).get
    if mark >= through:
        return None
    found = read_rows(
        connection,
        f"SELECT json_array(row, revision, {', '.join(_INDEXED)}) AS found FROM memories"  # noqa: S608 - only literals of this file
        " WHERE row > ? AND row <= ? ORDER BY row LIMIT ?",
        (mark, through, REINDEX_ROWS),
    )
    return MemoryReindex(
        after_row=mark,
        through_row=found[-1][0] if len(found) == REINDEX_ROWS else through,
        entries=tuple(
            IndexedItem(row, revision, *_entry(*indexed)) for row, revision, *indexed in found
        ),
    )


def _entry(text: str, at_ms: int, *place: str | None) -> tuple[str, str]:
    """Return the columns of an item in the text index."""
    words, when = search_fields(text, at_ms)
    return words, " ".join((when, *_keys(text, *place)))


def _keys(text: str, *place: str | None) -> tuple[str, ...]:
    """Return the words by which an item is found as a duplicate; none of a turn, which repeats none."""
    principal, scope, channel, session_id, kind, author = place
    if kind == "turn":
        return ()
    channel = channel if scope == "channel" else None
    session_id = session_id if scope == "session" else None
    terms = key_words(searchable(text[:KEYED_CHARS]))
    return duplicate_keys((principal, scope, channel, session_id, kind, author), terms)


def _reindex(connection: apsw.Connection, wanted: Sequence[MemoryReindex]) -> None:
    for each in wanted:
        if each.after_row == FROM_THE_START:
            recreate_text_index(connection, "memory_fts")
            connection.execute(
                "INSERT OR REPLACE INTO memory_mark"
                " SELECT 1, 0, coalesce(max(row), 0) FROM memories"
            )
            continue
        connection.execute(
            "UPDATE memory_mark SET row = ? WHERE row = ?", (each.through_row, each.after_row)
        )
        if connection.changes():
            _write_entries(connection, each.entries)


def _write_entries(connection: apsw.Connection, entries: Sequence[IndexedItem]) -> None:
    """Write planned entries, and drop unsound vectors of their rows."""
    wanted = {each.row: each for each in entries}
    known = dict(
        read_rows(
            connection,
            f"SELECT json_array(row, revision) AS found FROM memories WHERE {_IN_ROWS}",  # noqa: S608 - only literals of this file
            (_json([*wanted]),),
        )
    )
    as_planned = {row for row, revision in known.items() if revision == wanted[row].revision}
    _replace(
        connection, [(each.row, each.text, each.when) for each in entries if each.row in as_planned]
    )
    _index(connection, {*known} - as_planned)  # changed since
    _link(connection, {*known})
    unsound = [
        row
        for row, embedder, scale, values, crc in connection.execute(
            f"SELECT row, embedder, scale, vector, crc FROM memory_vectors WHERE {_IN_ROWS}",  # noqa: S608 - only literals of this file
            (_json([*known]),),
        )
        if crc != checksum_of(row, embedder, scale, values)
    ]
    connection.execute(f"DELETE FROM memory_vectors WHERE {_IN_ROWS}", (_json(unsound),))  # noqa: S608 - only literals of this file


def _link(connection: apsw.Connection, rows: set[int]) -> None:
    """Link the rows to their neighbours."""
    connection.execute(
        f"UPDATE memories SET previous_row = {_PREVIOUS}, next_row = {_NEXT}"  # noqa: S608 - only literals of this file
        f" WHERE session_id IS NOT NULL AND {_IN_ROWS}",
        (_json(rows),),
    )


def _index(connection: apsw.Connection, rows: set[int]) -> None:
    """Write the entries of the rows in the text index again."""
    found = read_rows(
        connection,
        f"SELECT json_array(row, {', '.join(_INDEXED)}) AS found FROM memories WHERE {_IN_ROWS}",  # noqa: S608 - only literals of this file
        (_json(rows),),
    )
    _replace(connection, [(row, *_entry(*indexed)) for row, *indexed in found])


def _replace(connection: apsw.Connection, entries: Sequence[Row]) -> None:
    connection.execute(
        "DELETE FROM memory_fts WHERE rowid IN (SELECT value FROM json_each(?))",
        (_json([row for row, *_ in entries]),),
    )
    _FTS.append(connection, entries)


def _put_vectors(connection: apsw.Connection, batches: Sequence[MemoryVectors]) -> None:
    """Write the vectors of rows that still have the text that was embedded."""
    for batch in batches:
        found = read_rows(
            connection,
            f"SELECT json_array(row, text_hash) AS found FROM memories WHERE {_IN_ROWS}",  # noqa: S608 - only literals of this file
            (_json([each.row for each in batch.vectors]),),
        )
        hashes = dict(found)
        rows: list[Row] = [
            vector_row(each.row, batch.embedder, each.scale, each.values)
            for each in batch.vectors
            if hashes.get(each.row) == each.text_hash
        ]
        VECTORS.append(connection, rows)


def vector_row(row: int, embedder: str, scale: float, values: bytes) -> Row:
    """Return a row of a table of vectors, with its checksum."""
    return row, embedder, scale, values, checksum_of(row, embedder, scale, values)


def _json(value: object) -> str:
    plain = sorted(value) if isinstance(value, set) else value
    return msgspec.json.encode(plain).decode()


def read_rows(
    connection: apsw.Connection, statement: str, values: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a SELECT of one JSON array a row; see `read_found`."""
    return [tuple(row) for row in read_found(connection, list, statement, values)]


# --- queries -------------------------------------------------------------------------------------


class ItemQueries(Queries):
    """Queries on items of memory; see `core.ports.MemoryStore`."""

    def find_memory(self, memory_id: str) -> MemoryRecord | None:
        return self._find(select_items().where("memory_id = ?", memory_id), "row")

    def list_taken_from(
        self, principal: str, session_id: str, run_ids: Sequence[str]
    ) -> list[MemoryRecord]:
        """The items of this session or with one of these runs in their lineage."""
        select = select_items().where("principal = ?", principal)
        select.where(
            "(session_id = ? OR EXISTS (SELECT 1 FROM json_each(iif(json_valid(lineage), lineage, '[]')) AS l"
            " WHERE l.value ->> '$.run_id' IN (SELECT value FROM json_each(?))))",
            session_id,
            _json(run_ids),
        )
        return self._list(select, "memory_id")

    def list_memories(self, wanted: MemoryFilter) -> list[MemoryRecord]:
        """Newest first."""
        select = narrow(select_items(), wanted).where("memory_id < ?", wanted.before)
        return self._list(select, "memory_id DESC", wanted.limit)

    def search_memories(self, wanted: MemoryFilter, words: Sequence[str]) -> list[ScoredMemory]:
        """Items with one of the words in their text index, best first."""
        condition, values = narrow(select_items(), wanted).condition
        found = self._read_words(words, condition, values, wanted.limit)
        scores = {row: score for row, _, score in found}
        return [
            ScoredMemory(row=row, lexical=scores[row], item=item)
            for row, item in self._get_items({row: key for row, key, _ in found})
        ]

    def find_by_text(self, principal: str, hashes: Sequence[str]) -> list[MemoryRecord]:
        """Current items of a principal with one of these texts."""
        select = select_items().where("principal = ? AND superseded_by IS NULL", principal)
        select.where("text_hash IN (SELECT value FROM json_each(?))", _json(hashes))
        return self._list(select, "row")

    def plan_reindex(self) -> MemoryReindex | None:
        """Return the next entries of a text index that is made again; None if it is whole."""
        return self._read(plan_reindex)

    def find_alike(self, item: MemoryRecord, *, now_ms: int, limit: int) -> list[MemoryRecord]:
        """Current items of the same place, kind and author: equal texts, then by rare common words.

        Reads at most `ALIKE_POSTINGS` postings a word, all of them of the place: the newest.
        """
        place = select_items().where("principal = ? AND scope = ?", item.principal, item.scope)
        place.where("kind = ? AND author IS ?", item.kind, item.author)
        place.where("superseded_by IS NULL")
        place.where("(expires_ms IS NULL OR expires_ms > ?)", now_ms)
        if item.scope == "channel":
            place.where("channel = ?", item.channel)
        if item.scope == "session":
            place.where("session_id = ?", item.session_id)
        condition, values = place.condition
        equal = self._list(place.where("text_hash = ?", item.text_hash), "row", limit)
        best = self._read(lambda c: _find_common(c, item))
        found = self._read(
            lambda c: read_rows(
                c,
                "SELECT json_array(row, memory_id) AS found FROM json_each(?) AS wanted"  # noqa: S608 - only literals of this file
                " CROSS JOIN memories ON row = wanted.value"
                f" WHERE text_hash <> ? AND {condition} ORDER BY wanted.key LIMIT ?",
                (_json(best), item.text_hash, *values, limit),
            )
        )
        return [*equal, *(each for _, each in self._get_items(dict(found)))]

    def _read_words(
        self,
        words: Sequence[str],
        condition: str,
        values: Sequence[Any],
        limit: int,
    ) -> list[tuple[Any, ...]]:
        """Return row, id and score of the items with one of the words, best first."""
        match = match_any(words)
        if not match:
            return []
        statement = (
            "SELECT json_array(m.row, m.memory_id, -f.score) AS found FROM"  # noqa: S608 - only literals of this file
            f" (SELECT rowid, bm25(memory_fts, {_FTS_WEIGHTS}) AS score"
            " FROM memory_fts WHERE memory_fts MATCH ?) AS f"
            f" JOIN (SELECT * FROM memories WHERE {condition}) AS m ON m.row = f.rowid"
            " ORDER BY f.score, m.row DESC LIMIT ?"
        )
        return self._read(lambda c: read_rows(c, statement, (match, *values, limit)))

    def _get_items(self, ids: Mapping[int, str]) -> list[tuple[int, MemoryRecord]]:
        return self._read(lambda c: get_items(c, "memories", ids, self.damaged))

    def list_versions(self, memory_id: str) -> list[MemoryRecord]:
        """Earlier revisions of an item, oldest first."""
        select = Select(MemoryRecord, "memory_versions", key="memory_id revision").where(
            "memory_id = ?", memory_id
        )
        return self._list(select, "revision")

    def list_superseded(self, memory_id: str) -> list[MemoryRecord]:
        """Items that this one superseded."""
        return self._list(select_items().where("superseded_by = ?", memory_id), "row")

    def list_memory_log(
        self,
        *,
        principal: str | None,
        memory_id: str | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[MemoryLogLine]:
        """Newest first."""
        statement = (
            "SELECT json_object('entry', entry, 'principal', principal, 'memory_id', memory_id,"
            " 'action', action, 'at_ms', at_ms, 'by', by) AS found FROM memory_log"
            " WHERE (?1 IS NULL OR principal = ?1) AND (?2 IS NULL OR memory_id = ?2)"
            " AND (?3 IS NULL OR entry < ?3) ORDER BY entry DESC LIMIT ?4"
        )
        values = (principal, memory_id, before, limit)
        return self._read(lambda c: read_found(c, MemoryLogLine, statement, values))

    def list_memory_uses(
        self,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        principal: str | None = None,
        limit: int = 200,
    ) -> list[MemoryUseRecord]:
        """Recalls of a run, a session or a principal, newest first."""
        select = Select(MemoryUseRecord).where("run_id = ?", run_id)
        select.where("principal = ?", principal)
        return self._list(select.where("session_id = ?", session_id), "use_id DESC", limit)

    def count_memories(self, principal: str | None, *, now_ms: int) -> MemoryCounts:
        """Counts of unexpired items."""
        rows = self._read(lambda c: read_rows(c, _COUNTS, (principal, now_ms)))
        by_kind = {kind: items for kind, items, *_ in rows if items}
        sums = [sum(row[at] for row in rows) for at in range(1, 9)]
        items, superseded, hidden, pinned, expiring, without_vector, text_bytes, total = sums
        return MemoryCounts(
            total=total,
            items=items,
            by_kind=by_kind,
            superseded=superseded,
            never_recall=hidden,
            pinned=pinned,
            expiring=expiring,
            without_vector=without_vector,
            text_bytes=text_bytes,
        )


_COUNTS = """
SELECT json_array(kind, sum(is_live), sum(superseded_by IS NOT NULL), sum(never_recall),
    sum(pinned AND superseded_by IS NULL), sum(expires_ms IS NOT NULL),
    sum(row NOT IN (SELECT row FROM memory_vectors)), sum(length(CAST(text AS BLOB))), count(*)) AS found
FROM (SELECT *, superseded_by IS NULL AND NOT never_recall AS is_live FROM memories
    WHERE (?1 IS NULL OR principal = ?1) AND (expires_ms IS NULL OR expires_ms > ?2))
GROUP BY kind
"""


def _find_common(connection: apsw.Connection, item: MemoryRecord) -> list[int]:
    """Return the rows of the same place that share words with the item, the rarest words first."""
    has_items = "SELECT 1 FROM memories WHERE principal = ? LIMIT 1"
    if connection.execute(has_items, (item.principal,)).get is None:
        return []
    keys = _keys(item.text, *(getattr(item, name) for name in _PLACE))
    weights: defaultdict[int, float] = defaultdict(float)
    for key in keys[:ASKED_KEYS]:
        rows = connection.execute(
            "SELECT group_concat(rowid) FROM (SELECT rowid FROM memory_fts"
            " WHERE memory_fts MATCH ? ORDER BY rowid DESC LIMIT ?)",
            (f'{{when}} : "{key}"', ALIKE_POSTINGS),
        ).get
        found = [int(row) for row in rows.split(",")] if rows else []
        weight = log(2 * ALIKE_POSTINGS / max(1, len(found)))
        for row in found:
            weights[row] += weight
    return nlargest(ALIKE_ROWS, weights, key=lambda row: (weights[row], row))


def match_any(words: Iterable[str]) -> str:
    """Return the expression of the text index that means any of these words.

    Each word is a quoted string, so no word can be an operator or a column; characters that the
    tokenizer drops match nothing.  One character of a script without blanks is the beginning of words.
    """
    plain = dict.fromkeys(word.replace('"', "").replace("\0", "") for word in words)
    quoted = (f'"{word}"{" *" * is_unspaced_character(word)}' for word in plain if word)
    return " OR ".join(islice(quoted, _MAX_WORDS))


def select_items(table: str = "memories") -> Select[MemoryRecord]:
    return Select(MemoryRecord, table, row="row")


def get_items(
    connection: apsw.Connection, table: str, ids: Mapping[int, str], damaged: DamageNotes
) -> list[tuple[int, MemoryRecord]]:
    """Return the items of these rows, given with their ids, that decode, in this order."""
    select = select_items(table).where(_IN_ROWS, _json(list(ids)))
    found = {item.memory_id: item for item in select.read(connection, "row", damaged=damaged)}
    return [(row, found[each]) for row, each in ids.items() if each in found]


def narrow(select: Select[MemoryRecord], wanted: MemoryFilter) -> Select[MemoryRecord]:
    """Add the filter's conditions: principal, place, life, then what was asked for."""
    select.where("principal = ?", wanted.principal)
    for condition, *values in _place_conditions(wanted):
        select.where(condition, *values)
    select.where("(expires_ms IS NULL OR expires_ms > ?)", wanted.now_ms)
    if wanted.as_of_ms is not None:
        at_ms = wanted.as_of_ms
        select.where(
            "valid_from_ms <= ? AND (superseded_ms IS NULL OR superseded_ms > ?)", at_ms, at_ms
        )
    elif not wanted.with_superseded:
        select.where("superseded_by IS NULL")
    if not wanted.with_hidden:
        select.where("NOT never_recall")
    if wanted.standing:
        select.where("(kind = 'preference' OR pinned)")
    for tag in wanted.tags:
        select.where(
            "EXISTS (SELECT 1 FROM json_each(iif(json_valid(tags), tags, '[]')) WHERE value = ?)",
            tag,
        )
    return (
        select.where_in("kind", wanted.kinds)
        .where("author = ?", wanted.author)
        .where("channel = ?", wanted.channel)
        .where("session_id = ?", wanted.session_id)
        .where("at_ms >= ?", wanted.since_ms)
        .where("at_ms < ?", wanted.until_ms)
    )


def _place_conditions(wanted: MemoryFilter) -> Iterator[tuple[Any, ...]]:
    """Yield what `MemoryPlace.sees` says, as SQL; a comparison with NULL is never true."""
    place = wanted.place
    if place is None:
        return
    yield "principal = ?", place.principal
    yield (
        "(scope = 'principal' OR scope = ? AND channel = ? OR scope = 'session' AND session_id = ?)",
        "channel",
        place.channel,
        place.session_id,
    )
    if place.only_session:
        yield "(? AND session_id = ?)", True, place.session_id
