"""Restoring: complete or not at all, on record, and never outside of its folder."""

import os
import shutil
from collections.abc import Generator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import apsw
import msgspec
import pytest

from palyra.core.journal.backup import BackupFile, BackupManifest
from palyra.errors import DiskFull, IllegalState, NotFound, PalyraError
from palyra.store.backup import tree
from palyra.store.backup.create import SignedManifest, encode_manifest
from palyra.store.backup.restore import RestoreRequest, restore_backup
from palyra.store.backup.verify import verify_backup
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from tests.rows import every_row
from tests.store.backup import kit
from tests.store.backup.kit import EVENTS, MADE_MS, WITH_KEYS, back_up, flip, journal, living
from tests.store.kit import rows

pytestmark = pytest.mark.real
REQUEST = RestoreRequest(by="ann", reason="the disk broke", at_ms=MADE_MS + 5)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped home, newer than its two backups: without keys and `with_keys`."""
    base = tmp_path_factory.mktemp("base")
    with living(base / "home") as store:
        back_up(store, base / "backup")
        back_up(store, base / "with_keys", WITH_KEYS)
        store.commit([rows("run_new", 0, 5)])
    return base


@pytest.fixture
def home(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base / "home", tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def target(tmp_path: Path) -> Generator[Path]:
    yield tmp_path / "restored"
    assert [] == list(tmp_path.glob(".*"))  # no draft


def continued(home: Path) -> SqliteJournal:
    """The journal of a restored home: nothing is broken, now and after more events."""
    store = journal(home)
    report = store.open()
    assert (None, ()) == (report.verification.first_break, report.notes)
    store.commit([rows("run_later", 0, 4)])
    store.seal()
    found = store.verify()
    assert (None, EVENTS + 4) == (found.first_break, found.checked_events)
    return store


def test_a_restored_home_without_keys_has_a_new_one(base: Path, target: Path) -> None:
    """Old roots verify with the old public key, new ones are by the new key."""
    old = KeyRing.open(base / "home" / "keys")
    done = restore_backup(base / "backup", target, REQUEST)
    assert ("new", EVENTS, str(target)) == (done.keys, done.head_position, done.path)
    new = KeyRing.open(target / "keys")
    assert (done.key_id, (old.public_key,)) == (new.key_id, new.former)
    assert old.public_key != new.public_key
    continued(target).close()
    assert kit.opened(target).verification.first_break is None


def test_without_the_former_key_old_roots_are_a_break(base: Path, target: Path) -> None:
    """The negative control: the list of former keys is why they verify."""
    restore_backup(base / "backup", target, REQUEST)
    (target / "keys" / "signing.former").write_bytes(b"")
    store = journal(target)
    store.open()
    assert store.verify().first_break is not None
    store.close()


def test_a_restored_home_has_the_same_content(base: Path, target: Path) -> None:
    """With keys every file is as it was, but the roots file has two more lines at its end."""
    done = restore_backup(base / "with_keys", target, REQUEST)
    expected, found = kit.tree(base / "with_keys" / "data"), kit.tree(target)
    roots = found.pop("journal.roots.ndjson")
    assert b"" == found.pop("keys/signing.former")
    before = expected.pop("journal.roots.ndjson")
    assert ("backup", expected) == (done.keys, found)
    assert (before, 2) == (roots[: len(before)], roots[len(before) :].count(b"\n"))
    assert all(path.stat().st_mode & 0o77 == 0 for path in target.rglob("*"))
    continued(target).close()


def test_a_restore_with_the_keys_of_the_newer_home_is_accepted(
    base: Path, home: Path, target: Path
) -> None:
    """A declared return to an earlier state is no break, and is reported once."""
    done = restore_backup(base / "backup", target, replace(REQUEST, keys_from=home / "keys"))
    assert ("given", KeyRing.open(home / "keys").key_id) == (done.keys, done.key_id)
    assert b"t" * 40 == (target / "keys/operator.token").read_bytes()
    store = journal(target)
    restored = store.open().restored
    assert restored is not None
    assert ("ann", "the disk broke", "bak_1", EVENTS) == (
        restored.by, restored.reason, restored.backup_id, restored.head_position,
    )  # fmt: skip
    store.close()
    continued(target).close()
    assert kit.opened(target).restored is None  # newer roots follow


def test_an_undeclared_return_to_an_earlier_state_is_a_break(base: Path, home: Path) -> None:
    """Database and roots of a backup, copied over a newer home, agree; its keys know better."""
    for name in ("journal.sqlite3", "journal.roots.ndjson"):
        shutil.copy(base / "backup" / "data" / name, home / name)
    found = kit.opened(home).verification.first_break
    assert found is not None
    assert f"events {EVENTS + 1} to {EVENTS + 5} are missing" in found.detail
    assert kit.opened(home).verification.first_break is None  # reported once
    store = journal(home)
    store.open()
    assert store.verify().first_break is not None  # and never forgotten
    store.close()


def test_records_of_an_earlier_start_are_a_break(home: Path) -> None:
    """The same last event, but a database from before the last start."""
    before = {name: (home / name).read_bytes() for name in ("journal.sqlite3",)}
    kit.opened(home)
    (home / "journal.sqlite3").write_bytes(before["journal.sqlite3"])
    found = kit.opened(home).verification.first_break
    assert found is not None
    assert "its records are older" in found.detail


def test_without_the_mark_an_undeclared_return_is_not_found(base: Path, home: Path) -> None:
    """The negative control: the mark of the last shutdown is why it is."""
    for name in ("journal.sqlite3", "journal.roots.ndjson"):
        shutil.copy(base / "backup" / "data" / name, home / name)
    (home / "keys" / "journal.mark").unlink()
    assert kit.opened(home).verification.first_break is None


def test_a_used_target_is_refused(base: Path, home: Path, tmp_path: Path) -> None:
    """A folder with anything in it, a file, a link, the backup itself and what contains it."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    backup = base / "backup"
    before = kit.tree(home)
    for target in (home, tmp_path / "file", tmp_path / "link", backup, backup / "x", base):
        with pytest.raises(IllegalState):
            restore_backup(backup, target, REQUEST)
    assert before == kit.tree(home)
    assert verify_backup(backup).is_intact
    with pytest.raises(NotFound):
        restore_backup(tmp_path / "none", tmp_path / "new", REQUEST)


