"""A few cuts on every change, all along a session on demand."""

import pytest

from tests.faults.cut_connection import cut_all

pytestmark = [pytest.mark.real]


def test_events_come_once_over_cuts() -> None:
    """Over cuts at any position, a client sees each event once and starts its run once."""
    found = cut_all(every=900, seed=1)
    assert [] == found["problems"], found
    assert found["sessions"] > 15
    assert found["connections"] > found["sessions"]


@pytest.mark.slow
def test_events_come_once_over_a_cut_at_every_few_bytes() -> None:
    """The same all along a session."""
    found = cut_all(every=5, seed=2)
    assert [] == found["problems"], found
