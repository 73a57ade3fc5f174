"""The approved facts of a command: the content of every file that it names."""

import os
from pathlib import Path
from typing import Any

import pytest

from palyra.core.tool.spec import Preflight, ToolCall, ToolFailure
from palyra.tools.files.workspace import Workspace
from palyra.tools.programs import program
from palyra.tools.programs.program import CommandEnvironment, build_command, inspect_program
from palyra.tools.sandbox.command import CommandLimits


def look(root: Path, **arguments: object) -> Preflight:
    """The inspection of a call with these arguments."""
    around = CommandEnvironment(Workspace(root), CommandLimits(), {}, "A: profile")
    call = ToolCall(
        call_id="call", run_id="run", session_id="ses", principal="alice", tool="shell",
        tool_version="1", arguments=arguments,
    )  # fmt: skip
    build_command(around, call)  # no script of these is in the way
    return inspect_program(around, call)


NAMING: dict[str, dict[str, Any]] = {
    "word": {"argv": ["cat", "x"]},
    "value": {"argv": ["cat", "--config=x"]},
    "line within": {"argv": ["bash", "-c", "cd . && cat x"]},
    "behind many": {"argv": ["cat", *["-n"] * 200, "x"]},
    "line": {"command": "echo; cat x"},
    "script": {"argv": ["sh", "x"]},
    "elsewhere": {"argv": ["cat", "x"], "cwd": "part"},
    "gone to": {"command": "cd part && sh ./x"},
    "gone to in steps": {"command": "cd ./; (pushd part; cat x)"},
    "told of": {"argv": ["make", "-C", "part", "-f", "x"]},
}


@pytest.mark.parametrize("naming", sorted(NAMING))
@pytest.mark.parametrize("kind", ["plain", "second name", "large"])
def test_another_content_is_another_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, naming: str, kind: str
) -> None:
    """Of whatever file a call names, however it does; times that a program sets hide nothing."""
    if kind == "large":
        monkeypatch.setattr(program, "MAX_HASHED_BYTES", 2)
    (tmp_path / "part").mkdir()
    is_inner = "part" in str(NAMING[naming])
    file = tmp_path / "part/x" if is_inner else tmp_path / "x"
    file.write_text("one", "utf-8")
    if kind == "second name":
        (tmp_path / "y").hardlink_to(file)
    before = look(tmp_path, **NAMING[naming])
    assert before.operands.keys() == {"part/x" if is_inner else "x"}
    assert before == look(tmp_path, **NAMING[naming])
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_text("two", "utf-8")
    os.utime(file, ns=times)
    assert before != look(tmp_path, **NAMING[naming])


def test_a_script_is_read_once_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line names it as often as it likes: one copy is sealed."""
    (tmp_path / "x").touch()
    read: list[str] = []

    def note(workspace: Workspace, path: str) -> bytes:
        read.append(path)
        return (workspace.root / path).read_bytes()

    monkeypatch.setattr(program, "_read", note)
    look(tmp_path, command="sh x; sh ./x; sh ././x")
    assert ["x"] == read


def test_a_file_that_appears_later_makes_another_call(tmp_path: Path) -> None:
    """A name without a file, of a folder, or of a place for secrets is part of the digest."""
    (tmp_path / "d").mkdir()
    (tmp_path / ".env").touch()
    before = look(tmp_path, argv=["cat", "x", "d", ".env"])
    assert before.operands == {}
    (tmp_path / "x").touch()
    assert before != look(tmp_path, argv=["cat", "x", "d", ".env"])


def test_more_files_than_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was not inspected could be changed after the approval."""
    monkeypatch.setattr(program, "MAX_OPERANDS", 2)
    for name in "abc":
        (tmp_path / name).touch()
    look(tmp_path, argv=["cat", "a", "b", "a"])
    with pytest.raises(ToolFailure, match="more than 2 files"):
        look(tmp_path, argv=["cat", "a", "b", "c"])


def test_files_of_more_than_anybody_reads_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together; one that is known by its time is not read, and does not count."""
    monkeypatch.setattr(program, "MAX_READ_BYTES", 6)
    monkeypatch.setattr(program, "MAX_HASHED_BYTES", 4)
    for name, size in {"a": 3, "b": 3, "c": 1, "large": 5}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    look(tmp_path, argv=["cat", "a", "b", "a", "large"])
    with pytest.raises(ToolFailure, match="files of more than 6 bytes together: make it several"):
        look(tmp_path, argv=["cat", "a", "b", "c"])


def test_scripts_that_no_memory_should_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is sealed, so all of them together are bounded; a file that is only named is not held."""
    monkeypatch.setattr(program, "MAX_SEALED_BYTES", 6)
    for name, size in {"a": 3, "b": 3, "c": 1}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    look(tmp_path, command="sh a; sh b; sh a; cat c")
    with pytest.raises(ToolFailure, match="scripts of the call have more than 6 bytes together"):
        look(tmp_path, command="sh a; sh b; sh c")
