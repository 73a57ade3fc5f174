"""Restart arithmetic: who is restarted, together with whom, and when to give up.

Pure: the supervisors in `actors` bring the clock and do what is decided here.
Semantics: Erlang/OTP `supervisor`.
"""

from dataclasses import dataclass, replace
from typing import Literal

from palyra.errors import InvariantBroken

Restart = Literal["permanent", "transient", "temporary"]
Strategy = Literal["one_for_one", "rest_for_one"]
# How an incarnation ended: by itself, by an exception, on request, or not even on request.
Outcome = Literal["returned", "crashed", "stopped", "stuck"]


def wants_restart(restart: Restart, outcome: Outcome) -> bool:
    """Whether an exit nobody asked for brings the child back."""
    return restart == "permanent" or (restart == "transient" and outcome == "crashed")


def plan_restart(strategy: Strategy, failed: int, count: int) -> range:
    """Positions to stop (from the right) and start again (from the left), of `count` children."""
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
    """The window with one more restart; None when that exceeds the intensity: escalate."""
    recent = [at_s for at_s in window.restarts_s if now_s - at_s <= window.period_s]
    if len(recent) >= window.intensity:
        return None
    return replace(window, restarts_s=(*recent, now_s))
