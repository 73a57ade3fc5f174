"""A daemon under load for a long time: `python -m tests.faults.soak --minutes M --sessions N`.

Sessions with runs, tasks and a schedule, among random faults: providers that fail, runs that are
cancelled, connections that close in the middle, tools that time out.  Every `SAMPLE_S` seconds the
memory, the descriptors, the threads and the files of the daemon are read; its timers record every lag.
Prints the samples of the second and the last tenth, and the lags, as one line of JSON; the exit code
is 1 if something grew.

Memory and descriptors are compared over the second half.  In the first the caches fill: histories
of ended runs up to 16 MiB, the automata of the redactor's patterns by as much again as texts
differ, pages of the readers.
"""

import argparse
import json
import os
import random
import statistics
import struct
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from palyra.actors.kernel import loop_lag
from palyra.client import Client
from palyra.errors import PalyraError
from tests.e2e.daemon_process import DaemonProcess
from tests.forked import ForkedProcess, Setting

SAMPLE_S = 2.0
PAUSE_S = 4.0  # at most, of a session after a run: people think
SHARED = 5  # sessions of one connection
LAG = struct.Struct("d")
FAILURES = ("transient", "rate_limited", "timeout", "malformed", "unavailable")

# Growth that fails, from the sixth tenth to the last.
MAX_GROWTH_MIB = 16.0
MAX_MORE_DESCRIPTORS = 8
MAX_WAL_MIB = 64.0
MAX_BYTES_GROWTH = 1.25  # of the journal's bytes a run, between the halves


class _RecordedLags(deque[float]):
    """The samples of the last minute, which also go to a file."""

    def __init__(self, path: Path, *, maxlen: int) -> None:
        super().__init__(maxlen=maxlen)
        self._file = path.open("ab", buffering=0)

    def append(self, lag_s: float) -> None:
        super().append(lag_s)
        self._file.write(LAG.pack(lag_s))


def record_lags(path: Path) -> None:
    """Have the loop of this process record its lags."""
    vars(loop_lag)["deque"] = partial(_RecordedLags, path)


class RecordedDaemon(DaemonProcess):
    """A daemon whose lags are recorded next to its home."""

    @property
    def lags(self) -> Path:
        """The file of the lags."""
        return self.home.parent / "lags"

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        before = partial(record_lags, self.lags)
        return ForkedProcess(self.arguments(), Setting(environment, streams, before=before))


@dataclass(frozen=True)
class Sample:
    """The size of the daemon at one moment."""

    at_s: float
    rss_mib: float
    descriptors: int
    threads: int
    journal_mib: float
    wal_mib: float
    runs: int  # ended so far
    load: float


@dataclass
class Soak:
    """One daemon and its load."""

    daemon: RecordedDaemon
    rng: random.Random
    until_s: float
    counts: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """True when no further run begins."""
        return trio.current_time() >= self.until_s

    async def last(self, keys: Sequence[str]) -> None:
        """Load the daemon to the end, and sample it."""
        async with self.daemon.connect() as client:
            await client.add_schedule(
                "tick", every_ms=30_000, kind="prompt", payload={"text": "/tokens 3"}
            )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch)
            async with trio.open_nursery() as users:
                for start in range(0, len(keys), SHARED):
                    users.start_soon(self.use, keys[start : start + SHARED])
            nursery.cancel_scope.cancel()

    async def use(self, keys: Sequence[str]) -> None:
        """Serve some sessions with one connection after the other."""
        while not self.is_over:
            is_short = self.rng.random() < 0.5  # its runs go on without it
            lasts_s = self.rng.uniform(5, 60) if is_short else float("inf")
            with trio.move_on_after(lasts_s):
                await self.connect_once(keys)
            self.counts["connections"] += 1

    async def connect_once(self, keys: Sequence[str]) -> None:
        """Serve some sessions with one connection."""
        async with self.daemon.connect() as client, trio.open_nursery() as people:
            for key in keys:
                people.start_soon(self.talk, client, key)

    async def talk(self, client: Client, key: str) -> None:
        """Start runs in one session, one after the other."""
        while not self.is_over:
            try:
                await self.ask(client, key)
            except PalyraError as error:
                self.counts[f"refused: {type(error).__name__}"] += 1
            await trio.sleep(self.rng.random() * PAUSE_S)

    async def ask(self, client: Client, key: str) -> None:
        """Start one run, follow it or wait for it, perhaps cancel it; or submit a task."""
        text, chance = self.text(), self.rng.random()
        if chance < 0.1:
            await client.submit_task("prompt", {"text": text, "session_key": key})
            self.counts["tasks"] += 1
            return
        run_id = (await client.start_run(text, session_key=key)).run_id
        if chance < 0.25:
            await trio.sleep(self.rng.random() / 2)
            await client.cancel(run_id, "enough")
        if chance < 0.6:
            async with client.events(run_id) as items:
                async for _ in items:
                    pass
        self.counts[(await client.wait_run(run_id)).state] += 1

    def text(self) -> str:
        """Return the script of a run: talk, tools, failures."""
        rng = self.rng
        turns = [
            f"/tokens {rng.randint(1, 300)}",
            f"/delay {rng.randint(1, 30)}\n/tokens {rng.randint(1, 20)}",
            '/call list_dir {"path": ""}\n/call sleep {"seconds": 0.05}',
            '/call read_file {"path": "nothing.txt"}',
            f"/fail {rng.choice(FAILURES)} 1\n/tokens 5",
            "/fail invalid_request",
        ]
        return "\n/then\n".join(rng.choices(turns, k=rng.randint(1, 4)))

    async def watch(self) -> None:
        """Sample the daemon until cancelled."""
        while True:
            self.samples.append(self.sample())
            await trio.sleep(SAMPLE_S)

    def sample(self) -> Sample:
        """Read the size of the daemon."""
        process = Path(f"/proc/{self.daemon.pid}")
        status = dict(
            line.split(":", 1) for line in (process / "status").read_text("ascii").splitlines()
        )
        return Sample(
            at_s=trio.current_time(),
            rss_mib=int(status["VmRSS"].split()[0]) / 1024,
            descriptors=len(os.listdir(process / "fd")),  # noqa: PTH208 - names are enough
            threads=int(status["Threads"]),
            journal_mib=_mib(self.daemon.home, "journal.sqlite3"),
            wal_mib=_mib(self.daemon.home, "journal.sqlite3-wal"),
            runs=sum(self.counts[state] for state in ("done", "failed", "cancelled")),
            load=os.getloadavg()[0],
        )


