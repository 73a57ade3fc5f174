"""A few kills on every change, many on demand."""

import pytest

from tests.faults.kill_journal import kill_many

pytestmark = [pytest.mark.real]


def test_nothing_acknowledged_is_lost_in_a_kill() -> None:
    """Whenever the writer is killed, what it acknowledged is there, whole and in order."""
    counts = kill_many(14, seed=3)
    assert (14, 0, 0) == (counts["kills"], counts["lost"], counts["broken"])
    assert counts["unclean"] > 3
    assert counts["events"] > 100


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_hundreds_of_kills() -> None:
    """The same promise for a journal that grows old between kills."""
    counts = kill_many(400, seed=4)
    assert (0, 0) == (counts["lost"], counts["broken"])
