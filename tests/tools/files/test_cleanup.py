"""Sweeping: what a killed daemon left goes, everything else stays."""

import os
import time
from pathlib import Path

from palyra.tools.files.cleanup import OLD_S, sweep
from palyra.tools.files.workspace import Workspace

SPARE = ".palyra-0123456789abcdef.tmp"


def test_only_old_spare_files_are_removed(tmp_path: Path) -> None:
    """Also in folders; not a young one, not one of another name, not through a link."""
    outside = tmp_path / "outside"
    (tmp_path / "ws/deep").mkdir(parents=True)
    outside.mkdir()
    kept = [outside / SPARE, tmp_path / "ws/.palyra-notes.tmp", tmp_path / "ws" / f"a{SPARE}"]
    for path in (*kept, tmp_path / "ws" / SPARE, tmp_path / "ws/deep" / SPARE):
        path.write_text("x", "ascii")
    (tmp_path / "ws/link").symlink_to(outside)
    workspace = Workspace(tmp_path / "ws")
    assert 0 == sweep(workspace, time.time())
    assert 2 == sweep(workspace, time.time() + OLD_S + 1)
    assert all(path.exists() for path in kept)
    assert 0 == sweep(workspace, time.time() + OLD_S + 1)


def test_the_age_is_that_of_the_name(tmp_path: Path) -> None:
    """A replaced file that was written long ago is young as long as it was just put aside."""
    (tmp_path / SPARE).write_text("x", "ascii")
    os.utime(tmp_path / SPARE, (0, 0))
    assert 0 == sweep(Workspace(tmp_path), time.time())
