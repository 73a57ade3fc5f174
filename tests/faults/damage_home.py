"""Damage of a home, one a case, and what the daemon makes of it.

`python -m tests.faults.damage_home --cases N --seed S`

One home with records of many tables is built and copied for each case.  The case damages a row, a
page, the header, the write-ahead log or a file, with the daemon stopped or running; every
twentieth damages nothing.  Then the daemon has to serve or to end with a remedy, also after a
kill -9, and to keep what it acknowledged.  Prints what happened as JSON; the exit code is 1 when
something did not work.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import apsw
import trio

from palyra.cli.command.talk import Options
from palyra.cli.host import doctor
from palyra.client import Client
from palyra.errors import NotFound, PalyraError, Unauthenticated
from palyra.secrets.vault import Vault
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, make_token, write_call

WITHIN_S = 60.0  # a bound against hanging, not a promise
LATER_MS = 4_000_000_000_000
PAGE = 4_096
JOURNAL, WAL = "journal.sqlite3", "journal.sqlite3-wal"
LONG = "a line of a long output\n" * 1_000
SERVES = "serves"
ENVIRONMENT = {"PALYRA_HEALING__MODE": "auto", "PALYRA_LEARNING__MODE": "review"}
LISTS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "runs": lambda client: client.list_runs(),
    "sessions": lambda client: client.list_sessions(),
    "tasks": lambda client: client.list_tasks(),
    "schedules": lambda client: client.list_schedules(),
    "memories": lambda client: client.list_memories(),
    "search": lambda client: client.search_memories("staging host"),
    "approvals": lambda client: client.list_approvals(),
    "grants": lambda client: client.list_grants(),
    "incidents": lambda client: client.list_incidents(),
    "tokens": lambda client: client.list_tokens(),
    "agents": lambda client: client.list_agents(),
    "channels": lambda client: client.list_channels(),
    "candidates": lambda client: client.list_candidates(states=()),
    "budgets": lambda client: client.list_budgets(),
    "documents": lambda client: client.list_documents(),
    "secrets": lambda client: client.list_secrets(),
    "skills": lambda client: client.list_skills(),
    "usage": lambda client: client.sum_usage(),
    "status": lambda client: client.status(),
}


# --- the home


async def live(daemon: DaemonProcess) -> None:
    """Make records of every kind that a client can make."""
    async with daemon.connect() as client:
        for number in range(3):
            run = await client.start_run(f"/say number {number}", session_key=f"s{number}")
            await client.wait_run(run.run_id)
            await client.checkpoint_session(run.session_id, name="mark")
            await client.add_memory(f"The staging host number {number} is called elm{number}.")
            await client.submit_task("prompt", {"text": "/say"}, not_before_ms=LATER_MS)
            prompt = {"text": "/say tick"}
            await client.add_schedule(f"n{number}", payload=prompt, every_ms=10**9)
            await client.create_agent(f"agent{number}", "Answer in verse.")
            await client.set_channel(f"channel{number}", agent=f"agent{number}")
            await client.create_token(principal=f"p{number}", role="observer", name="x")
            hard = 10**9
            await client.set_budget(
                f"b{number}", scope="global", metric="tokens", window="month", hard=hard
            )
        call = f"/call echo {json.dumps({'text': LONG})}"
        run = await client.start_run(call, session_key="s0")
        await client.wait_run(run.run_id)
        for name in ("a.txt", "b.txt"):
            asked = await ask_for(client, write_call(name), session_key="s1")
            await client.resolve_approval(asked.approval_id, "allow", asked.digest, scope="session")
            await client.wait_run(asked.run_id)
        await client.edit_memory(
            (await client.list_memories()).items[0].memory_id, text="The host is called oak."
        )
        await ask_for(client, write_call("c.txt"), session_key="open")
        async with daemon.connect(await make_token(client, "client", "ann")) as ann:
            run = await ann.start_run("I always prefer answers in haiku form.")
            await ann.wait_run(run.run_id)
            await ann.reflect(run.run_id)
        await client.create_backup(with_keys=True)


def make_home(base: Path, *, is_killed: bool) -> Path:
    """Build a home under `base`; a killed daemon leaves a write-ahead log."""
    daemon = DaemonProcess(base, **ENVIRONMENT)
    Vault(daemon.home, daemon.home / "keys").put("api", "value", 1)
    daemon.start()
    try:
        trio.run(live, daemon)
        if is_killed:
            daemon.kill()
        else:
            assert 0 == daemon.stop()
    finally:
        daemon.end()
    return base


# --- damage


def damage_row(home: Path, rng: Random) -> str:
    """Change or delete one row of one table."""
    with closing(apsw.Connection(str(home / JOURNAL))) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        names = [
            str(name)
            for name, *_ in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
                " AND name NOT LIKE 'sqlite%' ORDER BY name"
            )
        ]
        filled = [n for n in names if connection.execute(f'SELECT 1 FROM "{n}" LIMIT 1').get]  # noqa: S608 - of the schema
        table = rng.choice(filled)
        rows = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - the same
        columns = [name for name, _ in rows.get_description()]
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        row = rng.choice(found)
        column = rng.choice(columns + [each for each in columns if each in {"record", "data"}])
        how, value = rng.choice(list(_values(row[column], rng.choice(found)[column], rng)))
        if how != "deleted" and value == row[column] and type(value) is type(row[column]):
            return ""
        change = "?" if how != "no UTF-8" else "CAST(? AS TEXT)"
        statement = f'UPDATE "{table}" SET "{column}" = {change}'  # noqa: S608 - the same
        if how == "deleted":
            statement = f'DELETE FROM "{table}"'  # noqa: S608 - the same
        return f"row {table}.{column} {how}" if _apply(connection, statement, value, row) else ""


def _apply(connection: apsw.Connection, statement: str, value: Any, row: dict[str, Any]) -> bool:
    """Apply it to the rows that are equal to this one, past the triggers; False if it is refused."""
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
    ).fetchall()
    where = " AND ".join(f'"{name}" IS ?' for name in row)
    given = (value, *row.values()) if statement.startswith("UPDATE") else (*row.values(),)
    try:
        with connection:
            for name, _ in triggers:
                connection.execute(f'DROP TRIGGER "{name}"')
            connection.execute(f"{statement} WHERE {where}", given)
            for _, text in triggers:
                connection.execute(str(text))
    except (apsw.ConstraintError, apsw.MismatchError):
        return False
    return True


def _values(here: Any, other: Any, rng: Random) -> Iterator[tuple[str, Any]]:
    """Yield the kinds of a change of a value, and the new values."""
    text = here.encode() if isinstance(here, str) else here if isinstance(here, bytes) else b""
    if text:
        cut = text[: rng.randrange(len(text))]
        flipped = bytearray(text)
        flipped[rng.randrange(len(text))] ^= 1 << rng.randrange(7)
        is_text = isinstance(here, str)
        yield "cut", cut.decode(errors="replace") if is_text else cut
        yield "flipped", flipped.decode(errors="replace") if is_text else bytes(flipped)
        yield "no UTF-8", b"\xff\xfe" + text
    yield "number", rng.choice((0, -1, 7, 2**62, 1.5))
    yield "text", rng.choice(("", "x", "{}", "[]", "null", "\0"))
    yield "bytes", rng.randbytes(rng.randrange(1, 30))
    yield "NULL", None
    yield "other", other
    yield "deleted", None


def damage_page(home: Path, rng: Random) -> str:
    """Overwrite one page of the database, or a part of it."""
    path = home / JOURNAL
    pages = path.stat().st_size // PAGE
    if pages < 2:
        return ""  # everything is in the log
    number = rng.randrange(1, pages)
    before = _read(path, number * PAGE, PAGE)
    how = rng.choice(("zeroed", "random", "copied", "bytes", "half"))
    changed = {
        "zeroed": lambda: bytes(PAGE),
        "random": lambda: rng.randbytes(PAGE),
        "copied": lambda: _read(path, rng.randrange(1, pages) * PAGE, PAGE),
        "bytes": lambda: _flip(before, rng),
        "half": lambda: before[: PAGE // 2] + bytes(PAGE // 2),
    }[how]()
    _write(path, number * PAGE, changed)
    return f"page {how}" if changed != before else ""


def damage_header(home: Path, rng: Random) -> str:
    """Change a byte of the header of the database, or cut the file."""
    path = home / JOURNAL
    if not path.stat().st_size:
        return ""  # everything is in the log
    how = rng.choice(("flipped", "flipped", "cut", "appended", "emptied"))
    if how == "flipped":
        at = rng.randrange(100)
        byte = _read(path, at, 1)
        _write(path, at, bytes([byte[0] ^ (1 << rng.randrange(8))]))
        return f"header byte {at}"
    size = path.stat().st_size
    if how == "appended":
        _write(path, size, rng.randbytes(rng.choice((10, PAGE))))
    else:
        os.truncate(path, 0 if how == "emptied" else rng.randrange(size))
    return f"database {how}"


def damage_log(home: Path, rng: Random) -> str:
    """Cut or change the write-ahead log."""
    path = home / WAL
    size = path.stat().st_size if path.exists() else 0
    if not size:
        return ""
    how = rng.choice(("cut", "flipped", "removed", "zeroed"))
    if how == "cut":
        os.truncate(path, rng.randrange(size))
    elif how == "flipped":
        _write(path, 0, _flip(path.read_bytes(), rng))
    elif how == "removed":
        path.unlink()
    else:
        at = rng.randrange(size)
        _write(path, at, bytes(min(PAGE, size - at)))
    return f"log {how}"


def damage_file(home: Path, rng: Random) -> str:
    """Remove, cut, change or replace one file of the home."""
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    places = sorted({path.relative_to(home).parts[0] for path in files} - {f"{JOURNAL}-shm"})
    place = rng.choice(
        [*places, *(each for each in ("keys", "artifacts", "checkpoints") if each in places)]
    )
    within = sorted(path for path in files if path.relative_to(home).parts[0] == place)
    path = rng.choice(within)
    how = rng.choice(("removed", "cut", "flipped", "folder", "link", "mode", "appended", "emptied"))
    if how in {"cut", "flipped", "emptied"} and not path.stat().st_size:
        return ""
    changes: dict[str, Callable[[], object]] = {
        "removed": path.unlink,
        "cut": lambda: os.truncate(path, rng.randrange(path.stat().st_size)),
        "flipped": lambda: _write(path, 0, _flip(path.read_bytes(), rng)),
        "folder": lambda: _replace_by_folder(path),
        "link": lambda: path.symlink_to(path.rename(home.parent / path.name)),
        "mode": lambda: path.chmod(rng.choice((0o000, 0o444, 0o666))),
        "appended": lambda: _write(path, path.stat().st_size, rng.randbytes(9)),
        "emptied": lambda: os.truncate(path, 0),
    }
    changes[how]()
    name = path.name if place == "keys" or len(path.relative_to(home).parts) == 1 else "…"
    return f"file {place}{'/' + name if name != place else ''} {how}"


def damage_nothing(_home: Path, _rng: Random) -> str:
    """Negative control."""
    return "nothing"


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def _flip(content: bytes, rng: Random) -> bytes:
    """Return it with up to forty other bytes in a row."""
    at = rng.randrange(len(content))
    count = min(rng.choice((1, 8, 40)), len(content) - at)
    return (
        content[:at]
        + bytes(each ^ rng.randrange(1, 256) for each in content[at : at + count])
        + content[at + count :]
    )


def _read(path: Path, at: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(count)


def _write(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


DAMAGES: tuple[Callable[[Path, Random], str], ...] = (
    *(damage_row,) * 8, *(damage_page,) * 4, damage_header, *(damage_log,) * 2, *(damage_file,) * 5,
)  # fmt: skip


# --- what the daemon makes of it


class Ledger:
    """What a daemon acknowledged."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.memories: list[str] = []
        self.tasks: list[str] = []