def test_an_empty_target_is_used(base: Path, target: Path) -> None:
    """The folder may exist."""
    target.mkdir()
    restore_backup(base / "backup", target, REQUEST)
    continued(target).close()


def test_a_damaged_backup_is_not_restored(base: Path, target: Path, tmp_path: Path) -> None:
    """Whatever is wrong with it, nothing appears."""
    backup = tmp_path / "backup"
    shutil.copytree(base / "backup", backup)

    def refuse() -> None:
        with pytest.raises(IllegalState, match="nothing was restored"):
            restore_backup(backup, target, REQUEST)
        assert not target.exists()

    for name, content in kit.tree(backup).items():
        flip(backup / name, len(content) // 2) if content else (backup / name).write_bytes(b"x")
        refuse()
        (backup / name).unlink()
        refuse()
        (backup / name).write_bytes(content)
    (backup / "data" / "more").touch()
    refuse()


def test_a_backup_by_another_key_is_refused(base: Path, target: Path) -> None:
    """Given the key of the daemon, a forged backup is not restored."""
    request = replace(REQUEST, trusted=(KeyRing(bytes(32)).public_key,))
    with pytest.raises(IllegalState, match="another key"):
        restore_backup(base / "backup", target, request)


def test_restore_trusts_whom_verify_trusts(base: Path, target: Path) -> None:
    """The same keys decide; the id of another one lets it in, and only that one."""
    other = (KeyRing(bytes(32)).public_key,)
    key_id = verify_backup(base / "backup").key_id
    assert not verify_backup(base / "backup", trusted=other).is_intact
    for trusted_id in ("", "0" * 16):
        with pytest.raises(IllegalState, match=f"another key, {key_id}.*--trust"):
            restore_backup(
                base / "backup", target, replace(REQUEST, trusted=other, trusted_id=trusted_id)
            )
    assert verify_backup(base / "backup", trusted=other, trusted_id=key_id).is_intact
    request = replace(REQUEST, trusted=other, trusted_id=key_id)
    assert key_id == verify_backup(base / "backup", trusted_id=key_id).key_id
    assert restore_backup(base / "backup", target, request).path == str(target)


def test_no_home_is_restored_into_a_workspace_or_a_home(
    base: Path, home: Path, tmp_path: Path
) -> None:
    """Also through a link; beside them it is."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    (tmp_path / "link").symlink_to(workspace)
    request = replace(REQUEST, closed=(workspace,))
    for target in (workspace, workspace / "a", tmp_path / "link" / "a"):
        with pytest.raises(IllegalState, match="which agents may write to"):
            restore_backup(base / "backup", target, request)
    for target in (home / "restored", home / "skills" / "a"):
        with pytest.raises(IllegalState, match="inside the home"):
            restore_backup(base / "backup", target, request)
    assert restore_backup(base / "backup", tmp_path / "worked", request).path


def test_a_longer_file_is_read_to_its_listed_size(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte more shows that it was changed; the rest of it costs nothing."""
    backup = tmp_path / "backup"
    shutil.copytree(base / "backup", backup)
    file = backup / "data" / "palyra.toml"
    size = file.stat().st_size
    with file.open("ab") as opened:
        opened.truncate(1 << 40)  # sparse
    sizes: list[int] = []
    read = os.read

    def count(descriptor: int, limit: int) -> bytes:
        sizes.append(limit)
        return read(descriptor, limit)

    monkeypatch.setattr(os, "read", count)
    report = verify_backup(backup)
    assert any("palyra.toml: changed" in problem for problem in report.problems)
    with pytest.raises(IllegalState, match="damaged"):
        restore_backup(backup, tmp_path / "target", REQUEST)
    assert size + 1 in sizes
    assert sum(sizes) < 1 << 30


@pytest.mark.parametrize("count", range(0, 12, 3))
def test_a_full_disk_leaves_no_home(
    base: Path, target: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A restore that finds no room leaves nothing, and works with room."""
    left = iter(range(count))

    def write(descriptor: int, content: bytes) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        os.write(descriptor, content)

    monkeypatch.setattr(tree, "write_all", write)
    with pytest.raises(DiskFull) if count < 9 else pytest.MonkeyPatch.context():  # 8 writes
        restore_backup(base / "backup", target, REQUEST)
    assert target.exists() == (count >= 9)


# --- hostile backups


def forge(backup: Path, lines: list[BackupFile], keys: KeyRing) -> None:
    """Sign a backup with that list."""
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (backup / "files.ndjson").write_bytes(text)
    signed = msgspec.json.decode((backup / "manifest.json").read_bytes(), type=SignedManifest)
    manifest = msgspec.structs.replace(
        msgspec.json.decode(signed.body, type=BackupManifest),
        public_key=keys.public_key.hex(),
        files=len(lines),
        files_sha256=sha256(text).hexdigest(),
    )
    (backup / "manifest.json").write_bytes(encode_manifest(manifest, keys))


@every_row(
    "name",
    [
        "../escaped", "../../escaped", "/palyra-escaped", "artifacts/../../escaped",
        "artifacts/./x", "artifacts//x", "keys/../../x", "daemon.json", "", "..", "a\x00b",
    ],
)  # fmt: skip
def test_a_hostile_path_does_not_escape(base: Path, tmp_path: Path, name: str) -> None:
    """A signed list with any path makes no file outside of the target, and no target."""
    backup = tmp_path / sha256(name.encode()).hexdigest() / "backup"
    shutil.copytree(base / "backup", backup)
    (backup / "data" / "artifacts" / "x").write_bytes(b"x")
    line = BackupFile(path=name, size_bytes=1, sha256=sha256(b"x").hexdigest())
    known = (backup / "files.ndjson").read_bytes().splitlines()
    listed = [msgspec.json.decode(text, type=BackupFile) for text in known]
    listed = sorted([*listed, line], key=lambda each: tree.sort_key(each.path))
    forge(backup, listed, KeyRing(bytes(32)))
    with pytest.raises(PalyraError):
        restore_backup(backup, backup.parent / "restored", REQUEST)
    assert ["backup"] == os.listdir(backup.parent)  # noqa: PTH208 - names
    assert not Path("/palyra-escaped").exists()


@every_row("name", ["data", "data/artifacts", "data/artifacts/ses_1/abc", "data/journal.sqlite3"])
def test_a_hostile_link_is_not_followed(base: Path, tmp_path: Path, name: str) -> None:
    """Even if the list has the right digest of what it points to."""
    backup = tmp_path / sha256(name.encode()).hexdigest() / "backup"
    shutil.copytree(base / "backup", backup)
    outside = backup.parent / "outside"
    (backup / name).rename(outside)
    (backup / name).symlink_to(outside)
    with pytest.raises(IllegalState):
        restore_backup(backup, backup.parent / "restored", REQUEST)
    assert not (backup.parent / "restored").exists()


def test_a_pipe_in_a_backup_blocks_nothing(base: Path, tmp_path: Path) -> None:
    """A named pipe instead of a file is a problem, not a wait."""
    backup = tmp_path / "backup"
    shutil.copytree(base / "backup", backup)
    path = backup / "data" / "artifacts" / "ses_1" / "abc"
    path.unlink()
    os.mkfifo(path)
    assert ("data/artifacts/ses_1/abc: no regular file",) == verify_backup(backup).problems


def test_a_journal_that_was_changed_and_signed_is_not_restored(
    base: Path, target: Path, tmp_path: Path
) -> None:
    """A list that fits a changed database does not help: its chain is verified."""
    backup = tmp_path / "backup"
    shutil.copytree(base / "backup", backup)
    path = backup / "data" / "journal.sqlite3"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "delete")
    connection.execute(
        "DROP TRIGGER tape_is_never_updated; UPDATE tape SET at_ms = 7 WHERE seq = 5"
    )
    connection.close()
    known = (backup / "files.ndjson").read_bytes().splitlines()
    listed = [msgspec.json.decode(text, type=BackupFile) for text in known]
    content = path.read_bytes()
    changed = BackupFile(
        path="journal.sqlite3", size_bytes=len(content), sha256=sha256(content).hexdigest()
    )
    forge(
        backup,
        [changed if each.path == changed.path else each for each in listed],
        KeyRing.open(base / "home" / "keys"),
    )
    (problem,) = verify_backup(backup).problems
    assert "the journal's chain is broken: 1 break(s)" in problem
    with pytest.raises(IllegalState, match="chain is broken"):
        restore_backup(backup, target, REQUEST)
