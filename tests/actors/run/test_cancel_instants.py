"""Some hundred instants on every change, ten thousand on demand."""

import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock

from tests.actors.run.cancels import cancel_many


async def test_a_cancel_may_come_at_any_instant(autojump_clock: MockClock) -> None:
    """One terminal event, nothing late, nothing open, nothing left, whatever the run was doing."""
    with capture_logs():
        found = await cancel_many(300, seed=1)
    assert [] == found["problems"], found
    assert found["ended cancelled"] > 150
    phases = {"when turn", "when started", "when accepted", "when ended", "falls"}
    assert phases <= set(found), found


@pytest.mark.slow
async def test_ten_thousand_instants(autojump_clock: MockClock) -> None:
    """The same ten thousand times."""
    with capture_logs():
        found = await cancel_many(10_000, seed=2)
    assert [] == found["problems"], found
    assert {"when asking", "when allowed+started", "falls"} <= set(found), found
