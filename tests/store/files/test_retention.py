"""Files stored next to the journal: artifacts and file checkpoints, on disk and in memory."""

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.core.journal.retention import InUse
from palyra.core.ports import Artifacts, CheckpointStore
from palyra.core.tool.artifacts import Artifact
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, FileChange, FileState
from palyra.errors import InvariantBroken, Unavailable
from palyra.store.files import private_files
from palyra.store.files.artifacts import FileArtifacts
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.files.retention import SWEEP_MS, FolderBounds, Pruned, RetainedFiles
from palyra.wiring.host import new_id
from tests.store.memory.files import MemoryArtifacts, MemoryCheckpoints

MIB = 1_048_576
DAY_MS = 86_400_000


def artifact(session_id: str, data: bytes) -> Artifact:
    """The metadata of an output."""
    return Artifact(
        artifact=hashlib.sha256(data).hexdigest(), session_id=session_id, run_id="run_1",
        call_id="call_1", tool="shell", size_bytes=len(data), created_ms=7, trust="workspace",
    )  # fmt: skip


def checkpoint(checkpoint_id: str, principal: str = "ann", **contents: bytes | None) -> Checkpoint:
    """A change of files that were not there, or that were and are gone."""
    files = tuple(
        FileChange(path=path, before=None, after=None if data is None else state(data))
        for path, data in contents.items()
    )
    return Checkpoint(
        checkpoint_id=checkpoint_id, principal=principal, session_id="ses_1", run_id="run_1",
        call_id="call_1", tool="write_file", workspace="/w", created_ms=7, files=files,
    )  # fmt: skip


def state(data: bytes) -> FileState:
    """A file of that content."""
    return FileState(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), mode=0o640)


def by_digest(*contents: bytes) -> dict[str, bytes]:
    """Contents as a store takes them."""
    return {hashlib.sha256(each).hexdigest(): each for each in contents}


