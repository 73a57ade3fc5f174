"""The journal on SQLite beyond the contract: locks, settings, ownership, files."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.records import Record
from palyra.errors import DiskFull, InvalidParams, Unavailable
from palyra.store.files.disk import REAL_DISK, Disk
from palyra.store.sqlite import writer as writer_module
from palyra.store.sqlite.connection import Readers, open_reader, open_writer
from palyra.store.sqlite.journal import SqliteJournal
from palyra.store.sqlite.writer import CHECKPOINT_PAGES
from tests.store.kit import Clock, memory, receipt, row, rows, run, seqs, session, sqlite_journal

pytestmark = pytest.mark.real

FOREIGN_READ = "import apsw, sys; apsw.Connection(sys.argv[1]).execute('SELECT * FROM tape').get"
COPY_TO_THE_END = (
    "INTO tape SELECT 9, run_id, session_id, seq, at_ms, kind, principal, redacted, data, hash"
    " FROM tape WHERE seq = 1"
)


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    opened = sqlite_journal(tmp_path)
    opened.open()
    return opened


def writer(journal: SqliteJournal) -> apsw.Connection:
    assert journal._opened is not None
    return journal._opened.writer._connection


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tape SET data = X''",
        "UPDATE tape SET position = 9",
        "DELETE FROM tape",
        "REPLACE INTO tape SELECT * FROM tape",
        f"REPLACE {COPY_TO_THE_END}",
        f"INSERT {COPY_TO_THE_END}",
    ],
)
def test_the_database_refuses_to_change_a_tape(journal: SqliteJournal, statement: str) -> None:
    """A row of a tape cannot be updated, deleted or replaced by any statement."""
    journal.commit([rows("run_a", 0, 2)])
    with pytest.raises(apsw.ConstraintError):
        writer(journal).execute(statement)
    assert [row("run_a", 0), row("run_a", 1)] == journal.read_tape(
        "run_a", after_seq=-1, limit=9
    ).rows


@pytest.mark.parametrize(
    "record", [memory("mem_b", expires_ms=2**63), session("ses_b", key="half \ud800")]
)
def test_a_value_that_no_column_holds_refuses_its_change_alone(
    journal: SqliteJournal, record: Record
) -> None:
    """A number or text that SQLite cannot store is refused; the changes beside it are committed."""
    changes = [Change(records=(each,)) for each in (session("ses_a"), record, session("ses_c"))]
    before, refusal, after = journal.commit(changes)
    assert (None, InvalidParams, None) == (before, type(refusal), after)
    found = journal.list_sessions(None, before=None, limit=9)
    assert ["ses_a", "ses_c"] == sorted(each.session_id for each in found)


def test_another_process_is_locked_out(journal: SqliteJournal) -> None:
    """While the journal is open no other process can even read the file."""
    command = [sys.executable, "-c", FOREIGN_READ, str(journal.path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (1, True) == (refused.returncode, "BusyError" in refused.stderr)
    journal.close()
    subprocess.run(command, check=True)


def test_a_second_owner_elsewhere_is_refused(tmp_path: Path) -> None:
    """A journal that another process holds cannot be opened, and the message says why."""
    code = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1], vfs='unix-excl');"
        "c.pragma('journal_mode', 'wal'); c.execute('CREATE TABLE t(x)');"
        "print('held', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "journal.sqlite3"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(Unavailable, match="in use by another process"):
            sqlite_journal(tmp_path).open()
        holder.communicate()


def test_a_writer_that_lost_ownership_adds_nothing(tmp_path: Path) -> None:
    """When the journal is opened again in the same process, the older writer is refused."""
    old, new = sqlite_journal(tmp_path), sqlite_journal(tmp_path)
    old.open()
    old.commit([rows("run_a", 0, 1)])
    assert 2 == new.open().owner_epoch
    with pytest.raises(Unavailable, match="ownership lost"):
        old.commit([rows("run_a", 1, 1)])
    assert [None] == new.commit([rows("run_a", 1, 2)])
    assert [0, 1, 2] == seqs(new, "run_a")


def test_readers_work_during_a_transaction(journal: SqliteJournal) -> None:
    """An open transaction neither blocks a reader nor is visible to it."""
    journal.commit([rows("run_a", 0, 1)])
    connection = writer(journal)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT INTO tape SELECT 2, run_id, session_id, 1, at_ms, kind, principal, redacted, data,"
        " hash FROM tape"
    )
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.extend(seqs(journal, "run_a")))
    reader.start()
    reader.join()
    connection.execute("ROLLBACK")
    assert [0] == found


def test_readers_cannot_write(journal: SqliteJournal) -> None:
    """A reading connection refuses every change."""
    reader = open_reader(journal.path, REAL_DISK)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM runs")


def test_a_query_that_outlives_the_journal_ends_well(journal: SqliteJournal) -> None:
    """A connection that is borrowed while the journal closes is closed when it comes back."""
    assert journal._opened is not None
    readers = journal._opened.readers
    with readers.borrow() as connection:
        journal.close()
        assert 0 == connection.execute("SELECT count(*) FROM tape").get
    with pytest.raises(apsw.ConnectionClosedError):
        connection.execute("SELECT 1")


def test_files_are_private(journal: SqliteJournal) -> None:
    """Database, log and roots can be read by their owner only."""
    journal.commit([rows("run_a", 0, 1)])
    journal.seal()
    modes = {path.name: path.stat().st_mode & 0o777 for path in journal.path.parent.iterdir()}
    assert {
        "journal.sqlite3": 0o600,
        "journal.sqlite3-wal": 0o600,
        "journal.roots.ndjson": 0o600,
    } == modes


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_files_are_private_under_any_umask(tmp_path: Path, mask: int) -> None:
    """The mode does not depend on who started the daemon how."""
    before = os.umask(mask)
    try:
        store = sqlite_journal(tmp_path)
        store.open()
    finally:
        os.umask(before)
    assert {0o600} == {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    store.close()


@pytest.mark.parametrize(("synchronous", "expected"), [("full", 2), ("normal", 1)])
def test_settings_are_verified(tmp_path: Path, synchronous: str, expected: int) -> None:
    """Settings that protect against power loss are set and read back."""
    connection = open_writer(tmp_path / "x.sqlite3", REAL_DISK, synchronous)  # type: ignore[arg-type]  # a literal
    names = ("journal_mode", "synchronous", "recursive_triggers", "wal_autocheckpoint")
    assert ["wal", expected, 1, 0] == [connection.pragma(name) for name in names]


def test_a_setting_that_does_not_take_stops_the_journal(tmp_path: Path) -> None:
    """A file system that cannot do write-ahead logging is refused, not worked around."""
    disk = Disk(vfs="memdb", touch_file=lambda _path: None)
    with pytest.raises(Unavailable, match="journal_mode is 'memory', must be 'wal'"):
        sqlite_journal(tmp_path, disk=disk).open()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Foreign content is named, and left as it was."""
    path = tmp_path / "journal.sqlite3"
    path.write_bytes(b"my diary\n" * 500)
    with pytest.raises(Unavailable, match="not a database"):
        sqlite_journal(tmp_path).open()
    assert b"my diary\n" * 500 == path.read_bytes()


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A journal that cannot be created says so."""
    with pytest.raises(Unavailable, match="No such file"):
        sqlite_journal(tmp_path / "gone").open()


def test_a_failed_open_leaves_nothing_locked(tmp_path: Path) -> None:
    """After a refusal the file can be opened by the next who tries."""
    roots = tmp_path / "journal.roots.ndjson"
    roots.mkdir()
    store = sqlite_journal(tmp_path)
    with pytest.raises(Unavailable, match="Is a directory"):
        store.open()
    subprocess.run([sys.executable, "-c", FOREIGN_READ, str(store.path)], check=True)
    roots.rmdir()
    store.open()
    store.close()


def test_sealing_folds_a_long_log_into_the_database(journal: SqliteJournal) -> None:
    """The log is copied between commits, when it has grown, and then used from its start."""
    payload = b"x" * 200_000
    seq = 0
    for _ in range(2):
        while writer_pages(journal) < CHECKPOINT_PAGES:
            journal.commit([Change(rows=(row("run_a", seq, data=payload),))])
            seq += 1
        journal.seal()
        assert 0 == writer_pages(journal)
    log = journal.path.with_name("journal.sqlite3-wal")
    assert log.stat().st_size < 1.5 * CHECKPOINT_PAGES * 4096


def writer_pages(journal: SqliteJournal) -> int:
    assert journal._opened is not None
    return journal._opened.writer._wal_pages


def test_a_clean_end_leaves_one_file_and_the_roots(journal: SqliteJournal) -> None:
    """After a shutdown there is no log to be lost."""
    journal.commit([rows("run_a", 0, 1)])
    journal.close()
    names = {path.name for path in journal.path.parent.iterdir()}
    assert {"journal.sqlite3", "journal.roots.ndjson"} == names


def test_sealing_forgets_old_receipts(tmp_path: Path) -> None:
    """A receipt whose day is over leaves the file with the next root."""
    clock = Clock()
    store = sqlite_journal(tmp_path, clock)
    store.open()
    store.commit([Change(records=(receipt("old"), receipt("new", created_ms=clock.now_ms + 1)))])
    clock.now_ms += 86_400_000
    store.seal()
    assert 1 == writer(store).execute("SELECT count(*) FROM receipts").get
    store.close()


def test_heads_of_ended_runs_are_not_kept(journal: SqliteJournal) -> None:
    """Memory holds the heads of open runs only."""
    journal.commit([rows("run_a", 0, 2), rows("run_b", 0, 1)])
    journal.commit([Change(rows=(row("run_a", 2),), records=(run("run_a", 2, state="done"),))])
    assert journal._opened is not None
    assert ["run_b"] == list(journal._opened.writer._heads)


def test_a_failed_commit_leaves_nothing(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row of the batch is stored, and the next commit succeeds."""
    journal.commit([rows("run_a", 0, 1)])
    writer(journal).pragma("max_page_count", writer(journal).pragma("page_count") + 2)
    large = Change(rows=(row("run_a", 1, data=b"x" * 100_000),))
    with pytest.raises(DiskFull, match="free space"):
        journal.commit([rows("run_b", 0, 1), large])
    assert [[0], []] == [seqs(journal, name) for name in ("run_a", "run_b")]
    writer(journal).pragma("max_page_count", 1_000_000)
    assert [None, None] == journal.commit([rows("run_b", 0, 1), large])
    assert [[0, 1], [0]] == [seqs(journal, name) for name in ("run_a", "run_b")]
    assert (3, None) == (journal.verify().checked_events, journal.verify().first_break)


