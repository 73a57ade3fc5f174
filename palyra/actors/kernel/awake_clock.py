"""The daemon's clock: it stops while the process is suspended.

A suspended machine, a paused container and SIGSTOP leave a gap in which no code ran.  On a plain
clock every deadline within the gap has passed when the process continues: healthy clients are closed
as slow consumers, pings count as unanswered, providers as timed out, although none of them could
answer.  On this clock a gap takes no time, for all deadlines alike.

The clock detects a gap between two readings, or from a wake-up that is later than requested.
Lateness up to `GAP_S` is ordinary load and counts as time.  A deadline at a time of day (an expiring
token) must be compared with the wall clock.
"""

from collections.abc import Callable
from time import perf_counter

import trio

GAP_S = 0.5  # far above the lag of a loaded loop, far below every deadline of a peer


class AwakeClock(trio.abc.Clock):
    """Monotonic seconds in which the process ran or slept as planned."""

    def __init__(self, raw: Callable[[], float] = perf_counter) -> None:
        self._raw = raw
        self.lost_s = 0.0  # in gaps, in total
        self._expected_s = raw()  # no reading before this can be late

    def start_clock(self) -> None:
        """Start; the time since the clock was created is no gap."""
        self._expected_s = self._raw()

    def current_time(self) -> float:
        """Return seconds without the gaps."""
        now_s = self._raw()
        late_s = now_s - self._expected_s
        if late_s > GAP_S:
            self.lost_s += late_s
        self._expected_s = now_s
        return now_s - self.lost_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return how long the loop may sleep; a later wake-up is a gap."""
        sleep_s = max(0.0, deadline - self.current_time())
        self._expected_s += sleep_s
        return sleep_s


def lost_time_s() -> float:
    """Return the seconds that the running clock left out; 0 on any other clock."""
    clock = trio.lowlevel.current_clock()
    return clock.lost_s if isinstance(clock, AwakeClock) else 0.0
