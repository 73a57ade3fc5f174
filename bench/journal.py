"""Cost of the journal: commits through the actor against SQLite alone, replay, verification.

Prints one JSON line.  Producers append one event of about 300 bytes and wait until it is durable
before the next; `raw` writes the same rows directly to SQLite with `executemany`, in batches of the
same size.  Medians of several rounds.
"""

import gc
import json
import math
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import apsw
import cryptography
import msgspec
import trio

from palyra.actors.journal.actor import JournalHandle, journal
from palyra.actors.kernel.threads import run_sync
from palyra.core.journal.changes import Change
from palyra.core.journal.tape_row import TapeRow
from palyra.daemon import GC_THRESHOLDS, SWITCH_INTERVAL_S
from palyra.store.files.disk import REAL_DISK
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.connection import open_writer
from palyra.store.sqlite.journal import SqliteJournal
from palyra.store.sqlite.schema import migrate

ROUNDS = 3
TICK_S = 0.001  # interval of the loop's clock readings while a thread verifies
EVENTS_PER_RUN = 30  # a run with three turns and three tool calls
EVENTS = {1: 1_500, 10: 10_000, 100: 60_000}  # by number of producers: events appended in one round
REPLAY_EVENTS = 50_000
PAGE_ROWS = 500
PAYLOAD = b'{"text":"' + b"x" * 289 + b'"}'
RAW_INSERT = f"INSERT INTO tape VALUES ({', '.join('?' * 10)})"  # noqa: S608 - ten times the same


def row(run: int, seq: int) -> TapeRow:
    """Return one event as the daemon writes it."""
    return TapeRow(
        f"run_0190a000-0000-7000-8000-{run:012d}",
        "ses_0190a000-0000-7000-8000-000000000001",
        seq,
        1_750_000_000_000 + seq,
        "turn.completed",
        "operator",
        redacted=False,
        data=PAYLOAD,
    )


