"""How fast this machine is right now: it swings, so each result carries the figure."""

import statistics
import time

ROUNDS = 5
ADDITIONS = 2_000_000


def calibrate() -> float:
    """Milliseconds for a fixed piece of pure Python, the median of some rounds."""
    took_ms = []
    for _ in range(ROUNDS):
        began, total = time.perf_counter(), 0
        for number in range(ADDITIONS):
            total += number
        took_ms.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(took_ms), 1)
