"""Making and checking backups: complete, consistent, and each damage found."""

import errno
import os
import re
import shutil
import tracemalloc
from collections.abc import Generator
from pathlib import Path

import pytest

from palyra.core.journal.backup import BackupReport
from palyra.errors import DiskFull, IllegalState, NotFound, Unavailable
from palyra.store.backup import create, tree
from palyra.store.backup.create import find_latest
from palyra.store.backup.draft import SUFFIX, find_abandoned, make_draft
from palyra.store.backup.home import stopped_home
from palyra.store.backup.verify import verify_backup
from palyra.store.files.free_space import Room
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from tests.examples import IS_WHOLE
from tests.rows import every_row
from tests.store.backup import kit
from tests.store.backup.kit import (
    EVENTS,
    MADE_MS,
    WITH_KEYS,
    back_up,
    flip,
    journal,
    living,
    workspace_of,
)
from tests.store.kit import rows

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[SqliteJournal]:
    with living(tmp_path_factory.mktemp("base") / "home") as opened:
        yield opened


@pytest.fixture
def made(store: SqliteJournal, tmp_path: Path) -> Path:
    """A backup with keys, which the test may damage."""
    back_up(store, tmp_path / "backup", WITH_KEYS)
    return tmp_path / "backup"


def problems(path: Path, *, trusted: tuple[bytes, ...] = ()) -> list[str]:
    report = verify_backup(path, trusted=trusted)
    assert report.is_intact == (not report.problems)
    return list(report.problems)


def test_a_backup_has_everything_but_keys(store: SqliteJournal, tmp_path: Path) -> None:
    """Every file of the home that cannot be made again is in it; keys and vault are not."""
    done = back_up(store, tmp_path / "backup")
    expected = {
        name: content
        for name, content in kit.FILES.items()
        if content != b"left out" and not name.startswith(("keys/", "vault"))
    }
    found = kit.tree(tmp_path / "backup" / "data")
    assert {"journal.sqlite3", "journal.roots.ndjson"} == found.keys() - expected.keys()
    assert expected == {name: found[name] for name in expected}
    assert (8, EVENTS, False) == (done.files, done.head_position, done.has_keys)
    assert (0o700, 0o600) == (
        (tmp_path / "backup").stat().st_mode & 0o777,
        (tmp_path / "backup/data/journal.sqlite3").stat().st_mode & 0o777,
    )


def test_keys_are_in_it_when_asked(store: SqliteJournal, made: Path) -> None:
    """Keys, token and vault, but not the mark of the last shutdown."""
    found = kit.tree(made / "data")
    own = {name for name in found if name.startswith(("keys/", "vault"))}
    assert {
        "keys/journal.id", "keys/operator.token", "keys/signing.key", "keys/signing.pub",
        "vault.sealed",
    } == own  # fmt: skip
    assert (store.path.parent / "keys/signing.key").read_bytes() == found["keys/signing.key"]


def test_a_whole_backup_verifies(store: SqliteJournal, made: Path) -> None:
    """Bytes, signature, pages, chain and roots are checked, and nothing is changed by that."""
    before = kit.tree(made)
    keys = KeyRing.open(store.path.parent / "keys")
    report = verify_backup(made, trusted=keys.trusted)
    expected = BackupReport(
        path=str(made), is_intact=True, problem_count=0, backup_id="bak_2", version="1.2.3",
        created_ms=MADE_MS, has_keys=True, files=13, size_bytes=report.size_bytes,
        head_position=EVENTS, key_id=keys.key_id, is_known_key=True, checked_events=EVENTS,
        checked_roots=2,
    )  # fmt: skip
    assert (expected, before) == (report, kit.tree(made))


def test_another_key_is_a_problem(made: Path) -> None:
    """A backup of another daemon is not taken for one of ours, and without a key that is said."""
    [problem] = problems(made, trusted=(KeyRing(bytes(32)).public_key,))
    assert re.fullmatch(
        r"signed with another key, [0-9a-f]{16}, than those that are trusted", problem
    )
    assert verify_backup(made).is_known_key is None


def test_each_changed_byte_of_the_small_files_is_found(made: Path) -> None:
    """Manifest, list and every file but the database, byte by byte; by default every fourth one."""
    missed = []
    step = 1 if IS_WHOLE else 4
    for name, content in kit.tree(made).items():
        if name == "data/journal.sqlite3":
            continue
        for offset in range(0, len(content), step):
            flip(made / name, offset)
            missed += [] if problems(made) else [(name, offset)]
            flip(made / name, offset)
    assert ([], []) == (missed, problems(made))