class Producer:
    """Writer of runs that waits until each event is durable before it writes the next."""

    def __init__(self, number: int, stride: int, events: int) -> None:
        self.changes = [
            Change(rows=(row(number + stride * (i // EVENTS_PER_RUN), i % EVENTS_PER_RUN),))
            for i in range(events)
        ]
        self.acks_s: list[float] = []

    async def work(self, handle: JournalHandle) -> None:
        start_s = time.perf_counter()
        for change in self.changes:
            await handle.commit(change)
            end_s = time.perf_counter()
            self.acks_s.append(end_s - start_s)
            start_s = end_s


def build_crew(producers: int) -> list[Producer]:
    events = EVENTS[producers] // producers
    return [Producer(number, producers, events) for number in range(producers)]


def fresh_store(directory: Path) -> SqliteJournal:
    return SqliteJournal(
        directory / "journal.sqlite3",
        KeyRing.open(directory / "keys"),
        now_ms=lambda: time.time_ns() // 1_000_000,
    )


async def measure_actor(directory: Path, producers: int) -> dict[str, float]:
    """Measure rows per second and acknowledgement times with this number of producers."""
    handle = JournalHandle(fresh_store(directory))
    crew = build_crew(producers)
    batches: list[int] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(run_journal, handle, batches)
        start_s = time.perf_counter()
        async with trio.open_nursery() as busy:
            for producer in crew:
                busy.start_soon(producer.work, handle)
        elapsed_s = time.perf_counter() - start_s
        nursery.cancel_scope.cancel()
    acks_s = sorted(ack for producer in crew for ack in producer.acks_s)
    return {
        "rows_per_s": len(acks_s) / elapsed_s,
        "ack_p50_ms": acks_s[len(acks_s) // 2] * 1000,
        "ack_p99_ms": acks_s[math.ceil(len(acks_s) * 0.99) - 1] * 1000,
        "batch_rows": statistics.mean(batches),
    }


async def run_journal(
    handle: JournalHandle, batches: list[int], *, task_status: trio.TaskStatus[None]
) -> None:
    await journal(
        handle,
        on_committed=lambda heads: batches.append(len(heads)),
        on_opened=lambda _report: None,
        task_status=task_status,
    )


def measure_raw(directory: Path, producers: int, batch_rows: int) -> float:
    """Return the rows per second of SQLite alone: same table and pragmas, precomputed hashes."""
    connection = open_writer(directory / "raw.sqlite3", REAL_DISK, "full")
    migrate(connection)
    connection.wal_autocheckpoint(1000)
    rounds = zip(*(producer.changes for producer in build_crew(producers)), strict=True)
    rows = [
        (position, *msgspec.structs.astuple(change.rows[0]), bytes(32))
        for position, change in enumerate(chain.from_iterable(rounds), 1)
    ]
    start_s = time.perf_counter()
    for first in range(0, len(rows), batch_rows):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(RAW_INSERT, rows[first : first + batch_rows])
        connection.execute("COMMIT")
    spent_s = time.perf_counter() - start_s
    connection.close()
    return len(rows) / spent_s


def measure_reading(directory: Path) -> dict[str, float]:
    """Measure the replay of one long tape page by page, and the verification of the journal."""
    store = fresh_store(directory)
    store.open()
    for start in range(0, REPLAY_EVENTS, 500):
        rows = tuple(row(1, seq) for seq in range(start, start + 500))
        assert store.commit([Change(rows=rows)]) == [None]
        store.seal()
    replay_s = timed(lambda: replay(store))
    verify_s = timed(lambda: verify(store))
    lags_s = sorted(trio.run(measure_lag, store))
    store.close()
    return {
        "replay_rows_per_s": REPLAY_EVENTS / replay_s,
        "verify_events_per_s": REPLAY_EVENTS / verify_s,
        "loop_lag_p50_ms_while_verifying": lags_s[len(lags_s) // 2] * 1000,
        "loop_lag_p99_ms_while_verifying": lags_s[int(len(lags_s) * 0.99)] * 1000,
    }


async def measure_lag(store: SqliteJournal) -> list[float]:
    """Return the wake-up delays of the loop while a pool thread verifies the journal."""
    lags_s: list[float] = []

    async def tick(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            due_s = time.perf_counter() + TICK_S
            await trio.sleep(TICK_S)
            lags_s.append(time.perf_counter() - due_s)

    async with trio.open_nursery() as nursery:
        await nursery.start(tick)
        await run_sync(verify, store)
        nursery.cancel_scope.cancel()
    return lags_s


def replay(store: SqliteJournal) -> None:
    after_seq: int | None = -1
    count = 0
    while after_seq is not None:
        page = store.read_tape(row(1, 0).run_id, after_seq=after_seq, limit=PAGE_ROWS)
        count += len(page.rows)
        after_seq = page.next_after_seq
    assert count == REPLAY_EVENTS


def verify(store: SqliteJournal) -> None:
    report = store.verify()
    assert (report.checked_events, report.first_break) == (REPLAY_EVENTS, None)


def timed(work: Callable[[], None]) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def one_round(producers: int) -> dict[str, float]:
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        measured = trio.run(measure_actor, path, producers)
        raw = measure_raw(path, producers, max(1, round(measured["batch_rows"])))
    return {**measured, "raw_rows_per_s": raw, "ratio": measured["rows_per_s"] / raw}


def reading_round() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        return measure_reading(Path(directory))


def medians(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    rounds = [measure() for _ in range(ROUNDS)]
    return {
        name: float(f"{statistics.median(found[name] for found in rounds):.4g}")
        for name in rounds[0]
    }


def main() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    result: dict[str, Any] = {"bench": "journal", "rounds": ROUNDS}
    for producers in (1, 10, 100):
        result[f"producers_{producers}"] = medians(lambda n=producers: one_round(n))  # type: ignore[misc]  # bound early
    result |= medians(reading_round)
    result["versions"] = {
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "trio": trio.__version__,
        "msgspec": msgspec.__version__,
        "cryptography": cryptography.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
