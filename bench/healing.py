"""Cost of a sweep of the watchdog with 10 000 live runs: total, and longest hold of the event loop.

python bench/healing.py [RUNS]
"""

import sys
import time
from statistics import median
from types import SimpleNamespace
from typing import Any

import trio

from palyra.actors.watchdog import PIECE, Watchdog
from palyra.services.healing import HealingModes

RUNS, SWEEPS = 10_000, 20


def live_run(number: int) -> SimpleNamespace:
    """A run in its model call, as the watchdog sees it."""
    task = SimpleNamespace(id="turn", waits_for="model", progress=number)
    state = SimpleNamespace(
        run_id=f"run_{number}", asked_ms=None, next_seq=5, recoveries=0, asked_provider=""
    )
    return SimpleNamespace(run=state, lifecycle="live", tasks={"turn": task}, is_recovering=False)


async def measure(runs: int) -> tuple[float, float]:
    """Return the median of a sweep and of its longest piece, in milliseconds."""
    anything: Any = SimpleNamespace
    registry = anything(runs={f"run_{each}": live_run(each) for each in range(runs)})
    dog = Watchdog(
        incidents=anything(open_count=0),
        modes=HealingModes(),
        registry=registry,
        approvals=anything(),
        journal=anything(has_room=True),
        remedies={},
    )
    await dog.find_runs()
    totals, pieces = [], []
    for _ in range(SWEEPS):
        started = time.perf_counter()
        await dog.find_runs()
        totals.append((time.perf_counter() - started) * 1_000)
        some = [registry.runs[f"run_{each}"] for each in range(min(PIECE, runs))]
        started = time.perf_counter()
        for run in some:
            dog.look_at(run, trio.current_time())
        pieces.append((time.perf_counter() - started) * 1_000)
    return median(totals), median(pieces)


def main() -> None:
    """Print one line."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    total_ms, piece_ms = trio.run(measure, runs)
    print(f"{runs} runs: sweep {total_ms:.2f} ms, one piece of {PIECE} {piece_ms:.2f} ms")


if __name__ == "__main__":
    main()
