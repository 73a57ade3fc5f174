"""Event loop lag: the delay between a deadline and the wake-up of its task.

Owns: the lags of the last minute.  Read by: the metrics page.  Never: acts on them.
Restart: permanent; starts with no samples.
"""

from collections import deque

import trio

from palyra.actors.kernel.awake_clock import lost_time_s
from palyra.actors.kernel.child import ChildSpec

PERIOD_S = 0.1
WINDOW = 600  # samples: one minute


class LoopLag:
    """The lags of the last minute, in seconds."""

    def __init__(self) -> None:
        self._lags_s: deque[float] = deque(maxlen=WINDOW)

    @property
    def last_s(self) -> float:
        """The last lag; 0 before the first sample."""
        return self._lags_s[-1] if self._lags_s else 0.0

    @property
    def worst_s(self) -> float:
        """The largest lag of the last minute."""
        return max(self._lags_s, default=0.0)

    async def measure(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Sample ten times a second until cancelled."""
        self._lags_s.clear()
        task_status.started()
        while True:
            due_s, lost_s = trio.current_time() + PERIOD_S, lost_time_s()
            await trio.sleep_until(due_s)
            late_s = trio.current_time() - due_s
            self._lags_s.append(late_s + lost_time_s() - lost_s)

    def child_spec(self) -> ChildSpec:
        """Return the spec: permanent, without a mailbox."""
        return ChildSpec("loop_lag", self.measure)
