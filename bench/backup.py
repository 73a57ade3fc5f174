"""Backup and restore of a data directory, against a raw copy of the same files.

Prints one JSON line: megabytes a second of making a backup while commits go on, of checking and of
restoring it, and of `shutil.copytree` on the same files; the delay of the loop's timers and the
latency of a commit, alone and during the backup.  Medians of several rounds.
"""

import json
import math
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import trio
from _machine import calibrate

from palyra.actors.journal.actor import JournalHandle, journal
from palyra.actors.kernel.threads import run_sync
from palyra.core.journal.backup import BackupOrder
from palyra.core.journal.changes import Change
from palyra.core.journal.tape_row import TapeRow
from palyra.daemon import GC_THRESHOLDS, SWITCH_INTERVAL_S
from palyra.store.backup.create import Home, create_backup
from palyra.store.backup.restore import RestoreRequest, restore_backup
from palyra.store.backup.verify import verify_backup
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal

ROUNDS = 3
EVENTS, EVENT_BYTES, EVENTS_PER_RUN = 60_000, 1_000, 30
ARTIFACTS, ARTIFACT_BYTES = 400, 262_144
TICK_S = 0.001
PRODUCERS = 10
MB = 1e6


def row(run: int, seq: int) -> TapeRow:
    """Return one event."""
    return TapeRow(
        f"run_0190a000-0000-7000-8000-{run:012d}", "ses_0190a000-0000-7000-8000-000000000001",
        seq, 1_750_000_000_000 + seq, "turn.completed", "operator",
        redacted=False, data=b'{"text":"' + os.urandom(EVENT_BYTES // 2).hex().encode() + b'"}',
    )  # fmt: skip


def fill(home: Path, store: SqliteJournal) -> None:
    """Write tapes and artifacts."""
    for run in range(EVENTS // EVENTS_PER_RUN):
        store.commit([Change(rows=tuple(row(run, seq) for seq in range(EVENTS_PER_RUN)))])
        if run % 200 == 0:
            store.seal()
    folder = home / "artifacts" / "ses_1"
    folder.mkdir(parents=True)
    for number in range(ARTIFACTS):
        (folder / f"{number:064x}").write_bytes(os.urandom(ARTIFACT_BYTES))


class Load:
    """Commits of some producers, and the delay of timers, while the block runs."""

    def __init__(self, handle: JournalHandle, first_run: int) -> None:
        self._handle = handle
        self._run = first_run
        self.delays_s: list[float] = []
        self.commits_s: list[float] = []

    async def tick(self) -> None:
        while True:
            began = trio.current_time()
            await trio.sleep(TICK_S)
            self.delays_s.append(trio.current_time() - began - TICK_S)

    async def produce(self, number: int) -> None:
        for seq in range(10**9):
            change = Change(rows=(row(self._run + number, seq),))
            began = time.perf_counter()
            await self._handle.commit(change)
            self.commits_s.append(time.perf_counter() - began)

    def figures(self) -> dict[str, Any]:
        return {
            "loop_delay_ms_p50_p99_max": _spread(self.delays_s),
            "commit_ms_p50_p99_max": _spread(self.commits_s),
            "commits_per_s": round(
                len(self.commits_s) / max(1e-9, TICK_S + sum(self.commits_s) / PRODUCERS)
            ),
        }


def _spread(values_s: list[float]) -> list[float]:
    ordered = sorted(values_s)
    last = len(ordered) - 1
    return [
        round(1e3 * ordered[min(last, math.ceil(share * last))], 2) for share in (0.5, 0.99, 1.0)
    ]


async def under_load(handle: JournalHandle, first_run: int, work: Any) -> tuple[float, Load]:  # noqa: ANN401 - a call or a sleep
    """Return the seconds that the work took, and the load that ran beside it."""
    load = Load(handle, first_run)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.tick)
        for number in range(PRODUCERS):
            nursery.start_soon(load.produce, number)
        began = time.perf_counter()
        await work()
        took_s = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    return took_s, load


async def measure(base: Path) -> dict[str, Any]:
    home = base / "home"
    keys = KeyRing.open(home / "keys")
    store = SqliteJournal(home / "journal.sqlite3", keys, now_ms=lambda: 1)
    with closing(store):
        store.open()
        fill(home, store)
    handle = JournalHandle(store)
    workspace = base / "workspace"
    source = Home(
        home, home / "palyra.toml", home / "policies", (workspace,), keys, store.open_snapshot, "0"
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(journal, handle, on_committed=_ignore, on_opened=_ignore))
        rounds = [await one_round(base, source, handle, number) for number in range(ROUNDS)]
        nursery.cancel_scope.cancel()
    return {
        "rounds": rounds,
        **{
            name: round(statistics.median(each[name] for each in rounds), 1)
            for name in rounds[0]
            if name.endswith("mb_per_s")
        },
    }


def _ignore(_: object) -> None:
    """Do nothing."""


async def one_round(base: Path, source: Home, handle: JournalHandle, number: int) -> dict[str, Any]:
    first = 1_000_000 * (number + 1)
    backup, order = base / f"backup{number}", BackupOrder(backup_id="b", by="b", created_ms=1)
    make = partial(run_sync, create_backup, source, backup, order, lambda: False)
    _, quiet = await under_load(handle, first, partial(trio.sleep, 1.0))
    took_s, busy = await under_load(handle, first + 1_000, make)
    size = sum(path.stat().st_size for path in backup.rglob("*") if path.is_file())
    figures = {"size_mb": round(size / MB), "create_under_load_mb_per_s": size / MB / took_s}
    raw_s = await timed(partial(copy_raw, backup, base / f"raw{number}"))
    alone = base / f"alone{number}"
    alone_s = await timed(partial(create_backup, source, alone, order, lambda: False))
    verify_s = await timed(partial(verify_backup, backup))
    restore_s = await timed(
        partial(restore_backup, backup, base / f"home{number}", RestoreRequest("b", "", 1))
    )
    for name in ("raw", "alone", "home", "backup"):
        shutil.rmtree(base / f"{name}{number}")
    for name, each_s in (
        ("raw_copy", raw_s), ("create", alone_s), ("verify", verify_s), ("restore", restore_s),
    ):  # fmt: skip
        figures[f"{name}_mb_per_s"] = size / MB / each_s
    return {**figures, "quiet": quiet.figures(), "during_backup": busy.figures()}


async def timed(work: Any) -> float:  # noqa: ANN401 - any call
    began = time.perf_counter()
    await run_sync(work)
    return time.perf_counter() - began


def copy_raw(source: Path, target: Path) -> None:
    """Copy the files and sync each, which is what a durable copy costs at least."""
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def main() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    import gc  # noqa: PLC0415 - as the daemon sets it

    gc.set_threshold(*GC_THRESHOLDS)
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as name:
        result = trio.run(measure, Path(name))
    print(
        json.dumps(
            {
                "bench": "backup",
                **result,
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
                "calibration_ms": calibrate(),
            }
        )
    )


if __name__ == "__main__":
    main()