def _mib(home: Path, pattern: str) -> float:
    return sum(path.stat().st_size for path in home.rglob(pattern)) / (1 << 20)


async def soak(base: Path, *, minutes: float, sessions: int, seed: int) -> dict[str, Any]:
    """Return the figures of one soak, with `problems`."""
    daemon = RecordedDaemon(base, PALYRA_LOGGING__LEVEL="error", PALYRA_RUNS__MAX_OPEN="1000")
    await trio.to_thread.run_sync(daemon.start)
    try:
        load = Soak(daemon, random.Random(seed), trio.current_time() + 60 * minutes)
        await load.last([f"soak-{number}" for number in range(sessions)])
        async with daemon.connect() as client:
            incidents = await client.list_incidents(limit=100)
            verified = await client.verify_tape()
        found = describe(load, read_lags(daemon.lags))
        found["incidents"] = Counter(each.key.partition(":")[0] for each in incidents.incidents)
        found["chain_breaks"] = verified.breaks
        if verified.breaks:
            found["problems"].append(f"{verified.breaks} breaks of the chain")
        if await trio.to_thread.run_sync(daemon.stop):
            found["problems"].append("the daemon did not end by itself")
        return found
    finally:
        daemon.end()


def read_lags(path: Path) -> list[float]:
    """Return the recorded lags in seconds, in order of size."""
    raw = path.read_bytes()
    return sorted(lag_s for (lag_s,) in LAG.iter_unpack(raw[: len(raw) // LAG.size * LAG.size]))


def describe(load: Soak, lags: list[float]) -> dict[str, Any]:
    """Return the figures, and what grew."""
    samples = load.samples
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth] or samples[:tenth], samples[-tenth:]
    middle = samples[len(samples) // 2]
    halves = [
        (middle.journal_mib - early[0].journal_mib, middle.runs - early[0].runs),
        (samples[-1].journal_mib - middle.journal_mib, samples[-1].runs - middle.runs),
    ]
    kib_a_run = [round(1024 * mib / max(1, runs), 1) for mib, runs in halves]
    tenths = [samples[at : at + tenth] for at in range(0, len(samples) - tenth + 1, tenth)][:10]
    rss = [statistics.median(each.rss_mib for each in part) for part in tenths]
    warm = rss[len(rss) // 2]
    descriptors = [
        statistics.median(each.descriptors for each in part)
        for part in (tenths[len(tenths) // 2], late)
    ]
    wal_mib = max(each.wal_mib for each in samples)
    problems = []
    if rss[-1] - warm > MAX_GROWTH_MIB:
        problems.append(f"memory grew from {warm:.1f} to {rss[-1]:.1f} MiB")
    if descriptors[1] - descriptors[0] > MAX_MORE_DESCRIPTORS:
        problems.append(f"descriptors grew from {descriptors[0]} to {descriptors[1]}")
    if wal_mib > MAX_WAL_MIB:
        problems.append(f"the write-ahead log grew to {wal_mib:.1f} MiB")
    if kib_a_run[1] > kib_a_run[0] * MAX_BYTES_GROWTH:
        problems.append(f"a run took {kib_a_run[0]} KiB of the journal, then {kib_a_run[1]}")
    return {
        "minutes": round((samples[-1].at_s - samples[0].at_s) / 60, 1),
        "runs": samples[-1].runs,
        "counts": dict(sorted(load.counts.items())),
        "rss_mib": [round(each, 1) for each in rss],  # of each tenth
        "rss_mib_max": round(max(each.rss_mib for each in samples), 1),
        "descriptors": [*descriptors, max(each.descriptors for each in samples)],
        "threads": [early[0].threads, late[-1].threads, max(each.threads for each in samples)],
        "journal_mib": round(samples[-1].journal_mib, 1),
        "kib_a_run": kib_a_run,
        "wal_mib_max": round(wal_mib, 1),
        "lag_ms": {
            name: round(1_000 * lags[min(len(lags) - 1, int(share * len(lags)))], 2)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
        },
        "load": [round(statistics.mean(each.load for each in samples), 1)],
        "problems": problems,
    }


def main() -> int:
    """Run one soak and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        found = trio.run(
            partial(
                soak,
                Path(base),
                minutes=given.minutes,
                sessions=given.sessions,
                seed=given.seed,
            )
        )
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
