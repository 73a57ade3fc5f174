"""The pacer: when a connection may write news, so that many readers do not eat the loop.

A write costs about 0.1 ms whatever its size, an event in it a hundredth of that.  So news gathers
for a moment before it is written: each connection leaves a gap between its writes, and all of
them together share slots.  The first news after a pause is due at once, replies never wait.
Pure: time comes in.  Measured by bench/stream.py (docs/decisions/0003-hub.md).
"""

GAP_S = 0.001  # between two writes of one connection
SLOT_S = 0.0004  # of the loop for each write: about 2 500 a second
LONGEST_S = 0.03  # an idle stream's commit is told within 50 ms, whoever else is written to


class Pacer:
    """The slots of all connections of a daemon."""

    __slots__ = ("_free_s", "_gap_s", "_slot_s")

    def __init__(self, *, gap_s: float = GAP_S, slot_s: float = SLOT_S) -> None:
        self._gap_s = gap_s
        self._slot_s = slot_s
        self._free_s = 0.0  # when the next slot begins

    def reserve(self, now_s: float, last_s: float) -> float:
        """When a connection that wrote at `last_s` may write again; takes a slot."""
        begin_s = max(now_s, self._free_s)
        self._free_s = min(begin_s + self._slot_s, now_s + LONGEST_S)
        return max(begin_s, last_s + self._gap_s)
