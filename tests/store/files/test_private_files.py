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
def test_a_directory_that_cannot_be_made_private_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, told: str
) -> None:
    """The error names the cause: its place or its owner."""

    def fail(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(Path, "chmod", fail)
    with pytest.raises(Unavailable, match=told) as refused:
        make_directory(tmp_path)
    assert refused.value.message.startswith(f"{tmp_path}: ")
