"""The daemon's clock: time in which the process did not run does not pass.

A suspended machine, a paused container and SIGSTOP leave a gap in which no code ran.  On a plain
clock every deadline that ends within the gap has passed when the process continues: healthy clients
are closed as slow consumers, pings count as unanswered, providers as timed out, although none of them
had a chance.  On this clock such a gap takes no time, for every deadline alike.

A gap is seen where the event loop meets it: between two readings of the clock, or in how much later
than asked it wakes.  Up to `GAP_S` of lateness is ordinary load and counts as time.  What has to end
at a time of day (an expiring token) must be compared with the wall clock when it wakes.
"""

from collections.abc import Callable
from time import perf_counter

import trio

GAP_S = 0.5  # far above the lag of a loaded loop, far below every deadline for a peer


class AwakeClock(trio.abc.Clock):
    """Monotonic seconds in which the process ran or slept as it meant to."""

    def __init__(self, raw: Callable[[], float] = perf_counter) -> None:
        self._raw = raw
        self.lost_s = 0.0  # in gaps, in total
        self._expected_s = raw()  # no reading before this can be late

    def start_clock(self) -> None:
        """Begin: what passed since the clock was made is no gap."""
        self._expected_s = self._raw()

    def current_time(self) -> float:
        """Seconds without the gaps."""
        now_s = self._raw()
        late_s = now_s - self._expected_s
        if late_s > GAP_S:
            self.lost_s += late_s
        self._expected_s = now_s
        return now_s - self.lost_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long the loop may sleep; it is expected back then."""
        sleep_s = max(0.0, deadline - self.current_time())
        self._expected_s += sleep_s
        return sleep_s


def lost_time_s() -> float:
    """What the running clock has lost in gaps; 0 on any other clock."""
    clock = trio.lowlevel.current_clock()
    return clock.lost_s if isinstance(clock, AwakeClock) else 0.0
