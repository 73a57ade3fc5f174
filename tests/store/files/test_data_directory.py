"""The data directory: private, and owned by one process at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.errors import Unavailable
from palyra.store.files.data_directory import DataDirectory

pytestmark = pytest.mark.real

HOLD = (
    "import sys; from pathlib import Path; from palyra.store.files.data_directory import DataDirectory;"
    "held = DataDirectory(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


def holder(path: Path) -> "subprocess.Popen[bytes]":
    """Another process that owns the directory until its input ends or it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdout is not None
    assert b"held\n" == process.stdout.readline()
    return process


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    """Directory 0700, lock 0600, under any umask."""
    before = os.umask(0)
    try:
        with DataDirectory(tmp_path / "a" / "b") as owned:
            modes = [
                path.stat().st_mode & 0o777 for path in (owned.path, owned.path / "daemon.lock")
            ]
    finally:
        os.umask(before)
    assert [0o700, 0o600] == modes


def test_an_open_directory_is_closed_to_others(tmp_path: Path) -> None:
    """An existing directory loses the bits of group and world."""
    tmp_path.chmod(0o777)
    DataDirectory(tmp_path).close()
    assert 0o700 == tmp_path.stat().st_mode & 0o777


def test_a_second_owner_is_refused_with_the_pid(tmp_path: Path) -> None:
    """The message names the process that has to end first."""
    process = holder(tmp_path)
    with pytest.raises(Unavailable, match=rf"pid {process.pid}\)"):
        DataDirectory(tmp_path)
    process.communicate()
    with DataDirectory(tmp_path):
        assert f"{os.getpid()}\n" == (tmp_path / "daemon.lock").read_text()


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    """The kernel gives the lock back, however the owner ended."""
    process = holder(tmp_path)
    process.kill()
    process.communicate()
    DataDirectory(tmp_path).close()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A tool that outlives the daemon cannot keep the next one from starting."""
    owned = DataDirectory(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()  # before its `exec` it is still us
        owned.close()
        DataDirectory(tmp_path).close()
        child.communicate()


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    """The second close does not touch a descriptor that may be reused by then."""
    owned = DataDirectory(tmp_path)
    owned.close()
    owned.close()


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    """A file in the way is named."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="file"):
        DataDirectory(tmp_path / "file")


def test_a_lock_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    """A directory in the lock's place is named."""
    (tmp_path / "daemon.lock").mkdir()
    with pytest.raises(Unavailable, match=r"daemon\.lock"):
        DataDirectory(tmp_path)


def test_a_lock_that_cannot_be_written_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk no process becomes the owner, and a later start can."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "ftruncate", fail)
        with pytest.raises(Unavailable, match="No space left"):
            DataDirectory(tmp_path)
    DataDirectory(tmp_path).close()