class Case:
    """One copy of a home, its damage, and the faults that were found."""

    def __init__(self, base: Path, token: str, seed: str) -> None:
        self.daemon = DaemonProcess(base, **ENVIRONMENT)
        self.rng = Random(seed)
        self.token = token
        self.damage = ""
        self.is_running = False
        self.ledger = Ledger()
        self.faults: list[str] = []
        self.names: list[str] = []  # how doctor, an incident or the end of the daemon names it
        self.notes: list[str] = []  # refusals, and what is missing
        self.end = SERVES

    def go(self, damage: Callable[[Path, Random], str], *, is_running: bool) -> None:
        """Damage the home, and watch the daemon over two lives."""
        self.is_running = is_running
        try:
            if is_running:
                self.daemon.start()
                trio.run(self.use)
            self.damage = damage(self.daemon.home, self.rng)
            if self.damage:
                self.observe()
        finally:
            self.daemon.end()

    def observe(self) -> None:
        """Use the daemon until a kill and after it, and ask doctor in between."""
        if self.is_running:
            self.watch(is_first=True)
        else:
            self.inspect()
            if self.begin():
                self.watch(is_first=True)
        if self.daemon.process is not None:
            self.daemon.kill()
            if self.is_running:
                self.inspect()
        if self.end == SERVES and self.begin():
            self.watch(is_first=False)

    def inspect(self) -> None:
        """Keep what doctor says about the stopped home."""
        checks = (
            doctor.check_config,
            doctor.check_home,
            doctor.check_secrets,
            doctor.inspect_stopped,
        )
        options = Options(home=self.daemon.home)
        try:
            found = [each for check in checks for each in doctor._guard("home", check, options)]
        except Exception as error:  # noqa: BLE001 - any is a fault of the command
            self.faults.append(f"doctor: {error!r}")
            return
        self.names += [f"{each.name}: {each.detail}" for each in found if each.verdict != "ok"]

    def begin(self) -> bool:
        """Start the daemon; an end is as good, if it says what to do."""
        size = len(self.daemon.said)
        began_s = time.monotonic()
        with suppress(AssertionError):
            self.daemon.start()
            if time.monotonic() - began_s > WITHIN_S:
                self.faults.append("start: late")
            return True
        self.judge_end(self.daemon.said[size:])
        return False

    def judge_end(self, said: str) -> None:
        """The last line of the log says what to do."""
        line = (said.strip().splitlines() or [""])[-1]
        self.end = line[-400:]
        self.names.append(line)
        if "Traceback" in said:
            self.faults.append(f"end with a traceback: {line[-300:]}")
        elif not any(
            word in line for word in ("backup", "chmod", "move ", "doctor", "put ", "rm ")
        ):
            self.faults.append(f"end without a remedy: {line[-300:]}")

    def watch(self, *, is_first: bool) -> None:
        """Use the daemon; it may end by itself, if it says what to do."""
        size = len(self.daemon.said)
        try:
            trio.run(self.check, is_first)
        except* (PalyraError, OSError, trio.TooSlowError) as group:
            process = self.daemon.process
            if process is not None:
                with suppress(AssertionError):
                    process.wait(WITHIN_S / 2)
            if process is not None and process.poll() is not None:
                self.daemon.wait()
                self.judge_end(self.daemon.said[size:])
            else:
                self.faults.append(f"check: {group.exceptions[0]!r}"[:300])

    async def check(self, is_first: bool) -> None:  # noqa: FBT001 - trio.run has no keywords
        with trio.fail_after(WITHIN_S):
            await self.look()
            await self.compare()
            if is_first:
                await self.use()
            async with self.daemon.connect(self.token) as client:
                listed = (await client.list_incidents(limit=500)).incidents
            self.names += [f"incident {each.key}" for each in listed]

    async def look(self) -> None:
        """Every list lists, or names what is damaged."""
        try:
            async with self.daemon.connect(self.token) as client:
                await client.ping()
        except Unauthenticated:  # the operator's token was replaced
            self.token = self.daemon.token
        async with self.daemon.connect(self.token) as client:
            for name, each in LISTS.items():
                with self.answering(f"list of {name}"):
                    await each(client)

    async def use(self) -> None:
        """Make a run, an item and a task; those that are acknowledged count."""
        async with self.daemon.connect(self.token) as client:
            with self.answering("run"):
                await self.run(client)
            with self.answering("memory"):
                added = await client.add_memory(f"The printer is called {self.rng.random()}.")
                self.ledger.memories.append(added.memory_id)
            with self.answering("task"):
                task = await client.submit_task("prompt", {"text": "/say"}, not_before_ms=LATER_MS)
                self.ledger.tasks.append(task.task_id)

    async def run(self, client: Client) -> None:
        """A run ends done, or names its reason."""
        run = await client.start_run("/say still here", session_key="after")
        ended = await client.wait_run(run.run_id)
        if ended.state == "done":
            self.ledger.runs.append(run.run_id)
        elif ended.reason:
            self.notes.append(f"run {ended.state}: {ended.reason}")
        else:
            self.faults.append(f"run: {ended.state} without a reason")

    async def compare(self) -> None:
        """What was acknowledged is there."""
        async with self.daemon.connect(self.token) as client:
            for each in self.ledger.runs:
                with self.answering(each):
                    await client.get_run(each)
            for each in self.ledger.memories:
                with self.answering(each):
                    await client.get_memory(each)
            for each in self.ledger.tasks:
                with self.answering(each):
                    await client.get_task(each)

    @contextmanager
    def answering(self, doing: str) -> Generator[None]:
        """A typed error that names its reason is an answer; an internal one is none, nor a loss."""
        try:
            yield
        except NotFound as error:
            # What a running daemon acknowledged may be what was damaged.
            (self.notes if self.is_running else self.faults).append(f"lost {doing}: {error}")
        except PalyraError as error:
            is_fault = error.code in {"internal", "timeout"}
            (self.faults if is_fault else self.notes).append(f"{doing}: {error!r}"[:300])


