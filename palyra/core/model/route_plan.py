"""What is written down about the choice of a model: the plan of a run, and why each other was not it.

A plan holds codes for programs and the daemon's words for people; nothing in it is anybody's text.
"""

from typing import Literal

import msgspec

from palyra.core.model.messages import FailureClass

Mode = Literal["suggest", "dry_run", "enforced"]
Capability = Literal["vision", "json", "tools"]
# How a run came by its own model: a client named it, its agent (or the run that it goes on from)
# names it, or it is the daemon's default.
ModelChoice = Literal["pinned", "preferred", "default"]
Complexity = Literal["simple", "ordinary", "demanding"]
# Why a run leaves its model in the middle: the class of the failure, or it is not there any more.
Leaving = FailureClass | Literal["gone"]


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why, for programs and for people."""

    code: str
    text: str


class Estimate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the first turn is expected to take."""

    input_tokens: int
    output_tokens: int
    usd_micros: int | None = None  # None: the model has no price


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A model that was looked at; the reasons are why it was passed over."""

    model: str
    provider: str
    is_eligible: bool  # it could answer; something else was better, or it was chosen
    usd_micros: int | None = None
    reasons: tuple[Reason, ...] = ()


class RoutePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which model a run should have, and which one it has."""

    mode: Mode
    model: str  # what the plan chooses
    provider: str
    uses: str  # what answers: `model` when the mode is enforced, else the run's own
    reasons: tuple[Reason, ...]
    needs: tuple[Capability, ...]
    complexity: Complexity
    estimate: Estimate
    budget_usd_micros: int | None  # of the run
    candidates: tuple[Candidate, ...]


class RouteChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Another model in the middle of a run."""

    turn: int
    from_model: str = msgspec.field(name="from")
    model: str
    provider: str
    reason: Leaving
    text: str  # the same for people
