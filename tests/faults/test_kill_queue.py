"""A few kills on every change, five hundred on demand."""

import pytest

from tests.faults.kill_queue import kill_queues

pytestmark = [pytest.mark.real]


def test_tasks_and_firings_survive_kills() -> None:
    """No task is lost or done by two runs, and each instant has one task."""
    found = kill_queues(3, seed=1)
    assert [] == found["problems"], found
    assert found["tasks"] > 0


@pytest.mark.slow
def test_tasks_and_firings_survive_five_hundred_kills() -> None:
    """The same for a home that has seen hundreds of kills."""
    found = kill_queues(500, seed=2)
    assert [] == found["problems"], found
    assert found["tasks_expired"] > 0
    assert found["tasks_cancelled"] > 0
