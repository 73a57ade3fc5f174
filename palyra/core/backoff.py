"""Exponential backoff with full jitter.

Pure: randomness comes in as a function.  Full jitter spreads callers that failed together over the
whole interval; see "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from palyra.errors import InvariantBroken


@dataclass(frozen=True, slots=True)
class Backoff:
    """Upper bound of the waits: `base_s` after the first failure, times `factor` for each further."""

    base_s: float
    cap_s: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        if not (0 < self.base_s <= self.cap_s < math.inf and 1 < self.factor < math.inf):
            raise InvariantBroken(f"{self}: needs 0 < base_s <= cap_s and factor > 1, all finite")


def compute_ceiling_s(backoff: Backoff, failures: int) -> float:
    """Return the longest wait after this number of consecutive failures (>= 1)."""
    if failures < 1:
        raise InvariantBroken(f"backoff after {failures} failures: the first failure is 1")
    # Compared as logarithms: the power itself overflows after about a thousand failures.
    if (failures - 1) * math.log(backoff.factor) >= math.log(backoff.cap_s / backoff.base_s):
        return backoff.cap_s
    return min(backoff.cap_s, backoff.base_s * backoff.factor ** (failures - 1))


def compute_delay_s(backoff: Backoff, failures: int, rng: Callable[[], float]) -> float:
    """Return the wait before the next attempt, uniform below the ceiling; `rng` is in [0, 1)."""
    return rng() * compute_ceiling_s(backoff, failures)
