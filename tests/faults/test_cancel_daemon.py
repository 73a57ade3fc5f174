"""Some cancels on every change, hundreds on demand."""

import pytest

from tests.faults.cancel_daemon import cancel_many
from tests.tools.sandbox.jails import needs_bubblewrap

pytestmark = [pytest.mark.real, needs_bubblewrap]


def test_cancels_at_random_instants() -> None:
    """One end each, nothing late, nothing left in the daemon."""
    found = cancel_many(30, seed=1)
    assert [] == found["problems"], found
    assert found["ended cancelled"] > 7
    assert found["programs alive before"] > 1


@pytest.mark.slow
def test_hundreds_of_cancels() -> None:
    """The same five hundred times."""
    found = cancel_many(500, seed=2)
    assert [] == found["problems"], found
    assert found["ended cancelled"] > 70
    assert found["programs alive before"] > 50
