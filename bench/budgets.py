"""Cost of budgets for a model call: admission and settlement, as one JSON line.

Run: `python bench/budgets.py [--calls N]`.  One task, no journal.  The raw peer is the least that
the guarantee needs: `acquire` and `release` of a `trio.Semaphore`.  `ledger_us` is the time that the
ledger line of a call adds to a group commit of 128 on this disk.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import trio
from _machine import calibrate

from palyra.actors.hub import Hub
from palyra.actors.run.handle import RunHandle
from palyra.core.journal.changes import Change
from palyra.core.journal.records import BudgetRecord, BudgetScope, UsageRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ModelRequest
from palyra.core.run.state import begin
from palyra.core.tape import events as ev
from palyra.core.usage.prices import Price, Prices
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.services.usage.budgets import Budgets, Reservation
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal

ACCEPTED = ev.RunAccepted(principal="ann", session_id="ses_1", agent="default", model="scripted")
REQUEST = ModelRequest(
    run_id="run_1", turn=1, attempt=1, model="scripted", instructions="", messages=()
)
SCOPES: tuple[BudgetScope, ...] = ("global", "principal", "agent", "session", "run")
ROUNDS, BATCH = 7, 128
NOW_MS = 1_763_812_800_000


def line(number: int, at_ms: int = NOW_MS) -> UsageRecord:
    """Return the ledger line of a call with a thousand tokens."""
    return UsageRecord(
        run_id=f"run_{number}",
        turn=1,
        attempt=1,
        session_id="ses_1",
        principal="ann",
        agent="default",
        provider="scripted",
        model="scripted",
        outcome="completed",
        input_tokens=700,
        output_tokens=300,
        cost_usd_micros=1_000,
        at_ms=at_ms,
    )


def make_budgets(count: int) -> Budgets:
    """Build `count` budgets, of all scopes in turn, with limits that are never reached."""
    price = Price(model="scripted", input=1_000_000, output=1_000_000)
    configured = [
        BudgetRecord(
            budget_id=f"b{number}",
            scope=SCOPES[number % len(SCOPES)],
            metric="tokens" if number % 2 else "usd_micros",
            window="day",
            hard=10**15,
        )
        for number in range(count)
    ]
    return Budgets(
        Hub(encode_notification), lambda: NOW_MS, prices=Prices([price]), configured=configured
    )


async def time_call(count: int, calls: int) -> float:
    """Return the microseconds of an admission and its settlement; all `count` budgets apply."""
    budgets, run = make_budgets(count), RunHandle(begin("run_1", ACCEPTED, NOW_MS))
    settled, took_us = line(1), []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            run.reservation = Reservation("scripted", 700)
            await budgets.admit(run, run.reservation, REQUEST, 0)
            budgets.settle(run, settled)
        took_us.append((time.perf_counter() - began) / calls * 1e6)
    return statistics.median(took_us)


async def time_peer(calls: int) -> float:
    """Return the microseconds of `acquire` and `release` of a bare semaphore."""
    semaphore, took_us = trio.Semaphore(1), []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            await semaphore.acquire()
            semaphore.release()
        took_us.append((time.perf_counter() - began) / calls * 1e6)
    return statistics.median(took_us)


def time_ledger(directory: Path, batches: int) -> float:
    """Return the microseconds that a ledger line adds to a row of a group commit."""
    store = SqliteJournal(directory / "journal.sqlite3", KeyRing(bytes(32)), now_ms=lambda: NOW_MS)
    store.open()
    took_us: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * batches):
        with_line = bool(number % 2)
        changes = [_change(number * BATCH + each, with_line=with_line) for each in range(BATCH)]
        began = time.perf_counter()
        store.commit(changes)
        took_us[with_line].append((time.perf_counter() - began) / BATCH * 1e6)
    store.close()
    return statistics.median(took_us[True]) - statistics.median(took_us[False])


def _change(number: int, *, with_line: bool) -> Change:
    row = TapeRow(
        f"run_{number}", "ses_1", 0, NOW_MS, "turn.completed", "ann", redacted=False, data=b"{}"
    )
    return Change(rows=(row,), records=(line(number),) if with_line else ())


async def measure(calls: int) -> dict[str, Any]:
    """Return all figures."""
    peer_us = await time_peer(calls)
    none_us, five_us, fifty_us = [await time_call(count, calls) for count in (0, 5, 50)]
    with tempfile.TemporaryDirectory() as directory:
        ledger_us = time_ledger(Path(directory), 40)
    return {
        "bench": "budgets",
        "calibration_ms": calibrate(),
        "none_us": round(none_us, 2),
        "five_us": round(five_us, 1),
        "fifty_us": round(fifty_us, 1),
        "semaphore_us": round(peer_us, 2),
        "five_to_semaphore": round(five_us / peer_us, 1),
        "ledger_us": round(ledger_us, 1),
    }


def main() -> NoReturn:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    print(json.dumps(trio.run(measure, parser.parse_args().calls)))
    raise SystemExit


if __name__ == "__main__":
    main()
