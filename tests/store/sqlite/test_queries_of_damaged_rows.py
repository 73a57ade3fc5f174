"""Every query of the store on a journal with one damaged value: it costs its row alone."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import apsw
import msgspec
import pytest

from palyra.core.journal.changes import (
    CandidateFilter,
    Change,
    IncidentFilter,
    MemoryFilter,
    PairingFilter,
    RunFilter,
    TaskFilter,
    UsageFilter,
)
from palyra.core.journal.records import (
    MemoryUseRecord,
    ReflectionRecord,
    SessionCheckpointRecord,
    WorkRemoval,
)
from palyra.core.journal.retention import RetentionLimits
from palyra.core.memory.vectors import VectorSpace
from palyra.core.tape.search import TapeSearch
from palyra.store.sqlite.journal import SqliteJournal
from tests.store import kit
from tests.store.test_contract_learning import candidate
from tests.store.test_contract_tasks import schedule, task

pytestmark = pytest.mark.real
NOW_MS = 1_750_000_000_000
# No JSON; no UTF-8; JSON of another form; a value of another type; one too deep.
BAD = ("CAST('{bro' AS TYPE)", "CAST(x'7b22ff' AS TYPE)", "CAST('[7]' AS TYPE)", "CAST('' AS TYPE)")
WORDS = ("port", "deploy")
MEMORIES = MemoryFilter(principal="alice", now_ms=NOW_MS, limit=9)
ARGUMENTS: dict[str, dict[str, Any]] = {  # of a query, or of each; by name
    "list_runs": {"wanted": RunFilter(limit=9)},
    "list_started_ids": {"wanted": RunFilter(limit=9)},
    "list_tasks": {"wanted": TaskFilter(limit=9)},
    "list_learned": {"wanted": CandidateFilter(principal="alice", limit=9)},
    "list_incidents": {"wanted": IncidentFilter(limit=9)},
    "list_pairings": {"wanted": PairingFilter(limit=9)},
    "list_usage": {"wanted": UsageFilter()},
    "sum_usage": {"wanted": UsageFilter(), "by": "principal"},
    "list_memories": {"wanted": msgspec.structs.replace(MEMORIES, tags=("x",))},
    "find_in_use": {"since_ms": 1},
    "plan": {"limits": RetentionLimits(tapes_ms=1, incidents=1), "limit": 9},
    "list_claimable": {"running": {}},
    "count_answers": {"asked": kit.approval("apr_c")},
    "search_tape": {"wanted": TapeSearch(text="port")},
    "find_work": {"removal": WorkRemoval(principal="alice", session_id="ses_a", key="ka")},
    "": {
        "wanted": MEMORIES, "words": WORDS, "limit": 9, "now_ms": NOW_MS, "principal": "alice",
        "session_id": "ses_a", "run_id": "run_a", "run_ids": ["run_a", "run_b"], "rows": [1, 2, 3],
        "row": 1, "after_row": 0, "after_entry": 0, "after_seq": -1, "after_ms": 0, "key": "k",
        "memory_id": "mem_a", "column": "text", "space": VectorSpace("e", 2), "embedder": "e",
        "dimensions": 2, "hashes": [kit.memory("m").text_hash], "item": kit.memory("mem_c"),
        "own": False, "channel": "chat", "conversation_id": "", "sender": "ann", "agent": "default",
        "sha256": "sha of tok_a", "name": "ann", "workspace": "/w", "document": "MEMORY.md",
        "pending_only": False, "before": None, "live_at_ms": NOW_MS, "kind": "turn.completed",
        "task_id": "tsk_a", "schedule_id": "sch_a", "budget_id": "bud_a", "grant_id": "gra_a",
        "approval_id": "apr_a", "incident_id": "inc_a", "candidate_id": "can_a",
        "pairing_id": "pai_a",
    },
}  # fmt: skip
NO_QUERIES = {
    "check", "check_files", "checkpoint", "close", "commit", "open", "open_snapshot", "seal",
    "retention", "turns",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteJournal]:
    """An open journal with two records of every kind, whose triggers are dropped."""
    journal = kit.sqlite_journal(tmp_path_factory.mktemp("damaged"))
    journal.open()
    for x in "ab":
        said = b'{"text":"the deploy port is 8080"}'
        rows = [
            kit.row(f"run_{x}", seq, data=said, kind=kind, session_id=f"ses_{x}")
            for seq, kind in enumerate(("message.received", "message.completed", "tool.completed"))
        ]
        use = MemoryUseRecord(
            use_id=f"use_{x}", run_id="run_a", session_id="ses_a", principal="alice",
            way="tool", question="?", at_ms=1,
        )  # fmt: skip
        point = SessionCheckpointRecord(
            checkpoint_id=f"cpt_{x}", principal="alice", session_id="ses_a", run_id="run_a", seq=0,
            created_ms=1,
        )  # fmt: skip
        read = ReflectionRecord(run_id=f"run_{x}", session_id="ses_a", principal="alice", at_ms=1)
        records = (
            kit.run(f"run_{x}", 2, session_id=f"ses_{x}", state="done", finished_ms=1, started_ms=1),
            kit.session(f"ses_{x}", key=f"k{x}"), point, kit.approval(f"apr_{x}"),
            kit.receipt(f"k{x}"), kit.token(f"tok_{x}"), kit.agent("ann", ord(x)),
            kit.agent(x), kit.channel(x), kit.pairing(f"pai_{x}", x), kit.grant(f"gra_{x}"),
            kit.usage(f"run_{x}", 1), kit.budget(f"bud_{x}"), kit.incident(f"inc_{x}"), use,
            kit.document(ord(x)), candidate(x), read,
            task(f"tsk_{x}", principal=f"p{x}"), schedule(f"sch_{x}", principal=f"p{x}"),
            kit.memory(f"mem_{x}", f"the deploy port of {x}", tags=("x",)),
        )  # fmt: skip
        assert [None] == journal.commit([Change(rows=tuple(rows), records=records)])
    again = kit.memory("mem_a", "the deploy port is 1", revision=2)
    assert [None] == journal.commit([Change(records=(again,))])
    planned = journal.turns().plan_turns()
    assert planned is not None
    assert [None] == journal.commit([Change(records=(planned,))])
    with closing(apsw.Connection(str(journal.path))) as connection:
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(
            "INSERT INTO memory_vectors VALUES (1, 'e', 0.1, x'0101', NULL), (2, 'e', 0.1, x'0101', NULL)"
        )
        connection.execute(
            "INSERT INTO turn_vectors VALUES (1, 'e', 0.1, x'0101', NULL), (2, 'e', 0.1, x'0101', NULL)"
        )
    yield journal
    journal.close()


def queries(store: SqliteJournal) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each query of the store with arguments, found by its class."""
    for part in (store, store.turns(), store.retention()):
        for name, method in inspect.getmembers(part, inspect.ismethod):
            if name.startswith("_") or name in NO_QUERIES:
                continue
            wanted = inspect.signature(method).parameters.values()
            given = ARGUMENTS[""] | ARGUMENTS.get(name, {})
            kwargs = {
                each.name: given[each.name]
                for each in wanted
                if each.name in given or each.default is inspect.Parameter.empty
            }
            yield f"{type(part).__name__}.{name}", partial(method, **kwargs)


