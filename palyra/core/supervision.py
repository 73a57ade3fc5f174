"""Restart decisions: which children restart together, and when to escalate.

Pure: the supervisors in `actors` supply the clock and carry out the decisions.
Semantics: Erlang/OTP `supervisor`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from palyra.errors import InvariantBroken

Restart = Literal["permanent", "transient", "temporary"]
Strategy = Literal["one_for_one", "rest_for_one"]
# End of an incarnation: by itself, by an exception, on request, or not even after a cancel.
Outcome = Literal["returned", "crashed", "stopped", "stuck"]


def wants_restart(restart: Restart, outcome: Outcome) -> bool:
    """True if the child restarts after an exit that was not requested."""
    return restart == "permanent" or (restart == "transient" and outcome == "crashed")


def plan_restart(strategy: Strategy, failed: int, count: int) -> range:
    """Return the positions to stop (from the right) and restart (from the left)."""
    return range(failed, count if strategy == "rest_for_one" else failed + 1)


@dataclass(frozen=True, slots=True)
class RestartWindow:
    """The restarts of the last `period_s`; one exactly `period_s` old still counts."""

    intensity: int
    period_s: float
    restarts_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.intensity < 0 or not self.period_s > 0:
            limits = f"intensity {self.intensity}, period_s {self.period_s}"
            raise InvariantBroken(f"{limits}: intensity must be >= 0 and period_s > 0")


def charge_restart(window: RestartWindow, now_s: float) -> RestartWindow | None:
    """Return the window with one more restart, None if that exceeds the intensity: escalate."""
    recent = [at_s for at_s in window.restarts_s if now_s - at_s <= window.period_s]
    if len(recent) >= window.intensity:
        return None
    return replace(window, restarts_s=(*recent, now_s))
