"""The undo of a run's changes: crashes, lost checkpoints, and files that others changed."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from palyra.core.journal.changes import Change
from palyra.core.tape import events as ev
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, Content
from palyra.core.tool.spec import ToolCall
from palyra.errors import Conflict, IllegalState, Unavailable
from palyra.services.session.run_changes import RunChanges
from palyra.services.tape.pins import read_rows
from palyra.services.tape.run_loader import read_run
from palyra.tools.files.changes import Changes
from tests.actors.run.office_kit import inline_blocking
from tests.services.test_artifacts import CLIENT, Desk, at_desk
from tests.store.memory.files import MemoryCheckpoints
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    journal = MemoryJournal()
    journal.open()
    return journal


class FailingJournal:
    """A journal whose next commit fails, as if the process had ended before it."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, change: Change) -> None:
        if self.fails:
            self.fails = False
            raise Unavailable("the process ends here")
        await self._journal.commit(change)


def service(desk: Desk) -> tuple[RunChanges, FailingJournal, str]:
    journal = FailingJournal(desk.kit.journal)
    redact = lambda text: (text.replace("a", "[x]"), "a" in text)  # noqa: E731 - one of two lines
    changes = RunChanges(journal, desk.history, redact, lambda: 9, inline_blocking)
    return changes, journal, desk.artifact.run_id


def undone(desk: Desk, run_id: str) -> Sequence[ev.RunUndone]:
    """Return the events of undos; the whole tape folds."""
    record = desk.kit.journal.store.find_run(run_id)
    loaded = read_run(desk.kit.journal.store, run_id)
    assert record is not None
    assert loaded is not None
    assert loaded.run.state == "done"
    rows = list(read_rows(desk.kit.journal.store, run_id, record.head_seq))
    assert record.head_seq == rows[-1].seq
    events = [ev.decode_event(row.kind, row.data) for row in rows]
    return [each for each in events if isinstance(each, ev.RunUndone)]


def write(desk: Desk, text: bytes, call_id: str = "call_2", run_id: str | None = None) -> None:
    call = ToolCall(
        call_id=call_id, run_id=run_id or desk.artifact.run_id, session_id=desk.session_id,
        principal="ann", tool="write_file", tool_version="1", arguments={},
    )  # fmt: skip
    changes = Changes(desk.workspace)
    changes.look("a")
    changes.make({"a": Content(text, 0o644)}, desk.history.keep_for(call))


