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
    WorkRemoval,
)
from palyra.core.session.purge import SessionWork
from palyra.store.sqlite.decoding import read_found

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
# True if a value in the record is one of the ids in the JSON array ?1; a damaged record is searched
# for the first of them.
_NAMES = """
CASE WHEN json_valid(record) THEN EXISTS (
        SELECT 1 FROM json_tree(record, {path}) AS v
        WHERE v.type = 'text' AND v.atom IN (SELECT value FROM json_each(?1)))
    ELSE instr(record, ?1 ->> 0) > 0 END
"""
_IS_ABOUT, _RESULT_IS_ABOUT = _NAMES.format(path="'$'"), _NAMES.format(path="'$.result'")
# The same for tasks and schedules, which may be twenty thousand: a value is the id of the session, or
# one of the members that name a run is among the ids.  A walk through each record takes twice as long.
_IS_WORK_OF = """
(instr(record, '"' || (?1 ->> 0) || '"') > 0 OR CASE WHEN json_valid(record) THEN
    record ->> '$.run_id' IN (SELECT value FROM json_each(?1))
    OR record ->> '$.payload.run_id' IN (SELECT value FROM json_each(?1)) END)
"""
_HAS_KEY = """
(?3 IS NOT NULL AND CASE WHEN json_valid(record) THEN record ->> '$.payload.session_key' = ?3 END)
"""
_SCHEDULES_OF = f"""
SELECT json_quote(schedule_id) AS found FROM schedules
WHERE principal = ?2 AND (?1 IS NULL OR {_HAS_KEY} OR {_IS_WORK_OF}) ORDER BY schedule_id
"""  # noqa: S608 - literals
_TASKS_OF = f"""
SELECT json_quote(task_id) AS found FROM tasks
WHERE principal = ?2 AND (?1 IS NULL OR {_HAS_KEY} OR {_IS_WORK_OF}
    OR substr(firing, 1, instr(firing, '@') - 1) IN (SELECT value FROM json_each(?4)))
ORDER BY task_id
"""  # noqa: S608 - literals
_CONTINUING = """
SELECT json_quote(schedule_id) AS found FROM schedules WHERE NOT is_removed
    AND schedule_id IN (SELECT substr(firing, 1, instr(firing, '@') - 1) FROM tasks
        WHERE task_id IN (SELECT value FROM json_each(?1)))
    AND schedule_id NOT IN (SELECT value FROM json_each(?2)) ORDER BY schedule_id
"""


def append(connection: apsw.Connection, records: Iterable[Record]) -> list[Record]:
    """Make the removals; return the other records.  Raises apsw.ConstraintError."""
    others: list[Record] = []
    for record in records:
        match record:
            case RunRemoval():
                _remove_run(connection, record)
            case SessionRemoval():
                _remove_session(connection, record)
            case WorkRemoval():
                _remove_work(connection, record)
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
    _remove_naming(connection, _ids_of(connection, removal.session_id))
    connection.execute("DELETE FROM candidates WHERE instr(record, ?)", (removal.session_id,))
    for trim in removal.trims:
        lineage = msgspec.json.encode(trim.lineage).decode()
        connection.execute(
            "UPDATE memories SET lineage = ? WHERE memory_id = ?", (lineage, trim.memory_id)
        )
        connection.execute("DELETE FROM memory_versions WHERE memory_id = ?", (trim.memory_id,))


def find_work(connection: apsw.Connection, removal: WorkRemoval) -> SessionWork:
    """Find the tasks and schedules that the removal deletes, ended and removed ones included."""
    ids = None
    if removal.session_id is not None:
        ids = _json(_ids_of(connection, removal.session_id))
    values = (ids, removal.principal, removal.key)
    schedules = read_found(connection, str, _SCHEDULES_OF, values)
    tasks = read_found(connection, str, _TASKS_OF, (*values, _json(schedules)))
    continuing = read_found(connection, str, _CONTINUING, (_json(tasks), _json(schedules)))
    return SessionWork(tasks, schedules, tuple(continuing))


def _remove_work(connection: apsw.Connection, removal: WorkRemoval) -> None:
    tasks, schedules, _ = find_work(connection, removal)
    _remove_naming(connection, [*tasks, *schedules])
    for table, key, ids in (("tasks", "task_id", tasks), ("schedules", "schedule_id", schedules)):
        connection.execute(
            f"DELETE FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))",  # noqa: S608 - literals
            (_json(ids),),
        )


def _ids_of(connection: apsw.Connection, session_id: str) -> list[str]:
    """Return the ids of the session and of its runs, that of the session first."""
    runs = "SELECT json_quote(run_id) AS found FROM runs WHERE session_id = ?"
    return [session_id, *read_found(connection, str, runs, (session_id,))]


def _remove_naming(connection: apsw.Connection, ids: list[str]) -> None:
    """Delete receipts and incidents about one of the ids.

    A receipt is the result of some method: it is about an id if a value in it is that id.
    """
    connection.execute(
        f"DELETE FROM receipts WHERE {_RESULT_IS_ABOUT}",  # noqa: S608 - literals
        (_json(ids),),
    )
    connection.execute(f"DELETE FROM incidents WHERE {_IS_ABOUT}", (_json(ids),))  # noqa: S608 - literals


def _json(ids: list[str]) -> str:
    return msgspec.json.encode(ids).decode()


def _make_tombstone(*values: Any) -> Any:  # noqa: ANN401 - values of SQLite
    """Call `make_tombstone` for any stored value: a tampered payload may have another type."""
    data, at_ms = values
    return make_tombstone(data if isinstance(data, bytes) else str(data).encode(), at_ms)
