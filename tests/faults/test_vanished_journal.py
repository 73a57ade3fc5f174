"""A journal that was deleted, emptied, replaced or rolled back while no daemon ran."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.core.journal.changes import OpenReport
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from tests.e2e.daemon_process import DaemonProcess
from tests.store.kit import Clock, abandon, rows

pytestmark = pytest.mark.real


def journal(home: Path) -> SqliteJournal:
    return SqliteJournal(home / "journal.sqlite3", KeyRing.open(home / "keys"), now_ms=Clock())


def lived(home: Path, roots: int, *, first: int = 0) -> Path:
    """Return a home whose closed journal has that many roots over two events each."""
    store = journal(home)
    store.open()
    for number in range(first, first + roots):
        store.commit([rows("run_a", 2 * number, 2)])
        store.seal()
    store.close()
    return home


def opened(home: Path) -> OpenReport:
    """The report of an opening, and nothing kept open."""
    store = journal(home)
    report = store.open()
    store.close()
    return report


def details(home: Path) -> str | None:
    """Return the first break that opening the journal finds, or None."""
    found = opened(home).verification.first_break
    return None if found is None else found.detail


def delete_database(home: Path) -> None:
    (home / "journal.sqlite3").unlink()


def empty_database(home: Path) -> None:
    (home / "journal.sqlite3").write_bytes(b"")


def delete_all(home: Path) -> None:
    for path in home.glob("journal.*"):
        path.unlink()


def take_fresh(home: Path) -> None:
    """The database of a journal that never held anything."""
    shutil.copy(lived(home.parent / "fresh", 0) / "journal.sqlite3", home)


def take_young(home: Path) -> None:
    """Another daemon's database, before its first root, and no roots."""
    other = journal(home.parent / "young")
    other.open()
    other.commit([rows("run_b", 0, 1)])
    abandon(other)
    (home / "journal.roots.ndjson").unlink()
    for path in other.path.parent.glob("journal.sqlite3*"):
        shutil.copy(path, home)


def take_other(home: Path) -> None:
    """Another daemon's database and roots."""
    for path in lived(home.parent / "other", 2).glob("journal.*"):
        shutil.copy(path, home)


def regenerate_keys(home: Path) -> None:
    shutil.rmtree(home / "keys")


def forget_bond(home: Path) -> None:
    """Make a home of an older version, then delete its database."""
    (home / "keys" / "journal.id").unlink()
    delete_all(home)


VANISHED = [
    delete_database,
    empty_database,
    delete_all,
    take_fresh,
    take_young,
    take_other,
    forget_bond,
]


@pytest.mark.parametrize("roots", [0, 1, pytest.param(2, marks=pytest.mark.slow), 150])
@pytest.mark.parametrize("vanish", VANISHED)
def test_a_journal_that_vanished_is_a_break(
    tmp_path: Path, roots: int, vanish: Callable[[Path], None]
) -> None:
    """However few roots there were; they stay in the file, and the finding is never forgotten."""
    home = lived(tmp_path / "home", roots)
    signed = (home / "journal.roots.ndjson").read_bytes()
    vanish(home)
    kept = home / "journal.roots.ndjson"
    is_kept = kept.exists() and kept.read_bytes() == signed
    report = opened(home)
    assert report.verification.first_break is not None
    assert not is_kept or kept.read_bytes().startswith(signed)
    assert not any("torn" in note for note in report.notes)
    assert None is details(home)  # reported once, at the start that found it
    store = journal(home)
    store.open()
    assert store.verify().first_break is not None
    store.close()


@pytest.mark.parametrize("vanish", [delete_database, empty_database, delete_all, forget_bond])
def test_a_new_journal_with_old_keys_is_reported(
    tmp_path: Path, vanish: Callable[[Path], None]
) -> None:
    """A new journal with old keys logs a warning with the remedy."""
    home = lived(tmp_path / "home", 1)
    vanish(home)
    assert any("restore it from a backup" in note for note in opened(home).notes)


@pytest.mark.parametrize("roots", [1, 2, 150])
def test_regenerated_keys_are_a_break(tmp_path: Path, roots: int) -> None:
    """Regenerated keys are reported once as a break, because old signatures cannot be checked."""
    home = lived(tmp_path / "home", roots)
    regenerate_keys(home)
    assert "the signing key is newer than the journal" in (details(home) or "")
    assert None is details(home)


