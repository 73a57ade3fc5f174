"""Backups of a real daemon: made while runs go on, restored, and served again."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.client.tapes import export_run
from palyra.core.tape.export import verify_export
from palyra.errors import Forbidden, IllegalState, NotFound
from palyra.net.protocol.discovery import Discovery
from palyra.store.journal.keys import is_signed
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import make_token

pytestmark = pytest.mark.real
RUNS = 6


class Restored(DaemonProcess):
    """A daemon on a restored home."""

    def __init__(self, base: Path, home: Path) -> None:
        super().__init__(base)
        self.home = home


@pytest.fixture
def restored(tmp_path: Path) -> Generator[Restored]:
    daemon = Restored(tmp_path / "other", tmp_path / "home")
    try:
        yield daemon
    finally:
        daemon.end()


def is_forged(content: bytes, old: bytes, new: bytes) -> bool:
    """True if the export does not verify once this is replaced, which is in it."""
    assert old in content
    return verify_export(content.replace(old, new), is_signed, None).problem is not None


def daemon_key(daemon: DaemonProcess) -> bytes:
    return (daemon.home / "keys" / "signing.pub").read_bytes().strip()


async def finish_run(client: Client, text: str) -> str:
    started = await client.start_run(text)
    await client.wait_run(started.run_id)
    return started.run_id


async def test_a_backup_of_a_busy_daemon_is_a_home(
    daemon: DaemonProcess, restored: Restored, tmp_path: Path
) -> None:
    """Runs of before are in it and verify; the restore is an incident; it takes new runs."""
    async with daemon.connect() as client:
        before = await finish_run(client, '/call list_dir {"path": "."}')
        await client.add_memory("tea is better than coffee")
        async with trio.open_nursery() as nursery:
            for number in range(RUNS):
                nursery.start_soon(finish_run, client, f"talk {number}")
            made = await client.create_backup(str(tmp_path / "backup"))
        report = await client.verify_backup(made.path)
        assert ((), True) == (report.problems, report.is_known_key)
        assert 0 < report.checked_events == made.head_position
    done = await palyra(
        "backup", "restore", made.path, str(restored.home), "--reason", "a test", "--json"
    )
    assert (0, "new") == (done.code, done.json["keys"]), done.err
    started: Discovery = await trio.to_thread.run_sync(restored.start)
    async with restored.connect() as client:
        assert 0 == (await client.verify_tape()).breaks
        assert "done" == (await client.get_run(before)).state
        content = (await export_run(client, before)).encode()
        exported = verify_export(content, is_signed, None)
        assert (None, 1) == (exported.problem, exported.checked_attestations)
        assert is_forged(content, b'"former_keys"', b'"formed_keys"')
        assert is_forged(content, daemon_key(daemon), b"0" * 64)
        assert 1 == len((await client.search_memories("coffee")).hits)
        (incident,) = (await client.list_incidents()).incidents
        assert ("warning", "a test") == (incident.severity, incident.evidence["reason"])
        await finish_run(client, "and on")
        assert 0 == (await client.verify_tape()).breaks
        again = await client.create_backup()
        assert () == (await client.verify_backup(again.path)).problems
    assert started.pid != daemon.pid


async def test_only_operators_make_backups(daemon: DaemonProcess, tmp_path: Path) -> None:
    """A backup has everything of everyone."""
    async with daemon.connect() as operator:
        token = await make_token(operator, "client", principal="ann")
    async with daemon.connect(token) as ann:
        with pytest.raises(Forbidden):
            await ann.create_backup(str(tmp_path / "backup"))
        with pytest.raises(Forbidden):
            await ann.verify_backup(str(tmp_path / "backup"))
    assert not (tmp_path / "backup").exists()


async def test_requests_that_are_impossible_are_refused(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Each with its own error, and nothing is written."""
    async with daemon.connect() as client:
        with pytest.raises(IllegalState, match="absolute"):
            await client.create_backup("backup")
        with pytest.raises(IllegalState, match="exists already"):
            await client.create_backup(str(tmp_path))
        with pytest.raises(NotFound):
            await client.verify_backup(str(tmp_path / "none"))


async def test_the_same_request_makes_one_backup(daemon: DaemonProcess, tmp_path: Path) -> None:
    """A repeated idempotency key gets the first answer."""
    async with daemon.connect() as client:
        first = await client.create_backup(str(tmp_path / "b"), idempotency_key="once")
        assert first == await client.create_backup(str(tmp_path / "b"), idempotency_key="once")


async def test_the_command_finds_damage(daemon: DaemonProcess, tmp_path: Path) -> None:
    """`palyra backup verify` exits with 1 and names the file; without a daemon, too."""
    path = tmp_path / "backup"
    done = await palyra("backup", "create", str(path), home=daemon.home)
    assert 0 == done.code, done.err
    assert 0 == (await palyra("backup", "verify", str(path), home=daemon.home)).code
    (path / "data" / "journal.roots.ndjson").write_bytes(b"x")
    found = await palyra("backup", "verify", str(path))
    assert (1, True) == (found.code, "data/journal.roots.ndjson: changed" in found.out)
    refused = await palyra("backup", "restore", str(path), str(tmp_path / "home"))
    assert (1, True) == (refused.code, "nothing was restored" in refused.err)
    shutil.rmtree(path)
