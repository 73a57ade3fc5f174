"""The copy that a migration of the schema leaves is the way back."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from palyra.errors import DiskFull
from palyra.store.files.free_space import Room
from palyra.store.sqlite import upgrade
from palyra.store.sqlite.journal import SqliteJournal
from palyra.store.sqlite.schema import MIGRATIONS, SCHEMA_VERSION, migrate
from tests.store.backup.kit import journal
from tests.store.kit import rows, seqs

pytestmark = pytest.mark.real


def age(folder: Path, version: int) -> None:
    """Give the journal of a folder the schema of an older version, with its rows and roots."""
    path = folder / "journal.sqlite3"
    modern = path.rename(folder / "modern.sqlite3")
    with closing(apsw.Connection(str(path))) as old:
        migrate(old, MIGRATIONS[:version])
        old.execute("ATTACH ? AS modern", (str(modern),))
        for table in ("owner", "tape"):
            old.execute(f"INSERT INTO {table} SELECT * FROM modern.{table}")  # noqa: S608 - our tables
    modern.unlink()


@pytest.fixture
def old(tmp_path: Path) -> SqliteJournal:
    """A closed journal of schema 6 with three events."""
    store = journal(tmp_path)
    store.open()
    store.commit([rows("run_a", 0, 3)])
    store.close()
    age(tmp_path, 6)
    return store


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("journal.schema*"))


COPY = ["journal.schema6.roots.ndjson", "journal.schema6.sqlite3"]


def test_a_migration_keeps_the_old_journal(old: SqliteJournal, tmp_path: Path) -> None:
    """Database and roots as they were, private, and a note names them."""
    roots = old.roots_path.read_bytes()
    report = old.open()
    old.commit([rows("run_a", 3, 1)])
    old.close()
    assert any("journal.schema6.sqlite3" in note for note in report.notes)
    assert COPY == copies(tmp_path)
    assert {0o600} == {(tmp_path / name).stat().st_mode & 0o777 for name in COPY}
    assert roots == (tmp_path / COPY[0]).read_bytes()
    with closing(apsw.Connection(str(tmp_path / COPY[1]))) as kept:
        assert 6 == kept.pragma("user_version")
        assert 3 == kept.execute("SELECT count(*) FROM tape").get


def test_the_copy_is_the_way_back(old: SqliteJournal, tmp_path: Path) -> None:
    """Put back, it opens with its events, and the return is on record as what it is."""
    old.open()
    old.close()
    for path in (old.path, old.roots_path):
        path.unlink()
    (tmp_path / COPY[0]).rename(old.roots_path)
    (tmp_path / COPY[1]).rename(old.path)
    report = old.open()
    assert [0, 1, 2] == seqs(old, "run_a")
    old.close()
    assert report.verification.first_break is not None
    assert "rolled back" in report.verification.first_break.detail


def test_a_new_journal_that_was_cut_off_is_not_copied(tmp_path: Path) -> None:
    """Negative control: without an owner there is nothing to keep."""
    with closing(apsw.Connection(str(tmp_path / "journal.sqlite3"))) as connection:
        migrate(connection, MIGRATIONS[:3])
    store = journal(tmp_path)
    store.open()
    store.close()
    assert [] == copies(tmp_path)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION])
def test_nothing_is_copied_without_a_migration(tmp_path: Path, version: int) -> None:
    """Negative control: a new journal and a current one leave no copy."""
    store = journal(tmp_path)
    for _ in range(1 if version == 0 else 2):
        store.open()
        store.close()
    assert [] == copies(tmp_path)


def test_without_room_the_old_journal_stays(
    old: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opening fails with the bytes that are missing, and the schema is the old one."""
    monkeypatch.setattr(upgrade, "find_room", lambda _: Room(1_000, 1_000))
    with pytest.raises(DiskFull, match="1000 are free"):
        old.open()
    assert [] == copies(tmp_path)
    with closing(apsw.Connection(str(old.path))) as kept:
        assert 6 == kept.pragma("user_version")


def test_only_the_last_copy_is_kept(old: SqliteJournal, tmp_path: Path) -> None:
    """Of two upgrades one copy is left."""
    old.open()
    old.close()
    age(tmp_path, 9)
    old.open()
    old.close()
    assert ["journal.schema9.roots.ndjson", "journal.schema9.sqlite3"] == copies(tmp_path)


def test_a_migration_that_was_cut_off_keeps_its_copy(old: SqliteJournal, tmp_path: Path) -> None:
    """The second opening finds some migrations made, and the copy from before all of them."""
    with closing(apsw.Connection(str(old.path))) as connection:
        assert upgrade.keep_old(connection, old.path, old.roots_path, old._disk) is not None
        migrate(connection, MIGRATIONS[:8])
    old.open()
    old.close()
    assert COPY == copies(tmp_path)
