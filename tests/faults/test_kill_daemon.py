"""A few kills on every change, many on demand."""

import pytest

from tests.faults.kill_daemon import kill_many

pytestmark = [pytest.mark.real]


def test_promises_hold_over_kills() -> None:
    """What a daemon at work has promised holds however often it is killed."""
    found = kill_many(6, seed=1)
    assert [] == found["problems"], found
    assert found["recoveries"] > 0
    assert found["runs"] > 30


@pytest.mark.slow
def test_promises_hold_over_hundreds_of_kills() -> None:
    """The same for a home that has seen hundreds of kills."""
    found = kill_many(300, seed=2)
    assert [] == found["problems"], found
    assert found["write_unknown"] > 0
    assert found["seen_and_undone"] > 0
