"""Self-healing of a real daemon: a hung run, a hung program, a provider outage, a lost index."""

from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest
import trio

from palyra.client import Client, Inbox
from palyra.errors import PalyraError
from palyra.net.protocol.results import IncidentView
from palyra.store.vectors.snapshot import SnapshotHeader
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.models.provider import provider, refusal

pytestmark = pytest.mark.real

WITHIN_S = 120.0  # a bound against hanging, not a promise
LOOK_S = 0.05
PACE = {"PALYRA_HEALING__SWEEP_MS": "100", "PALYRA_HEALING__STUCK_MS": "500"}
PROVIDER = '[models]\ndefault = "p/m"\nproviders = [{{ name = "p", base_url = "{url}" }}]\n'


async def wait_incident(
    client: Client, key: str, is_wanted: Callable[[IncidentView], bool]
) -> IncidentView:
    """The newest incident whose key begins so, once it is as wanted."""
    with trio.fail_after(WITHIN_S):
        async with client.notices() as inbox:
            while (found := await find_incident(client, key, is_wanted)) is None:
                await wait_notice(inbox)
            return found


async def find_incident(
    client: Client, key: str, is_wanted: Callable[[IncidentView], bool]
) -> IncidentView | None:
    listed = (await client.list_incidents()).incidents
    return next((each for each in listed if each.key.startswith(key) and is_wanted(each)), None)


async def wait_notice(inbox: Inbox) -> None:
    async for notice in inbox:
        if notice.method.startswith("incident."):
            return
    raise AssertionError("the connection ended")


def is_proposed(incident: IncidentView) -> bool:
    return bool(incident.remedy)


def is_resolved(incident: IncidentView) -> bool:
    return incident.state == "resolved"


async def test_a_hung_run_is_reported_then_cancelled(tmp_path: Path) -> None:
    """Observing changes nothing; an operator switches to auto, and the hung call ends with its run."""
    with running(tmp_path, **PACE) as daemon:
        async with daemon.connect() as client:
            run_id = (await client.start_run("/delay 600000\n/say late")).run_id
            seen = await wait_incident(client, f"run_stuck:{run_id}", is_proposed)
            assert ("open", 0, "resume_run") == (seen.state, seen.attempts, seen.remedy)
            assert "in_progress" == (await client.get_run(run_id)).state
            shown = await palyra("incidents", "show", seen.incident_id, home=daemon.home)
            assert "resume_run would be attempted" in shown.out
            done = await palyra("healing", "mode", "auto", "--domain", "run", home=daemon.home)
            assert "auto" in done.out
            tried = await wait_incident(
                client,
                f"run_stuck:{run_id}",
                lambda each: each.attempts == 1 and bool(each.remedied),
            )
            assert "the run was resumed from its tape" == tried.remedied
            await client.cancel(run_id, reason="enough")
            ended = await wait_incident(client, f"run_stuck:{run_id}", is_resolved)
            assert (seen.incident_id, "palyra") == (ended.incident_id, ended.by)


async def test_a_hung_call_is_stopped(tmp_path: Path) -> None:
    """In auto a silent program is stopped, and its run goes on with that outcome."""
    with running(tmp_path, PALYRA_HEALING__MODE="auto", **PACE) as daemon:
        async with daemon.connect() as client:
            run_id = (await client.start_run('/call sleep {"seconds": 50}')).run_id
            ended = await wait_incident(client, f"call_stuck:{run_id}", is_resolved)
            assert ("end_call", 1) == (ended.remedy, ended.attempts)
            assert "done" == (await client.get_run(run_id)).state


async def test_a_provider_outage_trips_the_breaker(tmp_path: Path) -> None:
    """The incident of the breaker is treated, with the outcome in its record."""
    async with provider(*[[refusal(503, {"error": {"message": "down"}})]] * 9) as served:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        (home / "palyra.toml").write_text(PROVIDER.format(url=served.url), encoding="utf-8")
        with running(tmp_path, PALYRA_HEALING__PROVIDER="auto", **PACE) as daemon:
            async with daemon.connect() as client:
                run_id = (await client.start_run("hello")).run_id
                await client.wait_run(run_id)
                found = await wait_incident(
                    client, "provider_left_alone:p/m", lambda each: bool(each.remedied)
                )
    assert ("trip_provider", 1, "open") == (found.remedy, found.attempts, found.state)
    assert 3 == len(served.bodies)


