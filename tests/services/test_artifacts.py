"""Outputs and checkpoints as clients ask for them: whose they are, and who may put files back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from trio.testing import MockClock

from palyra.core.access import Caller
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.tool.artifacts import Artifact
from palyra.core.tool.checkpoints import CheckpointFilter, Content
from palyra.core.tool.spec import ToolCall
from palyra.errors import Conflict, Forbidden, InvalidParams, NotFound
from palyra.services.session.artifacts import ArtifactService
from palyra.tools.files.changes import Changes
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from tests.actors.run.office_kit import OPERATOR, STRANGER, Kit, inline_blocking, running, say
from tests.store.memory.files import MemoryCheckpoints
from tests.store.memory.journal import MemoryJournal

CLIENT = Caller(principal="ann", role="client", token_id="tok_1")
OBSERVER = Caller(principal="oda", role="observer", token_id="tok_2")
APPROVER = Caller(principal="apr", role="approver", token_id="tok_3")
OTHER_OPERATOR = Caller(principal="bob", role="operator", token_id="tok_4")


@pytest.fixture
def store() -> MemoryJournal:
    """A journal for one test."""
    journal = MemoryJournal()
    journal.open()
    return journal


class Desk:
    """A daemon's middle with a session of ann's, whose call changed a file."""

    def __init__(self, kit: Kit, root: Path) -> None:
        self.kit = kit
        self.path = root / "a"
        self.path.write_text("old", encoding="utf-8")
        workspace = Workspace(root)
        numbers = iter(range(99))
        history = Checkpoints(
            workspace, MemoryCheckpoints(), lambda: 7, lambda prefix: f"{prefix}_{next(numbers)}"
        )
        self.files = ArtifactService(kit.artifacts, history, kit.sessions.get, inline_blocking)
        self.history, self.workspace = history, workspace
        self.session_id = ""

    async def fill(self) -> None:
        """A run of ann's, an output of it, and a change."""
        self.kit.model.turns = [say("done")]
        run_id = await self.kit.start()
        await self.kit.end(run_id)
        record = self.kit.journal.store.find_run(run_id)
        assert record is not None
        self.session_id = record.session_id
        data = b"one\ntwo\nthree\n"
        self.artifact = Artifact(
            artifact=sha256_hex(data), session_id=record.session_id, run_id=run_id,
            call_id="call_1", tool="shell", size_bytes=len(data), created_ms=1, trust="workspace",
        )  # fmt: skip
        self.kit.artifacts.put(self.artifact, data)
        call = ToolCall(
            call_id="call_1", run_id=run_id, session_id=record.session_id, principal="ann",
            tool="write_file", tool_version="1", arguments={},
        )  # fmt: skip
        changes = Changes(self.workspace)
        changes.look("a")
        changes.make({"a": Content(b"new", 0o644)}, self.history.keep_for(call))


@asynccontextmanager
async def at_desk(store: MemoryJournal, root: Path) -> AsyncGenerator[Desk]:
    """Such a daemon, running."""
    async with running(store) as kit:
        desk = Desk(kit, root)
        try:
            await desk.fill()
            yield desk
        finally:
            desk.workspace.close()


async def test_an_artifact_is_read_by_roles_that_see_its_session(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It is read page by page; for others it does not exist."""
    async with at_desk(store, tmp_path) as desk:
        name = desk.artifact.artifact
        for caller in (OPERATOR, CLIENT, OBSERVER, APPROVER):
            piece = await desk.files.read_artifact(
                caller, desk.session_id, name[:16], offset=4, limit_bytes=6
            )
            assert (desk.artifact, "two\n", 8) == (
                piece.artifact,
                piece.page.text,
                piece.page.next_offset,
            )
        for wanted in (name, "0" * 64):
            with pytest.raises(NotFound):
                await desk.files.read_artifact(
                    STRANGER, desk.session_id, wanted, offset=0, limit_bytes=9
                )
        with pytest.raises(NotFound, match="no artifact"):
            await desk.files.read_artifact(
                OPERATOR, desk.session_id, "0" * 64, offset=0, limit_bytes=9
            )
        with pytest.raises(InvalidParams, match="offset 99 of 14 bytes"):
            await desk.files.read_artifact(
                OPERATOR, desk.session_id, name, offset=99, limit_bytes=9
            )


async def test_checkpoints_are_listed_to_roles_that_see_them(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A client cannot list those of another principal."""
    async with at_desk(store, tmp_path) as desk:
        for caller in (OPERATOR, CLIENT, OBSERVER, OTHER_OPERATOR):
            (found,) = await desk.files.list_checkpoints(caller, CheckpointFilter())
            assert ("ckp_0", "ann") == (found.checkpoint_id, found.principal)
        asked = CheckpointFilter(principal="ann", session_id=desk.session_id)
        assert [] == await desk.files.list_checkpoints(STRANGER, asked)
        assert [] == await desk.files.list_checkpoints(CLIENT, CheckpointFilter(run_id="run_2"))


async def test_only_the_owner_restores(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Not an operator who sees it, not an observer, and to a stranger it does not exist."""
    async with at_desk(store, tmp_path) as desk:
        for caller, error in (
            (OTHER_OPERATOR, Forbidden), (OBSERVER, Forbidden), (APPROVER, Forbidden),
            (STRANGER, NotFound),
        ):  # fmt: skip
            with pytest.raises(error):
                await desk.files.restore_checkpoint(caller, "ckp_0", "before", is_forced=True)
        with pytest.raises(NotFound):
            await desk.files.restore_checkpoint(CLIENT, "ckp_9", "before", is_forced=True)
        assert desk.path.read_text() == "new"
        done = await desk.files.restore_checkpoint(CLIENT, "ckp_0", "before", is_forced=False)
        assert (("a",), "ckp_1") == (done.files, done.checkpoint_id)
        assert desk.path.read_text() == "old"


async def test_a_later_change_is_a_conflict(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Unless the restore is forced."""
    async with at_desk(store, tmp_path) as desk:
        desk.path.write_text("theirs", encoding="utf-8")
        with pytest.raises(Conflict, match="changed since"):
            await desk.files.restore_checkpoint(OPERATOR, "ckp_0", "before", is_forced=False)
        await desk.files.restore_checkpoint(OPERATOR, "ckp_0", "before", is_forced=True)
        assert desk.path.read_text() == "old"
