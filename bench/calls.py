"""Cost of one durable run in counted work instead of time.

The run of `runs.py` (model turn, tool, model turn; the scripted model, a durable journal), alone
and 100 concurrently.  Prints a table and one JSON line.  `--check` compares with `calls.json` and
fails if a row has changed by more than 3 %; `--write` stores the counts as the new expectation.

The counts are the same on every machine:

- Everything is warm before the first counted run.
- Time and ids are fixed, and the clock of the event loop is held, so nothing periodic happens.
- Threads work only while the loop is idle, so the program alone decides which events share a
  commit.
- Roots are signed outside the counted runs and have rows of their own.
- Cyclic garbage is not collected.
- Trio orders the tasks of each pass by a random bit; half of the runs are counted with heads
  throughout, half with tails.

On a busy machine commits are batched differently: `not_exact` in the JSON line has those figures.
"""

import argparse
import gc
import json
import logging
import platform
import sys
import tempfile
from _thread import LockType, allocate_lock
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar, TypeVarTuple

import apsw
import structlog
import trio
from _calls import Calls, Function, Profile, package_of
from runs import daemon, one_run
from trio._core import _run as scheduler

from palyra.actors.journal import actor as journal_actor
from palyra.actors.kernel.threads import DedicatedThread, run_sync
from palyra.daemon import Daemon
from palyra.store.journal.keys import KeyRing
from palyra.wiring import host as ids
from palyra.wiring import host as parts
from palyra.wiring.host import Host

EXPECTED = Path(__file__).with_suffix(".json")
TOLERANCE = 0.03
WARM_UP = {1: 20, 100: 100}
COUNTED = {1: 20, 100: 100}  # counted runs by concurrency, for each side of the coin
COIN = {"heads": 0.0, "tails": 1.0}
NEVER = 1 << 60
FIXED_NS = 1_750_000_001_000_000_000  # its digests resemble no token; those cost a second look
MAX_IDS = 10_000

LEAST = 0.02  # smaller rows are left out
HOW_TO_ACCEPT = (
    "If the work of a run is meant to change, run `python bench/calls.py --write` with each version "
    "of Python that bench/calls.json has, and commit the file."
)

PYTHON_WORK: dict[Function, str] = {
    ("json", "dumps"): "JSON encodings",
    ("json", "loads"): "JSON decodings",
    ("trio._core._run", "CancelScope.__enter__"): "cancel scopes",
    ("re2", "_Regexp.search"): "RE2 searches",
    ("re2", "_Regexp.match"): "RE2 searches",
    ("re2", "_Regexp.fullmatch"): "RE2 searches",
    ("re2", "_Regexp.finditer"): "RE2 searches",
    ("re2", "Set.Match"): "RE2 searches",
}
C_WORK: dict[Function, str] = {  # by package and qualified name
    ("msgspec", "json_encode"): "JSON encodings",
    ("msgspec", "Encoder.encode"): "JSON encodings",
    ("msgspec", "Encoder.encode_into"): "JSON encodings",
    ("msgspec", "json_decode"): "JSON decodings",
    ("msgspec", "Decoder.decode"): "JSON decodings",
    ("stdlib", "openssl_sha256"): "SHA-256",
    ("stdlib", "hmac_new"): "HMAC",
    ("stdlib", "hmac_digest"): "HMAC",
    ("cryptography", "Ed25519PrivateKey.sign"): "signatures",
}

Rows = dict[str, float]
Table = dict[str, Rows]  # by number of concurrent runs

T = TypeVar("T")
Args = TypeVarTuple("Args")

# --- determinism ---------------------------------------------------------------------------------


def fix_chance() -> None:
    """Replace clock and ids with bound C functions, which the profile counts like the real ones."""
    prepared = [f"01890a5d-ac96-774b-8000-{number:012x}" for number in range(MAX_IDS)]
    ids.uuid7 = prepared.pop  # type: ignore[attr-defined,assignment]
    parts.time = SimpleNamespace(time_ns=FIXED_NS.conjugate)  # type: ignore[attr-defined,assignment]


