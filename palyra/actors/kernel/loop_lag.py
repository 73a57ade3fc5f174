"""How late the event loop wakes what is due: the one number that tells whether something holds it.

Owns: the lags of the last minute.  Read by: the metrics page.  Never: acts on what it sees.
Restart: permanent; it begins with an empty minute.
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
        """How late the last wake was; 0 before the first."""
        return self._lags_s[-1] if self._lags_s else 0.0

    @property
    def worst_s(self) -> float:
        """The latest wake of the last minute."""
        return max(self._lags_s, default=0.0)

    async def measure(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Sample ten times a second, for ever.  Cancellation: nothing is lost."""
        self._lags_s.clear()
        task_status.started()
        while True:
            due_s, lost_s = trio.current_time() + PERIOD_S, lost_time_s()
            await trio.sleep_until(due_s)
            late_s = trio.current_time() - due_s
            self._lags_s.append(late_s + lost_time_s() - lost_s)

    def child_spec(self) -> ChildSpec:
        """Permanent, without a mailbox."""
        return ChildSpec("loop_lag", self.measure)
