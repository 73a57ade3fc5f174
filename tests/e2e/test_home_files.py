"""The files of a home: each has a row in the table of checks, private modes, and a watch."""

import os
import re
from collections.abc import Generator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.test_files import LONG, the_call
from tests.forked import ForkedProcess, Setting

pytestmark = pytest.mark.real
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
WITHIN_S = 60.0
POLL_S = 0.05


class MaskedDaemon(DaemonProcess):
    """A daemon whose parent masks all permissions."""

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        before = partial(os.umask, 0o777)
        return ForkedProcess(self.arguments(), Setting(environment, streams, before=before))  # type: ignore[arg-type]  # its result is dropped


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A home in which many things were made."""
    process = MaskedDaemon(tmp_path_factory.mktemp("home"), PALYRA_HEALING__SWEEP_MS="100")
    process.home.mkdir(mode=0o700)
    (process.home / "palyra.toml").write_text("[server]\n")
    try:
        process.start()
        trio.run(fill, process)
        yield process
    finally:
        process.end()


async def fill(daemon: DaemonProcess) -> None:
    """Make an artifact, a checkpoint, a memory, a secret and a backup."""
    async with daemon.connect() as client:
        started = await client.start_run(the_call("echo", text=LONG))
        await client.wait_run(started.run_id)
        await client.add_memory("the well is deep")
        await client.set_secret("TOKEN", "a-secret-of-some-length")
        await client.create_backup()
    call = the_call("write_file", path="a", content="b")
    done = await palyra("run", "--approve", "write_file", call, home=daemon.home)
    assert 0 == done.code, done.err


def patterns() -> list[str]:
    """The names in the first column of the table."""
    table = OPERATIONS.read_text(encoding="utf-8").partition("### Checks of files")[2]
    rows = re.findall(r"^\| (`.*?) \|", table.partition("## ")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_each_file_of_a_home_has_a_row(daemon: DaemonProcess) -> None:
    """A new kind of file needs a check, or a reason why it has none."""
    known = patterns()
    found = [
        path.relative_to(daemon.home).as_posix()
        for path in daemon.home.rglob("*")
        if path.is_file() and not path.name.endswith(".draft")
    ]
    assert {"journal.sqlite3", "clock.json", "vault.sealed", "keys/vault.key"} <= set(found)
    assert any(name.startswith("artifacts/") for name in found)
    assert any(name.startswith("checkpoints/") for name in found)
    assert [] == [name for name in found if not any(fnmatch(name, each) for each in known)]


def test_each_file_is_private_under_any_umask(daemon: DaemonProcess) -> None:
    """Folders 0700, files 0600; also those that libraries make."""
    made = [each for each in daemon.home.rglob("*") if each.name != "palyra.toml"]
    wrong = [
        each for each in made if each.stat().st_mode & 0o777 != (0o700 if each.is_dir() else 0o600)
    ]
    assert [] == wrong
    assert 0o600 == (daemon.workspace / "a").stat().st_mode & 0o600


async def find_open(client: Client, key: str) -> str:
    """The summary of the open incident of that key; "" for none."""
    page = await client.list_incidents()
    found = (each.summary for each in page.incidents if (each.key, each.state) == (key, "open"))
    return next(found, "")


async def wait_open(client: Client, key: str, *, is_open: bool) -> str:
    """Wait until the incident of that key is open, or is not; its summary."""
    with trio.fail_after(WITHIN_S):
        while bool(summary := await find_open(client, key)) != is_open:  # noqa: ASYNC110 - another process
            await trio.sleep(POLL_S)
    return summary


@pytest.mark.parametrize(
    "name", ["vault.sealed", "keys/vault.key", "keys/operator.token", "palyra.toml", "daemon.lock"]
)
@pytest.mark.parametrize("harm", ["removed", "changed"])
async def test_a_lost_file_is_reported_and_saved(
    daemon: DaemonProcess, name: str, harm: str
) -> None:
    """Its copy puts it back, which ends the incident."""
    path = daemon.home / name
    content, token = path.read_bytes(), daemon.token
    async with daemon.connect(token) as client:
        if harm == "removed":
            path.unlink()
        else:
            path.write_bytes(b"\xff" * len(content))
        summary = await wait_open(client, f"file_lost:{path.name}", is_open=True)
        copy = daemon.home / "saved" / path.name
        assert f"{path} was {harm}" in summary
        assert str(copy) in summary
        assert content == copy.read_bytes()
        path.write_bytes(content)
        path.chmod(0o600)
        await wait_open(client, f"file_lost:{path.name}", is_open=False)


async def test_a_person_may_change_what_is_theirs(daemon: DaemonProcess) -> None:
    """Another secret and another valid configuration are no loss."""
    async with daemon.connect() as client:
        await client.set_secret("OTHER", "another-secret-of-some-length")
        (daemon.home / "palyra.toml").write_text("[server]\n\n[runs]\n")
        lock = daemon.home / "daemon.lock"
        content = lock.read_bytes()
        lock.write_bytes(b"x")
        await wait_open(client, "file_lost:daemon.lock", is_open=True)  # a look at all files
        page = await client.list_incidents()
        assert ["file_lost:daemon.lock"] == [e.key for e in page.incidents if e.state == "open"]
        lock.write_bytes(content)
        await wait_open(client, "file_lost:daemon.lock", is_open=False)
    shown = await palyra("incidents", "list", "--open", home=daemon.home)
    assert "no incidents" in shown.out
