"""Remains of a killed daemon are found and ended, and nothing else."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from palyra.tools.sandbox import records as sandbox_records
from palyra.tools.sandbox.records import JailRecords, RecordedProcess, find_process, kill_process
from palyra.tools.sandbox.restored_paths import RestoredPaths

pytestmark = pytest.mark.real


@pytest.fixture
def sleeper() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


def test_recorded_processes_are_killed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """By number and start, and the record is gone with them."""
    JailRecords(tmp_path / "jails", None).write([sleeper.pid], "", [])
    assert 1 == JailRecords(tmp_path / "jails", None).reap()
    assert -9 == sleeper.wait()
    assert [] == list((tmp_path / "jails").iterdir())


def test_a_reused_pid_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    """The same pid with another start time is another process."""
    found = find_process(sleeper.pid)
    assert found is not None
    assert not kill_process(RecordedProcess(found.pid, found.started - 1))
    assert sleeper.poll() is None


def test_records_of_another_boot_name_no_process(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """After a reboot all pids are reused."""
    path = JailRecords(tmp_path, None).write([sleeper.pid], "", [])
    record = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**record, "boot_id": "another"}))
    assert 0 == JailRecords(tmp_path, None).reap()
    assert sleeper.poll() is None


def test_a_record_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It names workspaces; whatever the daemon's mask for new files is."""
    before = os.umask(0)
    try:
        path = JailRecords(tmp_path, None).write([os.getpid()], "", [])
    finally:
        os.umask(before)
    assert 0o600 == path.stat().st_mode & 0o777


def test_placeholders_are_removed_only_while_empty(tmp_path: Path) -> None:
    """A placeholder with content is kept."""
    workspace = tmp_path / "ws"
    (workspace / ".vscode").mkdir(parents=True)
    (workspace / ".idea").mkdir()
    (workspace / ".idea" / "mine").write_text("x", "utf-8")
    for name, mode in ((".envrc", 0o444), ("AGENTS.md", 0o644)):
        (workspace / name).touch()
        (workspace / name).chmod(mode)
    paths = [str(path) for path in workspace.iterdir()]
    with subprocess.Popen(["/bin/true"]) as gone:
        pass
    JailRecords(tmp_path / "jails", None).write([gone.pid], "", paths)
    JailRecords(tmp_path / "jails", None).reap()
    assert {".idea", "AGENTS.md"} == {path.name for path in workspace.iterdir()}


def test_the_next_start_restores_links_and_commondir(tmp_path: Path) -> None:
    """The replaced files are not lost."""
    workspace = tmp_path / "ws"
    (workspace / ".git").mkdir(parents=True)
    (workspace / "AGENTS.md").symlink_to("guide.md")
    before = RestoredPaths().snapshot(str(workspace))
    with subprocess.Popen(["/bin/true"]) as gone:
        pass
    known = JailRecords(tmp_path / "jails", None)
    known.write([gone.pid], "", [], root=str(workspace), state=before)
    (workspace / "AGENTS.md").unlink()
    (workspace / "AGENTS.md").write_text("evil", "utf-8")
    (workspace / ".git/commondir").write_text("../evil", "utf-8")
    JailRecords(tmp_path / "jails", None).reap()
    assert Path("guide.md") == (workspace / "AGENTS.md").readlink()
    assert not (workspace / ".git/commondir").exists()
    assert ["evil"] == [path.read_text("utf-8") for path in workspace.glob("AGENTS.md.set-aside-*")]


def test_a_half_started_jail_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process started right before the kill is searched for again, and after an empty look."""
    found = JailRecords(tmp_path / "jails", None)
    looks = iter([[RecordedProcess(1, 0)], [], [RecordedProcess(2, 0)], [], []])
    killed: list[RecordedProcess] = []
    monkeypatch.setattr(sandbox_records, "find_named", lambda _: next(looks))
    monkeypatch.setattr(sandbox_records, "kill_process", lambda process: not killed.append(process))  # type: ignore[func-returns-value]
    assert 2 == found.reap()
    assert [RecordedProcess(1, 0), RecordedProcess(2, 0)] == killed


def test_a_torn_record_is_dropped(tmp_path: Path) -> None:
    """An incompletely written record names no process."""
    (tmp_path / "1.json").write_bytes(b'{"boot_')
    assert 0 == JailRecords(tmp_path, None).reap()
    assert [] == list(tmp_path.iterdir())
