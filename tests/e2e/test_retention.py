"""Retention against a real daemon: content over a bound goes, proofs and what is in use stay."""

from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.core.journal.records import Lineage
from palyra.core.task.views import TaskView
from palyra.errors import Forbidden
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import make_token
from tests.e2e.tapes import kinds, read_whole
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real
FILLER = "many words " * 5_000  # so that a few runs are over a bound of 1 MiB
RUNS = 30
POLL_S = 0.05


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that may keep 1 MiB of tapes."""
    base = tmp_path_factory.mktemp("bounded")
    with running(
        base, PALYRA_SERVER__REQUESTS_PER_S="100000", PALYRA_RETENTION__TAPES_MIB="1"
    ) as process:
        yield process


async def finish_run(client: Client, text: str, key: str | None = None) -> tuple[str, str]:
    started = await client.start_run(text, session_key=key)
    await client.wait_run(started.run_id)
    return started.run_id, started.session_id


async def wait_task(client: Client, task_id: str) -> TaskView:
    """Wait for the end of a task."""
    with trio.fail_after(WITHIN_S):
        while True:
            found = await client.get_task(task_id)
            if found.finished_ms is not None:
                return found
            await trio.sleep(POLL_S)


async def test_without_bounds_nothing_goes(daemon: DaemonProcess) -> None:
    """The default keeps everything."""
    async with daemon.connect() as client:
        await finish_run(client, "hello")
        assert not (await client.preview_retention()).is_set
        assert 0 == (await client.apply_retention()).runs


async def test_only_operators_apply_retention(daemon: DaemonProcess) -> None:
    """It removes content of everyone."""
    async with daemon.connect() as operator:
        token = await make_token(operator, "client", principal="ann")
    async with daemon.connect(token) as ann:
        with pytest.raises(Forbidden):
            await ann.preview_retention()
        with pytest.raises(Forbidden):
            await ann.apply_retention()
        with pytest.raises(Forbidden):
            await ann.compact_journal()


async def use_some(client: Client) -> list[str]:
    """Runs that are in use, each for another reason."""
    pinned, session = await finish_run(client, "pin this")
    said = next(e.seq for e in await read_whole(client, pinned) if e.kind == "message.received")
    await client.pin_message(session, pinned, said)
    evidence, _ = await finish_run(client, f"fact {FILLER}")
    await client.add_memory("tea is better", lineage=[Lineage(run_id=evidence)])
    marked, session = await finish_run(client, f"mark {FILLER}")
    await client.checkpoint_session(session)
    going_on, _ = await finish_run(client, f"go on {FILLER}", key="work")
    return [pinned, evidence, marked, going_on]


async def test_the_oldest_tapes_are_pruned_and_verify(
    bounded: DaemonProcess, tmp_path: Path
) -> None:
    """Pinned runs, evidence, marked sessions and conversations that go on are kept."""
    async with bounded.connect() as client:
        in_use = await use_some(client)
        old = [(await finish_run(client, f"{n} {FILLER}"))[0] for n in range(RUNS)]
        for record in (await client.list_sessions(limit=500)).sessions:
            if record.key is None:
                await client.archive_session(record.session_id)
        preview = await client.preview_retention()
        assert 0 < preview.runs < RUNS
        done = await client.apply_retention()
        assert (preview.runs, preview.tape_bytes) == (done.runs, done.tape_bytes)
        kept = [(await client.get_run(run)).purged_ms is None for run in old]
        assert [False] * done.runs + [True] * (RUNS - done.runs) == kept
        for run in in_use:
            assert (await client.get_run(run)).purged_ms is None
        events = await read_whole(client, old[0])
        assert "run.purged" == kinds(events)[-1]
        report = await client.verify_tape()
        assert (0, report.purged_events) == (report.breaks, report.pruned_events)
        assert report.pruned_events > 0
        one = await client.verify_tape(old[0])
        assert (0, len(events) - 1) == (one.breaks, one.pruned_events)
        assert 0 == (await client.apply_retention()).runs
        await finish_run(client, "and on", key="work")
        made = await client.create_backup(str(tmp_path / "backup"))
        assert () == (await client.verify_backup(made.path)).problems
    shown = await palyra("tape", "verify", home=bounded.home)
    assert f"{report.pruned_events} events pruned" in shown.out


async def test_a_cleanup_applies_the_bounds_and_is_daily(tmp_path: Path) -> None:
    """The daemon submits that of the day; another restart submits no second one."""
    with running(
        tmp_path, PALYRA_RETENTION__TAPES_MIB="1", PALYRA_RETENTION__DAILY="true"
    ) as process:
        async with process.connect() as client:
            sessions = [(await finish_run(client, f"{n} {FILLER}"))[1] for n in range(RUNS)]
            for session in sessions:
                await client.archive_session(session)
            task = await client.submit_task("cleanup", {})
            found = await wait_task(client, task.task_id)
            assert "succeeded" == found.state
            assert found.result["runs"] > 0
            assert 0 == (await client.preview_retention()).runs
        await process.restart()
        async with process.connect() as client:
            await client.submit_task("cleanup", {})
            firings = [each.firing for each in (await client.list_tasks()).tasks]
    assert 1 == sum(each is not None and each.startswith("cleanup@") for each in firings)


async def test_a_compacted_file_is_smaller(bounded: DaemonProcess) -> None:
    """The first time while the daemon is stopped, which it says; then while it serves."""
    async with bounded.connect() as client:
        assert "stop the daemon" in (await client.compact_journal()).remedy
    assert 0 == await trio.to_thread.run_sync(bounded.stop)
    done = await palyra("retention", "compact", "--json", home=bounded.home)
    assert (0, True) == (done.code, done.json["after_bytes"] < done.json["before_bytes"]), done.err
    await trio.to_thread.run_sync(bounded.start)
    async with bounded.connect() as client:
        assert (True, "") == ((report := await client.compact_journal()).is_complete, report.remedy)
        assert 0 == (await client.verify_tape()).breaks
