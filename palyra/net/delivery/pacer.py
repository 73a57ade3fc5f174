"""The pacer: limits how often connections write, so that many readers do not fill the loop.

A write costs about 0.1 ms whatever its size, an event in it a hundredth of that.  Frames therefore
gather before they are written: each connection leaves a gap between its writes, and all connections
share slots.  The first frame after a pause is due at once; replies never wait.
Pure: time is an argument.  Measured by bench/stream.py (docs/decisions/0003-hub.md).
"""

GAP_S = 0.001  # between two writes of one connection
SLOT_S = 0.0004  # of the loop for each write: about 2,500 per second
LONGEST_S = (
    0.03  # an idle stream is notified of a commit within 50 ms, however many connections write
)


class Pacer:
    """Write slots of all connections of a daemon."""

    __slots__ = ("_free_s", "_gap_s", "_slot_s")

    def __init__(self, *, gap_s: float = GAP_S, slot_s: float = SLOT_S) -> None:
        self._gap_s = gap_s
        self._slot_s = slot_s
        self._free_s = 0.0  # when the next slot begins

    def reserve(self, now_s: float, last_s: float) -> float:
        """Reserve a slot; return the time at which a connection that wrote at `last_s` may write."""
        begin_s = max(now_s, self._free_s)
        self._free_s = min(begin_s + self._slot_s, now_s + LONGEST_S)
        return max(begin_s, last_s + self._gap_s)
