"""Backoff: bounds, growth, jitter."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.backoff import Backoff, compute_ceiling_s, compute_delay_s
from palyra.errors import InvariantBroken
from tests.rows import every_row

SECONDS = st.floats(0.001, 1000.0)
FACTORS = st.floats(1.01, 10.0)
FAILURES = st.integers(1, 100_000)
BACKOFFS = st.tuples(SECONDS, SECONDS, FACTORS).map(
    lambda drawn: Backoff(min(drawn[:2]), max(drawn[:2]), drawn[2])
)


def test_ceiling_doubles_up_to_the_cap() -> None:
    """The longest wait starts at the base, doubles with each failure and ends at the cap."""
    backoff = Backoff(base_s=2.0, cap_s=30.0)
    assert [2.0, 4.0, 8.0, 16.0, 30.0, 30.0] == [compute_ceiling_s(backoff, n) for n in range(1, 7)]


@given(backoff=BACKOFFS, failures=FAILURES)
def test_ceiling_stays_between_base_and_cap(backoff: Backoff, failures: int) -> None:
    """No number of failures leads below the base, above the cap or to an overflow."""
    assert backoff.base_s <= compute_ceiling_s(backoff, failures) <= backoff.cap_s


@given(backoff=BACKOFFS, failures=FAILURES)
def test_ceiling_never_shrinks(backoff: Backoff, failures: int) -> None:
    """One failure more never shortens the longest wait."""
    assert compute_ceiling_s(backoff, failures) <= compute_ceiling_s(backoff, failures + 1)


@every_row(("chance", "expected_s"), [(0.0, 0.0), (0.25, 2.0), (0.75, 6.0)])
def test_delay_is_a_share_of_the_ceiling(chance: float, expected_s: float) -> None:
    """Full jitter: the delay is the drawn share of the ceiling, down to nothing."""
    assert expected_s == compute_delay_s(Backoff(1.0, 8.0), 4, lambda: chance)


def test_delays_fill_the_whole_interval() -> None:
    """With a real generator the delays spread evenly over the interval below the ceiling."""
    rng = random.Random(7).random
    delays_s = [compute_delay_s(Backoff(1.0, 8.0), 9, rng) for _ in range(1000)]
    quarters = [sum(low <= delay_s < low + 2.0 for delay_s in delays_s) for low in (0, 2, 4, 6)]
    assert 1000 == sum(quarters)
    assert all(200 < count < 300 for count in quarters)


@every_row(
    ("base_s", "cap_s", "factor"),
    [(0.0, 1.0, 2.0), (2.0, 1.0, 2.0), (1.0, float("inf"), 2.0), (1.0, 2.0, 1.0)],
)
def test_backoff_refuses_limits_without_a_meaning(
    base_s: float, cap_s: float, factor: float
) -> None:
    """No base, a cap below it, no cap, or no growth: a bug, and an error."""
    with pytest.raises(InvariantBroken, match="needs 0 < base_s"):
        Backoff(base_s, cap_s, factor)


def test_backoff_counts_failures_from_one() -> None:
    """Without a failure there is nothing to wait for, and asking is a bug."""
    with pytest.raises(InvariantBroken, match="after 0 failures"):
        compute_ceiling_s(Backoff(1.0, 2.0), 0)