@pytest.mark.parametrize("roots", [1, 2, 150])
def test_a_database_older_than_its_roots_is_a_break(tmp_path: Path, roots: int) -> None:
    """A database restored from before the last roots is reported as truncated."""
    home = lived(tmp_path / "home", roots)
    shutil.copy(home / "journal.sqlite3", tmp_path / "copy")
    lived(home, 1, first=roots)
    shutil.copy(tmp_path / "copy", home / "journal.sqlite3")
    found = opened(home).verification.first_break
    assert ("truncated", 2 * roots + 1) == (found and found.kind, found and found.position)


def test_a_database_older_than_its_last_segment_is_a_break(tmp_path: Path) -> None:
    """A new segment of the roots file does not hide that the database is older."""
    home = lived(tmp_path / "home", 2)
    shutil.copy(home / "journal.sqlite3", tmp_path / "copy")
    lived(home, 1, first=2)
    with (home / "journal.roots.ndjson").open("ab") as file:
        file.write(b"x\n")
    assert details(home) is not None  # begins a segment behind event 6
    shutil.copy(tmp_path / "copy", home / "journal.sqlite3")
    assert "the database is older than the roots file" == details(home)


@pytest.mark.parametrize("roots", [1, 2, 150])
def test_a_deleted_log_is_a_break(tmp_path: Path, roots: int) -> None:
    """Roots over events that only the write-ahead log held are missed."""
    home = tmp_path / "home"
    store = journal(home)
    store.open()
    store.seal()  # the first after a start empties the log
    for number in range(roots):
        store.commit([rows("run_a", number, 1)])
        store.seal()
    (copy := tmp_path / "copy").mkdir()
    for path in home.glob("journal.*"):  # as a killed daemon leaves them
        shutil.copy(path, copy)
    shutil.copytree(home / "keys", copy / "keys")
    store.close()
    (copy / "journal.sqlite3-wal").unlink()
    assert details(copy) is not None


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("roots", [1, 2, 150])
def test_deleted_roots_are_a_break(tmp_path: Path, roots: int, *, is_killed: bool) -> None:
    """The database knows how many there were, the very first included, even after a kill."""
    home = lived(tmp_path / "home", roots - 1)
    store = journal(home)
    store.open()
    store.commit([rows("run_b", 0, 1)])
    store.seal()
    (abandon if is_killed else SqliteJournal.close)(store)
    store.roots_path.unlink()
    assert "are missing" in (details(home) or "")


def test_a_first_start_is_quiet(tmp_path: Path) -> None:
    """Also one that got no further than the keys, and those after it."""
    home = tmp_path / "home"
    KeyRing.open(home / "keys")
    for _ in range(3):
        report = opened(home)
        assert (None, ()) == (report.verification.first_break, report.notes)
    lived(home, 3)
    report = opened(home)
    assert (None, ()) == (report.verification.first_break, report.notes)


def test_a_home_of_an_older_version_is_quiet(tmp_path: Path) -> None:
    """Keys without a bond take the journal that is there."""
    home = lived(tmp_path / "home", 1)
    (home / "keys" / "journal.id").unlink()
    report = opened(home)
    assert (None, ()) == (report.verification.first_break, report.notes)
    assert (home / "keys" / "journal.id").exists()


@pytest.mark.parametrize("vanish", [delete_database, empty_database])
def test_a_vanished_journal_is_a_critical_incident(
    tmp_path: Path, vanish: Callable[[Path], None]
) -> None:
    """A vanished journal is a critical incident; an ordinary restart before it logs none."""
    daemon = DaemonProcess(tmp_path)
    try:
        for _ in range(2):
            daemon.start()
            assert 0 == daemon.stop()
        assert "an incident is opened" not in daemon.said
        warned = [line for line in daemon.said.splitlines() if "[warning" in line]
        assert [] == [line for line in warned if "optional program" not in line]
        vanish(daemon.home)
        daemon.start()
        assert 0 == daemon.stop()
    finally:
        daemon.end()
    assert "an incident is opened" in daemon.said
    assert "was deleted, emptied or replaced" in daemon.said
    store = journal(daemon.home)
    (incident,) = store.open().incidents
    store.close()
    assert ("critical", "chain_broken:missing") == (incident.severity, incident.key)
