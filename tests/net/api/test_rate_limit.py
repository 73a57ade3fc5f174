"""Rates: so many a second, a burst after a pause, and how long to wait."""

import pytest

from palyra.net.api.rate_limit import ConnectionLimits, TokenBucket


def take(bucket: TokenBucket, now_s: float, times: int) -> int:
    """The number of attempts that succeed at one moment."""
    return sum(bucket.take(now_s) for _ in range(times))


def test_burst_then_rate() -> None:
    """At first the burst passes, then what the rate allows in the time gone by."""
    bucket = TokenBucket(per_s=10, burst=5, now_s=0.0)
    assert [5, 0, 1, 3] == [take(bucket, now_s, 9) for now_s in (0.0, 0.0, 0.1, 0.4)]


def test_a_pause_saves_no_more_than_the_burst() -> None:
    """However long nothing was taken, the burst is all there is."""
    bucket = TokenBucket(per_s=10, burst=5, now_s=0.0)
    assert 5 == take(bucket, 1_000.0, 99)


def test_refusal_costs_nothing() -> None:
    """An attempt for more than there is leaves what there is."""
    bucket = TokenBucket(per_s=10, burst=5, now_s=0.0)
    assert [False, True] == [bucket.take(0.0, 6), bucket.take(0.0, 5)]


@pytest.mark.parametrize(("taken", "wait_ms"), [(5, 100), (4, 1)])
def test_wait_is_until_the_next_one(taken: int, wait_ms: int) -> None:
    """The wait is in milliseconds and never zero."""
    bucket = TokenBucket(per_s=10, burst=5, now_s=0.0)
    take(bucket, 0.0, taken)
    assert wait_ms == bucket.wait_ms


def test_announced_limits_are_enforced() -> None:
    """The limits in hello are those of the connection."""
    limits = ConnectionLimits(max_inflight=3, requests_per_s=7)
    assert (3, 7) == (limits.public.max_inflight, limits.public.requests_per_s)
