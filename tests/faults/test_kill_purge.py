"""kill -9 of a daemon in the middle of a purge: the next one completes it."""

from itertools import count
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.core.journal.records import SessionRecord
from tests.e2e.tapes import kinds, read_whole
from tests.faults.crash_points import PURGE_POINTS, CrashAt
from tests.faults.mortal_daemon import MortalDaemon

pytestmark = [pytest.mark.real]
WITHIN_S, LOOK_S = 200.0, 0.05
CANARY = "xyzzyomega"
RUNS = 2


async def prepare(client: Client) -> str:
    """A session with some runs and an item of memory."""
    session_id = (await client.resolve_session(session_key=CANARY)).session_id
    for number in range(RUNS):
        started = await client.start_run(f"{CANARY} {number}", session_id=session_id)
        await client.wait_run(started.run_id)
    await client.add_memory(f"{CANARY} is a fact", session_id=session_id)
    return session_id


async def purge(daemon: MortalDaemon, session_id: str) -> bool:
    """Ask for the purge; False if the daemon died before it answered."""
    has_answered = False

    async def ask(scope: trio.CancelScope) -> None:
        nonlocal has_answered
        async with daemon.connect() as client:
            await client.purge_session(session_id)
        has_answered = True
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, nursery.cancel_scope)
        while daemon.is_alive():  # noqa: ASYNC110 - a process sends no event
            await trio.sleep(LOOK_S)
        nursery.cancel_scope.cancel()
    return has_answered


async def settled(client: Client, session_id: str) -> SessionRecord:
    """The session once its purge is complete, or as it is without a request."""
    while True:
        session = await client.get_session(session_id)
        if session.purge is None or session.purge.done_ms is not None:
            return session
        await trio.sleep(LOOK_S)


async def check(daemon: MortalDaemon, session_id: str) -> bool:
    """Check the session after a restart; return True if its purge was on record."""
    async with daemon.connect() as client:
        session = await settled(client, session_id)
        was_asked = session.purge is not None
        if not was_asked:
            await client.purge_session(session_id)
        for run in (await client.list_runs(session_id=session_id)).runs:
            names = kinds(await read_whole(client, run.run_id))
            assert ("run.purged", 1) == (names[-1], names.count("run.purged"))
        assert 0 == (await client.verify_tape()).breaks
        assert [] == (await client.search_memories(CANARY)).hits
    return was_asked


def has_canary(daemon: MortalDaemon) -> list[str]:
    files = [path for path in daemon.home.rglob("*") if path.is_file()]
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]


async def strike(daemon: MortalDaemon, crash: CrashAt) -> tuple[bool, bool]:
    """Purge while the daemon kills itself; return if it survived, and if the purge was on record."""
    async with daemon.connect() as client:
        session_id = await prepare(client)
    await trio.to_thread.run_sync(daemon.stop)
    daemon.crash = crash
    try:
        await trio.to_thread.run_sync(daemon.start)
    except AssertionError:  # it died while it was starting
        await trio.to_thread.run_sync(daemon.start)
        return False, await check(daemon, session_id)
    has_survived = await purge(daemon, session_id)
    daemon.crash = None
    await trio.to_thread.run_sync(daemon.kill)
    await trio.to_thread.run_sync(daemon.start)
    return has_survived, await check(daemon, session_id)


@pytest.mark.slow
def test_a_purge_is_completed_after_a_kill_at_any_commit(tmp_path: Path) -> None:
    """Wherever the daemon dies, the purge is not begun or is completed, and no content is left."""
    daemon = MortalDaemon(tmp_path)

    async def storm() -> int:
        completed = 0
        with trio.fail_after(WITHIN_S):
            await trio.to_thread.run_sync(daemon.start)
            for number in count(1):
                crash = CrashAt("committed, nobody told", number)
                has_survived, was_asked = await strike(daemon, crash)
                if has_survived:
                    return completed
                completed += was_asked
        return 0

    try:
        completed = trio.run(storm)
        daemon.stop()
    finally:
        daemon.end()
    assert completed >= RUNS + 1  # killed after the request, and after each run
    assert [] == has_canary(daemon)


@pytest.mark.parametrize("point", PURGE_POINTS)
def test_a_purge_is_completed_after_a_kill_beside_the_files(tmp_path: Path, point: str) -> None:
    """A kill around the deletion of files leaves a purge that the next daemon completes."""
    daemon = MortalDaemon(tmp_path)

    async def storm() -> tuple[bool, bool]:
        with trio.fail_after(WITHIN_S):
            await trio.to_thread.run_sync(daemon.start)
            return await strike(daemon, CrashAt(point, 1))

    try:
        assert (False, True) == trio.run(storm)
        daemon.stop()
    finally:
        daemon.end()
    assert [] == has_canary(daemon)
