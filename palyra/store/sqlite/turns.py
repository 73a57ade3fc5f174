"""Turns of conversations in the search index: messages, texts of the model, outputs of tools.

A projection: everything here can be deleted and made from the tapes again.  It has a row for each
turn, its words in a text index, its vector, and no text, which stays on the tape; the view
`turn_items` gives turns the form of items of memory, so that one index searches both
(`store.vectors`).  The row of a turn goes with its event or the text of that, and words, vector and
log follow the row by triggers, so a deletion from a tape, or `delete_turns`, is all that a purge
needs.

`plan_turns` reads the next events after the mark, and makes their entries in a reader's thread; the
writer appends them with the new mark, which makes a repetition harmless.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import apsw
import msgspec

from palyra.core.journal.records import (
    FROM_THE_START,
    IndexedTurn,
    MemoryVectors,
    Record,
    TurnIndexing,
)
from palyra.core.memory.fields import search_fields
from palyra.store.sqlite.connection import BulkInsert
from palyra.store.sqlite.decoding import DamageNotes
from palyra.store.sqlite.memories import read_rows, recreate_text_index, vector_row
from palyra.store.sqlite.memory_search import IndexedTables, IndexQueries, MemoryChanges

T = TypeVar("T")
USER_KINDS, OUTPUT = ("message.received", "steer.received"), "tool.completed"
# The final answer is `message.completed`; `turn.completed` counts if it has a text before calls.
TURN_KINDS = (*USER_KINDS, "message.completed", "turn.completed", OUTPUT)
# What these find is on a tape already; indexed, the best match of a repeated query would be its own
# first result.
UNINDEXED_TOOLS = ("session_search", "memory_search")
_TEXT = "coalesce(CAST(data AS TEXT) ->> '$.text', CAST(data AS TEXT) ->> '$.output')"
_IS_REPEATED = """
    kind = 'turn.completed' AND coalesce(json_array_length(CAST(data AS TEXT), '$.calls'), 0) = 0
    OR kind = 'tool.completed' AND coalesce((
        SELECT CAST(p.data AS TEXT) ->> '$.tool' FROM tape AS p
        WHERE p.run_id = tape.run_id AND p.seq < tape.seq AND p.kind = 'tool.proposed'
            AND CAST(p.data AS TEXT) ->> '$.call_id' = CAST(tape.data AS TEXT) ->> '$.call_id'
        ORDER BY p.seq DESC LIMIT 1
    ), '') IN (SELECT value FROM json_each(?6))
