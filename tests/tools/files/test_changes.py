"""Changes of several files: all of them or none, under failures and interference."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from palyra.core.tool.checkpoints import Content
from palyra.core.tool.spec import ToolFailure
from palyra.tools.files import changes as changes_module
from palyra.tools.files import syscalls
from palyra.tools.files.changes import Changes, Contents
from palyra.tools.files.workspace import Workspace


@pytest.fixture(params=["one step", "several steps"])
def workspace(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    """A workspace with three files, on file systems that can swap names and that cannot."""
    if request.param == "several steps":
        monkeypatch.setattr(syscalls, "_rename", lambda *_: False)
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (root / name).write_text(f"old {name}")
    opened = Workspace(root)
    yield opened
    opened.close()


def files(workspace: Workspace) -> dict[str, str]:
    """Every file and its text; folders have a slash."""
    found = sorted(workspace.root.rglob("*"))
    return {
        path.relative_to(workspace.root).as_posix() + "/" * path.is_dir(): ""
        if path.is_dir()
        else path.read_text()
        for path in found
    }


def change(workspace: Workspace, after: dict[str, str | None], keep: object = None) -> None:
    """Make the files so."""
    changes = Changes(workspace)
    wanted: dict[str, Content | None] = {}
    for path, text in after.items():
        found = changes.look(path)
        mode = None if found is None else found.mode
        wanted[path] = None if text is None else Content(text.encode(), mode)
    changes.make(wanted, keep)  # type: ignore[arg-type]  # tests give simple ones


OLD = {"a": "old a", "b": "old b", "sub/": "", "sub/c": "old sub/c"}
AFTER: dict[str, str | None] = {"a": "new", "b": None, "sub/c": "new", "deep/er/d": "new"}


def test_files_are_made_changed_and_deleted(workspace: Workspace) -> None:
    """Together; folders are made; nothing else is left behind."""
    change(workspace, AFTER)
    assert files(workspace) == {
        "a": "new", "deep/": "", "deep/er/": "", "deep/er/d": "new", "sub/": "", "sub/c": "new",
    }  # fmt: skip


def test_permissions_are_kept(workspace: Workspace) -> None:
    """Of a file that is replaced; a new one has the usual ones, and may be executable."""
    root = workspace.root
    (root / "a").chmod(0o750)
    (root / "plain").touch()
    changes = Changes(workspace)
    found = changes.look("a")
    assert found == Content(b"old a", 0o750)
    assert (changes.look("n"), changes.look("x")) == (None, None)
    changes.make(
        {"a": Content(b"1", 0o750), "n": Content(b""), "x": Content(b"", None, is_executable=True)}
    )
    usual = stat.S_IMODE((root / "plain").stat().st_mode)
    modes = [stat.S_IMODE((root / name).stat().st_mode) for name in ("a", "n", "x")]
    assert [0o750, usual, usual | (usual & 0o444) >> 2] == modes


def test_a_reader_keeps_the_old_file(workspace: Workspace) -> None:
    """A process with the old file open reads it to its end."""
    with (workspace.root / "a").open() as reader:
        change(workspace, {"a": "new"})
        assert reader.read() == "old a"


def test_an_unchanged_file_is_not_touched(workspace: Workspace) -> None:
    """The file keeps its inode, and no checkpoint is needed."""

    def look() -> tuple[int, int, int]:  # not at the time of reading: it is read
        found = (workspace.root / "a").stat()
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns

    before = look()
    kept: list[Contents] = []
    change(workspace, {"a": "old a", "b": "new"}, lambda old, _: kept.append(old))
    assert before == look()
    assert [{"b": Content(b"old b", 0o644)}] == kept


def test_everything_is_on_the_disk(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents before the checkpoint, the checkpoint before any name changes, folders last."""
    said: list[str] = []

    def note(fd: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        said.append("folder" if is_folder else f"file {os.fstat(fd).st_size}")

    monkeypatch.setattr(os, "fsync", note)
    change(workspace, {"a": "new", "sub/c": "newer"}, lambda *_: said.append("kept"))
    assert ["file 3", "file 5", "kept", "folder", "folder"] == said


def test_a_change_that_cannot_be_kept_is_not_made(workspace: Workspace) -> None:
    """Without a checkpoint nothing is touched."""

    def fail(*_: object) -> None:
        raise ToolFailure("no room")

    with pytest.raises(ToolFailure, match="no room"):
        change(workspace, AFTER, fail)
    assert files(workspace) == OLD


@pytest.mark.parametrize("name", ["_stage", "_commit_one"])
@pytest.mark.parametrize("nth", range(4))
def test_a_failure_puts_everything_back(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    """Whatever file it meets, at its beginning or once it is done; the checkpoint is forgotten."""
    real: Callable[[object], None] = getattr(changes_module, name)
    count = iter(range(99))
    forgotten: list[bool] = []

    def fail_nth(target: object) -> None:
        at = next(count)
        if name == "_commit_one" and at == nth:
            real(target)
        if at == nth:
            raise ToolFailure("no space left on device")
        real(target)

    monkeypatch.setattr(changes_module, name, fail_nth)
    with pytest.raises(ToolFailure, match="no space left"):
        change(workspace, AFTER, lambda *_: lambda: forgotten.append(True))
    assert files(workspace) == OLD
    assert forgotten == ([True] if name == "_commit_one" else [])


def test_a_full_disk_leaves_the_old_files(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the operating system's message and the path."""

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolFailure, match="a: no space left on device"):
        change(workspace, {"a": "new"})
    assert files(workspace) == OLD


# --- somebody interferes -------------------------------------------------------------------------


def interfering(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Do that right before the first call of a step."""
    real: Callable[[object], None] = getattr(changes_module, name)
    waiting = [act]

    def act_first(*arguments: object) -> None:
        if waiting:
            waiting.pop()()
        real(*arguments)

    monkeypatch.setattr(changes_module, name, act_first)


@pytest.mark.parametrize("step", ["_stage", "_commit_one"])
@pytest.mark.parametrize("path", ["a", "b", "sub/c"])
def test_a_file_changed_meanwhile_is_not_lost(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, step: str, path: str
) -> None:
    """Also at the very last moment, their change survives and nothing of ours happens."""
    interfering(monkeypatch, step, lambda: _write(workspace.root / path, "theirs"))
    with pytest.raises(ToolFailure, match=f"{path} was changed meanwhile"):
        change(workspace, AFTER)
    assert files(workspace) == {**OLD, path: "theirs"}


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def test_a_file_that_appears_is_not_overwritten(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file of another process stays."""
    interfering(monkeypatch, "_commit_one", lambda: _write(workspace.root / "n", "theirs"))
    with pytest.raises(ToolFailure, match="n was changed meanwhile"):
        change(workspace, {"a": "new", "n": "ours"})
    assert files(workspace) == {**OLD, "n": "theirs"}


@pytest.mark.parametrize("step", ["_stage", "_commit_one"])
def test_a_link_swapped_in_is_caught(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A file that becomes a link to the outside is not written through; plainly it would be."""
    outside = workspace.root.parent / "outside"
    outside.write_text("outside")

    def swap_in() -> None:
        (workspace.root / "a").rename(workspace.root.parent / "a")
        (workspace.root / "a").symlink_to(outside)

    interfering(monkeypatch, step, swap_in)
    with pytest.raises(ToolFailure, match="a was changed meanwhile"):
        change(workspace, {"a": "new", "b": "new"})
    assert outside.read_text() == "outside"
    assert (workspace.root / "a").is_symlink()
    assert (workspace.root / "b").read_text() == "old b"
    (workspace.root / "a").write_text("through")  # the control: no walls
    assert outside.read_text() == "through"


def test_a_folder_swapped_for_a_link_is_caught(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between look and write: nothing is written outside, and nothing at all."""
    outside = workspace.root.parent / "outside"
    outside.mkdir()
    (outside / "c").write_text("outside")

    def swap_in() -> None:
        (workspace.root / "sub").rename(workspace.root / "moved")
        (workspace.root / "sub").symlink_to(outside)

    interfering(monkeypatch, "_stage", swap_in)
    with pytest.raises(ToolFailure, match="may not be used"):
        change(workspace, {"sub/c": "new", "a": "new"})
    assert (outside / "c").read_text() == "outside"
    assert (workspace.root / "moved" / "c").read_text() == "old sub/c"
    assert (workspace.root / "a").read_text() == "old a"
    assert ["c"] == [path.name for path in (workspace.root / "moved").iterdir()]


def test_a_folder_swapped_for_another_is_caught(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the same name is not the folder that was looked at."""

    def swap_in() -> None:
        (workspace.root / "sub").rename(workspace.root / "moved")
        (workspace.root / "sub").mkdir()

    interfering(monkeypatch, "_stage", swap_in)
    with pytest.raises(ToolFailure, match="sub/c was changed"):
        change(workspace, {"sub/c": "new"})
    assert (workspace.root / "moved" / "c").read_text() == "old sub/c"


def test_a_file_that_cannot_be_put_back_is_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has its temporary name, and the checkpoint is kept."""
    real = changes_module._commit_one
    forgotten: list[bool] = []

    def fail_second(target: changes_module._Target) -> None:
        if target.path == "b":
            (workspace.root / "a").unlink()
            raise ToolFailure("no")
        real(target)

    monkeypatch.setattr(changes_module, "_commit_one", fail_second)
    with pytest.raises(ToolFailure, match=r"no; and these could not be put back: a \(now \.pal"):
        change(workspace, {"a": "new", "b": "new"}, lambda *_: lambda: forgotten.append(True))
    assert "old a" in files(workspace).values()
    assert forgotten == []


def test_a_made_folder_that_is_used_meanwhile_stays(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of another process in it is not lost."""

    def use() -> None:
        (workspace.root / "deep" / "theirs").write_text("x")
        raise ToolFailure("no")

    interfering(monkeypatch, "_commit_one", use)
    with pytest.raises(ToolFailure):
        change(workspace, {"deep/d": "new"})
    assert files(workspace) == {**OLD, "deep/": "", "deep/theirs": "x"}


# --- what may not be changed ---------------------------------------------------------------------


@pytest.mark.parametrize("path", [".git/config", ".vscode/tasks.json", "AGENTS.md", ""])
def test_configuration_is_not_changed(workspace: Workspace, path: str) -> None:
    """A write to protected configuration is refused before anything is read."""
    with pytest.raises(ToolFailure, match="may not be used"):
        Changes(workspace).look(path)


def test_a_large_file_is_not_changed(workspace: Workspace) -> None:
    """It could not be kept."""
    with pytest.raises(ToolFailure, match="a has 5 bytes; a file of more than 4 is not changed"):
        Changes(workspace, most_bytes=4).look("a")


def test_a_file_below_a_file_cannot_be_made(workspace: Workspace) -> None:
    """A path below a file leads nowhere."""
    with pytest.raises(ToolFailure):
        change(workspace, {"a/b": "x"})
    assert files(workspace) == OLD


def test_an_unexpected_rename_error_is_reported(tmp_path: Path) -> None:
    """Only an unsupported operation is worked around."""
    fd = os.open(tmp_path, os.O_RDONLY)
    assert not syscalls._rename(fd, "a", "b", 99)  # what the kernel does not know
    with pytest.raises(FileNotFoundError):
        syscalls.swap(fd, "a", "b")
    with pytest.raises(FileNotFoundError):
        syscalls.move(fd, "a", "b")
    os.close(fd)


def test_a_library_without_the_call(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it goes in several steps."""
    monkeypatch.setattr(syscalls, "_LIBC", SimpleNamespace(syscall=syscalls._LIBC.syscall))
    change(workspace, AFTER)
    assert files(workspace)["a"] == "new"
