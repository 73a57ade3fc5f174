"""One start with a clock that is far ahead: what is deleted by age stays."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from palyra.client import Client
from palyra.core.incident.kinds import CLOCK_AHEAD
from palyra.net.protocol.results import IncidentView
from tests.e2e.daemon_process import DaemonProcess
from tests.forked import ForkedProcess, Setting

pytestmark = pytest.mark.real
DAY_MS = 86_400_000
WITHIN_S = 60.0
POLL_S = 0.05
T = TypeVar("T")


def shift(days: int) -> None:
    """Put the wall clock of this process ahead."""
    now_ns = time.time_ns
    time.time_ns = lambda: now_ns() + days * DAY_MS * 1_000_000  # ruff: ignore[shared-clock-mock] - a process of its own


class AheadDaemon(DaemonProcess):
    """One home; its processes have a clock that is some days ahead."""

    days = 0

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        before = partial(shift, self.days)
        return ForkedProcess(self.arguments(), Setting(environment, streams, before=before))


async def wait(poll: Callable[[], Awaitable[T | None]]) -> T:
    """Ask until there is an answer."""
    with trio.fail_after(WITHIN_S):
        while (found := await poll()) is None:  # noqa: ASYNC110 - another process
            await trio.sleep(POLL_S)
    return found


async def find_incident(client: Client) -> IncidentView | None:
    """Find the incident of the clock while it is open."""
    page = await client.list_incidents()
    open_ones = [each for each in page.incidents if each.state != "resolved"]
    return next((each for each in open_ones if each.key == CLOCK_AHEAD), None)


async def is_calm(client: Client) -> bool | None:
    """Return True once no incident of the clock is open."""
    return True if await find_incident(client) is None else None


async def find_end(client: Client, task_id: str) -> int | None:
    """Find the end of a task."""
    return (await client.get_task(task_id)).finished_ms


@asynccontextmanager
async def living(daemon: AheadDaemon, *, days: int) -> AsyncGenerator[Client]:
    """A process with a clock that is so many days ahead."""
    daemon.days = days
    await trio.to_thread.run_sync(daemon.start)
    async with daemon.connect() as client:
        yield client
    assert 0 == await trio.to_thread.run_sync(daemon.stop)


async def apply(client: Client) -> list[int]:
    """Apply retention; the number of runs, artifacts and tasks that it removed."""
    report = await client.apply_retention()
    return [report.runs, report.artifacts, report.tasks]


async def fill(daemon: DaemonProcess) -> None:
    """Leave a run, an artifact, a memory with an end, and an ended task."""
    async with daemon.connect() as client:
        started = await client.start_run("hello")
        await client.wait_run(started.run_id)
        await client.archive_session(started.session_id)
        await client.add_memory("the well is deep", ttl_ms=30 * DAY_MS)
        task = await client.submit_task("cleanup", {})
        await wait(partial(find_end, client, task.task_id))
    folder = daemon.home / "artifacts" / started.session_id
    folder.mkdir(parents=True)
    (folder / ("0" * 64)).write_bytes(b"{}\n")


async def test_one_start_ahead_deletes_nothing_by_age(tmp_path: Path) -> None:
    """It says so; a person who confirms the clock has the bounds applied."""
    bounds = dict.fromkeys(("TAPES", "ARTIFACTS", "TASKS"), "1")
    daemon = AheadDaemon(
        tmp_path,
        PALYRA_HEALING__SWEEP_MS="200",
        **{f"PALYRA_RETENTION__{name}_DAYS": days for name, days in bounds.items()},
    )
    try:
        async with living(daemon, days=0):
            await fill(daemon)
        async with living(daemon, days=400) as client:
            incident = await wait(partial(find_incident, client))
            assert "nothing is deleted by age" in incident.summary
            assert [0, 0, 0] == await apply(client)
        async with living(daemon, days=0) as client:
            assert [0, 0, 0] == await apply(client)
            assert 1 == len((await client.list_memories()).items)
            await wait(partial(is_calm, client))
        async with living(daemon, days=800) as client:
            incident = await wait(partial(find_incident, client))
            await client.resolve_incident(incident.incident_id, "it is that late")
            assert [1, 1] == (await apply(client))[:2]
    finally:
        daemon.end()
