"""A change that the process does not survive: whatever it was doing, the checkpoint undoes it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from palyra.core.tool.checkpoints import CheckpointFilter
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from palyra.wiring.host import new_id

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
# The process ends, without a word, at the n-th time it would do one of these.
CHILD = """
import os, sys
from pathlib import Path
from palyra.wiring.host import new_id
from palyra.core.tool.spec import ToolCall
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.tools.files import changes
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.write import write_tools

left = int(sys.argv[3])

def deadly(function):
    def act(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*arguments, **options)
    return act

changes.swap, changes.move = deadly(changes.swap), deadly(changes.move)
os.fsync, os.unlink = deadly(os.fsync), deadly(os.unlink)
workspace = Workspace(Path(sys.argv[1]))
store = FileCheckpoints(Path(sys.argv[2]), max_bytes=1 << 24, max_age_ms=1 << 40, now_ms=lambda: 0)
keep = Checkpoints(workspace, store, lambda: 0, new_id).keep_for
call = ToolCall(call_id="c", run_id="r", session_id="s", principal="p", tool="apply_patch",
                tool_version="1", arguments={"patch": sys.argv[4]})
write_tools(workspace, keep)[1].run(call)
print("done")
"""


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
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), str(kept), str(instant), PATCH.strip()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) in {(9, ""), (0, "done\n")}, ended.stderr
    left = files(root)
    if ended.returncode == 0:
        assert left == NEW
    assert all(left.get(name) in {OLD.get(name), NEW.get(name)} for name in {*OLD, *NEW})
    workspace = Workspace(root)
    store = FileCheckpoints(kept, max_bytes=1 << 24, max_age_ms=1 << 40, now_ms=lambda: 0)
    found = store.list(CheckpointFilter())
    assert found or left == OLD, "what was changed has a checkpoint"
    for checkpoint in found:
        Checkpoints(workspace, store, lambda: 0, new_id).restore(
            checkpoint, "before", is_forced=False
        )
    assert files(root) == OLD
    workspace.close()