def count_vectors(file: Path) -> int:
    """Number of vectors in the file of an index, -1 without a file."""
    try:
        header = file.read_bytes().partition(b"\n")[0]
    except FileNotFoundError:
        return -1
    return msgspec.json.decode(header, type=SnapshotHeader).count


async def write_index(daemon: DaemonProcess, client: Client) -> Path:
    """Use the memory until the file of its index has the item.

    The file is written when the index is built, and again with the vector of the item.  After that
    the upkeep has nothing more to write.
    """
    await client.add_memory("The deploy port is 8080", kind="fact")
    file = daemon.home / "vectors" / "memory.index"
    await client.search_memories("port")
    await wait_vector(file)
    return file


async def wait_vector(file: Path) -> None:
    """Wait until the file has the vector of the item."""
    with trio.fail_after(WITHIN_S):
        while count_vectors(file) < 1:  # noqa: ASYNC110 - a file sends no notification
            await trio.sleep(LOOK_S)


async def test_a_deleted_index_is_built_again(tmp_path: Path) -> None:
    """In auto by the first attempt; the next sweep resolves the incident."""
    with running(tmp_path, PALYRA_HEALING__MODE="auto", **PACE) as daemon:
        async with daemon.connect() as client:
            file = await write_index(daemon, client)
            file.unlink()
            ended = await wait_incident(client, "index_damaged:memory", is_resolved)
            assert ("rebuild_vectors", 1) == (ended.remedy, ended.attempts)
            await wait_vector(file)
            hits = (await client.search_memories("port")).hits
            assert ["The deploy port is 8080"] == [hit.text for hit in hits]


async def test_a_deleted_index_is_only_reported(tmp_path: Path) -> None:
    """Observing says which remedy auto would attempt, writes no file, and search still answers."""
    with running(tmp_path, PALYRA_HEALING__MODE="observe_only", **PACE) as daemon:
        async with daemon.connect() as client:
            file = await write_index(daemon, client)
            file.unlink()
            found = await wait_incident(client, "index_damaged:memory", is_proposed)
            assert ("rebuild_vectors", 0, "open") == (found.remedy, found.attempts, found.state)
            hits = (await client.search_memories("port")).hits
            assert ["The deploy port is 8080"] == [hit.text for hit in hits]
            assert not file.exists()


async def test_disabled_records_nothing(tmp_path: Path) -> None:
    """A hung run leaves no incident."""
    with running(tmp_path, PALYRA_HEALING__MODE="disabled", **PACE) as daemon:
        async with daemon.connect() as client:
            run_id = (await client.start_run("/delay 2000\n/say late")).run_id
            await client.wait_run(run_id)
            assert [] == (await client.list_incidents()).incidents


def adopt_saved(saved: Path, home: Path) -> None:
    """Do what the incident says."""
    saved.replace(home / "journal.sqlite3")
    saved.with_name("journal.saved.roots.ndjson").replace(home / "journal.roots.ndjson")
    (home / "journal.sqlite3-wal").unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["journal.sqlite3", "journal.sqlite3-wal"])
async def test_a_journal_removed_under_a_running_daemon_is_saved(tmp_path: Path, name: str) -> None:
    """In each mode: no run is started, the copy survives a kill, and a restart goes on with it."""
    with running(tmp_path, PALYRA_HEALING__MODE="disabled", **PACE) as daemon:
        async with daemon.connect() as client:
            run_id = (await client.start_run("/say before")).run_id
            await client.wait_run(run_id)
            (daemon.home / name).unlink()
            found = await wait_incident(client, "journal_files", lambda each: bool(each.summary))
            assert ("critical", "store") == (found.severity, found.domain)
            saved = Path(str(found.evidence["copy"]))
            assert str(saved) in found.summary
            with pytest.raises(PalyraError, match="was removed: no run is started"):
                await client.start_run("/say after")
            assert not (await client.status()).is_writable
        daemon.kill()
        adopt_saved(saved, daemon.home)
        daemon.start()
        async with daemon.connect() as client:
            assert "done" == (await client.get_run(run_id)).state
            await client.wait_run((await client.start_run("/say again")).run_id)
            listed = (await client.list_incidents()).incidents
            assert not [each.key for each in listed if each.key.startswith("chain_broken")]


