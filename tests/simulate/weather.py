"""The severity of a seed's faults: which kinds occur, and how often."""

from random import Random

from tests.simulate.rules import Files
from tests.simulate.trace import Trace

# Fault -> the highest probability with which it strikes at one occasion.
WORST: dict[str, float] = {
    "commit slow": 0.3,
    "commit refused": 0.03,
    "journal crash before commit": 0.01,
    "journal crash after commit": 0.01,
    "rules change before a start": 0.3,
    "open refused": 0.3,
    "read slow": 0.2,
    "model stalls": 0.05,
    "model fails": 0.1,
    "model talks nonsense": 0.1,
    "model crashes": 0.02,
    "tool fails": 0.1,
    "tool hangs": 0.05,
    "tool crashes": 0.02,
    "message slow": 0.3,
    "connection torn": 0.01,
    "connection silent": 0.003,
    "reader stalls": 0.01,
    "model hangs": 0.1,
}
LIKELY = 0.5  # that a seed has a fault of a kind at all


class Weather:
    """The faults of one seed."""

    def __init__(self, rng: Random, trace: Trace) -> None:
        self._rng = rng
        self._trace = trace
        self._rates = {
            fault: worst * rng.random() for fault, worst in WORST.items() if rng.random() < LIKELY
        }
        self.files = Files()
        self.is_calm = False
        self.disk_full_until_s = -1.0

    def strikes(self, fault: str) -> bool:
        """Return True if the fault occurs now; occurrences are counted."""
        rate = self._rates.get(fault)
        if self.is_calm or rate is None or self._rng.random() >= rate:
            return False
        self._trace.counts[fault] += 1
        self._trace.add("weather", fault)
        return True

    def draw_s(self, shortest_s: float, longest_s: float) -> float:
        """Return a duration in seconds; short ones are as likely as long ones at any scale."""
        return float(shortest_s * (longest_s / shortest_s) ** self._rng.random())

    def calm(self) -> None:
        """No more faults."""
        self.is_calm = True
        self.disk_full_until_s = -1.0
