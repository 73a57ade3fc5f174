"""Purges in the file: no byte of the content is left, and only a recorded purge is allowed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.purged_row import make_tombstone
from palyra.core.journal.records import MemoryRemoval, RunRemoval
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import abandon, memory, sqlite_journal
from tests.store.test_contract_purges import AT_MS, EVENTS, SECRET, purge_of, say

pytestmark = pytest.mark.real
STUB = make_tombstone(b"x", AT_MS)
Damage = Callable[[apsw.Connection], object]


def has_bytes(directory: Path, wanted: bytes) -> list[str]:
    """The files that contain these bytes."""
    return [
        path.name for path in directory.rglob("*") if path.is_file() and wanted in path.read_bytes()
    ]


def clean(store: SqliteJournal) -> None:
    """Seal until nothing is left to overwrite."""
    for _ in range(50):
        if not store.has_leftovers:
            return
        store.seal()
    raise AssertionError("leftovers stay")


def open_store(directory: Path) -> SqliteJournal:
    directory.mkdir(exist_ok=True)
    store = sqlite_journal(directory)
    store.open()
    return store


def test_turns_read_before_a_purge_are_not_indexed(tmp_path: Path) -> None:
    """A step that was planned with the text of purged events writes neither rows nor words."""
    store = open_store(tmp_path)
    for change in (say("run_a"), say("run_b")):
        heard = (msgspec.structs.replace(each, kind="message.received") for each in change.rows)
        store.commit([msgspec.structs.replace(change, rows=tuple(heard))])
    step = store.turns().plan_turns()
    assert step is not None
    assert {"run_a", "run_b"} == {turn.run_id for turn in step.turns}
    store.commit([purge_of(store, "run_a")])
    assert [None] == store.commit([Change(records=(step,))])
    store.close()
    connection = apsw.Connection(str(tmp_path / "journal.sqlite3"))
    assert [("run_b", EVENTS)] == list(
        connection.execute("SELECT run_id, count(*) FROM turns GROUP BY run_id")
    )
    assert EVENTS == connection.execute("SELECT count(*) FROM turn_fts_docsize").get
    connection.close()


def test_no_byte_of_the_content_is_left(tmp_path: Path) -> None:
    """Neither the database nor its log has the text of a purged run or a forgotten item."""
    store = open_store(tmp_path)
    store.commit([say("run_a", 300), Change(records=(memory("mem_1", "xyzzy-plover is a fact"),))])
    store.seal()
    assert has_bytes(tmp_path, SECRET)
    store.commit([purge_of(store, "run_a")])
    removal = MemoryRemoval(principal="alice", memory_ids=("mem_1",), at_ms=1, by="alice")
    store.commit([Change(records=(removal,))])
    assert store.has_leftovers
    clean(store)
    assert [] == has_bytes(tmp_path, SECRET)
    abandon(store)


def test_a_kill_before_the_log_is_cut_is_made_good(tmp_path: Path) -> None:
    """The next opening cuts the log that still has the content."""
    store = open_store(tmp_path / "killed")
    store.commit([say("run_a")])
    store.commit([purge_of(store, "run_a")])
    left = tmp_path / "left"
    shutil.copytree(tmp_path / "killed", left)  # what a kill leaves
    abandon(store)
    assert has_bytes(left, SECRET)
    store = open_store(left)
    assert store.has_leftovers
    clean(store)
    assert [] == has_bytes(left, SECRET)
    abandon(store)


def test_a_reader_only_delays_the_cut(tmp_path: Path) -> None:
    """A seal beside a reader of old pages does not wait; a later one cuts the log."""
    store = open_store(tmp_path)
    store.commit([say("run_a")])
    reader = apsw.Connection(str(tmp_path / "journal.sqlite3"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM tape").get  # noqa: B018 - begins to read
    store.commit([purge_of(store, "run_a")])
    for _ in range(20):
        store.seal()
    assert store.has_leftovers
    reader.execute("ROLLBACK")
    clean(store)
    assert [] == has_bytes(tmp_path, SECRET)
    reader.close()
    abandon(store)


def test_a_payload_cannot_go_without_its_record(tmp_path: Path) -> None:
    """The database refuses a removal in a change without the event, and takes nothing of it."""
    store = open_store(tmp_path)
    store.commit([say("run_a")])
    alone = Change(records=(RunRemoval(run_id="run_a", events=EVENTS, at_ms=AT_MS),))
    (refusal,) = store.commit([alone])
    assert refusal is not None
    assert all(
        SECRET in each.data for each in store.read_tape("run_a", after_seq=-1, limit=99).rows
    )
    abandon(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tape SET data = ? WHERE run_id = 'run_b'",
        "UPDATE tape SET data = ?, kind = 'x' WHERE run_id = 'run_a' AND seq = 0",
        "UPDATE tape SET at_ms = 1 WHERE data <> ? AND run_id = 'run_a'",
        "UPDATE tape SET data = ? WHERE kind = 'run.purged'",
        "UPDATE tape SET data = CAST(x'00' || ? AS BLOB) WHERE run_id = 'run_a'",
        "DELETE FROM tape WHERE data <> ?",
    ],
)
def test_the_database_allows_no_other_change(tmp_path: Path, statement: str) -> None:
    """Every other change of a tape is refused, of a purged run as well."""
    store = open_store(tmp_path)
    store.commit([say("run_a"), say("run_b")])
    store.commit([purge_of(store, "run_a")])
    store.close()
    connection = apsw.Connection(str(tmp_path / "journal.sqlite3"))
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        connection.execute(statement, (STUB,))
    connection.close()


def blank(connection: apsw.Connection) -> None:
    """What an attacker would do: the payloads look purged."""
    connection.execute("UPDATE tape SET data = ? WHERE run_id = 'run_b' AND seq = 2", (STUB,))


def unrecord(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM tape WHERE kind = 'run.purged'")


def rewrite(connection: apsw.Connection) -> None:
    connection.execute("UPDATE tape SET kind = 'tool.started' WHERE run_id = 'run_a' AND seq = 2")


def move(connection: apsw.Connection) -> None:
    connection.execute("UPDATE tape SET at_ms = at_ms + 1 WHERE run_id = 'run_a' AND seq = 2")


def redigest(connection: apsw.Connection) -> None:
    connection.execute("UPDATE tape SET data = ? WHERE run_id = 'run_a' AND seq = 2", (STUB,))


@pytest.mark.parametrize("damage", [blank, unrecord, rewrite, move, redigest])
@pytest.mark.parametrize("is_signed", [True, False])
def test_a_change_beside_the_record_is_a_break(
    tmp_path: Path, damage: Damage, *, is_signed: bool
) -> None:
    """Blanked payloads without a record, a lost record and edits of purged rows are found."""
    store = open_store(tmp_path)
    store.commit([say("run_a"), say("run_b")])
    store.commit([purge_of(store, "run_a")])
    if is_signed:
        store.close()
    else:
        abandon(store)
    connection = apsw.Connection(str(tmp_path / "journal.sqlite3"))
    for name in ("updated", "deleted"):
        connection.execute(f"DROP TRIGGER tape_is_never_{name}")
    damage(connection)
    connection.close()
    store = open_store(tmp_path)
    run_id = "run_b" if damage is blank else "run_a"
    for wanted in (None, run_id):
        found = store.verify(wanted).first_break
        assert found is not None, wanted
        assert run_id == found.run_id
    if damage is not unrecord:  # a missing row breaks the root over both
        other = "run_a" if damage is blank else "run_b"
        assert None is store.verify(other).first_break
    abandon(store)


def test_the_start_proves_a_purge_at_the_end(tmp_path: Path) -> None:
    """The opening verifies the end of the journal only, and finds a purge of older rows valid."""
    store = open_store(tmp_path)
    store.commit([say("run_a")])
    for number in range(3):
        store.commit([say(f"run_{number}")])
        store.seal()
    store.commit([purge_of(store, "run_a")])
    abandon(store)
    store = sqlite_journal(tmp_path)
    report = store.open().verification
    assert None is report.first_break
    assert EVENTS == store.verify().purged_events
    abandon(store)


def test_a_damaged_record_is_not_a_proof(tmp_path: Path) -> None:
    """A record that cannot be decoded proves nothing, and does not stop verification."""
    store = open_store(tmp_path)
    store.commit([say("run_a")])
    change = purge_of(store, "run_a")
    last = msgspec.structs.replace(change.rows[0], data=b"{}")
    assert [None] == store.commit([msgspec.structs.replace(change, rows=(last,))])
    found = store.verify().first_break
    assert found is not None
    assert "no purge" in found.detail
    abandon(store)
