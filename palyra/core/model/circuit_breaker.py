"""Circuit breaker: after repeated failures, calls of a model are refused for a while.

Pure: the caller passes the time.  The states are:

- closed: calls are admitted, until `THRESHOLD` failures in a row;
- open: calls are refused for `OPEN_MS`;
- half open: one call is admitted as a probe; its result closes or reopens the breaker.

Only failure classes in `UNHEALTHY` count.  A refusal caused by the request says nothing of the
provider's health and counts neither as success nor as failure.  Nor does rate limiting: a provider
that answers it is alive, and it mostly concerns one model or one key.
"""

from typing import Literal

import msgspec

from palyra.core.model.messages import FailureClass

THRESHOLD = 3
OPEN_MS = 30_000
# Failure classes that indicate an unhealthy provider.
UNHEALTHY: frozenset[FailureClass] = frozenset({"transient", "timeout", "unavailable", "malformed"})

State = Literal["closed", "open", "half_open"]


class CircuitBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """Breaker of one model; immutable, each transition returns a new one."""

    failures: int = 0  # in a row
    open_until_ms: int | None = None  # None: closed
    is_probing: bool = False  # the probe of the half-open state is running

    def state(self, now_ms: int) -> State:
        """Return the state; more than `OPEN_MS` left (the clock was set back) means half open."""
        if self.open_until_ms is None:
            return "closed"
        return "open" if 0 < self.open_until_ms - now_ms <= OPEN_MS else "half_open"

    def admits(self, now_ms: int) -> bool:
        """True if a call may start now."""
        state = self.state(now_ms)
        return state == "closed" or (state == "half_open" and not self.is_probing)


def begin_call(breaker: CircuitBreaker, now_ms: int) -> CircuitBreaker:
    """Return the breaker after the start of an admitted call."""
    if breaker.state(now_ms) == "half_open":
        return msgspec.structs.replace(breaker, is_probing=True)
    return breaker


def end_call(breaker: CircuitBreaker, failure: FailureClass | None, now_ms: int) -> CircuitBreaker:
    """Return the breaker after the end of a call; `failure` is None for a success."""
    if failure is None:
        return CircuitBreaker()
    if failure not in UNHEALTHY:
        return msgspec.structs.replace(breaker, is_probing=False)
    failures = breaker.failures + 1
    is_opening = failures >= THRESHOLD or breaker.is_probing
    until_ms = now_ms + OPEN_MS if is_opening else breaker.open_until_ms
    return CircuitBreaker(failures=failures, open_until_ms=until_ms)


def trip(breaker: CircuitBreaker, now_ms: int) -> CircuitBreaker:
    """Return the breaker, open from now on for `OPEN_MS`."""
    failures = max(breaker.failures, THRESHOLD)
    return CircuitBreaker(failures=failures, open_until_ms=now_ms + OPEN_MS)


def abandon_call(breaker: CircuitBreaker) -> CircuitBreaker:
    """Return the breaker after a cancelled call: it counts for nothing and frees the probe."""
    return msgspec.structs.replace(breaker, is_probing=False)
