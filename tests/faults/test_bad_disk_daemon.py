"""Some failing operations on every change, every one on demand."""

import pytest

from tests.faults.bad_disk_daemon import play_all

pytestmark = [pytest.mark.real]


@pytest.mark.slow
def test_a_session_survives_a_failing_operation() -> None:
    """A start that fails, a refusal, or nothing: never a loss, never a run without an end."""
    found = play_all(every=40, seed=1)
    assert [] == found["problems"], found
    assert found["sessions"] >= 10
    assert found["done"] > 10


@pytest.mark.slow
def test_a_session_survives_every_failing_operation() -> None:
    """The same for each operation there is."""
    found = play_all(every=1)
    assert [] == found["problems"], found
    assert found["refused"] > 0
    assert found["not started"] > 0
