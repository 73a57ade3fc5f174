"""Cost of a sweep of the watchdog with 10 000 live runs, and of one piece of it.

A piece holds the event loop; between two pieces other tasks run.

python bench/healing.py [RUNS]
"""

import sys
import time
from dataclasses import dataclass, field
from statistics import median
from types import SimpleNamespace
from typing import Any

import trio

from palyra.actors.watchdog import BATCH_RUNS, BATCH_SILENT, Watchdog, find_silent
from palyra.services.upkeep.healing import HealingModes

RUNS, SWEEPS = 10_000, 20
WINDOW_S = 120.0


@dataclass(slots=True)
class LiveRun:
    """A run in its model call, as the watchdog sees it."""

    run_id: str
    run: Any = field(
        default_factory=lambda: SimpleNamespace(
            clock=SimpleNamespace(asked_ms=None), asked=SimpleNamespace(provider="")
        )
    )
    lifecycle: str = "live"
    tasks: dict[str, Any] = field(
        default_factory=lambda: {"turn": SimpleNamespace(id="turn", waits_for="model")}
    )
    reservation: None = None
    silent_since_s: float | None = None


async def measure(count: int) -> dict[str, float]:
    """Return medians in milliseconds, by what was measured."""
    anything: Any = SimpleNamespace
    runs = [LiveRun(f"run_{each}") for each in range(count)]
    dog = Watchdog(
        incidents=anything(open_count=0, is_reported=lambda _key: True),
        modes=HealingModes(),
        registry=anything(runs={run.run_id: run for run in runs}),
        approvals=anything(),
        journal=anything(has_room=True),
        remedies={},
    )
    found: dict[str, list[float]] = {}
    for _ in range(SWEEPS):
        now_s = trio.current_time()
        for name, since_s in (
            ("runs that progressed", None),
            ("silent runs", now_s),
            ("stuck runs", now_s - WINDOW_S),
        ):
            for run in runs:
                run.silent_since_s = since_s
            started = time.perf_counter()
            await dog.find_runs()
            took_ms = (time.perf_counter() - started) * 1_000
            found.setdefault(f"sweep of {count} {name}", []).append(took_ms)
        some: Any = runs[:BATCH_RUNS]
        started = time.perf_counter()
        find_silent(some, now_s, WINDOW_S)
        piece_ms = (time.perf_counter() - started) * 1_000
        found.setdefault(f"one batch of {BATCH_RUNS} runs", []).append(piece_ms)
        stuck: Any = runs[:BATCH_SILENT]
        started = time.perf_counter()
        for run in stuck:
            dog.check_run(run, now_s)
        stuck_ms = (time.perf_counter() - started) * 1_000
        found.setdefault(f"one batch of {BATCH_SILENT} stuck runs", []).append(stuck_ms)
    return {name: median(times) for name, times in found.items()}


def main() -> None:
    """Print a line for each measure."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    for name, median_ms in trio.run(measure, count).items():
        print(f"{name}: {median_ms:.2f} ms")


if __name__ == "__main__":
    main()