def test_changed_bytes_of_the_database_are_found(made: Path) -> None:
    """At the start, at the end, and between."""
    path = made / "data" / "journal.sqlite3"
    for offset in (0, 18, 60, 100, 5_000, path.stat().st_size // 2, path.stat().st_size - 1):
        flip(path, offset)
        assert ["data/journal.sqlite3: changed"] == problems(made)
        flip(path, offset)


@every_row("name", ["data/artifacts/ses_1/abc", "data/journal.roots.ndjson", "data/palyra.toml"])
def test_a_missing_file_is_found(made: Path, name: str) -> None:
    """It is named."""
    content = (made / name).read_bytes()
    (made / name).unlink()
    assert [f"{name}: missing"] == problems(made)
    (made / name).write_bytes(content)


@every_row(
    "name",
    ["extra", "data/extra", "data/artifacts/ses_1/abd", "data/zzz", "data/journal.sqlite3-wal"],
)
def test_an_extra_file_is_found(made: Path, name: str) -> None:
    """Wherever it is, a log next to the database included."""
    (made / name).write_bytes(b"")
    assert [f"{name}: not part of the backup"] == problems(made)
    (made / name).unlink()


@pytest.mark.parametrize("name", ["manifest.json", "files.ndjson", "data"])
def test_a_missing_part_is_found(made: Path, name: str) -> None:
    """Without manifest, list or files it is no backup."""
    path = made / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert problems(made)


@every_row("name", ["manifest.json", "files.ndjson", "data/artifacts/ses_1/abc", "data/vectors"])
def test_a_link_is_found(made: Path, name: str) -> None:
    """Also one to the very same content: it is never followed."""
    path, aside = made / name, made.parent / "aside"
    path.rename(aside)
    path.symlink_to(aside)
    assert problems(made)
    path.unlink()
    aside.rename(path)


def test_no_folder_is_not_found(tmp_path: Path) -> None:
    """A path without a backup has its own error."""
    with pytest.raises(NotFound):
        verify_backup(tmp_path / "none")
    assert problems(tmp_path)


def test_commits_go_on_and_the_backup_has_one_state(
    store: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and roots that are committed between two steps are not in it; it verifies."""
    monkeypatch.setattr(create, "STEP_PAGES", 8)
    before = store.verify().checked_events
    steps = 0

    def commit() -> bool:
        nonlocal steps
        assert [None] == store.commit([rows("run_b", 2 * steps, 2)])
        assert store.seal()
        steps += 1
        return False

    done = back_up(store, tmp_path / "backup", is_stopped=commit)
    assert steps > 8
    report = verify_backup(tmp_path / "backup")
    assert ([], report.checked_events) == (list(report.problems), done.head_position)
    assert before <= done.head_position < before + 2 * steps
    assert store.verify().first_break is None


def test_a_stopped_backup_leaves_nothing(store: SqliteJournal, tmp_path: Path) -> None:
    """Wherever it is stopped."""
    for count in range(30):
        left = iter(range(count))
        try:
            back_up(
                store,
                tmp_path / "backup",
                is_stopped=lambda left=left: next(left, None) is None,  # type: ignore[misc]
            )
        except Unavailable:
            assert [] == list(tmp_path.iterdir())
        else:
            assert [] == problems(tmp_path / "backup")
            return
    pytest.fail("it never got to its end")


def test_a_full_disk_leaves_nothing(
    store: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever write finds no room: a typed error, and no folder."""
    real = tree.write_all
    for count in range(60):
        left = iter(range(count))

        def write(descriptor: int, content: bytes) -> None:
            if next(left, None) is None:  # noqa: B023 - called in this round
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(descriptor, content)

        monkeypatch.setattr(create, "write_all", write)
        monkeypatch.setattr(tree, "write_all", write)
        try:
            back_up(store, tmp_path / "backup")
        except DiskFull:
            assert [] == list(tmp_path.iterdir())
        else:
            return
    pytest.fail("it never got to its end")


def test_a_backup_does_not_fill_the_disk(
    store: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before anything is written if it would leave the daemon no room."""
    monkeypatch.setattr(create, "find_room", lambda _: Room(1_000_000, 1_000))
    with pytest.raises(DiskFull, match="1000000 are free"):
        back_up(store, tmp_path / "backup")
    assert [] == list(tmp_path.iterdir())


def test_a_target_that_cannot_be_used_is_refused(store: SqliteJournal, tmp_path: Path) -> None:
    """One that exists, one inside of the data directory, a relative one, one without a folder."""
    (tmp_path / "file").touch()
    home = store.path.parent
    refused: list[tuple[Path, type[Exception]]] = [
        (tmp_path / "file", IllegalState),
        (tmp_path, IllegalState),
        (home / "artifacts" / "b", IllegalState),
        (home / "b", IllegalState),
        (Path("b"), IllegalState),
        (tmp_path / "none" / "b", IllegalState),
    ]
    for target, kind in refused:
        with pytest.raises(kind):
            back_up(store, target)
    assert ["file"] == os.listdir(tmp_path)  # noqa: PTH208 - names


def test_a_backup_is_not_made_where_tools_read(store: SqliteJournal, tmp_path: Path) -> None:
    """A target in the workspace is refused, through a link too; the folder above is the control."""
    workspace = workspace_of(store)
    (workspace / "docs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(workspace / "docs")
    for target in (workspace / "b", workspace / "docs" / "b", tmp_path / "link" / "b"):
        with pytest.raises(IllegalState, match="inside of a workspace"):
            back_up(store, target)
    assert ["docs"] == [each.name for each in workspace.iterdir()]
    assert back_up(store, workspace.parent / "b").files > 0


def test_without_a_path_it_is_in_the_data_directory(store: SqliteJournal) -> None:
    """There, and on record as the newest; it is not part of the next one."""
    home = store.path.parent
    done = create.create_backup(kit.home_of(store), None, kit.ORDER, tree.never)
    assert str(home / "backups" / "bak_1") == done.path
    assert done == find_latest(home)
    again = create.create_backup(kit.home_of(store), None, WITH_KEYS, tree.never)
    assert not any("backups" in name for name in kit.tree(Path(again.path)))
    shutil.rmtree(home / "backups")


def test_abandoned_drafts_are_removed_and_others_are_kept(
    store: SqliteJournal, tmp_path: Path
) -> None:
    """The draft of a killed process goes with the next backup; one that is being filled stays."""
    dead = tmp_path / f".old{SUFFIX}"
    with make_draft(tmp_path / "alive") as draft:
        dead.mkdir()
        (dead / "part").write_bytes(b"x")
        assert [dead] == find_abandoned(tmp_path)
        with pytest.raises(IllegalState, match="another process"):
            back_up(store, tmp_path / "alive")
        back_up(store, tmp_path / "backup")
        assert {draft.path.name, "backup"} == set(os.listdir(tmp_path))  # noqa: PTH208 - names


def test_big_files_are_streamed(store: SqliteJournal, tmp_path: Path) -> None:
    """A file of 24 MiB costs a few buffers, in making and in checking."""
    big = store.path.parent / "artifacts" / "big"
    with big.open("wb") as file:
        file.truncate(24 * tree.CHUNK_BYTES)
    tracemalloc.start()
    try:
        back_up(store, tmp_path / "backup")
        verify_backup(tmp_path / "backup")
        assert tracemalloc.get_traced_memory()[1] < 6 * tree.CHUNK_BYTES
    finally:
        tracemalloc.stop()
        big.unlink()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_stopped_home_is_copied_without_a_daemon(tmp_path: Path, *, is_killed: bool) -> None:
    """With the rows that only its log holds; a home in use is refused."""
    home = tmp_path / "home"
    with living(home):
        if is_killed:
            shutil.copytree(home, tmp_path / "killed")
    home = tmp_path / "killed" if is_killed else home
    with stopped_home(
        home, home / "palyra.toml", home / "policies", [tmp_path / "workspace"], "1"
    ) as backups:
        done = backups.create(str(tmp_path / "backup"), kit.ORDER)
        assert EVENTS == done.head_position
        with (
            pytest.raises(Unavailable, match="already runs"),
            stopped_home(home, home, home, [tmp_path / "workspace"], "1"),
        ):
            pass
    assert ([], done.head_position) == (
        problems(tmp_path / "backup"),
        verify_backup(tmp_path / "backup").checked_events,
    )
    with pytest.raises(NotFound), stopped_home(tmp_path / "none", home, home, [home], "1"):
        pass


def test_a_break_on_record_is_no_damage_of_the_backup(tmp_path: Path) -> None:
    """A journal with a break in its history can be backed up; a break that it never found is one."""
    home = tmp_path / "home"
    with living(home):
        pass
    (home / "journal.roots.ndjson").unlink()
    store = journal(home)
    store.open()
    back_up(store, tmp_path / "known")
    store.close()
    report = verify_backup(tmp_path / "known")
    assert (True, True) == (report.is_intact, report.recorded_breaks > 0)
