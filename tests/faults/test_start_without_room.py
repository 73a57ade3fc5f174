"""A daemon that meets a full disk on its way up."""

import errno
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import apsw
import pytest

from palyra import process as serving
from palyra.actors.kernel.supervisor import Escalated
from palyra.config.load import load
from palyra.errors import DiskFull, Unavailable
from palyra.process import EX_SOFTWARE, EX_TEMPFAIL, EX_UNAVAILABLE, serve
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write, find_room, is_full, is_want_of_room
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite import connection, journal
from palyra.store.sqlite.connection import storage_errors
from tests.e2e.daemon_process import STOPPED_WITHIN_S
from tests.forked import ForkedProcess, Setting, reading_pipe

pytestmark = pytest.mark.real

PAGE_BYTES = 4_096
DISK_BYTES = 8_388_608


@contextmanager
def mounted(path: Path, options: str) -> Generator[Path]:
    """A small file system for the length of the block; skips where it may not be mounted."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", str(path)]
    ended = subprocess.run(mount, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip("no right to mount a small disk here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


class Ended(NamedTuple):
    """How a start ended."""

    code: int
    said: str


def palyra(home: Path, *arguments: str, stdout: str = os.devnull) -> Ended:
    """Run the command to its end and read its standard error."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PALYRA_")}
    with (
        Path(os.devnull).open(
            "rb"
        ) as nothing,  # with --stdio the end of a parent that left: a drain
        Path(stdout).open("wb") as output,
        reading_pipe() as (errors, write),
    ):
        streams = (nothing.fileno(), output.fileno(), write)
        command = [arguments[0], "--home", str(home), "--port", "0", *arguments[1:]]
        process = ForkedProcess(command, Setting(environment, streams))
    with process.until_killed(), errors:
        said = errors.read().decode()
        return Ended(process.wait(STOPPED_WITHIN_S), said)


def start(disk: Path, *more: str, stdout: str = os.devnull) -> Ended:
    """Start a daemon once with its home on that disk."""
    workspace = disk.parent / "workspace"
    workspace.mkdir(exist_ok=True)
    return palyra(disk / "home", "serve", "--workspace", str(workspace), *more, stdout=stdout)


def said_last(ended: Ended) -> str:
    """Return the one line with the reason of the end."""
    (line,) = [line for line in ended.said.splitlines() if "cannot continue" in line]
    return line


@pytest.mark.parametrize(
    ("pages", "name"),
    [
        (0, "daemon.lock"),
        (1, "signing.key"),
        (4, "operator.token"),
        (5, "journal.sqlite3"),
        (40, "journal.sqlite3"),
    ],
)
def test_a_start_without_room_ends_with_75(tmp_path: Path, pages: int, name: str) -> None:
    """Without room for any file the start exits with 75; the line names file and free space."""
    with mounted(tmp_path / "disk", f"size={DISK_BYTES}") as disk:
        (disk / "ballast").write_bytes(bytes(DISK_BYTES - pages * PAGE_BYTES))
        ended = start(disk)
        line = said_last(ended)
        assert (EX_TEMPFAIL, True) == (ended.code, name in line)
        assert all(word in line for word in ("free: ", "bytes", "files", f"{disk}/home"))
        (disk / "ballast").unlink()
        assert 0 == start(disk, "--stdio").code


def start_within(folder: Path, pages: int, *more: str) -> Ended:
    """Start a daemon once on a new disk with so many free pages."""
    folder.mkdir()
    with mounted(folder / "disk", f"size={DISK_BYTES}") as disk:
        (disk / "ballast").write_bytes(bytes(DISK_BYTES - pages * PAGE_BYTES))
        return start(disk, *more)


def test_an_announcement_that_does_not_fit_ends_with_75(tmp_path: Path) -> None:
    """Where the journal just fits, the start fails at `daemon.json`, which it writes last."""
    fails, fits = 40, 400
    while fits - fails > 1:
        middle = (fails + fits) // 2
        if start_within(tmp_path / f"{middle}", middle, "--stdio").code == 0:
            fits = middle
        else:
            fails = middle
    ended = start_within(tmp_path / "last", fits)
    assert (EX_TEMPFAIL, True) == (ended.code, "daemon.json" in said_last(ended))


@pytest.mark.parametrize("inodes", [2, 3, 4, 5, 7, 8, 9])
def test_a_start_without_inodes_ends_with_75(tmp_path: Path, inodes: int) -> None:
    """A file system may have bytes and no names left."""
    with mounted(tmp_path / "disk", f"size={DISK_BYTES},nr_inodes={inodes}") as disk:
        ended = start(disk)
        assert EX_TEMPFAIL == ended.code, said_last(ended)