def fix_coin(side: str) -> None:
    """Order the tasks of every pass of trio's scheduler the same way."""
    scheduler._r = SimpleNamespace(random=COIN[side].conjugate)  # type: ignore[assignment]  # noqa: SLF001


class StandingClock(trio.abc.Clock):
    """Trio's own clock, including its calls; its time is constant while `is_held`."""

    def __init__(self) -> None:
        self._real = scheduler.SystemClock(offset=0.0)
        self._held_s = 0.0
        self.is_held = False

    def hold(self) -> None:
        self._held_s, self.is_held = self._real.current_time(), True

    def start_clock(self) -> None:
        self._real.start_clock()

    def current_time(self) -> float:
        now_s: float = self._real.current_time()
        return self._held_s if self.is_held else now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        sleep_s: float = self._real.deadline_to_sleep_time(deadline)
        return inf if self.is_held else sleep_s


class Turns(trio.abc.Instrument):
    """Counts the scheduler's work; while `is_gated`, threads work only when it is idle."""

    def __init__(self) -> None:
        self.tasks = self.steps = self.passes = 0
        self.is_gated = False
        self.under_way = 0  # calls that no thread has returned from yet
        self._waiting: list[LockType] = []
        self._wake: Callable[[], None] | None = None

    def task_spawned(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's signature
        self.tasks += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's signature
        self.steps += 1

    def before_io_wait(self, timeout: float) -> None:
        self.passes += 1
        if timeout == 0:
            return
        if self._waiting:
            self._waiting.pop(0).release()
        elif self._wake is not None and not self.under_way:
            self._wake()
            self._wake = None

    async def wait_idle(self) -> None:
        """Wait until all other tasks and all threads wait."""
        reschedule = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
        self._wake = partial(trio.lowlevel.current_trio_token().run_sync_soon, reschedule)
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def new_thread(self, name: str) -> "GatedThread":
        return GatedThread(name, self)

    async def run(
        self,
        call: Callable[[Callable[[], T]], Awaitable[T]],
        fn: Callable[[*Args], T],
        *args: *Args,
    ) -> T:
        """Run `fn(*args)` through `call` in a thread that starts as soon as the loop is idle."""
        gate = allocate_lock()
        if self.is_gated:
            gate.acquire()
            self._waiting.append(gate)

        def work() -> T:
            gate.acquire()
            return fn(*args)

        self.under_way += 1
        try:
            return await call(work)
        finally:
            self.under_way -= 1

    async def run_blocking(self, fn: Callable[[*Args], T], *args: *Args) -> T:
        """`Host.run_blocking`."""
        return await self.run(run_sync, fn, *args)


class GatedThread(DedicatedThread):
    """Thread whose calls start when the loop is idle."""

    def __init__(self, name: str, turns: Turns) -> None:
        self._turns = turns
        super().__init__(name)

    async def call(self, fn: Callable[[*Args], T], *args: *Args) -> T:
        return await self._turns.run(super().call, fn, *args)


class Statements:
    """Counter of SQLite statements on connections opened inside the block, without triggers."""

    def __init__(self) -> None:
        self.statements = self.commits = 0

    def __enter__(self) -> Self:
        apsw.connection_hooks.append(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.connection_hooks.remove(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._count, id=self)

    def _count(self, event: dict[str, Any]) -> None:
        if not event["trigger"]:
            self.statements += 1
            self.commits += event["sql"] == "COMMIT"


# --- counting ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of all counters at one moment."""

    calls: Callable[[], Calls]
    own: dict[str, int]

    def work(self) -> Counter[str]:
        """Return the rows up to this moment."""
        return count_work(self.calls()) + Counter(self.own)


class Scale:
    """One daemon and the counters of its runs."""

    def __init__(self, profile: Profile, sql: Statements) -> None:
        self.clock = StandingClock()
        self.turns = Turns()
        self.run_ids: list[str] = []
        self._profile = profile
        self._sql = sql

    async def read(self) -> Reading:
        """Return all counters once no call is in progress."""
        await self.turns.wait_idle()
        turns, sql = self.turns, self._sql
        own = {
            "tasks spawned": turns.tasks,
            "task steps": turns.steps,
            "scheduler passes": turns.passes,
            "SQL statements": sql.statements,
            "commits": sql.commits,
        }
        return Reading(self._profile.read(), own)

    async def weigh(self, concurrency: int, home: Path) -> list[Reading]:
        """Return readings before and after the runs with heads, with tails, and one with roots."""
        # Closed, so that the machine's sandbox and its self-test do not change the counts.
        turns = self.turns
        host = Host(new_thread=turns.new_thread, run_blocking=turns.run_blocking, is_closed=True)
        keys = KeyRing(bytes(32))
        async with daemon(home, host=host, keys=keys, operator_token="x" * 43) as served:
            self.clock.hold()
            turns.is_gated = True
            fix_coin("heads")
            await perform(served, concurrency, WARM_UP[concurrency])
            readings = [await self.read()]
            for side in COIN:
                fix_coin(side)
                self.run_ids += await perform(served, concurrency, COUNTED[concurrency])
                readings.append(await self.read())
            journal_actor.SEAL_ROWS = 1
            await perform(served, 1, 1)
            readings.append(await self.read())
            self.clock.is_held = turns.is_gated = False
        return readings


async def perform(served: Daemon, concurrency: int, total: int) -> list[str]:
    """Execute `total` runs, `concurrency` at a time; return their ids."""
    run_ids: list[str] = []

    async def work() -> None:
        for _ in range(total // concurrency):
            run_ids.append(await one_run(served))  # noqa: PERF401 - from several tasks

    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(work)
    return run_ids


def weigh(concurrency: int) -> Rows:
    """Return the rows of one run among `concurrency` concurrent ones."""
    fix_chance()
    journal_actor.SEAL_ROWS = NEVER
    with tempfile.TemporaryDirectory() as home:
        with Profile() as profile, Statements() as sql:
            scale = Scale(profile, sql)
            run = partial(scale.weigh, concurrency, Path(home))
            readings = trio.run(run, clock=scale.clock, instruments=[scale.turns])
        tape = read_tape(Path(home), scale.run_ids)
    before, after, rooted = (readings[place].work() for place in (0, -2, -1))
    counts = (after - before) + tape.of_runs
    rows = {name: count / len(scale.run_ids) for name, count in counts.items()}
    # All roots were signed together with one more run, whose counts are subtracted.
    extra = rooted - after
    for name in ("Python calls", "C calls", "SHA-256"):
        of_a_row = (extra[name] - rows[name]) / tape.all_events
        rows[f"{name} for signed roots"] = of_a_row * rows["events on tape"]
    in_order = sorted(rows.items(), key=lambda row: row[0].casefold())
    return {name: round(count, 3) for name, count in in_order if count >= LEAST}


@dataclass(frozen=True, slots=True)
class Tape:
    """Size of the tapes in the journal."""

    of_runs: Counter[str]
    all_events: int


def read_tape(home: Path, run_ids: Sequence[str]) -> Tape:
    """Return the size of the tapes of these runs, from the closed journal."""
    (path,) = home.rglob("journal.sqlite3")
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        marks = ",".join("?" * len(run_ids))
        (events, size_bytes) = connection.execute(
            f"SELECT count(*), sum(length(data)) FROM tape WHERE run_id IN ({marks})",  # noqa: S608
            run_ids,
        ).get
        all_events = connection.execute("SELECT count(*) FROM tape").get
    of_runs = Counter({"events on tape": events, "bytes on tape": size_bytes})
    return Tape(of_runs, all_events)


def count_work(calls: Calls) -> Counter[str]:
    """Return the rows that are derived from calls alone."""
    rows: Counter[str] = Counter()
    for (module, name), count in calls.python.items():
        rows["Python calls"] += count
        rows[f"Python calls: {package_of(module)}"] += count
        if row := PYTHON_WORK.get((module, name)):
            rows[row] += count
    for (caller, (module, name)), count in calls.c.items():
        rows["C calls"] += count
        rows[f"C calls by {package_of(caller)}"] += count
        rows[f"C calls of {package_of(module)}"] += count
        if row := C_WORK.get((package_of(module), name)):
            rows[row] += count
    return rows


# --- what is not exact ---------------------------------------------------------------------------


async def batching() -> Rows:
    """Return how 100 concurrent runs share commits with free threads; the figures vary."""
    turns = Turns()
    with tempfile.TemporaryDirectory() as home, Statements() as sql:
        trio.lowlevel.add_instrument(turns)
        async with daemon(Path(home)) as served:
            await perform(served, 100, 200)
            before = sql.commits, turns.steps, turns.passes
            await perform(served, 100, 1_000)
            after = sql.commits, turns.steps, turns.passes
    names = "commits", "task steps", "scheduler passes"
    return {
        name: round((new - old) / 1_000, 2)
        for name, old, new in zip(names, before, after, strict=True)
    }


# --- the table -----------------------------------------------------------------------------------


def find_moves(expected: Table, found: Table) -> list[str]:
    """Return a line for each row that is new, missing, or changed by more than the tolerance."""
    moves = []
    for column in sorted(expected.keys() | found.keys(), key=int):
        old, new = expected.get(column, {}), found.get(column, {})
        for name in {**old, **new}:
            was, now = old.get(name, 0.0), new.get(name, 0.0)
            if abs(now - was) > TOLERANCE * was:
                change = f"{now / was - 1:+.1%}" if was else "new"
                moves.append(f"{column:>3} at once: {name}: {was:g} -> {now:g} ({change})")
    return moves


def render(table: Table) -> str:
    """Render the table for people."""
    columns = list(table)
    names = sorted({name for rows in table.values() for name in rows}, key=str.casefold)
    lines = [f"{'a run costs, at once:':48}" + "".join(f"{column:>12}" for column in columns)]
    lines += [
        f"{name:48}" + "".join(f"{table[column].get(name, 0):12,.2f}" for column in columns)
        for name in names
    ]
    return "\n".join(lines)


def python_version() -> str:
    """Return the minor version of Python, on which the counts depend."""
    return ".".join(platform.python_version_tuple()[:2])


def read_expected() -> dict[str, Table]:
    """Return the expected tables by version of Python."""
    return json.loads(EXPECTED.read_bytes()) if EXPECTED.exists() else {}


def main() -> None:
    """Count, and compare or write or print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail where a row has moved")
    parser.add_argument("--write", action="store_true", help="expect from now on what is counted")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.disable()
    chance = scheduler._r  # noqa: SLF001 - see `fix_coin`
    table: Table = {str(concurrency): weigh(concurrency) for concurrency in COUNTED}
    scheduler._r = chance  # noqa: SLF001 - see `fix_coin`
    version, expected = python_version(), read_expected()
    if arguments.check:
        if version not in expected:
            sys.exit(f"{EXPECTED.name} has no table for Python {version}. {HOW_TO_ACCEPT}")
        moves = find_moves(expected[version], table)
        print(*moves, sep="\n")
        sys.exit(HOW_TO_ACCEPT if moves else 0)
    if arguments.write:
        text = json.dumps(dict(sorted((expected | {version: table}).items())), indent=1)
        EXPECTED.write_text(text + "\n", encoding="utf-8")
    print(render(table))
    result = {"bench": "calls", "runs": table, "not_exact": {"100": trio.run(batching)}}
    print(json.dumps(result | {"python": version, "trio": trio.__version__}))


if __name__ == "__main__":
    main()
