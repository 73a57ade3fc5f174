"""Private files: a directory or file that cannot be made, or is none, says why."""

import errno
import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.core.skill.manifest import SkillIndex
from palyra.errors import DiskFull, Unavailable
from palyra.store.files.compiled import CompiledCache
from palyra.store.files.data_directory import DataDirectory
from palyra.store.files.private_files import (
    make_directory,
    open_file,
    read_file,
    read_secret,
)
from palyra.store.files.retention import FolderBounds, RetainedFiles
from palyra.store.files.skills import SkillStore
from palyra.store.journal.keys import KeyRing, read_operator_token
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import Clock


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    """A pipe without a writer would block for ever, a folder has no content."""
    regular, pipe = tmp_path / "file", tmp_path / "pipe"
    regular.write_bytes(b"x")
    os.mkfifo(pipe)
    with open_file(regular) as file:
        assert b"x" == file.read() == read_file(regular)
    for path, number in ((pipe, errno.ENODEV), (tmp_path, errno.EISDIR)):
        with pytest.raises(OSError) as refused:  # noqa: PT011 - its number is looked at
            read_file(path)
        assert number == refused.value.errno


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


def make_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def link_to_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


STRANGE = [Path.mkdir, make_pipe, make_socket, link_to_endless]


def start(home: Path) -> None:
    """Open each file of a home as a start of the daemon does."""
    with DataDirectory(home) as directory:
        keys = KeyRing.open(directory.keys)
        store = SqliteJournal(home / "journal.sqlite3", keys, now_ms=Clock())
        store.open()
        store.close()
        read_operator_token(directory.keys, lambda: "t" * 40)


@pytest.mark.parametrize("make", STRANGE)
@pytest.mark.parametrize(
    "name",
    [
        "daemon.lock",
        "journal.sqlite3",
        "journal.roots.ndjson",
        "keys/journal.id",
        "keys/signing.key",
        "keys/operator.token",
    ],
)
def test_anything_else_in_the_place_of_a_file_is_refused(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """By the name of the file, without waiting for the other end of a pipe or an endless device."""
    home = tmp_path / "home"
    start(home)
    start(home)
    (home / name).unlink()
    make(home / name)
    with pytest.raises(Unavailable, match=name):
        start(home)


def test_a_link_to_a_secret_is_called_one(tmp_path: Path) -> None:
    """The words of the system, too many levels of links, would mislead."""
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").touch(mode=0o600)
    assert b"" == read_secret(tmp_path / "secret")
    with pytest.raises(Unavailable, match="it is a symbolic link: put the file itself there"):
        read_secret(tmp_path / "link")


@pytest.mark.parametrize("make", [Path.touch, make_pipe])
@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_in_the_place_of_a_directory_is_called_one(
    tmp_path: Path, make: Callable[[Path], None], below: str
) -> None:
    """The words of the system, file exists, would not help."""
    make(tmp_path / "home")
    with pytest.raises(Unavailable, match=r"it is no directory|Not a directory"):
        make_directory(tmp_path / "home" / below)


def put_artifact(root: Path) -> None:
    files = RetainedFiles(root, FolderBounds(1_000, 1_000, lambda: 0))
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
