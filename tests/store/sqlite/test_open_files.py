"""Files that vanish under an open journal: found by the next check, and the journal saved."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.core.incident.kinds import files_lost
from palyra.errors import Unavailable
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import Clock, rows, seqs

pytestmark = pytest.mark.real


def replace(path: Path) -> None:
    """Put a copy in the place of the file."""
    other = path.with_name("other")
    shutil.copy(path, other)
    other.replace(path)


def shorten(path: Path) -> None:
    """Cut the file to half of its size."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def open_journal(home: Path) -> SqliteJournal:
    """Open a journal with keys of its own, with content in the database, its log and its roots."""
    store = SqliteJournal(home / "journal.sqlite3", KeyRing.open(home / "keys"), now_ms=Clock())
    store.open()
    store.commit([rows("run_a", 0, 50)])
    store.seal()
    store.checkpoint()
    store.commit([rows("run_a", 50, 50)])
    return store


def adopt(home: Path, saved: str) -> None:
    """Do what the incident tells the operator to do."""
    Path(saved).replace(home / "journal.sqlite3")
    (home / "journal.saved.roots.ndjson").replace(home / "journal.roots.ndjson")
    (home / "journal.sqlite3-wal").unlink(missing_ok=True)


def test_a_journal_in_place_is_never_reported(tmp_path: Path) -> None:
    """Commits, roots and checkpoints change sizes, and no check takes that for a loss."""
    store = open_journal(tmp_path)
    for start in range(0, 200, 20):
        store.commit([rows("run_b", start, 20)])
        assert store.check_files() is None
        store.seal()
        assert store.check_files() is None
        store.checkpoint()
        assert store.check_files() is None
    store.close()
    assert not list(tmp_path.glob("*.saved.*"))


def rewrite(path: Path) -> None:
    """Write other content of the same size into the file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"x" * 32)


@pytest.mark.parametrize("harm", [Path.unlink, replace, shorten, rewrite])
@pytest.mark.parametrize(
    "name", ["journal.sqlite3", "journal.sqlite3-wal", "journal.roots.ndjson", "keys/signing.key"]
)
def test_each_harm_to_each_file_is_found(
    tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    """A removed, a replaced and a shortened file are named by the next check."""
    store = open_journal(tmp_path)
    harm(tmp_path / name)
    lost = store.check_files()
    if name.startswith("keys") and harm is replace:  # by the same content
        assert lost is None
        return
    assert lost is not None
    assert str(tmp_path / name) in lost.found
    assert lost.copy or lost.problem or name.startswith("keys")


@pytest.mark.parametrize("name", ["journal.sqlite3", "journal.sqlite3-wal", "journal.roots.ndjson"])
@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_the_saved_copy_is_a_whole_journal(tmp_path: Path, name: str, ends: str) -> None:
    """After the remedy a start finds all that was committed, and an unbroken chain."""
    store = open_journal(tmp_path)
    (tmp_path / name).unlink()
    lost = store.check_files()
    assert lost is not None
    store.commit([rows("run_a", 100, 20)])
    if ends == "stopped":
        store.close()
    else:
        store.check_files()
        assert store._opened is not None
        store._opened.held.close()
    adopt(tmp_path, lost.copy)
    again = SqliteJournal(store.path, KeyRing.open(tmp_path / "keys"), now_ms=Clock())
    report = again.open()
    assert list(range(120)) == seqs(again, "run_a")
    assert report.verification.first_break is None
    assert again.verify().first_break is None
    assert again.check_files() is None
    again.close()


def test_removed_keys_need_no_copy(tmp_path: Path) -> None:
    """A lost folder of keys is found, and the journal itself stays where it is."""
    store = open_journal(tmp_path)
    shutil.rmtree(tmp_path / "keys")
    lost = store.check_files()
    assert lost is not None
    assert "keys/signing.key was removed" in lost.found
    assert not lost.copy
    for copy in lost.keys.split(", "):
        shutil.copy(copy, KeyRing.open(tmp_path / "others")._bond_path.parent)  # type: ignore[union-attr]
    assert KeyRing.open(tmp_path / "others").public_key == store._keys.public_key


def test_a_saved_copy_has_sound_pages(tmp_path: Path) -> None:
    """Pages that another program overwrote are in no copy: then a backup is the remedy."""
    store = open_journal(tmp_path)
    store.close()
    store.open()
    path = tmp_path / "journal.sqlite3"
    with path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"x" * (path.stat().st_size - 8_192))
    lost = store.check_files()
    assert lost is not None
    assert f"{path} was written by another program" in lost.found
    assert lost.problem
    assert "restore the data directory from a backup" in files_lost(lost).summary


def test_a_file_that_cannot_be_looked_at_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that gives errors is no loss, and ends no sweep."""

    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    store = open_journal(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "lstat", refuse)
        with pytest.raises(Unavailable, match="check the files"):
            store.check_files()
    assert store.check_files() is None
    store.close()
