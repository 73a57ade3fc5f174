"""Damaged events of tapes: every reader of a run answers or names the damage, and the rest goes on."""

import shutil
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import pytest
import trio

from palyra.client import Client
from palyra.errors import PalyraError
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, write_call

pytestmark = pytest.mark.real

WITHIN_S = 120
# New payload of an event: no JSON, no object, nothing it needs, no text, nothing, too deep.
PAYLOADS = (
    b"{bro", b"[]", b"{}", b'{"text":"\xff"}', b"", b"[" * 5_000, b'{"text":7,"turn":"x"}', b"\0\0",
)  # fmt: skip
KINDS = ("run.vanished", "", "run.done", "tool.completed")  # instead of its own
READERS: dict[str, Callable[[Client, str], Awaitable[object]]] = {
    "get": lambda client, run_id: client.get_run(run_id),
    "wait": lambda client, run_id: client.wait_run(run_id),
    "tape": lambda client, run_id: client.read_tape(run_id, limit=500),
    "verify": lambda client, run_id: client.verify_tape(run_id),
    "export": lambda client, run_id: client.export_tape(run_id),
    "replay": lambda client, run_id: client.replay_run(run_id),
    "replay strictly": lambda client, run_id: client.replay_run(run_id, strict=True),
    "context": lambda client, run_id: client.explain_context(run_id),
    "diff": lambda client, run_id: client.diff_run(run_id),
    "undo": lambda client, run_id: client.undo_run(run_id),
    "reflect": lambda client, run_id: client.reflect(run_id),
    "fork early": lambda client, run_id: client.fork_run(run_id, 1, "/say forked"),
    "fork late": lambda client, run_id: client.fork_run(run_id, 6, "/say forked"),
    "memory used": lambda client, run_id: client.get_memory_used(run_id),
    "checkpoints": lambda client, run_id: client.list_checkpoints(run_id=run_id),
}
OTHERS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "search": lambda client: client.search_memories("elm staging host"),
    "suggestions": lambda client: client.suggest_policies(min_answers=1),
    "retention": lambda client: client.preview_retention(),
    "whole journal": lambda client: client.verify_tape(),
    "status": lambda client: client.status(),
    "runs": lambda client: client.list_runs(),
}
OF_SESSION: dict[str, Callable[[Client, str], Awaitable[object]]] = {
    "get": lambda client, session_id: client.get_session(session_id),
    "compact": lambda client, session_id: client.compact_session(session_id, preview=True),
    "marks": lambda client, session_id: client.session_checkpoints(session_id),
    "mark": lambda client, session_id: client.checkpoint_session(session_id),
}


async def live(daemon: DaemonProcess) -> None:
    """Make runs with calls, forks, answers, and one that waits for a person."""
    async with daemon.connect() as client:
        for key in ("one", "two", "three"):
            for text in (
                "/say elm is the staging host",
                '/call read_file {"path":"x"}',
                "/say bye",
            ):
                run = await client.start_run(text, session_key=key)
                await client.wait_run(run.run_id)
            asked = await ask_for(client, write_call(f"{key}.txt"), session_key=key)
            await client.resolve_approval(asked.approval_id, "allow", digest=asked.digest)
            await client.wait_run(asked.run_id)
        await ask_for(client, write_call("a.txt"), session_key="waiting")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the home of a daemon that was stopped."""
    base = tmp_path_factory.mktemp("lived")
    daemon = DaemonProcess(base)
    daemon.start()
    try:
        trio.run(live, daemon)
        assert 0 == daemon.stop()
    finally:
        daemon.end()
    return base


def spoil(path: Path, rng: Random) -> list[str]:
    """Damage one event of each run but one; return the runs of damaged payloads."""
    with closing(apsw.Connection(str(path))) as connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'tape'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        heads: list[tuple[str, int]] = connection.execute(
            "SELECT run_id, max(seq) FROM tape GROUP BY run_id"
        ).fetchall()  # type: ignore[assignment]  # untyped rows
        rng.shuffle(heads)
        for run_id, head in heads[1:]:
            seq = rng.randrange(head + 1)
            way = rng.random()
            value: str | bytes
            if way < 0.7:
                change, value = "data = ?", rng.choice(PAYLOADS)
            elif way < 0.9:
                change, value = "kind = ?", rng.choice(KINDS)
            else:
                connection.execute("DELETE FROM tape WHERE run_id = ? AND seq = ?", (run_id, seq))
                continue
            connection.execute(
                f"UPDATE tape SET {change} WHERE run_id = ? AND seq = ?",  # noqa: S608 - literals
                (value, run_id, seq),
            )
        return [str(run_id) for run_id, _ in heads]


async def complain(name: str, work: Awaitable[object]) -> list[str]:
    """Do the work; return an answer that is none of this method."""
    try:
        with trio.fail_after(WITHIN_S):
            await work
    except PalyraError as error:
        return [f"{name}: {error!r}"] if error.code == "internal" else []
    except trio.TooSlowError:
        return [f"{name}: no answer"]
    return []


async def go_on(client: Client, key: str) -> list[str]:
    """Start a run in the session of this key; return how it failed."""
    run = await client.start_run("/say elm is still here", session_key=key)
    if key == "waiting":  # behind a question
        return []
    ended = await client.wait_run(run.run_id)
    why = f"a new run of {key} ended {ended.state}: {ended.reason}"
    return [] if ended.state == "done" else [why]


async def check(daemon: DaemonProcess, runs: list[str]) -> None:
    """Every reader answers for every run, the sessions go on, and an incident names damage."""
    found = list[str]()
    async with daemon.connect() as client:
        for run_id in runs:
            found += await check_run(client, run_id)
        for name, other in OTHERS.items():
            found += await complain(name, other(client))
        for key in ("one", "two", "three", "waiting", "new"):
            found += await go_on(client, key)
        assert not found, "\n".join(found)
        with trio.fail_after(WITHIN_S):
            while not await is_named(client):
                await client.ping()


async def check_run(client: Client, run_id: str) -> list[str]:
    """Call each reader of the run and of its session; return the wrong answers."""
    found, view = list[str](), await client.get_run(run_id)
    for name, read in READERS.items():
        if name != "wait" or view.is_terminal:
            found += await complain(f"{name} of {run_id}", read(client, run_id))
    for name, of in OF_SESSION.items():
        found += await complain(f"{name} of {view.session_id}", of(client, view.session_id))
    return found


async def is_named(client: Client) -> bool:
    """True if an incident names a damaged event."""
    listed = (await client.list_incidents(limit=500)).incidents
    return any(each.key.startswith("record_damaged:tape:") for each in listed)


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=pytest.mark.slow if n else ()) for n in range(60)]
)
def test_a_damaged_event_costs_itself(home: Path, tmp_path: Path, seed: int) -> None:
    """No reader of a run fails otherwise than by name, nothing crashes, and sessions go on."""
    shutil.copytree(home, tmp_path / "copy", symlinks=True)
    daemon = DaemonProcess(tmp_path / "copy", PALYRA_HEALING__MODE="auto")
    runs = spoil(daemon.home / "journal.sqlite3", Random(seed))
    try:
        daemon.start()
        trio.run(check, daemon, runs)
        assert 0 == daemon.stop()
        assert "Traceback" not in daemon.said
    finally:
        daemon.end()