@pytest.fixture(params=["disk", "memory"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    """Both stores, which keep the same promises."""
    if request.param == "memory":
        return MemoryArtifacts()
    return FileArtifacts(tmp_path / "artifacts", FolderBounds(MIB, DAY_MS, lambda: 0))


@pytest.fixture(params=["disk", "memory"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    """Both stores, which keep the same promises."""
    if request.param == "memory":
        return MemoryCheckpoints()
    return FileCheckpoints(tmp_path / "ckp", FolderBounds(MIB, DAY_MS, lambda: 0))


# --- artifacts -----------------------------------------------------------------------------------


def test_an_artifact_is_found_in_its_session(artifacts: Artifacts) -> None:
    """By its digest or the beginning of it; in no other session."""
    mine, other = new_id("ses"), new_id("ses")
    data = b"first line\nsecond\n\0\xff"
    kept = artifact(mine, data)
    artifacts.put(kept, data)
    artifacts.put(kept, data)
    assert (kept, data) == artifacts.find(mine, kept.artifact)
    assert (kept, data) == artifacts.find(mine, kept.artifact[:16])
    assert artifacts.find(other, kept.artifact) is None
    assert artifacts.find(mine, "0" * 16) is None
    assert artifacts.find(mine, kept.artifact + "0") is None


def test_an_ambiguous_prefix_finds_nothing(artifacts: Artifacts) -> None:
    """A longer prefix is needed."""
    session = new_id("ses")
    for number in range(40):
        data = b"%d" % number
        artifacts.put(artifact(session, data), data)
    assert artifacts.find(session, "") is None
    assert artifacts.find(session, artifact(session, b"7").artifact) is not None


@pytest.mark.parametrize("session_id", ["", "..", "../keys", "ses_1", "ses_/../../x"])
def test_an_invalid_session_id_has_no_artifacts(tmp_path: Path, session_id: str) -> None:
    """It has none and gets none."""
    store = FileArtifacts(tmp_path / "a" / "b", FolderBounds(MIB, 1, lambda: 0))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "secret").write_text("x")
    assert store.find(session_id, "secret") is None
    with pytest.raises(InvariantBroken):
        store.put(artifact(session_id, b"x"), b"x")


def test_a_damaged_artifact_is_not_shown(tmp_path: Path) -> None:
    """The digest is checked at every read."""
    session = new_id("ses")
    store = FileArtifacts(tmp_path, FolderBounds(MIB, DAY_MS, lambda: 0))
    kept = artifact(session, b"x" * 99)
    store.put(kept, b"x" * 99)
    with (tmp_path / session / kept.artifact).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"y")
    with pytest.raises(Unavailable, match="damaged on the disk"):
        store.find(session, kept.artifact)


# --- checkpoints ---------------------------------------------------------------------------------


def test_a_checkpoint_keeps_every_content(checkpoints: CheckpointStore) -> None:
    """Byte for byte; two files of one content are kept once."""
    kept = checkpoint(new_id("ckp"), a=b"\n1\0", b=b"", c=b"\n1\0", d=None, e=b"2" * 1000)
    checkpoints.put(kept, by_digest(b"\n1\0", b"", b"2" * 1000))
    assert kept == checkpoints.find(kept.checkpoint_id)
    assert by_digest(b"\n1\0", b"", b"2" * 1000) == checkpoints.contents(kept.checkpoint_id)


def test_checkpoints_are_listed(checkpoints: CheckpointStore) -> None:
    """Newest first, by whose they are, page by page."""
    ids = [new_id("ckp") for _ in range(6)]
    for number, checkpoint_id in enumerate(ids):
        checkpoints.put(checkpoint(checkpoint_id, "ann" if number % 2 else "bob"), {})

    def listed(**wanted: object) -> list[int]:
        found = checkpoints.list(CheckpointFilter(**wanted))  # type: ignore[arg-type]  # by the tests below
        return [ids.index(each.checkpoint_id) for each in found]

    assert [5, 4, 3, 2, 1, 0] == listed()
    assert [5, 3, 1] == listed(principal="ann")
    assert [5, 4] == listed(limit=2)
    assert [3, 2] == listed(limit=2, before=ids[4])
    assert [3] == listed(limit=1, before=ids[4], principal="ann")
    assert [] == listed(session_id="ses_2")
    assert [] == listed(run_id="run_2")
    assert [5, 4, 3, 2, 1, 0] == listed(session_id="ses_1", run_id="run_1")


def test_a_dropped_checkpoint_is_deleted(checkpoints: CheckpointStore) -> None:
    """Dropping it again is no error."""
    kept = checkpoint(new_id("ckp"), a=b"1")
    checkpoints.put(kept, by_digest(b"1"))
    checkpoints.drop(kept.checkpoint_id)
    checkpoints.drop(kept.checkpoint_id)
    assert checkpoints.find(kept.checkpoint_id) is None
    assert [] == checkpoints.list(CheckpointFilter())
    with pytest.raises(Unavailable, match="no longer stored"):
        checkpoints.contents(kept.checkpoint_id)


def test_an_invalid_checkpoint_id_is_not_found(tmp_path: Path) -> None:
    """A text that is no id of a checkpoint finds nothing."""
    (tmp_path / "secret").write_text("{}")
    store = FileCheckpoints(tmp_path / "ckp", FolderBounds(MIB, 1, lambda: 0))
    for name in ("../secret", "", "..", "ckp_1", "x"):
        assert store.find(name) is None
        with pytest.raises(InvariantBroken):
            store.put(checkpoint(name), {})


def test_a_damaged_checkpoint_is_not_restored(tmp_path: Path) -> None:
    """Each content is checked against its digest."""
    store = FileCheckpoints(tmp_path, FolderBounds(MIB, DAY_MS, lambda: 0))
    kept = checkpoint(new_id("ckp"), a=b"1" * 9)
    store.put(kept, by_digest(b"1" * 9))
    path = tmp_path / kept.checkpoint_id
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Unavailable, match="damaged on disk"):
        store.contents(kept.checkpoint_id)


# --- files that are kept -------------------------------------------------------------------------


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now_ms = 10 * DAY_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    """The time of the test."""
    return Clock()


@pytest.fixture
def kept(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> RetainedFiles:
    """An empty folder that takes 10 000 bytes for a day; files are as old as the clock says."""
    store = RetainedFiles(tmp_path / "kept", FolderBounds(10_000, DAY_MS, clock))
    put = store.put

    def put_then_date(name: str, head: bytes, body: list[bytes]) -> None:
        put(name, head, body)
        at = clock.now_ms * 1_000_000
        os.utime(store.root / name, ns=(at, at))

    monkeypatch.setattr(store, "put", put_then_date)
    return store


def all_names(store: RetainedFiles) -> list[str]:
    """The names of all files in the folder and below it."""
    return sorted(
        path.relative_to(store.root).as_posix() for path in store.root.rglob("*") if path.is_file()
    )


def test_files_are_private(kept: RetainedFiles) -> None:
    """The folder 0700, files 0600, whatever the mask says."""
    before = os.umask(0)
    try:
        kept.put("ses/a", b"head", [b"body\nmore"])
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((kept.root / name).stat().st_mode) for name in (".", "ses", "ses/a")]
    assert [0o700, 0o700, 0o600] == modes
    assert (b"head", b"body\nmore") == kept.find("ses/a")
    assert kept.find_head("ses/a") == b"head"


def test_a_file_is_whole_or_not_there(kept: RetainedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails leaves nothing, the file of before if there was one, and says so."""
    kept.put("a", b"1", [])

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left"):
            kept.put("a", b"2", [])
    assert (["a"], (b"1", b"")) == (all_names(kept), kept.find("a"))


def test_old_files_are_deleted(kept: RetainedFiles, clock: Clock) -> None:
    """A write an hour later deletes them, drafts of a crash and empty folders included."""
    kept.put("ses/a", b"1", [])
    (kept.root / "b.1234.draft").touch()
    os.utime(kept.root / "b.1234.draft", ns=(0, 0))
    assert ["ses"] == kept.names()
    clock.now_ms += SWEEP_MS
    kept.put("young", b"1", [])
    clock.now_ms += DAY_MS
    kept.put("new", b"1", [])
    assert ["new", "young"] == all_names(kept)
    clock.now_ms += SWEEP_MS + 1
    kept.put("newer", b"1", [])
    assert ["new", "newer"] == sorted(kept.names())


def test_the_oldest_files_of_the_fullest_folder_are_deleted_first(
    kept: RetainedFiles, clock: Clock
) -> None:
    """A flood of one folder deletes no file of another."""
    kept.put("quiet/a", b"", [b"x" * 1000])
    for number in range(20):
        clock.now_ms += 1
        kept.put(f"loud/{number:02}", b"", [b"x" * 1000])
    assert sum((kept.root / name).stat().st_size for name in all_names(kept)) <= 10_000
    left = all_names(kept)
    assert "quiet/a" in left
    assert "loud/19" in left
    assert "loud/00" not in left


@pytest.mark.parametrize(
    ("in_use", "age_ms", "gone"),
    [
        (InUse(), 0, ""),
        (InUse(), 5_000, "abc"),
        (InUse(held=frozenset({"ses_b"})), 5_000, "ac"),
        (InUse(running=frozenset({"ses_b"})), 5_000, "ac"),
        (InUse(kept=frozenset({"ses_b"})), 5_000, "ac"),
        (InUse(checkpoints=frozenset({"ses_b/b"})), 5_000, "ac"),
    ],
)
def test_what_is_in_use_outlives_its_age(
    tmp_path: Path, clock: Clock, in_use: InUse, age_ms: int, gone: str
) -> None:
    """A dry sweep counts the same, and deletes nothing."""
    rules = FolderBounds(0, age_ms, clock, lambda _since_ms: in_use)
    files = RetainedFiles(tmp_path, rules, lambda name: name.partition("/")[0])
    for age_s, name in zip((9, 8, 7, 2), "abcd", strict=True):
        path = tmp_path / f"ses_{name}" / name
        path.parent.mkdir()
        path.write_bytes(b"x" * 100)
        at_s = clock.now_ms / 1000 - age_s
        os.utime(path, (at_s, at_s))
    for is_dry in (True, False):
        assert Pruned(len(gone), 100 * len(gone)) == files.sweep(is_dry=is_dry)
        left = sorted(set("abcd") - (set() if is_dry else set(gone)))
        assert [f"ses_{name}/{name}" for name in left] == all_names(files)


def test_a_session_makes_room_for_itself_only(tmp_path: Path, clock: Clock) -> None:
    """A folder full of what others use refuses a write, with the remedy; a mark keeps its own too."""
    in_use = [InUse(running=frozenset({"ses_a", "ses_b"}))]
    rules = FolderBounds(1_000, 0, clock, lambda _since_ms: in_use[0])
    files = RetainedFiles(tmp_path / "artifacts", rules, lambda name: name.partition("/")[0])
    for number in range(9):
        files.put(f"ses_a/{number}", b"", [b"x" * 99], owner="ses_a")
    with pytest.raises(
        Unavailable, match=r"in use, 900 of 1000 bytes: raise retention.artifacts_mib"
    ):
        files.put("ses_b/0", b"", [b"x" * 199], owner="ses_b")
    assert 9 == len(all_names(files))
    files.put("ses_a/9", b"", [b"x" * 199], owner="ses_a")
    assert "ses_a/9" in all_names(files)
    assert 8 == len(all_names(files))
    in_use[0] = InUse(held=frozenset({"ses_a"}))
    with pytest.raises(Unavailable, match="marks and pins"):
        files.put("ses_a/10", b"", [b"x" * 199], owner="ses_a")


def test_a_file_above_the_limit_is_refused(kept: RetainedFiles) -> None:
    """It deletes no other file."""
    kept.put("a", b"1", [])
    with pytest.raises(Unavailable, match="more than kept may keep"):
        kept.put("b", b"", [b"x" * 10_000])
    assert ["a"] == all_names(kept)


@pytest.mark.parametrize("name", ["none", "none/none", "a/none"])
def test_a_missing_file_is_not_found(kept: RetainedFiles, name: str) -> None:
    """Its folder is empty."""
    kept.put("a", b"1", [])
    assert (None, None, []) == (kept.find(name), kept.find_head(name), kept.names(name))
    kept.drop(name)


@pytest.mark.parametrize("act", [RetainedFiles.find, RetainedFiles.find_head])
def test_an_unreadable_file_is_unavailable(
    kept: RetainedFiles, act: Callable[[RetainedFiles, str], object]
) -> None:
    """It is an error of a dependency, not a missing file."""
    kept.put("folder/a", b"1", [])
    with pytest.raises(Unavailable, match="cannot be read"):
        act(kept, "folder")


def test_a_file_that_vanishes_during_a_sweep(
    kept: RetainedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process deleted it first; that is no error."""
    kept.put("a", b"1", [])
    real = Path.stat

    def stat_then_gone(path: Path, **options: bool) -> os.stat_result:
        if path.name == "a":
            path.unlink(missing_ok=True)
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", stat_then_gone)
    monkeypatch.setattr(kept, "_swept_ms", None)
    kept.put("b", b"1", [])
    monkeypatch.undo()
    assert ["b"] == all_names(kept)


def test_a_deletion_that_fails_is_reported(tmp_path: Path) -> None:
    """A purge must not take a checkpoint for deleted that is still on the disk."""
    store = FileCheckpoints(tmp_path, FolderBounds(MIB, DAY_MS, lambda: 0))
    name = new_id("ckp")
    store.drop(name)
    (tmp_path / name).mkdir()  # what `unlink` refuses, to root as well
    with pytest.raises(Unavailable, match="cannot be deleted"):
        store.drop(name)


@pytest.mark.parametrize("head", [b"\xff\xfe", b"{}", b'{"checkpoint_id', b""])
def test_a_damaged_description_hides_one_checkpoint_only(tmp_path: Path, head: bytes) -> None:
    """The list has the others, and the damaged one can be deleted though its session is unknown."""
    store = FileCheckpoints(tmp_path, FolderBounds(MIB, DAY_MS, lambda: 0))
    kept, damaged = new_id("ckp"), new_id("ckp")
    for name in (kept, damaged):
        store.put(checkpoint(name, a=b"one"), by_digest(b"one"))
    (tmp_path / damaged).write_bytes(head + b"\none")
    assert [kept] == [each.checkpoint_id for each in store.list(CheckpointFilter())]
    with pytest.raises(Unavailable, match="damaged"):
        store.contents(damaged)
    store.drop_damaged()
    assert [kept] == [path.name for path in tmp_path.iterdir()]


def test_a_deletion_is_durable_when_it_is_acknowledged(
    kept: RetainedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a deleted file or folder is synced after it: a purge must survive a power cut."""
    for name in ("run_a/one", "run_a/two", "run_b/three"):
        kept.put(name, b"head", [b"body"])
    synced: list[tuple[str, list[str]]] = []

    def note(folder: Path) -> None:
        there = sorted(each.relative_to(kept.root).as_posix() for each in kept.root.rglob("*"))
        synced.append((folder.relative_to(kept.root).as_posix(), there))

    monkeypatch.setattr(private_files, "sync_directory", note)
    kept.drop("run_a/one")
    kept.drop_folder("run_b")
    assert [
        ("run_a", ["run_a", "run_a/two", "run_b", "run_b/three"]),
        (".", ["run_a", "run_a/two"]),
    ] == synced
    kept.drop("run_a/one")  # its deletion may have been cut off before the sync
    kept.drop_folder("run_b")
    assert ["run_a", ".", "run_a", "."] == [folder for folder, _ in synced]


def test_nothing_is_deleted_where_there_is_nothing(kept: RetainedFiles) -> None:
    """A folder that does not exist, and a file in it, are deleted already."""
    kept.drop("run_c/one")
    assert 0 == kept.drop_folder("run_c/below")
    assert 0 == kept.drop_folder("run_c")
