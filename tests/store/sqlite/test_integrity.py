"""Damaged pages: found in the background after an unclean end, and then work stops."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import apsw
import pytest

from palyra.errors import Unavailable
from palyra.store.sqlite import integrity
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import abandon, rows, seqs, sqlite_journal

pytestmark = pytest.mark.real

PAGE = 4096
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def never() -> bool:
    """Never stop the check."""
    return False


def fill(store: SqliteJournal) -> None:
    """Much that is old and signed, and a little that is new."""
    store.open()
    for start in range(0, 3000, 100):
        store.commit([rows("run_a", start, 100)])
    for run_id in ("run_b", "run_c"):
        store.seal()
        store.commit([rows(run_id, 0, 3)])
    store.seal()
    assert store._opened is not None
    store._opened.writer._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)


def spoil(path: Path) -> None:
    """Wipe the heads of some pages of a run that ended long ago, behind those of the schema."""
    uri = f"file:{path}?immutable=1"
    reader = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    last_root: int = reader.execute("SELECT max(rootpage) FROM sqlite_schema").get
    reader.close()
    content = bytearray(path.read_bytes())
    for page in range(last_root + 4, last_root + 54, 7):
        content[page * PAGE : page * PAGE + 8] = bytes(8)
    path.write_bytes(content)


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[], SqliteJournal]:
    """Makes journals over a file with wiped pages and no clean end."""
    store = sqlite_journal(tmp_path)
    fill(store)
    abandon(store)
    spoil(store.path)
    return lambda: sqlite_journal(tmp_path)


def test_damage_does_not_delay_the_start(damaged: Callable[[], SqliteJournal]) -> None:
    """The journal opens and serves intact pages; the background check finds the damage."""
    store = damaged()
    assert not store.open().was_clean
    assert [0, 1, 2] == seqs(store, "run_c")
    finding = store.check(never)
    assert finding is not None
    assert "damaged" in finding
    assert "backup" in finding
    assert finding == store.check(never)
    store.close()


def test_a_database_found_damaged_is_not_opened_again(damaged: Callable[[], SqliteJournal]) -> None:
    """Neither this process nor a later one opens it until it is intact."""
    store = damaged()
    whole = store.path.read_bytes()
    store.open()
    store.check(never)
    store.close()
    for again in (store, damaged()):
        with pytest.raises(Unavailable, match=r"damaged .*backup"):
            again.open()
    assert len(whole) == store.path.stat().st_size


def test_a_whole_file_is_opened_again(tmp_path: Path) -> None:
    """A note about damage that is mended goes away by itself."""
    store = sqlite_journal(tmp_path)
    fill(store)
    abandon(store)
    whole = store.path.read_bytes()
    spoil(store.path)
    spoiled = sqlite_journal(tmp_path)
    spoiled.open()
    assert spoiled.check(never) is not None
    abandon(spoiled)
    assert spoiled._pages.note_path.exists()
    store.path.write_bytes(whole)
    store.path.with_name("journal.sqlite3-wal").unlink(missing_ok=True)
    store.open()
    assert not store._pages.note_path.exists()
    store.close()


def test_nothing_is_walked_after_a_clean_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages are looked at once after an unclean end, and then no more."""
    walks: list[apsw.Connection] = []

    def note(connection: apsw.Connection) -> None:
        walks.append(connection)

    monkeypatch.setattr(integrity, "_find_damage", note)
    store = sqlite_journal(tmp_path)
    store.open()
    assert store.check(never) is None
    store.close()
    store.open()
    assert store.check(never) is None
    assert [] == walks
    abandon(store)
    assert not store.open().was_clean
    assert store.check(never) is None
    assert store.check(never) is None
    assert 1 == len(walks)
    store.close()
    assert store.open().was_clean
    store.close()


def test_a_walk_that_was_cut_short_is_due_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing does not wait for it, and counts as clean only when it was done."""
    begun = Event()

    def walk_on(connection: apsw.Connection) -> None:
        begun.set()
        connection.execute(ENDLESS).get  # noqa: B018 - runs until interrupted

    store = sqlite_journal(tmp_path)
    fill(store)
    abandon(store)
    with monkeypatch.context() as patched:
        patched.setattr(integrity, "_find_damage", walk_on)
        store.open()
        walker = Thread(target=store.check, args=(never,))
        walker.start()
        assert begun.wait(10)
        store.close()
        walker.join(10)
        assert not walker.is_alive()
    assert not store.open().was_clean
    assert store.check(never) is None
    store.close()
    assert store.open().was_clean
    store.close()
