"""kill -9 around checkpoints of sessions: a repeated request completes what was begun, once."""

from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.errors import PalyraError
from tests.e2e.people import LOOK_S, find_events, write_call
from tests.e2e.tapes import read_whole
from tests.e2e.wire import WITHIN_S
from tests.faults.crash_points import CrashAt
from tests.faults.mortal_daemon import MortalDaemon

pytestmark = pytest.mark.real

CRASHES = [
    CrashAt("before a commit", 1),
    CrashAt("committed, nobody told", 1),
    CrashAt("told that it is committed", 1),
    CrashAt("before files are put back", 2),  # the first call only compares
    CrashAt("files put back, no branch", 2),
]


@pytest.fixture
def daemon(tmp_path: Path) -> Generator[MortalDaemon]:
    """A daemon that can be told where to kill itself."""
    process = MortalDaemon(tmp_path)
    process.start()
    yield process
    process.end()


async def write(client: Client, text: str, session_id: str | None = None) -> str:
    """Let a run write `a.txt`; return its session."""
    started = await client.start_run(write_call("a.txt", text), session_id=session_id)
    await client.wait_run(started.run_id, until="attention")
    [asked] = await client.list_approvals(run_id=started.run_id, pending_only=True)
    await client.resolve_approval(asked.approval_id, "allow", asked.digest)
    await client.wait_run(started.run_id)
    return started.session_id


async def until_killed(
    daemon: MortalDaemon, request: Callable[[Client], Awaitable[object]]
) -> bool:
    """Send the request until the daemon is dead or has answered; return True if it is dead."""

    async def send(scope: trio.CancelScope) -> None:
        try:
            async with daemon.connect() as client:
                await request(client)
        except* (PalyraError, OSError):
            while daemon.is_alive():  # noqa: ASYNC110 - another process
                await trio.sleep(LOOK_S)
        scope.cancel()

    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, nursery.cancel_scope)
            while daemon.is_alive():  # noqa: ASYNC110 - another process
                await trio.sleep(LOOK_S)
            nursery.cancel_scope.cancel()
    return not daemon.is_alive()


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: f"{crash.point} {crash.count}")
async def test_a_restore_over_a_kill(daemon: MortalDaemon, crash: CrashAt) -> None:
    """One branch and the files of the mark; the old session keeps its runs."""
    async with daemon.connect() as client:
        session_id = await write(client, "one")
        mark = await client.checkpoint_session(session_id)
        await write(client, "two", session_id)
        runs = {run.run_id for run in (await client.list_runs()).runs}
    daemon.stop()
    daemon.crash = crash
    daemon.start()

    async def restore(client: Client) -> tuple[str, str]:
        done = await client.restore_session(
            session_id, mark.checkpoint_id, files=True, idempotency_key="restore"
        )
        await client.wait_run(done.run_id)
        return done.session_id, done.run_id

    was_killed = await until_killed(daemon, restore)
    daemon.end()
    daemon.start()
    async with daemon.connect() as client:
        branch, run_id = await restore(client)
        found = {run.run_id: run for run in (await client.list_runs()).runs}
        assert runs | {run_id} == set(found)
        assert ("done", branch) == (found[run_id].state, found[run_id].session_id)
        tape = await read_whole(client, run_id)
        assert 1 == len(find_events(tape, ev.ConversationInherited))
        assert mark in (await client.session_checkpoints(session_id)).checkpoints
    assert "one" == (daemon.workspace / "a.txt").read_text(encoding="utf-8")
    assert was_killed, "the point was not reached"


@pytest.mark.parametrize("point", ["before a commit", "committed, nobody told"])
async def test_a_mark_over_a_kill(daemon: MortalDaemon, point: str) -> None:
    """A request that is repeated after the kill is answered, and no checkpoint is at another point."""
    async with daemon.connect() as client:
        session_id = await write(client, "one")
    daemon.stop()
    daemon.crash = CrashAt(point, 1)
    daemon.start()

    async def mark(client: Client) -> object:
        return await client.checkpoint_session(session_id, idempotency_key="mark")

    assert await until_killed(daemon, mark)
    daemon.end()
    daemon.start()
    async with daemon.connect() as client:
        made = await client.checkpoint_session(session_id, idempotency_key="mark")
        kept = (await client.session_checkpoints(session_id)).checkpoints
    assert {(made.run_id, made.seq)} == {(each.run_id, each.seq) for each in kept}
    assert made in kept