ITEMS = 30


def break_words(home: Path) -> None:
    """Damage both text indexes of a stopped daemon."""
    connection = apsw.Connection(str(home / "journal.sqlite3"))
    connection.execute("DELETE FROM memory_fts_data WHERE id > 10; DELETE FROM turn_fts_data")
    connection.close()


def exchange_vectors(home: Path) -> None:
    """Give each item of a stopped daemon the vector of another one."""
    connection = apsw.Connection(str(home / "journal.sqlite3"))
    first = "SELECT vector FROM memory_vectors ORDER BY row LIMIT 1"
    connection.execute(f"UPDATE memory_vectors SET vector = ({first})")  # noqa: S608 - a literal
    assert connection.total_changes() >= ITEMS
    connection.close()


async def wait_vectors(client: Client) -> None:
    """Wait until each item has a vector."""
    await client.search_memories("number7")
    with trio.fail_after(WITHIN_S):
        while (await client.get_memory_status()).without_vector:  # noqa: ASYNC110 - another process
            await trio.sleep(LOOK_S)


async def test_exchanged_vectors_are_found_and_made_again(tmp_path: Path) -> None:
    """Searches by meaning find the right items afterwards, and the check agrees."""
    with running(tmp_path, **PACE) as daemon:
        async with daemon.connect() as client:
            for number in range(ITEMS):
                await client.add_memory(f"The port of host number{number} is {number}", kind="fact")
            await wait_vectors(client)
        daemon.stop()
        exchange_vectors(daemon.home)
        daemon.start()
        async with daemon.connect() as client:
            found = await wait_incident(client, "index_damaged:memory", lambda _: True)
            assert f"its vectors are damaged: {ITEMS - 1} of {ITEMS}" in str(
                found.evidence["damage"]
            )
            done = await palyra("memory", "rebuild", home=daemon.home)
            assert not done.code, done
            await wait_incident(client, "index_damaged:memory", is_resolved)


async def test_a_run_without_its_memory_says_so(tmp_path: Path) -> None:
    """A watcher sees the failure of the index among the sources of the run."""
    with running(tmp_path, **PACE) as daemon:
        async with daemon.connect() as client:
            await client.add_memory("The staging harbour is deep", kind="fact")
        daemon.stop()
        break_words(daemon.home)
        daemon.start()
        async with daemon.connect() as client:
            started = await client.start_run("/say where is the staging harbour?")
            await client.wait_run(started.run_id)
        shown = await palyra("tape", "show", started.run_id, home=daemon.home)
    assert "recalled: the memory failed" in shown.out


@pytest.mark.parametrize("mode", ["auto", "observe_only"])
async def test_broken_text_indexes_are_found_and_mended(tmp_path: Path, mode: str) -> None:
    """A start finds them without a search; in auto they are written anew, else by `memory rebuild`."""
    with running(tmp_path, PALYRA_HEALING__MODE=mode, **PACE) as daemon:
        async with daemon.connect() as client:
            for number in range(30):
                await client.add_memory(f"The port of host number{number} is {number}", kind="fact")
            await client.wait_run((await client.start_run("/say the staging harbour")).run_id)
            await client.search_memories("staging")
        daemon.stop()
        break_words(daemon.home)
        daemon.start()
        async with daemon.connect() as client:
            found = await wait_incident(client, "index_damaged:memory", lambda _: True)
            assert "its words are damaged" in str(found.evidence["damage"])
            if mode == "observe_only":
                done = await palyra("memory", "rebuild", home=daemon.home)
                assert not done.code, done
            for index in ("memory", "conversations"):
                await wait_incident(client, f"index_damaged:{index}", is_resolved)
            hits = (await client.search_memories("number7")).hits
            assert "The port of host number7 is 7" == hits[0].text
