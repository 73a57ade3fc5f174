"""A change that the process does not survive: whatever it was doing, the checkpoint undoes it."""

import textwrap
from pathlib import Path

import pytest

from palyra.core.tool.checkpoints import CheckpointFilter
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.files.retention import FolderBounds
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from palyra.wiring.host import new_id
from tests.forked import call_forked
from tests.tools.files.dying import DEATH, change_and_die

pytestmark = pytest.mark.real

OLD = {"a": "old a", "b": "old b", "c": "old c"}
NEW = {"a": "new a", "c": "new c", "d": "new d"}
PATCH = textwrap.dedent("""
    *** Begin Patch
    *** Update File: a
    -old a
    +new a
    *** Delete File: b
    *** Update File: c
    -old c
    +new c
    *** Add File: d
    +new d
    *** End Patch
""")


def files(root: Path) -> dict[str, str]:
    """Every file that is not a draft, and its text without line ends."""
    found = {path.name: path.read_text().rstrip("\n") for path in sorted(root.iterdir())}
    return {name: text for name, text in found.items() if not name.startswith(".palyra-")}


@pytest.mark.parametrize("instant", range(20))
def test_a_crash_leaves_nothing_that_cannot_be_undone(tmp_path: Path, instant: int) -> None:
    """Each file is as before or as after, never half; a restore makes all of them as before."""
    root, kept = tmp_path / "work", tmp_path / "kept"
    root.mkdir()
    for name, text in OLD.items():
        (root / name).write_text(f"{text}\n")
    ended = call_forked(change_and_die, root, kept, instant, PATCH.strip())
    assert ended in {(DEATH, ""), (0, "done\n")}
    left = files(root)
    if ended[0] == 0:
        assert left == NEW
    assert all(left.get(name) in {OLD.get(name), NEW.get(name)} for name in {*OLD, *NEW})
    workspace = Workspace(root)
    store = FileCheckpoints(kept, FolderBounds(1 << 24, 1 << 40, lambda: 0))
    found = store.list(CheckpointFilter())
    assert found or left == OLD, "what was changed has a checkpoint"
    for checkpoint in found:
        Checkpoints(workspace, store, lambda: 0, new_id).restore(
            checkpoint, "before", is_forced=False
        )
    assert files(root) == OLD
    workspace.close()
