"""Fake stored files for connections: one output, one checkpoint."""

import trio

from palyra.core.access import Caller
from palyra.core.preview.run_changes import ChangedFile, RunDiff, RunUndo
from palyra.core.tool.artifacts import Artifact, ArtifactPage, read_page
from palyra.core.tool.checkpoints import (
    Checkpoint,
    CheckpointFilter,
    FileChange,
    FileState,
    Restored,
    Side,
)
from palyra.errors import NotFound

DATA = b"one\ntwo\nthree\n"
ARTIFACT = Artifact(
    artifact="a" * 64, session_id="ses_1", run_id="run_1", call_id="call_1", tool="shell",
    size_bytes=len(DATA), created_ms=1, trust="workspace",
)  # fmt: skip
CHECKPOINT = Checkpoint(
    checkpoint_id="ckp_1", principal="root", session_id="ses_1", run_id="run_1", call_id="call_1",
    tool="write_file", workspace="/w", created_ms=1,
    files=(
        FileChange(path="a", before=None, after=FileState(sha256="b" * 64, size_bytes=1, mode=0o644)),
    ),
)  # fmt: skip


class FakeFiles:
    """See `services.session.artifacts`."""

    def __init__(self) -> None:
        self.restored: list[tuple[str, Side, bool]] = []
        self.wanted: list[CheckpointFilter] = []

    async def read_artifact(
        self, caller: Caller, session_id: str, name: str, *, offset: int, limit_bytes: int
    ) -> tuple[Artifact, ArtifactPage]:
        caller.require("runs:read")
        await trio.lowlevel.checkpoint()
        assert name
        page = read_page(DATA, offset, limit_bytes)
        if session_id != ARTIFACT.session_id or page is None:
            raise NotFound("no such artifact")
        return ARTIFACT, page

    async def list_checkpoints(self, caller: Caller, wanted: CheckpointFilter) -> list[Checkpoint]:
        caller.require("runs:read")
        await trio.lowlevel.checkpoint()
        self.wanted.append(wanted)
        return [CHECKPOINT]

    async def restore_checkpoint(
        self, caller: Caller, checkpoint_id: str, side: Side, *, is_forced: bool
    ) -> Restored:
        caller.require("runs:write")
        await trio.lowlevel.checkpoint()
        self.restored.append((checkpoint_id, side, is_forced))
        return Restored(restored=checkpoint_id, side=side, files=("a",), checkpoint_id="ckp_2")


class FakeChanges:
    """See `services.session.run_changes`."""

    def __init__(self) -> None:
        self.undone: list[tuple[str, str, bool]] = []

    async def diff(self, caller: Caller, run_id: str, max_lines: int) -> RunDiff:
        caller.require("runs:read")
        await trio.lowlevel.checkpoint()
        assert max_lines
        return RunDiff(run_id=run_id, files=(ChangedFile(path="a", standing="left"),))

    async def preview_undo(self, caller: Caller, run_id: str, max_lines: int) -> RunUndo:
        caller.require("runs:write")
        await trio.lowlevel.checkpoint()
        assert max_lines
        return RunUndo(run_id=run_id, state="preview", digest="d", files=("a",))

    async def undo(self, caller: Caller, run_id: str, digest: str, *, is_forced: bool) -> RunUndo:
        caller.require("runs:write")
        await trio.lowlevel.checkpoint()
        self.undone.append((run_id, digest, is_forced))
        conflicts = () if is_forced else ("b",)
        return RunUndo(
            run_id=run_id, state="undone", digest=digest, files=("a",), conflicts=conflicts,
            checkpoint_id="ckp_2",
        )  # fmt: skip
