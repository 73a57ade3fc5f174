"""Queries of retention: ended runs over a bound, what is in use, and free pages.

A run is in use, and its tape is kept, while

- its session has an open run, or a mark that a branch can start from;
- it has a pinned event;
- an item of memory names it as evidence;
- a run with a tape continues it;
- it is one of the newest `MAX_RUNS` of a conversation that continues: prompts read these.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from palyra.core.context.history import MAX_RUNS
from palyra.core.journal.purged_row import MAX_BYTES
from palyra.core.journal.retention import InUse, RetentionLimits, RetentionPlan, RunToPrune, Space
from palyra.store.sqlite.decoding import read_found

T = TypeVar("T")
Read = Callable[[Callable[[apsw.Connection], T]], T]
DAY_MS = 86_400_000
RECORD_BYTES = 512  # of `run.purged`, at most
INCREMENTAL = 2  # of PRAGMA auto_vacuum

_KEPT = """
    SELECT p.value ->> '$.run_id' FROM sessions, json_each(iif(json_valid(sessions.record), sessions.record, '{}'), '$.pins') AS p
    UNION SELECT l.value ->> '$.run_id' FROM memories, json_each(iif(json_valid(memories.lineage), memories.lineage, '[]')) AS l
    UNION SELECT iif(json_valid(record), record ->> '$.parent_run_id', NULL) FROM runs
        WHERE iif(json_valid(record), record ->> '$.parent_run_id', NULL) IS NOT NULL AND iif(json_valid(record), record ->> '$.purged_ms', NULL) IS NULL
"""
_RUNNING = "SELECT session_id FROM runs WHERE state IN ('accepted', 'in_progress')"
_MARKED = """
    SELECT session_id FROM session_checkpoints UNION SELECT session_id FROM sessions WHERE is_purging
"""
_BUSY_SESSIONS = f"{_RUNNING} UNION {_MARKED}"
_PINNING = "SELECT session_id FROM sessions WHERE NOT json_valid(record) OR json_array_length(record, '$.pins')"
_ENDED = """
WITH ended AS (
    SELECT run_id, session_id, iif(json_valid(record), record ->> '$.finished_ms', NULL) AS at_ms,
        row_number() OVER (PARTITION BY session_id ORDER BY run_id DESC) AS age
    FROM runs WHERE state NOT IN ('accepted', 'in_progress')
        AND iif(json_valid(record), record ->> '$.purged_ms', NULL) IS NULL
), active AS (
    SELECT ended.session_id FROM ended JOIN sessions USING (session_id)
    WHERE iif(json_valid(sessions.record), sessions.record ->> '$.archived_ms', NULL) IS NULL
    GROUP BY ended.session_id HAVING max(at_ms) > :active_ms
)
"""
_OF_KEPT = f"""{_ENDED}
SELECT session_id FROM active UNION SELECT session_id FROM ended WHERE run_id IN ({_KEPT})
"""  # noqa: S608 - literals of this file
_NAMED_CHECKPOINTS = """
    SELECT DISTINCT iif(json_valid(record), record ->> '$.checkpoint_id', NULL) FROM documents
    WHERE iif(json_valid(record), record ->> '$.checkpoint_id', NULL) IS NOT NULL
"""
_NAMED_ARTIFACT = """
SELECT found.value, t.at_ms FROM runs JOIN tape AS t USING (run_id),
    json_tree(iif(json_valid(CAST(t.data AS TEXT)), CAST(t.data AS TEXT), '{}')) AS found
WHERE runs.session_id = :session AND instr(t.data, CAST(:name AS BLOB))
    AND t.kind IN ('tool.completed', 'message.received', 'steer.received')
    AND found.key = 'artifact' AND found.atom IS NOT NULL AND substr(found.value, 1, length(:name)) = :name
ORDER BY t.at_ms DESC LIMIT 1
"""
_CANDIDATES = f"""{_ENDED}
SELECT json_array(run_id, at_ms,
    session_id IN ({_BUSY_SESSIONS}) OR run_id IN ({_KEPT})
        OR (age <= {MAX_RUNS} AND session_id IN active)) AS found
