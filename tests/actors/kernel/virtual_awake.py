"""The daemon's clock in virtual time: sleeps end at once, gaps are made by hand."""

import math

from palyra.actors.kernel.awake_clock import AwakeClock


class VirtualAwakeClock(AwakeClock):
    """`now_s` is the raw clock: adding to it is time in which nothing ran.

    For tests whose tasks wait for each other and for time, and not for sockets or threads.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(lambda: self.now_s)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Let that time pass at once."""
        sleep_s = super().deadline_to_sleep_time(deadline)
        if sleep_s == math.inf:
            return sleep_s
        self.now_s += sleep_s + 1e-9  # no sleep ends before its deadline by rounding
        return 0.0
