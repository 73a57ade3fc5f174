"""The loop's lag: what holds the loop is seen, and forgotten after a minute."""

import pytest
import trio
from trio.testing import MockClock

from palyra.actors.kernel.loop_lag import PERIOD_S, WINDOW, LoopLag


async def test_a_held_loop_is_seen_and_forgotten(autojump_clock: MockClock) -> None:
    """A wake that comes late counts as the worst until a minute has passed."""
    lag = LoopLag()
    assert (0.0, 0.0) == (lag.last_s, lag.worst_s)
    async with trio.open_nursery() as nursery:
        await nursery.start(lag.measure)
        await trio.sleep(3.5 * PERIOD_S)
        assert pytest.approx(0.0, abs=1e-9) == lag.worst_s
        autojump_clock.jump(1.0)  # as if a step had taken a second
        await trio.sleep(PERIOD_S)
        assert 1.0 > lag.worst_s > 0.8
        await trio.sleep(WINDOW * PERIOD_S * 1.1)
        assert pytest.approx(0.0, abs=1e-9) == lag.worst_s
        nursery.cancel_scope.cancel()
