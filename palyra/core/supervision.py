"""Restart decisions: which children restart together, after which pause, and when to give up.

Pure: the supervisors in `actors` supply clock and chance, and carry out the decisions.
Semantics: Erlang/OTP `supervisor`, with a pause before a restart.  The first restart of a period comes
at once, since most faults pass; each further one waits twice as long, at least half of its ceiling, so
that a hot loop cannot spend the intensity in a moment.

Supervisors of a fixed list of children count the restarts of all of them: they are parts of one
service, and when the intensity is spent the service is broken (escalation).  Children that are started
on demand are independent of one another, so each has a window of its own: one that spends it is set
aside, and its siblings live.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from palyra.core.backoff import Backoff, compute_ceiling_s
from palyra.errors import InvariantBroken

Restart = Literal["permanent", "transient", "temporary"]
Strategy = Literal["one_for_one", "rest_for_one"]
# End of an incarnation: by itself, by an exception, on request, or not even after a cancel.
Outcome = Literal["returned", "crashed", "stopped", "stuck"]


PERIOD_S = 60.0
INTENSITY = 6  # of a supervisor: pauses of at least 4 s together
CHILD_INTENSITY = 3  # of a child that is started on demand
PAUSE = Backoff(base_s=0.25, cap_s=8.0)


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


def pause_s(restarts: int, rng: Callable[[], float], backoff: Backoff = PAUSE) -> float:
    """Return the wait before the restart with this number in its period, from 1; `rng` is in [0, 1)."""
    return compute_ceiling_s(backoff, restarts - 1) * (1 + rng()) / 2 if restarts > 1 else 0.0


def charge_restart(window: RestartWindow, now_s: float) -> RestartWindow | None:
    """Return the window with one more restart, None if that exceeds the intensity."""
    recent = [at_s for at_s in window.restarts_s if now_s - at_s <= window.period_s]
    if len(recent) >= window.intensity:
        return None
    return replace(window, restarts_s=(*recent, now_s))
