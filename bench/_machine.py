"""Current speed of this machine, which varies, so each result includes it."""

import statistics
import time

ROUNDS = 5
ADDITIONS = 2_000_000


def calibrate() -> float:
    """Return the milliseconds of a fixed piece of pure Python, the median of several rounds."""
    took_ms = []
    for _ in range(ROUNDS):
        began, total = time.perf_counter(), 0
        for number in range(ADDITIONS):
            total += number
        took_ms.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(took_ms), 1)