"""
STEP_EVENTS, STEP_TURNS = 4_096, 64  # of one step: some 5 ms of the writer
MAX_TURN_CHARS = 16_384  # that are searched; the view cuts there, too
_FACTS = (
    "json_array(row, principal, scope, channel, session_id, kind, author, at_ms, expires_ms,"
    " 1, never_recall, chars, previous_row, next_row) AS found"
)
_TURNS = BulkInsert(
    "turns",
    ("run_id", "seq", "session_id", "is_user", "chars", "is_output"),
    "ON CONFLICT (run_id, seq) DO NOTHING",
)
_FTS = BulkInsert("turn_fts", ("rowid", "text", '"when"'))
_VECTORS = BulkInsert(
    "turn_vectors",
    ("row", "embedder", "scale", "vector", "crc"),
    "ON CONFLICT (row) DO UPDATE SET embedder = excluded.embedder, scale = excluded.scale,"
    " vector = excluded.vector, crc = excluded.crc",
)


class TurnQueries(IndexQueries):
    """Queries of the index of turns; `read` calls a query with a connection of this thread."""

    tables = IndexedTables(
        "turn_items",
        "turn_vectors",
        "turn_fts",
        _FACTS,
        private_author="tool",
        indexed="turns",
        is_whole="(SELECT position FROM turn_mark) >= (SELECT coalesce(max(position), 0) FROM tape)",
    )

    def __init__(
        self, read: Callable[[Callable[[apsw.Connection], T]], T], damaged: DamageNotes
    ) -> None:
        self._call = read
        self.damaged = damaged

    def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        return self._call(query)  # type: ignore[arg-type, return-value]  # generic in its call

    def last_memory_entry(self) -> int:
        """Return the number of the last entry of the log; 0 without one."""
        last: int = self._read(
            lambda c: c.execute("SELECT coalesce(max(entry), 0) FROM turn_log").get
        )
        return last

    def list_memory_changes(self, after_entry: int) -> MemoryChanges:
        """Return the rows with a log entry after this one, and the last entry."""
        last = self.last_memory_entry()
        if last == after_entry:
            return MemoryChanges(last, [], is_lossy=False)
        changed = self._read(
            lambda c: read_rows(
                c,
                "SELECT json_array(l.row, t.row) AS found FROM (SELECT DISTINCT row FROM turn_log"
                " WHERE entry > ? AND entry <= ?) AS l LEFT JOIN turns AS t USING (row)",
                (after_entry, last),
            )
        )
        rows = [row for _, row in changed if row is not None]
        return MemoryChanges(last, rows, is_lossy=len(rows) < len(changed))

    def plan_turns(self) -> TurnIndexing | None:
        """Return the next entries; None if the tapes are indexed to their end."""
        return self._read(plan_turns)


def plan_turns(connection: apsw.Connection) -> TurnIndexing | None:
    """Return the entries of the next events after the mark; None if there are no more events."""
    mark, head, last = connection.execute(
        "SELECT (SELECT position FROM turn_mark), (SELECT coalesce(max(position), 0) FROM tape),"
        " (SELECT head_position FROM owner)"
    ).get
    if mark is None or mark > max(head, last or 0):  # damaged: no event has such a position
        mark = FROM_THE_START
    if mark >= head:
        return None
    found = read_rows(
        connection,
        "SELECT json_array(position, run_id, seq, session_id, kind, at_ms,"  # noqa: S608 - literals of this file
        f" substr({_TEXT}, 1, ?1), length({_TEXT}))"
        " AS found FROM tape WHERE position > ?2 AND position <= ?3"
        " AND kind IN (SELECT value FROM json_each(?4)) AND json_valid(CAST(data AS TEXT))"
        f" AND NOT ({_IS_REPEATED}) ORDER BY position LIMIT ?5",
        (
            MAX_TURN_CHARS,
            mark,
            mark + STEP_EVENTS,
            msgspec.json.encode(TURN_KINDS).decode(),
            STEP_TURNS,
            msgspec.json.encode(UNINDEXED_TOOLS).decode(),
        ),
    )
    is_whole = len(found) < STEP_TURNS
    through = min(head, mark + STEP_EVENTS) if is_whole else found[-1][0]
    return TurnIndexing(
        after_position=mark,
        through_position=through,
        is_last=through == head,
        turns=tuple(
            IndexedTurn(
                run_id,
                seq,
                session_id,
                kind in USER_KINDS,
                chars,
                *search_fields(text, at_ms),
                kind == OUTPUT,
            )
            for _, run_id, seq, session_id, kind, at_ms, text, chars in found
            if text
        ),
    )


def append(connection: apsw.Connection, records: Iterable[Record]) -> list[Record]:
    """Write the entries and vectors of turns; return the other records."""
    others: list[Record] = []
    for record in records:
        if isinstance(record, TurnIndexing):
            _index(connection, record)
        elif isinstance(record, MemoryVectors) and record.of == "turns":
            _put_vectors(connection, record)
        else:
            others.append(record)
    return others


def delete_turns(connection: apsw.Connection, session_ids: Sequence[str]) -> None:
    """Delete the turns of these sessions from the index, with their words and vectors."""
    connection.execute(
        "DELETE FROM turns WHERE session_id IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode(session_ids).decode(),),
    )


def _index(connection: apsw.Connection, found: TurnIndexing) -> None:
    """Write the rows and words of the turns; those of rows that exist are written again.

    A turn whose event was purged or deleted since the step was planned is left out.
    """
    connection.execute(
        "INSERT INTO turn_mark VALUES (1, ?1)"
        " ON CONFLICT (id) DO UPDATE SET position = ?1 WHERE position = ?2 OR ?2 = ?3",
        (found.through_position, found.after_position, FROM_THE_START),
    )
    if not connection.changes():
        return
    if found.after_position == FROM_THE_START:
        recreate_text_index(connection, "turn_fts")
        connection.execute("DELETE FROM turns")
    kept = _list_kept(connection, found.turns)
    if not kept:
        return
    _TURNS.append(
        connection,
        [
            (turn.run_id, turn.seq, turn.session_id, turn.is_user, turn.chars, turn.is_output)
            for turn in kept
        ],
    )
    keys = msgspec.json.encode([(turn.run_id, turn.seq) for turn in kept]).decode()
    rows = read_rows(
        connection,
        "SELECT json_array(t.run_id, t.seq, t.row) AS found FROM json_each(?) AS wanted"
        " CROSS JOIN turns AS t ON t.run_id = wanted.value ->> 0 AND t.seq = wanted.value ->> 1",
        (keys,),
    )
    connection.execute(
        "DELETE FROM turn_fts WHERE rowid IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode([row for _, _, row in rows]).decode(),),
    )
    row_of = {(run_id, seq): row for run_id, seq, row in rows}
    _FTS.append(
        connection,
        [(row_of[turn.run_id, turn.seq], turn.text, turn.when) for turn in kept],
    )


def _list_kept(connection: apsw.Connection, turns: Sequence[IndexedTurn]) -> list[IndexedTurn]:
    """Return the turns whose text is still on the tape."""
    keys = msgspec.json.encode([(turn.run_id, turn.seq) for turn in turns]).decode()
    found = read_rows(
        connection,
        "SELECT json_array(e.run_id, e.seq) AS found FROM json_each(?) AS wanted"  # noqa: S608 - literals of this file
        " CROSS JOIN tape AS e ON e.run_id = wanted.value ->> 0 AND e.seq = wanted.value ->> 1"
        f" WHERE iif(json_valid(CAST(data AS TEXT)), {_TEXT}, NULL) IS NOT NULL",
        (keys,),
    )
    there = {(run_id, seq) for run_id, seq in found}
    return [turn for turn in turns if (turn.run_id, turn.seq) in there]


def _put_vectors(connection: apsw.Connection, batch: MemoryVectors) -> None:
    """Write the vectors of rows that still exist."""
    rows = msgspec.json.encode([each.row for each in batch.vectors]).decode()
    found = read_rows(
        connection,
        "SELECT json_array(row) AS found FROM turns WHERE row IN (SELECT value FROM json_each(?))",
        (rows,),
    )
    alive = {row for (row,) in found}
    _VECTORS.append(
        connection,
        [
            vector_row(each.row, batch.embedder, each.scale, each.values)
            for each in batch.vectors
            if each.row in alive
        ],
    )
