"""Small files of a home that are removed or changed while a daemon runs."""

import os
from pathlib import Path

import pytest

from palyra.store.files.kept_files import Check, KeptFiles, is_static


def is_word(content: bytes) -> bool:
    """True for letters."""
    return content.isalpha()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a word."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    return path


@pytest.mark.parametrize("check", [is_static, is_word])
def test_a_removed_file_is_saved(path: Path, check: Check) -> None:
    """Its copy has the last good content; a file that is back is no loss."""
    files = KeptFiles({path: check}, path.parent / "saved")
    assert {} == files.find_losses() == files.find_losses()
    path.unlink()
    for _ in range(2):
        assert {path: "was removed"} == files.find_losses()
    assert b"old" == files.copies[path].read_bytes()
    assert 0o600 == files.copies[path].stat().st_mode & 0o777
    files.restore(path)
    assert ({}, {}) == (files.find_losses(), files.copies)


@pytest.mark.parametrize("check", [is_static, is_word])
def test_a_pipe_in_place_of_a_file_blocks_nothing(path: Path, check: Check) -> None:
    """It is a loss like any other."""
    files = KeptFiles({path: check}, path.parent / "saved")
    assert {} == files.find_losses()
    path.unlink()
    os.mkfifo(path)
    assert ["cannot be read: it is no regular file: put the file itself there"] == list(
        files.find_losses().values()
    )
    assert b"old" == files.copies[path].read_bytes()


@pytest.mark.parametrize(
    ("check", "content", "is_lost"),
    [
        (is_static, b"old", False),
        (is_static, b"new", True),
        (is_static, b"", True),
        (is_word, b"new", False),
        (is_word, b"0", True),
        (is_word, b"", True),
    ],
)
def test_a_changed_file_is_compared(
    path: Path, check: Check, content: bytes, *, is_lost: bool
) -> None:
    """A static one with its first content, another one by its check; in place or replaced."""
    files = KeptFiles({path: check}, path.parent / "saved")
    files.find_losses()
    path.write_bytes(content)
    for _ in range(2):
        assert ({path: "was changed"} if is_lost else {}) == files.find_losses()
    path.unlink()
    files.find_losses()
    saved = files.copies[path].read_bytes()
    assert (b"old" if is_lost else content) == saved


def test_a_file_that_never_was_is_no_loss(tmp_path: Path) -> None:
    """One that appears is watched from then on; a bad one is not."""
    path, bad = tmp_path / "later", tmp_path / "bad"
    files = KeptFiles({path: is_word, bad: is_word}, tmp_path / "saved")
    bad.write_bytes(b"0")
    assert {} == files.find_losses()
    path.write_bytes(b"word")
    assert {} == files.find_losses()
    path.unlink()
    bad.unlink()
    assert {path: "was removed"} == files.find_losses()


def test_a_copy_that_cannot_be_written_is_tried_again(path: Path) -> None:
    """The loss is reported all the same."""
    saved = path.parent / "saved"
    saved.write_bytes(b"")
    files = KeptFiles({path: is_static}, saved)
    files.find_losses()
    path.unlink()
    assert ({path: "was removed"}, {}) == (files.find_losses(), files.copies)
    saved.unlink()
    files.find_losses()
    assert path in files.copies
    path.mkdir()
    assert {path: "cannot be read: Is a directory"} == files.find_losses()
