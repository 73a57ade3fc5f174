"""Checkpoints of files: what was changed is put back, and what others did since is not lost."""

import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from palyra.core.tool.checkpoints import RESTORE, Checkpoint, CheckpointFilter, Content, Restored
from palyra.core.tool.spec import ToolCall, ToolFailure
from palyra.errors import Conflict, IllegalState, Unavailable
from palyra.tools.files.changes import Changes
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from tests.store.memory.files import MemoryCheckpoints

CALL = ToolCall(
    call_id="call_1", run_id="run_1", session_id="ses_1", principal="ann", tool="apply_patch",
    tool_version="1", arguments={},
)  # fmt: skip


class World:
    """A workspace whose files were changed by one call."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "a").write_text("old a")
        (root / "a").chmod(0o750)
        (root / "gone").write_text("old gone")
        self.workspace = Workspace(root)
        self.store = MemoryCheckpoints()
        numbers = iter(range(99))
        self.checkpoints = Checkpoints(
            self.workspace, self.store, lambda: 7, lambda prefix: f"{prefix}_{next(numbers):02}"
        )
        changes = Changes(self.workspace)
        for path in ("a", "gone", "made"):
            changes.look(path)
        after = {"a": Content(b"new a", 0o750), "gone": None, "made": Content(b"new made")}
        changes.make(after, self.checkpoints.keep_for(CALL))

    def kept(self, number: int = 0) -> Checkpoint:
        """One checkpoint."""
        found = self.store.find(f"ckp_{number:02}")
        assert found is not None
        return found

    def restore(self, number: int = 0, side: str = "before", *, force: bool = False) -> Restored:
        """Put the files of one back."""
        kept = self.kept(number)
        return self.checkpoints.restore(kept, side, is_forced=force)  # type: ignore[arg-type]  # a Side

    def files(self) -> dict[str, str]:
        """Every file and its text."""
        return {path.name: path.read_text() for path in sorted(self.root.iterdir())}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Files that were changed."""
    made = World(tmp_path / "work")
    yield made
    made.workspace.close()


OLD = {"a": "old a", "gone": "old gone"}
NEW = {"a": "new a", "made": "new made"}


def test_everything_is_as_before(world: World) -> None:
    """Files that were changed, deleted and made; with their permissions."""
    assert world.files() == NEW
    restored = world.restore()
    assert world.files() == OLD
    assert (
        Restored(
            restored="ckp_00", side="before", files=("a", "gone", "made"), checkpoint_id="ckp_01"
        )
        == restored
    )
    assert stat.S_IMODE((world.root / "a").stat().st_mode) == 0o750


def test_a_restore_can_be_restored(world: World) -> None:
    """It is a change like any other, of the same run; so is putting back what was after."""
    world.restore()
    assert (RESTORE, "ann", "run_1") == (
        world.kept(1).tool,
        world.kept(1).principal,
        world.kept(1).run_id,
    )
    assert world.restore(1).files == ("a", "gone", "made")
    assert world.files() == NEW
    world.restore()
    assert world.restore(side="after").files == ("a", "gone", "made")
    assert world.files() == NEW


def test_restoring_an_unchanged_file_does_nothing(world: World) -> None:
    """No file is touched and no checkpoint is made."""
    world.restore()
    before = (world.root / "a").stat()
    assert Restored(restored="ckp_00", side="before", files=()) == world.restore()
    after = (world.root / "a").stat()  # to compare it, the file was read: its access time is new
    assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)
    assert world.restore(side="after").files
    assert world.restore(side="after").files == ()


def test_a_change_cut_short_is_undone(world: World) -> None:
    """After a crash some files are as before, some as after: both are known."""
    (world.root / "gone").write_text("old gone")
    assert world.restore().files == ("a", "made")
    assert world.files() == OLD


def test_later_changes_are_not_overwritten(world: World) -> None:
    """Nothing is restored without force; with it, the new checkpoint has their version."""
    (world.root / "a").write_text("theirs")
    with pytest.raises(Conflict, match=r"^a: changed since.*--force"):
        world.restore()
    assert world.files() == {**NEW, "a": "theirs"}
    assert world.restore(force=True).checkpoint_id == "ckp_01"
    assert world.files() == OLD
    world.restore(1)
    assert world.files() == {**NEW, "a": "theirs"}


def test_many_foreign_changes_are_counted(world: World) -> None:
    """The first few are named."""
    many = msgspec.structs.replace(
        world.kept(),
        files=tuple(
            msgspec.structs.replace(world.kept().files[0], path=f"f{n:02}") for n in range(12)
        ),
    )
    with pytest.raises(Conflict, match=r"f09 and 2 more: changed"):
        world.checkpoints.restore(many, "before", is_forced=False)


def test_a_link_in_the_place_is_refused(world: World) -> None:
    """Restores are confined as well; nothing is restored."""
    (world.root / "a").unlink()
    (world.root / "a").symlink_to("made")
    for force in (False, True):
        with pytest.raises(Conflict, match="nothing was restored: a may not be used"):
            world.restore(force=force)
    assert (world.root / "made").read_text() == "new made"


def test_another_workspace_is_refused(world: World) -> None:
    """A checkpoint is of one workspace."""
    other = msgspec.structs.replace(world.kept(), workspace="/elsewhere")
    with pytest.raises(IllegalState, match="of the workspace /elsewhere, this daemon works in"):
        world.checkpoints.restore(other, "before", is_forced=True)


def test_a_deleted_checkpoint_restores_nothing(world: World) -> None:
    """Its contents are deleted, and no file changes."""
    kept = world.kept()
    world.store.drop("ckp_00")
    with pytest.raises(Unavailable, match="no longer stored"):
        world.checkpoints.restore(kept, "before", is_forced=False)
    assert world.files() == NEW


def test_without_room_for_a_checkpoint_nothing_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that could not be undone is not made."""

    def full(*_: object) -> None:
        raise Unavailable("no space left on device")

    monkeypatch.setattr(world.store, "put", full)
    with pytest.raises(
        Conflict, match="nothing was changed: no checkpoint could be kept: no space"
    ):
        world.restore()
    changes = Changes(world.workspace)
    changes.look("a")
    with pytest.raises(ToolFailure, match="nothing was changed"):
        changes.make({"a": None}, world.checkpoints.keep_for(CALL))
    assert world.files() == NEW
    assert len(world.store.list(CheckpointFilter())) == 1
