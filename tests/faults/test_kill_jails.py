"""SIGKILL of a daemon while it builds jails: no program begins without it, and none is left."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from palyra.tools.sandbox.cgroups import find_control_groups
from palyra.tools.sandbox.records import JailRecords
from tests.tools.sandbox.jails import find_alive, needs_bubblewrap

pytestmark = [pytest.mark.real, needs_bubblewrap]
KILLS = 5
GONE_WITHIN_S = 120.0  # a bound against hanging, not a promise
LOOK_S = 0.02
STEP_S = 0.011
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kill", range(KILLS))
async def test_nothing_begins_or_stays_after_a_kill(kill: int, tmp_path: Path) -> None:
    """At several moments of a start: no program runs, and the next life finds what hangs."""
    marker, records = uuid4().hex, tmp_path / "jails"
    command = [sys.executable, "-m", "tests.faults.jail_starter", marker, str(records)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    with trio.fail_after(120):
        assert b"begun" in await process.stdout.receive_some()
        await trio.sleep(kill * STEP_S)
        process.kill()
        await process.wait()
    await process.stdout.aclose()
    with trio.fail_after(GONE_WITHIN_S):
        while [pid for pid in find_alive(marker) if not hangs(pid)]:  # noqa: ASYNC110 - other processes
            await trio.sleep(LOOK_S)
    JailRecords(records, find_control_groups()).reap()
    assert [] == find_alive(marker)


def hangs(pid: int) -> bool:
    """Return True for an orphaned half of bubblewrap: it has no child and runs nothing."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
        return not children and Path(f"/proc/{pid}/comm").read_text("ascii") == "bwrap\n"
    except OSError:
        return False