class Result(NamedTuple):
    """One case, as it is printed."""

    seed: str
    damage: str
    is_running: bool
    end: str
    faults: list[str]
    names: list[str]
    notes: list[str]


def damage_homes(
    cases: int, seed: int, say: Callable[[str], object] = lambda _line: None
) -> list[Result]:
    """Try that many cases."""
    shared = Path("/dev/shm")  # noqa: S108 - a folder in it, of a random name
    base = Path(tempfile.mkdtemp(prefix="damage.", dir=shared if shared.is_dir() else None))
    found: list[Result] = []
    try:
        homes = {
            is_killed: make_home(base / f"killed{is_killed}", is_killed=is_killed)
            for is_killed in (False, True)
        }
        number = 0
        while len(found) < cases:
            number += 1
            name = f"{seed}.{number}"
            result = try_case(homes, base / "case", name)
            if result is not None:
                found.append(result)
                say(json.dumps(result._asdict()))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return found


def try_case(homes: dict[bool, Path], place: Path, name: str) -> Result | None:
    """Try the case of that name; None where its damage changes nothing."""
    rng = random.Random(name)
    damage = damage_nothing if rng.random() < 0.05 else rng.choice(DAMAGES)
    # A running daemon holds the lock of its database: no other program changes a row.
    is_running = damage is not damage_row and rng.random() < 1 / 2
    home = homes[damage is damage_log or rng.random() < 0.1]
    token = (home / "home" / "keys" / "operator.token").read_text().strip()
    shutil.copytree(home, place, symlinks=True)
    try:
        case = Case(place, token, name)
        case.go(damage, is_running=is_running)
    finally:
        for path in place.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(place)
    if not case.damage:
        return None
    if case.damage == "nothing" and case.names:
        case.faults.append("named: nothing was damaged")
    return Result(name, case.damage, is_running, case.end, case.faults, case.names, case.notes)


def summarize(found: list[Result]) -> dict[str, Any]:
    """Return the figures of a campaign."""
    unnamed = Counter(each.damage for each in found if not each.names and each.damage != "nothing")
    return {
        "cases": len(found),
        "running": sum(each.is_running for each in found),
        "controls": sum(each.damage == "nothing" for each in found),
        "ended with a remedy": sum(each.end != SERVES for each in found),
        "unnamed": sum(unnamed.values()),
        "with something lost": sum("lost " in f"{each.notes}" for each in found),
        "unnamed by damage": dict(unnamed.most_common()),
        "faults": [
            {
                "case": each.seed,
                "damage": each.damage,
                "running": each.is_running,
                "faults": each.faults,
            }
            for each in found
            if each.faults
        ],
    }


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="One damage of a home a case.")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="file to which each case is appended as JSON")
    options = parser.parse_args()
    began_s = time.monotonic()

    def say(line: str) -> None:
        if options.log is not None:
            with options.log.open("a") as file:
                file.write(f"{line}\n")

    summary = summarize(damage_homes(options.cases, options.seed, say))
    summary["seconds"] = round(time.monotonic() - began_s)
    sys.stdout.write(f"{json.dumps(summary, indent=1)}\n")
    return 1 if summary["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
