"""Records that do not decode: each costs itself alone, and is named."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from palyra.core.journal.changes import Change, PairingFilter
from palyra.core.journal.damaged_row import make_mark
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import (
    agent,
    approval,
    budget,
    grant,
    memory,
    pairing,
    row,
    rows,
    session,
    sqlite_journal,
    token,
)
from tests.store.test_contract_tasks import ids, task

pytestmark = pytest.mark.real


def open_damaged(tmp_path: Path, table: str, where: str, text: str) -> SqliteJournal:
    """Open a journal in which another program has changed a record."""
    store = sqlite_journal(tmp_path)
    store.open()
    tasks = [task(f"tsk_{n}", rank_ms=n) for n in range(1, 4)]
    change = Change(records=(*tasks, token("tok_1"), agent("ann", 1)))
    assert [None, None] == store.commit([change, Change(records=(agent("ann", 2),))])
    store.close()
    with_triggers = apsw.Connection(str(store.path))
    for (name,) in with_triggers.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?", (table,)
    ).fetchall():
        with_triggers.execute(f"DROP TRIGGER {name}")
    with_triggers.execute(f"UPDATE {table} SET record = ? WHERE {where}", (text,))  # noqa: S608 - literals
    with_triggers.close()
    store.open()
    return store


@pytest.mark.parametrize("text", ["{bro", "", "{}", "[]", "two"])
def test_a_damaged_task_costs_itself_alone(tmp_path: Path, text: str) -> None:
    """The others are claimed in order, and the damaged one is named."""
    if text == "two":  # which the array of all records would hold as two of them
        text = ",".join([msgspec.json.encode(task("tsk_1", rank_ms=1)).decode()] * 2)
    store = open_damaged(tmp_path, "tasks", "task_id = 'tsk_1'", text)
    claimable = store.list_claimable(now_ms=9, limit=9, running={})
    assert ["tsk_2", "tsk_3"] == ids(claimable)
    assert store.find_task("tsk_1") is None
    assert ("tasks:tsk_1",) == store.list_damaged()
    store.close()


def test_a_damaged_event_costs_itself_alone(tmp_path: Path) -> None:
    """Readers get a mark in its place and it is named; verification reads the stored bytes."""
    store = sqlite_journal(tmp_path)
    store.open()
    assert [None] == store.commit([rows("run_a", 0, 3)])
    with closing(apsw.Connection(str(store.path))) as connection:
        connection.execute("DROP TRIGGER tape_is_never_updated")
        connection.execute("UPDATE tape SET data = CAST('{bro' AS BLOB) WHERE seq = 1")
    found = [each.data for each in store.read_tape("run_a", after_seq=-1, limit=9).rows]
    assert [row("run_a", 0).data, make_mark(b"{bro"), row("run_a", 2).data] == found
    assert found == [each.row.data for each in store.read_chain("run_a", after_seq=-1, limit=9)]
    assert ("tape:run_a:1",) == store.list_damaged()
    broken = store.verify("run_a").first_break
    assert broken is not None
    assert ("edited", 1) == (broken.kind, broken.seq)
    store.close()


def test_a_damaged_token_grants_nothing(tmp_path: Path) -> None:
    """It is found neither by its hash nor in the list; a sound one is."""
    store = open_damaged(tmp_path, "tokens", "TRUE", "{bro")
    assert [] == store.list_tokens()
    assert store.find_token(token("tok_1").sha256) is None
    store.close()


def test_an_older_agent_does_not_replace_a_damaged_one(tmp_path: Path) -> None:
    """The newest version is not found; the older one is, by its number."""
    store = open_damaged(tmp_path, "agents", "version = 2", "{bro")
    assert store.find_agent("ann") is None
    assert ("agents:ann:2",) == store.list_damaged()
    assert agent("ann", 1) == store.find_agent("ann", 1)
    store.close()


def spoil(store: SqliteJournal, *statements: str) -> None:
    """Change the file behind the store, without its triggers."""
    with closing(apsw.Connection(str(store.path))) as connection:
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("change", "scope", "subject"),
    [
        ("record = '{bro'", "global", "*"),
        ("record = ''", "global", "*"),
        ("record = json_set(record, '$.hard', 'much')", "principal", "ann"),
        ("record = json_set(record, '$.scope', 'none')", "global", "*"),
        ("record = json_set(record, '$.budget_id', 'other')", "principal", "ann"),
        ("is_deleted = 1", "principal", "ann"),
        ("revision = 7", "principal", "ann"),
    ],
)
def test_a_damaged_budget_admits_nothing(
    tmp_path: Path, change: str, scope: str, subject: str
) -> None:
    """One that admits nothing to whom it may limit stands for it, and can be replaced."""
    store = sqlite_journal(tmp_path)
    store.open()
    limit = budget("bud", scope="principal", subject="ann", hard=9, revision=1)
    assert [None] == store.commit([Change(records=(limit, budget("other_one")))])
    spoil(store, f"UPDATE budgets SET {change} WHERE budget_id = 'bud'")  # noqa: S608 - literals
    found, other = store.list_budgets()
    assert budget("other_one") == other
    assert (True, 0, "block", scope, subject) == (
        found.is_damaged, found.hard, found.action, found.scope, found.subject,
    )  # fmt: skip
    assert found == store.find_budget("bud")
    assert ("budgets:bud",) == store.list_damaged()
    again = msgspec.structs.replace(limit, revision=found.revision + 1)
    assert [None] == store.commit([Change(records=(again,))])
    assert again == store.find_budget("bud")
    store.close()


def test_a_deleted_budget_that_does_not_decode_limits_nothing(tmp_path: Path) -> None:
    """Its column says that it is deleted, and nothing contradicts."""
    store = sqlite_journal(tmp_path)
    store.open()
    assert [None] == store.commit([Change(records=(budget("bud", deleted_ms=3),))])
    spoil(store, "UPDATE budgets SET record = '{bro'")
    assert [] == store.list_budgets()
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE grants SET ended_ms = NULL",
        "UPDATE grants SET expires_ms = 99, ended_ms = NULL",
        "UPDATE grants SET ended_ms = NULL, record = '{}'",
        "UPDATE tokens SET sha256 = 'x'",
        "UPDATE tokens SET record = json_set(record, '$.sha256', 'x')",
        "UPDATE approvals SET state = 'allowed'",
        "UPDATE approvals SET covers = 9",
        "UPDATE pairings SET sender = 'mallory'",
        "UPDATE pairings SET state = 'paired'",
    ],
)
def test_a_row_of_two_minds_lets_nobody_do_anything(tmp_path: Path, change: str) -> None:
    """A grant, token, approval or pairing whose columns are not those of its record is found by none."""
    store = sqlite_journal(tmp_path)
    store.open()
    records = (grant("gra", ended_ms=3), token("tok"), approval("apr"), pairing("pai", "ann"))
    assert [None] == store.commit([Change(records=records)])
    spoil(store, change)
    table = change.split()[1]
    found: dict[str, Any] = {
        "grants": lambda: store.list_grants(principal=None, live_at_ms=1, limit=9),
        "tokens": lambda: [
            each for each in map(store.find_token, ("x", token("tok").sha256)) if each
        ],
        "approvals": lambda: [each for each in [store.find_approval("apr")] if each],
        "pairings": lambda: store.list_pairings(PairingFilter(limit=9)),
    }
    assert [] == found[table]()
    assert store.list_damaged()
    for name in found.keys() - {table, "grants"}:  # the others stay
        assert found[name]()
    store.close()


def test_a_sweep_finds_rows_that_no_query_reads(tmp_path: Path) -> None:
    """It goes through every table and the tapes, some rows a step, and finds nothing in a sound journal."""
    store = sqlite_journal(tmp_path)
    store.open()
    tasks = [task(f"tsk_{n}") for n in range(20)]
    change = Change(
        rows=rows("run_a", 0, 9).rows,
        records=(*tasks, grant("gra"), agent("ann", 1), memory("mem")),
    )
    assert [None] == store.commit([change])
    for _ in range(90):
        store.check_rows(5)
    assert () == store.list_damaged()
    spoil(
        store,
        "UPDATE tasks SET record = '{bro' WHERE task_id = 'tsk_13'",
        "UPDATE tasks SET rank_ms = 7 WHERE task_id = 'tsk_7'",
        "UPDATE grants SET principal = 'mallory'",
        "UPDATE agents SET name = CAST(x'ff' AS TEXT)",
        "UPDATE memories SET kind = 'none'",
        "UPDATE tape SET at_ms = 3 WHERE seq = 4",
    )
    for _ in range(90):
        store.check_rows(5)
    wanted = {"tasks:tsk_13", "tasks:tsk_7", "grants:gra", "agents:\ufffd:1", "memories:mem"}
    assert wanted | {"tape:run_a:4"} == set(store.list_damaged())
    store.close()


PLACE = {"agent": "default", "channel": "chat", "conversation_id": "42"}


def spoil_sessions(path: Path, change: str) -> None:
    """Change all sessions past the store."""
    with closing(apsw.Connection(str(path))) as other:
        other.execute(f"UPDATE sessions SET {change}")  # noqa: S608 - a literal of this file


@pytest.mark.parametrize(
    "change", ["record = '{bro'", "record = CAST(x'ff' AS TEXT)", "is_purging = 1"]
)
@pytest.mark.parametrize("held", [{"key": "work"}, PLACE])
def test_a_damaged_session_gives_its_key_and_conversation_to_the_next(
    tmp_path: Path, change: str, held: dict[str, Any]
) -> None:
    """Another session can take them; the damaged record keeps its bytes."""
    store = sqlite_journal(tmp_path)
    store.open()
    store.commit([Change(records=(session("ses_1", **held),))])
    spoil_sessions(store.path, change)
    with closing(apsw.Connection(str(store.path))) as other:
        bytes_of = "SELECT CAST(record AS BLOB) FROM sessions WHERE session_id = 'ses_1'"
        before = other.execute(bytes_of).get
        assert [None] == store.commit([Change(records=(session("ses_2", **held),))])
        assert before == other.execute(bytes_of).get
    assert store.find_session("ses_2") is not None
    store.close()


def test_a_sound_session_keeps_its_key(tmp_path: Path) -> None:
    """Negative control: the second session of a key is a conflict."""
    store = sqlite_journal(tmp_path)
    store.open()
    change = Change(records=(session("ses_2", key="work"),))
    store.commit([Change(records=(session("ses_1", key="work"),))])
    (outcome,) = store.commit([change])
    assert outcome is not None
    assert "already in use" in str(outcome)
    store.close()
