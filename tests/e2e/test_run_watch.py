"""Watches of runs with the Python clients against a real daemon."""

import pytest
import trio

from palyra.client import blocking
from tests.e2e.daemon_process import DaemonProcess

pytestmark = pytest.mark.real
WITHIN_S = 120.0  # a bound against hanging
ENDLESS = "/delay 3600000\n/say late"


async def test_a_watch_shows_a_run_from_its_start_to_its_end(daemon: DaemonProcess) -> None:
    """A run appears when it is accepted and its cancelled state is the last news of it."""
    with trio.fail_after(WITHIN_S):
        async with daemon.connect() as client, client.watch_runs(agent="default") as watching:
            started = await client.start_run(ENDLESS)
            while started.run_id not in watching.runs:
                await anext(watching)
            await client.cancel(started.run_id)
            states = dict[str, str]()
            while states.get(started.run_id) != "cancelled":
                states |= {run.run_id: run.state for run in (await anext(watching)).runs}
            assert started.run_id not in watching.runs


def test_the_blocking_client_watches_too(daemon: DaemonProcess) -> None:
    """The first item of a watch is the snapshot, with a run that was open before."""
    with blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=WITHIN_S) as client:
        started = client.start_run(ENDLESS)
        with client.watch_runs(phases=["in_progress", "queued"]) as items:
            while started.run_id not in {run.run_id for run in next(items).runs}:
                pass
            assert started.run_id in items.runs
        client.cancel(started.run_id)