FROM ended WHERE at_ms <= :until_ms ORDER BY at_ms, run_id
"""  # noqa: S608 - literals of this file


class RetentionQueries:
    """The queries; `read` calls one with a reading connection of this thread."""

    def __init__(self, read: Callable[[Callable[[apsw.Connection], Any]], Any]) -> None:
        self._read = read

    def plan(self, limits: RetentionLimits, now_ms: int, *, limit: int) -> RetentionPlan:
        """Return at most `limit` runs over the bounds, the incidents and the tasks.  Raises Unavailable."""

        def query(connection: apsw.Connection) -> RetentionPlan:
            runs, kept = _plan_runs(connection, limits, now_ms, limit)
            until_ms = _find_incident_bound(connection, limits, now_ms)
            count = connection.execute(
                "SELECT count(*) FROM incidents WHERE state = 'resolved' AND resolved_ms <= ?",
                (until_ms,),
            ).get
            ended_ms = _find_task_bound(connection, limits, now_ms)
            tasks, receipts = connection.execute(
                "SELECT (SELECT count(*) FROM tasks WHERE finished_ms <= ?),"
                " (SELECT count(*) FROM receipts)",
                (ended_ms,),
            ).get
            return RetentionPlan(runs, kept, count, until_ms, tasks, ended_ms, receipts)

        found: RetentionPlan = self._read(query)
        return found

    def find_in_use(self, since_ms: int) -> InUse:
        """Return the owners of files that are kept.  Raises Unavailable.

        Conversations with a run that ended after `since_ms` are in use.
        """

        def query(connection: apsw.Connection) -> InUse:
            def find(statement: str, **values: int) -> frozenset[str]:
                kept = f"WITH kept (owner) AS ({statement}) SELECT json_quote(owner) AS found FROM kept"  # noqa: S608 - literals of this file
                return frozenset(read_found(connection, str, kept, values))

            return InUse(
                held=find(f"{_MARKED} UNION {_PINNING}"),
                running=find(_RUNNING),
                kept=find(_OF_KEPT, active_ms=since_ms),
                checkpoints=find(_NAMED_CHECKPOINTS),
            )

        found: InUse = self._read(query)
        return found

    def find_artifact(self, session_id: str, name: str) -> tuple[str, int] | None:
        """Return the digest that a tape of the session names, and its time.  Raises Unavailable."""
        found: tuple[str, int] | None = self._read(
            lambda c: c.execute(_NAMED_ARTIFACT, {"session": session_id, "name": name}).get
        )
        return found

    def measure(self) -> Space:
        """Return the size of the database file.  Raises Unavailable."""
        found: Space = self._read(measure)
        return found


def measure(connection: apsw.Connection) -> Space:
    """Return the size of the database file."""
    page = connection.pragma("page_size")
    return Space(
        size_bytes=page * connection.pragma("page_count"),
        free_bytes=page * connection.pragma("freelist_count"),
        page_bytes=page,
        is_incremental=connection.pragma("auto_vacuum") == INCREMENTAL,
    )


def _plan_runs(
    connection: apsw.Connection, limits: RetentionLimits, now_ms: int, limit: int
) -> tuple[tuple[RunToPrune, ...], int]:
    """Return the runs over a bound, and the number of those over that in age that are kept."""
    if not limits.tapes_ms and not limits.tapes_bytes:
        return (), 0
    old_ms = now_ms - limits.tapes_ms if limits.tapes_ms else -1
    excess = _find_excess(connection, limits)
    bounds = {
        "active_ms": now_ms - (limits.tapes_ms or DAY_MS),
        "until_ms": now_ms if excess > 0 else old_ms,
    }
    runs: list[RunToPrune] = []
    kept = 0
    rows = read_found(connection, tuple[str, int, int], _CANDIDATES, bounds)
    for run_id, at_ms, is_kept in rows:
        if at_ms > old_ms and excess <= 0:
            break
        if is_kept:
            kept += at_ms <= old_ms
        elif len(runs) < limit:
            size, events = _sum_payloads(connection, run_id)
            runs.append(RunToPrune(run_id, size))
            excess -= size - events * MAX_BYTES - RECORD_BYTES
    return tuple(runs), kept


def _find_excess(connection: apsw.Connection, limits: RetentionLimits) -> int:
    """Return the bytes of payloads over the bound; reads every row once, without its payload."""
    if not limits.tapes_bytes:
        return 0
    total: int = connection.execute("SELECT coalesce(sum(length(data)), 0) FROM tape").get
    return total - limits.tapes_bytes


def _sum_payloads(connection: apsw.Connection, run_id: str) -> tuple[int, int]:
    """Return the bytes of a run's payloads, and their number."""
    found: tuple[int, int] = connection.execute(
        "SELECT coalesce(sum(length(data)), 0), count(*) FROM tape WHERE run_id = ?", (run_id,)
    ).get
    return found


def _find_task_bound(connection: apsw.Connection, limits: RetentionLimits, now_ms: int) -> int:
    """Return the latest end of a task that is over a bound; -1 for none."""
    by_age = now_ms - limits.tasks_ms if limits.tasks_ms else -1
    if not limits.tasks:
        return by_age
    by_count = connection.execute(
        "SELECT finished_ms FROM tasks WHERE finished_ms IS NOT NULL"
        " ORDER BY finished_ms DESC LIMIT 1 OFFSET ?",
        (limits.tasks,),
    ).get
    return max(by_age, -1 if by_count is None else by_count)


def _find_incident_bound(connection: apsw.Connection, limits: RetentionLimits, now_ms: int) -> int:
    """Return the latest resolution that is over a bound; -1 for none."""
    by_age = now_ms - limits.incidents_ms if limits.incidents_ms else -1
    if not limits.incidents:
        return by_age
    by_count = connection.execute(
        "SELECT resolved_ms FROM incidents WHERE state = 'resolved'"
        " ORDER BY resolved_ms DESC LIMIT 1 OFFSET ?",
        (limits.incidents,),
    ).get
    return max(by_age, -1 if by_count is None else by_count)
