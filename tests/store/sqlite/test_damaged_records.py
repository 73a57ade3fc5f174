"""Records that do not decode: each costs itself alone, and is named."""

from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.damaged_row import make_mark
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import agent, row, rows, sqlite_journal, token
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
