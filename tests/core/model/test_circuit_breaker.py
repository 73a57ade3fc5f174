"""The circuit breaker as a state machine."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.circuit_breaker import (
    OPEN_MS,
    THRESHOLD,
    UNHEALTHY,
    CircuitBreaker,
    abandon_call,
    begin_call,
    end_call,
)
from palyra.core.model.messages import FAILURE_CLASSES, FailureClass
from tests.rows import every_row

TRANSIENT: FailureClass = "transient"
BUSY: FailureClass = "rate_limited"
ENOUGH = (TRANSIENT,) * THRESHOLD


def after(*failures: FailureClass | None, now_ms: int = 0) -> CircuitBreaker:
    """A breaker after these calls, all at one time."""
    breaker = CircuitBreaker()
    for failure in failures:
        breaker = end_call(begin_call(breaker, now_ms), failure, now_ms)
    return breaker


def test_it_opens_after_three_failures_in_a_row() -> None:
    """Two are bad luck, and a success in between forgives."""
    assert "closed" == after("transient", "timeout").state(0)
    assert "closed" == after("transient", "timeout", None, "transient").state(0)
    assert "open" == after("transient", "timeout", "unavailable").state(0)


def test_half_open_admits_one() -> None:
    """After the pause one call may try; its outcome decides for all."""
    opened = after(*ENOUGH)
    assert not opened.admits(OPEN_MS - 1)
    assert opened.admits(OPEN_MS)
    probing = begin_call(opened, OPEN_MS)
    assert not probing.admits(OPEN_MS)
    assert end_call(probing, None, OPEN_MS) == CircuitBreaker()
    again = end_call(probing, "timeout", OPEN_MS)
    assert (False, True) == (again.admits(2 * OPEN_MS - 1), again.admits(2 * OPEN_MS))
    assert abandon_call(probing).admits(OPEN_MS)


def test_a_clock_that_is_set_back_does_not_extend_the_pause() -> None:
    """After the clock is set back, the next probe comes early, not late."""
    opened = after(*ENOUGH, now_ms=365 * 86_400_000)
    assert opened.admits(0)
    assert not opened.admits(365 * 86_400_000)


def test_a_provider_that_is_busy_is_alive() -> None:
    """However often it says "slow down": that is no failure, and forgives none."""
    assert "closed" == after(*[BUSY] * 10).state(0)
    assert "open" == after("transient", "rate_limited", "timeout", "transient").state(0)


@every_row("failure", sorted(set(FAILURE_CLASSES) - UNHEALTHY))
def test_the_callers_own_mistakes_do_not_count(failure: FailureClass) -> None:
    """However many there are; a probe that was refused for one lets the next one try."""
    assert "closed" == after(*[failure] * 10).state(0)
    probing = begin_call(after(*ENOUGH), OPEN_MS)
    assert end_call(probing, failure, OPEN_MS).admits(OPEN_MS)


@given(st.lists(st.tuples(st.sampled_from([None, *FAILURE_CLASSES]), st.integers(0, OPEN_MS))))
def test_it_never_stays_shut(steps: list[tuple[FailureClass | None, int]]) -> None:
    """Whatever happens, one pause later a call is admitted."""
    breaker, now_ms = CircuitBreaker(), 0
    for failure, wait_ms in steps:
        now_ms += wait_ms
        if breaker.admits(now_ms):
            breaker = end_call(begin_call(breaker, now_ms), failure, now_ms)
        assert breaker.admits(now_ms + OPEN_MS)