def values(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    """Each stored column of each table, with its type."""
    return connection.execute(
        "SELECT m.name, c.name, c.type FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c"
        " WHERE m.type = 'table' AND m.sql LIKE '%) STRICT%' AND c.type IN ('TEXT', 'BLOB')"
        " AND m.name NOT IN ('owner', 'quarantine') ORDER BY m.name, c.cid"
    ).fetchall()  # type: ignore[return-value]  # untyped rows


def complaints(store: SqliteJournal, table: str, sound: dict[str, Any]) -> Iterator[str]:
    """What a query answers that lacks more than a row."""
    for name, query in queries(store):
        try:
            found = query()
        except Exception as error:  # noqa: BLE001 - each is a complaint
            yield f"{name}: {error!r}"
            continue
        before = sound[name]
        is_of_session = table == "sessions" and name.startswith("TurnQueries")  # all its turns
        if isinstance(before, list) and len(found) < len(before) - 1 and not is_of_session:
            yield f"{name}: {len(found)} of {len(before)}"


@pytest.mark.parametrize(
    ("bad", "order"), [*((bad, "rowid") for bad in BAD), (BAD[1], "rowid DESC")]
)
def test_a_damaged_value_costs_its_row_alone(store: SqliteJournal, bad: str, order: str) -> None:
    """No query fails, or lacks more than the row, for any value of any column; also of the last row."""
    sound = {name: query() for name, query in queries(store)}
    found = list[str]()
    with closing(apsw.Connection(str(store.path))) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for table, column, kind in values(connection):
            update = f"UPDATE {table} SET {column} = {{}} WHERE rowid = ?"  # noqa: S608 - of the schema
            read = f"SELECT rowid, {column} FROM {table} ORDER BY {order} LIMIT 1"  # noqa: S608 - the same
            row, kept = connection.execute(read).get
            try:
                connection.execute(update.format(bad.replace("TYPE", kind)), (row,))
            except (apsw.SQLError, apsw.ConstraintError):  # a column that others are made of
                continue
            found += [f"{table}.{column}: {each}" for each in complaints(store, table, sound)]
            connection.execute(update.format("?"), (kept, row))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("damage", "counted"),
    [
        ("'$.resolved_ms', 'soon'", 1),
        ("'$.by', json('[1]')", 1),
        ("'$.by', CAST(x'ff' AS TEXT)", 0),  # no answer is named then
    ],
)
def test_an_answer_that_is_damaged_inside_is_not_counted(
    store: SqliteJournal, damage: str, counted: int
) -> None:
    """JSON with a field of another type costs its answer, and with no UTF-8 in it the count."""
    asked = kit.approval("apr_z", grant_key="k")
    given = {"state": "allowed", "grant_key": "k", "resolved_ms": 5, "by": "ann"}
    records = [kit.approval(each, **given) for each in ("apr_x", "apr_y")]
    store.commit([Change(records=tuple(records))])
    with closing(apsw.Connection(str(store.path))) as connection:
        change = (
            f"UPDATE approvals SET record = json_set(record, {damage}) WHERE approval_id = 'apr_y'"  # noqa: S608 - of this test
        )
        connection.execute(change)
        found = store.count_answers(asked, limit=9)
        connection.execute("DELETE FROM approvals WHERE approval_id IN ('apr_x', 'apr_y')")
    assert (counted, "ann" if counted else None) == (found.allowed, found.latest_by)