def test_a_long_log_is_checkpointed_within_a_commit(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without seals for a long time, a commit makes the checkpoint itself."""
    monkeypatch.setattr(writer_module, "CHECKPOINT_NOW_PAGES", 50)
    log = journal.path.with_name("journal.sqlite3-wal")
    writer(journal).wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # that of the migrations
    for seq in range(40):
        journal.commit([Change(rows=(row("run_a", seq, data=b"x" * 30_000),))])
    assert log.stat().st_size < 90 * 4096


def test_a_checkpoint_that_fails_is_no_half_commit(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the log cannot be folded before a commit, nothing of the commit is written."""
    journal.commit([rows("run_a", 0, 1)])
    assert journal._opened is not None

    def fail(_mode: int) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as full:
        full.setattr(writer_module, "CHECKPOINT_NOW_PAGES", 1)
        full.setattr(journal._opened.writer, "_checkpoint", fail)
        with pytest.raises(DiskFull, match="free space"):
            journal.commit([rows("run_a", 1, 1)])
    assert [0] == seqs(journal, "run_a")
    assert [None] == journal.commit([rows("run_a", 1, 1)])


def test_heads_of_abandoned_runs_are_bounded(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cached heads of runs that never end are evicted, and their tapes can still grow."""
    monkeypatch.setattr(writer_module, "KNOWN_HEADS", 3)
    names = [f"run_{n}" for n in range(9)]
    for seq in range(3):
        for name in names:
            assert [None] == journal.commit([rows(name, seq, 1)])
    assert journal._opened is not None
    assert 3 >= len(journal._opened.writer._heads)
    assert [[0, 1, 2]] * 9 == [seqs(journal, name) for name in names]


def test_a_closed_pool_of_readers_is_an_error(tmp_path: Path) -> None:
    """A thread that comes too late gets Unavailable."""
    readers = Readers(tmp_path / "x", REAL_DISK)
    readers.close()
    with pytest.raises(Unavailable, match="closed"), readers.borrow():
        pass


def test_a_checkpoint_empties_the_log(journal: SqliteJournal, tmp_path: Path) -> None:
    """All of it is in the database, and its space is free again."""
    journal.commit([rows("run_a", 0, 50)])
    (log,) = tmp_path.rglob("*-wal")
    assert log.stat().st_size
    journal.checkpoint()
    assert 0 == log.stat().st_size
    assert 50 == len(journal.read_tape("run_a", after_seq=-1, limit=99).rows)
