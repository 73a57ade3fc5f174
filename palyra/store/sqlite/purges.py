"""Removal of content: the payloads of a run, and what a session leaves outside of its tapes.

The triggers of `schema` allow a payload to be replaced only on a run whose `run.purged` event was
inserted before, so a removal and its record are one transaction.
"""

from collections.abc import Iterable
from typing import Any

import apsw
import msgspec

from palyra.core.journal.purged_row import PREFIX, make_tombstone
from palyra.core.journal.records import (
    IncidentRemoval,
    PageRelease,
    Record,
    RunRemoval,
    SessionRemoval,
    TaskRemoval,
)

_TOMBSTONE = "palyra_tombstone"  # the SQL function
_OLD_INCIDENTS = """
DELETE FROM incidents WHERE incident_id IN (
    SELECT incident_id FROM incidents WHERE state = 'resolved' AND resolved_ms <= ?
    ORDER BY resolved_ms LIMIT ?)
"""
_OLD_TASKS = """
DELETE FROM tasks WHERE task_id IN (
    SELECT task_id FROM tasks WHERE finished_ms <= ? ORDER BY finished_ms LIMIT ?)
"""
_BY_SESSION = ("session_checkpoints", "memory_uses", "grants")


def append(connection: apsw.Connection, records: Iterable[Record]) -> list[Record]:
    """Make the removals; return the other records.  Raises apsw.ConstraintError."""
    others: list[Record] = []
    for record in records:
        match record:
            case RunRemoval():
                _remove_run(connection, record)
            case SessionRemoval():
                _remove_session(connection, record)
            case IncidentRemoval():
                connection.execute(_OLD_INCIDENTS, (record.until_ms, record.limit))
            case TaskRemoval():
                connection.execute(_OLD_TASKS, (record.until_ms, record.limit))
            case PageRelease():
                connection.execute(f"PRAGMA incremental_vacuum({record.pages})").fetchall()
            case _:
                others.append(record)
    return others


def _remove_run(connection: apsw.Connection, removal: RunRemoval) -> None:
    connection.create_scalar_function(_TOMBSTONE, _make_tombstone, 2, deterministic=True)
    connection.execute(
        f"UPDATE tape SET data = {_TOMBSTONE}(data, ?1) WHERE run_id = ?2 AND seq < ?3"  # noqa: S608 - literals
        " AND substr(data, 1, length(?4)) <> ?4",
        (removal.at_ms, removal.run_id, removal.events, PREFIX),
    )
    connection.execute("DELETE FROM approvals WHERE run_id = ?", (removal.run_id,))
    connection.execute("DELETE FROM memory_uses WHERE run_id = ?", (removal.run_id,))
    connection.execute(
        "DELETE FROM candidates WHERE instr(record, ?)"
        " AND NOT (? AND kind = 'procedure' AND state = 'applied')",
        (removal.run_id, removal.keeps_accepted),
    )


def _remove_session(connection: apsw.Connection, removal: SessionRemoval) -> None:
    for table in _BY_SESSION:
        connection.execute(
            f"DELETE FROM {table} WHERE session_id = ?",  # noqa: S608 - names of our own tables
            (removal.session_id,),
        )
    # A receipt is the result of some method: it is about the session if a value in it is the id of the
    # session or of one of its runs.
    connection.execute(
        "DELETE FROM receipts WHERE EXISTS (SELECT 1 FROM json_tree(record, '$.result') AS v"
        " WHERE v.type = 'text' AND (v.atom = ?1"
        " OR v.atom IN (SELECT run_id FROM runs WHERE session_id = ?1)))",
        (removal.session_id,),
    )
    connection.execute("DELETE FROM candidates WHERE instr(record, ?)", (removal.session_id,))
    for trim in removal.trims:
        lineage = msgspec.json.encode(trim.lineage).decode()
        connection.execute(
            "UPDATE memories SET lineage = ? WHERE memory_id = ?", (lineage, trim.memory_id)
        )
        connection.execute("DELETE FROM memory_versions WHERE memory_id = ?", (trim.memory_id,))


def _make_tombstone(*values: Any) -> Any:  # noqa: ANN401 - values of SQLite
    """Call `make_tombstone` for any stored value: a tampered payload may have another type."""
    data, at_ms = values
    return make_tombstone(data if isinstance(data, bytes) else str(data).encode(), at_ms)
