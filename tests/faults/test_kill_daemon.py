"""A few kills on every change, many on demand."""

import pytest

from tests.faults.crash_points import POINTS
from tests.faults.kill_daemon import kill_many

pytestmark = [pytest.mark.real]


@pytest.mark.slow
def test_promises_hold_over_kills() -> None:
    """All promises of a busy daemon hold over repeated kills."""
    found = kill_many(4, seed=1)
    assert [] == found["problems"], found
    assert found["recoveries"] > 0
    assert found["runs"] > 30


def test_promises_hold_at_crash_points() -> None:
    """All promises hold where the daemon dies between two of its effects."""
    found = kill_many(4, seed=3, points=list(POINTS))
    assert [] == found["problems"], found
    assert any(name.startswith("at: ") and "nowhere" not in name for name in found), found


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_promises_hold_a_hundred_times_at_each_point(point: str) -> None:
    """A hundred deaths at one place."""
    found = kill_many(100, seed=4, points=[point])
    assert [] == found["problems"], found


@pytest.mark.slow
def test_promises_hold_over_hundreds_of_kills() -> None:
    """The same for a home that has seen hundreds of kills."""
    found = kill_many(300, seed=2)
    assert [] == found["problems"], found
    assert found["write_unknown"] > 0
    assert found["seen_and_undone"] > 0