def test_a_read_only_file_system_is_no_full_one(tmp_path: Path) -> None:
    """A read-only file system exits with 69, because waiting does not help."""
    with mounted(tmp_path / "disk", f"size={DISK_BYTES},ro") as disk:
        ended = start(disk)
        assert (EX_UNAVAILABLE, True) == (ended.code, "read-only" in said_last(ended))


def test_an_announcement_without_room_ends_with_75(tmp_path: Path) -> None:
    """Standard output may be a file on a full disk, too."""
    ended = start(tmp_path, stdout="/dev/full")
    assert (EX_TEMPFAIL, True) == (ended.code, "standard output" in said_last(ended))


def test_the_first_configuration_without_room_ends_with_75(tmp_path: Path) -> None:
    """Without room `palyra up` leaves no half-written file and exits with 75."""
    with mounted(tmp_path / "disk", f"size={DISK_BYTES}") as disk:
        (disk / "ballast").write_bytes(bytes(DISK_BYTES))
        home, file = disk / "home", disk / "home" / "palyra.toml"
        ended = palyra(home, "up")
        assert (EX_TEMPFAIL, False) == (ended.code, file.exists())
        assert "0 bytes are free" in ended.said


def full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def over_quota(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def broken(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("fail", "code"),
    [(full, EX_TEMPFAIL), (over_quota, EX_TEMPFAIL), (broken, EX_UNAVAILABLE)],
)
@pytest.mark.parametrize(
    "place", [(private_files, "create_file"), (journal, "open_writer"), (os, "ftruncate")]
)
async def test_quota_and_space_are_alike(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[object, str],
    fail: Callable[..., NoReturn],
    code: int,
) -> None:
    """A used-up quota is a full disk; any other failure is not."""
    config = load(home=tmp_path, environ={}, overrides={"server.port": 0})
    monkeypatch.setattr(*place, fail)
    assert code == await serve(config)


async def test_an_announcement_over_quota_ends_with_75(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated crashes for want of room exit with 75, those by a bug with 70."""
    config = load(home=tmp_path, environ={}, overrides={"server.port": 0})
    monkeypatch.setattr(serving, "write_discovery", over_quota)
    assert EX_TEMPFAIL == await serve(config)
    monkeypatch.setattr(serving, "write_discovery", broken)
    assert EX_SOFTWARE == await serve(config)


@pytest.mark.parametrize("error", [apsw.IOError("disk I/O error"), apsw.CantOpenError("no")])
@pytest.mark.parametrize(("is_room_gone", "kind"), [(True, DiskFull), (False, Unavailable)])
def test_an_error_without_a_cause_is_looked_into(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: apsw.Error,
    kind: type[Unavailable],
    *,
    is_room_gone: bool,
) -> None:
    """An SQLite error without a cause is classed by checking the disk for free space."""
    monkeypatch.setattr(connection, "is_full", lambda _: is_room_gone)
    with pytest.raises(Unavailable) as raised, storage_errors("open", tmp_path / "journal"):
        raise error
    assert kind is type(raised.value)


def test_a_full_file_system_is_recognised(tmp_path: Path) -> None:
    """By a file that does not fit; one with room is not full."""
    assert not is_full(tmp_path)
    with mounted(tmp_path / "disk", "size=65536") as disk:
        (disk / "ballast").write_bytes(bytes(65_536))
        assert is_full(disk)
        found = find_room(disk / "not" / "there")
        assert 0 == (found and found.free_bytes)


def test_want_of_room_is_found_behind_any_error() -> None:
    """Want of room is found behind any chain of errors that ends in it."""
    escalated, outer = Escalated("gave up"), Escalated("gave up, too")
    outer.__cause__ = escalated
    assert not is_want_of_room(outer)
    escalated.__cause__ = cannot_write("x", OSError(errno.EDQUOT, "quota"))
    assert is_want_of_room(outer)
    assert not is_want_of_room(cannot_write("x", OSError(errno.EIO, "broken")))


def test_keys_without_room_are_made_whole_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private key is written last, so an interrupted creation is completed later."""
    create, made = private_files.create_file, []

    def create_two(path: Path, content: bytes) -> None:
        made.append(path.name)
        if len(made) > 2:
            full()
        create(path, content)

    monkeypatch.setattr(private_files, "create_file", create_two)
    with pytest.raises(DiskFull, match=r"signing\.key"):
        KeyRing.open(tmp_path)
    monkeypatch.setattr(private_files, "create_file", create)
    ring = KeyRing.open(tmp_path)
    assert ring.public_key.hex() == (tmp_path / "signing.pub").read_text("ascii").strip()


def test_free_space_is_left_out_if_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file system gives no figures, there is no free space to report."""
    monkeypatch.setattr(os, "statvfs", broken)
    assert None is find_room(Path("/"))
