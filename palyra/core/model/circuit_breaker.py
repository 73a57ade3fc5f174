"""A circuit breaker: a provider that keeps failing is left alone for a while.

Pure: time comes in.  Closed until `threshold` failures in a row; then open for `open_ms`; then half
open: one call may try, and its outcome closes or opens again.  A refusal that is the caller's own
fault says nothing of the provider's health and counts as neither; nor does "slow down": who says it
is alive, and mostly means one model or one key.
"""

from typing import Literal

import msgspec

from palyra.core.model.messages import FailureClass

THRESHOLD = 3
OPEN_MS = 30_000
# What tells of an ill provider.
UNHEALTHY: frozenset[FailureClass] = frozenset({"transient", "timeout", "unavailable", "malformed"})

State = Literal["closed", "open", "half_open"]


class CircuitBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's breaker; every step gives the next one."""

    failures: int = 0  # in a row
    open_until_ms: int | None = None  # None: closed
    is_probing: bool = False  # the one call of the half-open state is under way

    def state(self, now_ms: int) -> State:
        """What it is now; with a clock that was set back it is not open for longer than ever."""
        if self.open_until_ms is None:
            return "closed"
        return "open" if 0 < self.open_until_ms - now_ms <= OPEN_MS else "half_open"

    def admits(self, now_ms: int) -> bool:
        """Whether a call may be made."""
        state = self.state(now_ms)
        return state == "closed" or (state == "half_open" and not self.is_probing)


def begin_call(breaker: CircuitBreaker, now_ms: int) -> CircuitBreaker:
    """A call was admitted and begins."""
    if breaker.state(now_ms) == "half_open":
        return msgspec.structs.replace(breaker, is_probing=True)
    return breaker


def end_call(breaker: CircuitBreaker, failure: FailureClass | None, now_ms: int) -> CircuitBreaker:
    """A call ended, with a failure or without."""
    if failure is None:
        return CircuitBreaker()
    if failure not in UNHEALTHY:
        return msgspec.structs.replace(breaker, is_probing=False)
    failures = breaker.failures + 1
    is_opening = failures >= THRESHOLD or breaker.is_probing
    until_ms = now_ms + OPEN_MS if is_opening else breaker.open_until_ms
    return CircuitBreaker(failures=failures, open_until_ms=until_ms)


def abandon_call(breaker: CircuitBreaker) -> CircuitBreaker:
    """A call was cancelled: it says nothing, and somebody else may probe."""
    return msgspec.structs.replace(breaker, is_probing=False)
