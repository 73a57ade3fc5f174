"""Recorded choice of a model: a run's route plan, with the reasons against the other candidates.

A plan holds codes for programs and fixed texts of the daemon for people; it never contains user
text.
"""

from typing import Literal

import msgspec

from palyra.core.model.messages import FailureClass

Mode = Literal["suggest", "dry_run", "enforced"]
Capability = Literal["vision", "json", "tools"]
# Source of a run's own model: the client named it, its agent (or the run that it continues) names
# it, or it is the daemon's default.
ModelChoice = Literal["pinned", "preferred", "default"]
Complexity = Literal["simple", "ordinary", "demanding"]
# Reason for changing the model during a run: a failure class, or the model no longer exists.
Leaving = FailureClass | Literal["gone"]


class Reason(msgspec.Struct, frozen=True, gc=False):
    """A reason, as a code for programs and a text for people."""

    code: str
    text: str


class Estimate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Expected usage of the first turn."""

    input_tokens: int
    output_tokens: int
    usd_micros: int | None = None  # None: the model has no price


class ConsideredModel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A model that was considered, with the reasons against it."""

    model: str
    provider: str
    is_eligible: bool  # it can answer; if not chosen, the reasons say why
    usd_micros: int | None = None
    reasons: tuple[Reason, ...] = ()


class RoutePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Planned and actual model of a run."""

    mode: Mode
    model: str  # the planned model
    provider: str
    uses: str  # the actual model: `model` if the mode is enforced, else the run's own
    reasons: tuple[Reason, ...]
    needs: tuple[Capability, ...]
    complexity: Complexity
    estimate: Estimate
    budget_usd_micros: int | None  # of the run
    candidates: tuple[ConsideredModel, ...]


class RouteChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Change of the model during a run."""

    turn: int
    from_model: str = msgspec.field(name="from")
    model: str
    provider: str
    reason: Leaving
    text: str  # the reason for people