async def test_an_undo_is_on_the_tape_once(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """With redacted paths; an undo with nothing to do leaves no event."""
    async with at_desk(store, tmp_path) as desk:
        changes, _, run_id = service(desk)
        write(desk, b"newer")
        preview = await changes.preview_undo(CLIENT, run_id)
        done = await changes.undo(CLIENT, run_id, preview.digest, is_forced=False)
        assert "old" == desk.path.read_text(encoding="utf-8")
        (event,) = undone(desk, run_id)
        assert (done.checkpoint_id, ("[x]",), False) == (
            event.checkpoint_id, event.files, event.forced,
        )  # fmt: skip
        preview = await changes.preview_undo(CLIENT, run_id)
        assert () == preview.files
        done = await changes.undo(CLIENT, run_id, preview.digest, is_forced=True)
        assert ((), None) == (done.files, done.checkpoint_id)
        assert 1 == len(undone(desk, run_id))


async def test_a_crash_before_the_event_is_made_up_for(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The files are back and the checkpoint is durable; the next undo appends the event."""
    async with at_desk(store, tmp_path) as desk:
        changes, journal, run_id = service(desk)
        preview = await changes.preview_undo(CLIENT, run_id)
        journal.fails = True
        with pytest.raises(Unavailable):
            await changes.undo(CLIENT, run_id, preview.digest, is_forced=False)
        assert ("old", []) == (desk.path.read_text(encoding="utf-8"), undone(desk, run_id))
        with pytest.raises(Conflict, match="not as the preview"):
            await changes.undo(CLIENT, run_id, preview.digest, is_forced=False)
        assert 1 == len(undone(desk, run_id))


async def test_a_forced_restore_does_not_make_a_foreign_content_known(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A person's text that was overwritten and brought back is still a person's."""
    async with at_desk(store, tmp_path) as desk:
        changes, _, run_id = service(desk)
        (kept,) = desk.history.list(CheckpointFilter())
        desk.path.write_text("theirs", encoding="utf-8")
        forced = desk.history.restore(kept, "before", is_forced=True)
        assert forced.checkpoint_id is not None
        again = desk.history.find(forced.checkpoint_id)
        assert again is not None
        desk.history.restore(again, "before", is_forced=False)
        assert "theirs" == desk.path.read_text(encoding="utf-8")
        preview = await changes.preview_undo(CLIENT, run_id)
        assert ((), ("a",)) == (preview.files, preview.conflicts)
        done = await changes.undo(CLIENT, run_id, preview.digest, is_forced=False)
        assert (("a",), "theirs") == (done.conflicts, desk.path.read_text(encoding="utf-8"))


async def test_another_run_is_another_writer(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """What a later run wrote is kept when an earlier one is undone."""
    async with at_desk(store, tmp_path) as desk:
        changes, _, run_id = service(desk)
        write(desk, b"later", run_id="run_later")
        preview = await changes.preview_undo(CLIENT, run_id)
        assert ((), ("a",)) == (preview.files, preview.conflicts)
        done = await changes.undo(CLIENT, run_id, preview.digest, is_forced=True)
        assert (("a",), "old") == (done.files, desk.path.read_text(encoding="utf-8"))
        assert undone(desk, run_id)[0].forced


async def test_files_that_cannot_be_used_are_left_alone(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in the place of the file is not followed, also by force; nor is a lost content made up."""
    async with at_desk(store, tmp_path) as desk:
        changes, _, run_id = service(desk)
        (tmp_path / "target").write_text("precious", encoding="utf-8")
        desk.path.unlink()
        desk.path.symlink_to("target")
        preview = await changes.preview_undo(CLIENT, run_id)
        assert ["a"] == [each.path for each in preview.unusable]
        done = await changes.undo(CLIENT, run_id, preview.digest, is_forced=True)
        assert ((), "precious") == (done.files, (tmp_path / "target").read_text(encoding="utf-8"))
        assert desk.path.is_symlink()
        desk.path.unlink()
        desk.path.write_text("new", encoding="utf-8")

        def lost(_store: Any, name: str) -> dict[str, bytes]:
            raise Unavailable(f"the checkpoint {name} is no longer stored")

        monkeypatch.setattr(MemoryCheckpoints, "contents", lost)
        shown = await changes.diff(CLIENT, run_id)
        assert ("unusable", True) == (shown.files[0].standing, bool(shown.files[0].problem))


async def test_another_workspace_is_refused(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of one workspace mean nothing in another."""
    async with at_desk(store, tmp_path) as desk:
        changes, _, run_id = service(desk)
        monkeypatch.setattr(desk.workspace, "root", tmp_path / "elsewhere")
        with pytest.raises(IllegalState, match="this daemon works in"):
            await changes.diff(CLIENT, run_id)


async def test_a_change_between_look_and_write_is_not_lost(
    store: MemoryJournal, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is compared again when the undo reads the file."""
    async with at_desk(store, tmp_path) as desk:
        changes, _, run_id = service(desk)
        preview = await changes.preview_undo(CLIENT, run_id)
        real = type(desk.history).undo

        def late(self: Any, made: Sequence[Checkpoint], *more: Any) -> str | None:
            desk.path.write_text("late", encoding="utf-8")
            os.utime(desk.path, (1, 1))
            return real(self, made, *more)

        monkeypatch.setattr(type(desk.history), "undo", late)
        with pytest.raises(Conflict, match="changed after the preview"):
            await changes.undo(CLIENT, run_id, preview.digest, is_forced=True)
        assert ("late", []) == (desk.path.read_text(encoding="utf-8"), undone(desk, run_id))
