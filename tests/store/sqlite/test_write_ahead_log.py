"""Frames of a write-ahead log behind a damaged one are counted."""

import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from palyra.store.sqlite.write_ahead_log import count_hidden_frames

PAGE, FRAME, HEADER = 4_096, 4_120, 32
COMMITS = 10


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of commits, as a killed process leaves it, that was begun anew once."""
    place = tmp_path / "database"
    with closing(apsw.Connection(str(place))) as connection:
        connection.execute("PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE t (x)")
        for number in range(3 * COMMITS):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        for number in range(COMMITS):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        shutil.copy(f"{place}-wal", tmp_path / "log")
    return tmp_path / "log"


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


@pytest.mark.parametrize("cut", [0, 1, FRAME, FRAME + 100])
def test_a_sound_log_hides_nothing(log: Path, cut: int) -> None:
    """Negative control: nor does one that ends within a frame, or has older frames behind its last."""
    with log.open("r+b") as file:
        file.truncate(HEADER + COMMITS * FRAME - cut)
    assert 0 == count_hidden_frames(log)


def test_older_frames_are_not_counted(log: Path) -> None:
    """The log was begun anew: what is left of the one before is behind its last frame."""
    assert log.stat().st_size > HEADER + COMMITS * FRAME
    assert 0 == count_hidden_frames(log)


@pytest.mark.parametrize("number", [0, 4, COMMITS - 1])
@pytest.mark.parametrize("at", [0, 9, 17, 24, FRAME - 1])
def test_frames_behind_a_damaged_one_are_counted(log: Path, number: int, at: int) -> None:
    """Whether its page, its salts or its checksum was changed."""
    overwrite(log, HEADER + number * FRAME + at, b"\xa5")
    assert COMMITS - 1 - number == count_hidden_frames(log)


@pytest.mark.parametrize("at", [0, 9, 17, 24])
def test_a_damaged_header_hides_all(log: Path, at: int) -> None:
    """Magic number, size of a page, salts and checksum."""
    overwrite(log, at, b"\xa5")
    assert count_hidden_frames(log) > 0


@pytest.mark.parametrize("content", [None, b"", bytes(HEADER)])
def test_no_log_hides_nothing(tmp_path: Path, content: bytes | None) -> None:
    """Nor does one without frames."""
    if content is not None:
        (tmp_path / "log").write_bytes(content)
    assert 0 == count_hidden_frames(tmp_path / "log")
