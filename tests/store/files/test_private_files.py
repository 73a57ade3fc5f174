"""Private files: a directory or file that cannot be made says why."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.core.skill.manifest import SkillIndex
from palyra.errors import DiskFull, Unavailable
from palyra.store.files.compiled import CompiledCache
from palyra.store.files.private_files import make_directory
from palyra.store.files.retention import RetainedFiles
from palyra.store.files.skills import SkillStore


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


def put_artifact(root: Path) -> None:
    files = RetainedFiles(root, max_bytes=1_000, max_age_ms=1_000, now_ms=lambda: 0)
    files.put("name", b"head", [b"body"])


@pytest.mark.parametrize(
    "write",
    [
        put_artifact,
        lambda root: SkillStore(root).write(SkillIndex()),
        lambda root: SkillStore(root).put_package(b"package"),
        lambda root: CompiledCache(root, root).find("engine", "module"),
    ],
)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_told_from_another_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], object], code: int
) -> None:
    """A store next to the journal raises DiskFull for lack of room only, and leaves no draft."""

    def fail(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    compiled = hashlib.sha256(b"engine\0module").hexdigest()
    (tmp_path / f"{compiled}.code").write_bytes(bytes(32))  # its check needs the cache's key
    before = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Unavailable, match="cannot be written") as raised:
        write(tmp_path)
    assert (code != errno.EIO) == isinstance(raised.value, DiskFull)
    assert before == {path.name for path in tmp_path.rglob("*") if path.is_file()}
