"""Directories that cannot be made private say why."""

import errno
from pathlib import Path

import pytest

from palyra.errors import Unavailable
from palyra.store.files.private_files import make_directory


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.EROFS, "the file system is read-only"), (errno.EPERM, "made a private directory")],
)
def test_a_directory_that_stays_as_it_is_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, told: str
) -> None:
    """It is there; what is wrong is where it lies, or whose it is."""

    def fail(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(Path, "chmod", fail)
    with pytest.raises(Unavailable, match=told) as refused:
        make_directory(tmp_path)
    assert refused.value.message.startswith(f"{tmp_path}: ")
