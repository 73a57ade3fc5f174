"""Records that do not decode: each costs itself, and is named."""

import json
import shutil
from collections.abc import Awaitable, Callable, Iterator
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

WITHIN_S = 120.0  # a bound against hanging, not a promise
LATER_MS = 4_000_000_000_000
DAMAGE: dict[str, Callable[[str, Random], object]] = {
    "cut": lambda text, rng: text[: rng.randrange(1, len(text))],
    "no object": lambda _text, _rng: "[]",
    "number": lambda _text, _rng: 7,
    "bytes": lambda _text, _rng: b"\xff\xfe{",
    "lacks members": lambda _text, _rng: "{}",
    "wrong types": lambda text, _rng: json.dumps({name: [1] for name in json.loads(text)}),
    "two": lambda text, _rng: f"{text}{text}",
}
LISTS: tuple[Callable[[Client], Awaitable[object]], ...] = (
    lambda client: client.list_runs(),
    lambda client: client.list_sessions(),
    lambda client: client.list_tasks(),
    lambda client: client.list_schedules(),
    lambda client: client.list_memories(),
    lambda client: client.list_approvals(),
    lambda client: client.list_incidents(),
    lambda client: client.list_tokens(),
    lambda client: client.list_agents(),
    lambda client: client.list_channels(),
    lambda client: client.list_budgets(),
    lambda client: client.status(),
)


def tables(connection: apsw.Connection) -> Iterator[tuple[str, list[int]]]:
    """Tables with a column `record`, found in the schema, and the rows of each."""
    for (name,) in connection.execute(
        "SELECT m.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c"
        " WHERE m.type = 'table' AND c.name = 'record' ORDER BY m.name"
    ).fetchall():
        rows = [row for (row,) in connection.execute(f"SELECT rowid FROM {name}")]  # noqa: S608 - of the schema
        yield str(name), rows


def spoil(path: Path, rng: Random, *, only: str | None = None) -> dict[str, str]:
    """Damage one row of each table, or of one; return the kind of damage by table."""
    done = dict[str, str]()
    with closing(apsw.Connection(str(path))) as connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f'DROP TRIGGER "{trigger}"')
        for name, rows in tables(connection):
            if not rows or only not in {None, name}:
                continue
            row = rng.choice(rows)
            kind = rng.choice(sorted(DAMAGE))
            text = connection.execute(f"SELECT record FROM {name} WHERE rowid = ?", (row,)).get  # noqa: S608 - the same
            value = DAMAGE[kind](text, rng)
            connection.execute(
                f"UPDATE {name} SET record = CAST(? AS TEXT) WHERE rowid = ?",  # noqa: S608 - the same
                (value, row),
            )
            done[name] = kind
        if only in {None, "memories"}:  # its records are made of its columns
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("UPDATE memories SET kind = 'none' WHERE row = 1")
            done["memories"] = "no such kind"
    return done


async def live(daemon: DaemonProcess) -> None:
    """Make a record of every kind that a client can make."""
    async with daemon.connect() as client:
        for number in range(2):
            run = await client.start_run(f"/say {number}", session_key=f"s{number}")
            await client.wait_run(run.run_id)
            await client.add_memory(f"The staging host number {number} is called elm{number}.")
            await client.submit_task("prompt", {"text": "/say"}, not_before_ms=LATER_MS)
            prompt = {"text": "/say tick"}
            await client.add_schedule(f"n{number}", payload=prompt, every_ms=10**9)
            await client.create_token(principal=f"p{number}", role="observer", name="x")
        await ask_for(client, write_call("a.txt"))
        await ask_for(client, write_call("b.txt"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the home of a daemon that was stopped, with records of many tables."""
    base = tmp_path_factory.mktemp("lived")
    daemon = DaemonProcess(base)
    daemon.start()
    try:
        trio.run(live, daemon)
        assert 0 == daemon.stop()
    finally:
        daemon.end()
    return base


async def find_complaints(daemon: DaemonProcess) -> list[str]:
    """Return what does not work."""
    found = list[str]()
    async with daemon.connect() as client:
        for each in LISTS:
            try:
                await each(client)
            except PalyraError as error:
                found.append(repr(error))
        run = await client.start_run("/say still here", session_key="after")
        ended = await client.wait_run(run.run_id)
        if ended.state != "done":
            found.append(f"a new run ended {ended.state}: {ended.reason}")
    return found


async def check(daemon: DaemonProcess, damaged: set[str]) -> None:
    """The daemon serves, and names each damaged table in an incident."""
    with trio.fail_after(WITHIN_S):
        assert [] == await find_complaints(daemon)
        async with daemon.connect() as client:
            missing = damaged
            while missing:
                listed = (await client.list_incidents(limit=500)).incidents
                named = {each.key.split(":")[1] for each in listed if "record_damaged" in each.key}
                missing = damaged - named
                await client.ping()


# Tables that a daemon reads as it starts and serves these lists.
READ = {
    "runs", "sessions", "approvals", "tasks", "schedules", "memories", "tokens",
}  # fmt: skip


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=pytest.mark.slow if n else ()) for n in range(200)]
)
def test_a_damaged_record_of_every_table_costs_itself(
    home: Path, tmp_path: Path, seed: int
) -> None:
    """The daemon starts, lists list, runs run, and incidents name what was left out."""
    shutil.copytree(home, tmp_path / "copy", symlinks=True)
    daemon = DaemonProcess(tmp_path / "copy", PALYRA_HEALING__MODE="auto")
    done = spoil(daemon.home / "journal.sqlite3", Random(seed))
    assert set() == READ - set(done)
    try:
        daemon.start()
        trio.run(check, daemon, READ)
        assert 0 == daemon.stop()
    finally:
        daemon.end()


@pytest.mark.parametrize("action", ["set", "delete"])
def test_a_damaged_budget_refuses_until_it_is_changed(
    home: Path, tmp_path: Path, action: str
) -> None:
    """The refusal names the budget and the remedy; with the remedy, runs run again."""
    shutil.copytree(home, tmp_path / "copy", symlinks=True)
    daemon = DaemonProcess(tmp_path / "copy")

    async def limit(client: Client) -> None:
        await client.set_budget(
            "monthly", scope="global", metric="tokens", window="month", hard=10**9
        )

    async def run(client: Client) -> tuple[str, str]:
        started = await client.start_run("/say hello", session_key="budget")
        ended = await client.wait_run(started.run_id)
        return ended.state, f"{ended.reason}"

    async def before() -> None:
        async with daemon.connect() as client:
            await limit(client)
            assert "done" == (await run(client))[0]

    async def after() -> None:
        async with daemon.connect() as client:
            state, reason = await run(client)
            assert "failed" == state
            assert "'monthly' admits nothing: its record is damaged" in reason
            assert [True] == [each.is_damaged for each in await client.list_budgets()]
            await (limit(client) if action == "set" else client.delete_budget("monthly"))
            assert "done" == (await run(client))[0]

    try:
        daemon.start()
        trio.run(before)
        assert 0 == daemon.stop()
        assert "budgets" in spoil(daemon.home / "journal.sqlite3", Random(1), only="budgets")
        daemon.start()
        trio.run(after)
        assert 0 == daemon.stop()
    finally:
        daemon.end()
