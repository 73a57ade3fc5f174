"""Routing: choose the model of a run, and its replacement after a failure.  Pure.

The caller gathers the candidates and their health.  A candidate is excluded when it cannot answer:
it does not exist, lacks a capability that the run needs (vision, JSON, tools, a window that holds
the prompt), its breaker is open, or the run's budget is too small for its price.  The
remaining candidates are ranked by, in this order:

1. the tier: sufficient for the request, else the largest available;
2. whether the call would have to wait for a lease (after 3. for background runs);
3. the price of the estimate, if all remaining candidates have one;
4. the smallest sufficient tier;
5. the order of the list.

A model named by a client is kept whatever its rank.  A model named by the agent is kept while it is
eligible.  Complexity counts these signs: a prompt of 4 000 tokens, another for 32 000, ten tools or
more, code in the message, images.  Two signs make an ordinary request, three a demanding one.
"""

from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.model.circuit_breaker import State
from palyra.core.model.messages import FailureClass
from palyra.core.model.route_plan import (
    Capability,
    Complexity,
    ConsideredModel,
    Estimate,
    Leaving,
    Mode,
    ModelChoice,
    Reason,
    RoutePlan,
)

MAX_ROUTES = 32  # every plan lists all of them
LONG_TOKENS, VERY_LONG_TOKENS, MANY_TOOLS = 4_000, 32_000, 10
TIERS: dict[Complexity, int] = {"simple": 1, "ordinary": 2, "demanding": 3}
# Failures after which another model is tried.  A refusal of the content or of the request would
# be the same everywhere, and no model should be searched for that accepts the content.
FAILS_OVER: frozenset[FailureClass] = frozenset(
    {"transient", "timeout", "unavailable", "rate_limited", "quota", "auth", "unknown_model"}
)
OF_THE_KEY: frozenset[str] = frozenset({"quota", "auth"})  # shared by the provider's models


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one model."""

    model: str
    vision: bool = False
    json: bool = True
    tools: bool = True
    window: int = 0  # tokens; 0: unknown
    tier: int = 2
    failover: tuple[str, ...] = ()  # replacements, also for a model named by a client


class RouteTable(msgspec.Struct, frozen=True, kw_only=True):
    """Configured routes, in order of preference."""

    mode: Mode = "suggest"
    routes: tuple[Route, ...] = ()
    failover: tuple[str, ...] = ()

    def find(self, model: str) -> Route | None:
        """Return the configuration of the model, or None."""
        return next((route for route in self.routes if route.model == model), None)

    def candidates(self, own: str) -> tuple[str, ...]:
        """Return the models a run may use: its own model first, unless the list contains it."""
        names = tuple(route.model for route in self.routes)
        return names if own in names else (own, *names)

    def alternatives(self, own: str, now: str, choice: ModelChoice) -> tuple[str, ...]:
        """Return the replacements for the model `now` of a run whose own model is `own`, in order.

        A model named by a client is replaced only by those that its route names.
        """
        named = [
            name
            for model in (now, own)
            if (route := self.find(model)) is not None
            for name in route.failover
        ]
        if choice != "pinned":
            named += self.failover
            named += [route.model for route in self.routes if self.mode == "enforced"]
        return tuple(dict.fromkeys([*named, *([own] if named else [])]))


class ProviderHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Load of a provider and the breaker of one of its models, at one instant."""

    provider: str
    api: str = ""
    breaker: State = "closed"
    admits: bool = True  # the breaker admits a call now
    opens_in_ms: int = 0  # remaining time for which the breaker refuses calls
    under_way: int = 0
    waiting: int = 0
    parallel: int = 0  # limit of concurrent calls; 0: none

    @property
    def is_busy(self) -> bool:
        """True if another call would have to wait."""
        return self.waiting > 0 or (self.parallel > 0 and self.under_way >= self.parallel)


class RouteCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A model with its configuration, health and price at one instant."""

    model: str
    standing: ProviderHealth
    route: Route | None = None  # None: not configured, so no limits are known
    is_there: bool = True
    usd_micros: int | None = None  # price of the estimate

    @property
    def tier(self) -> int:
        """Capability tier of the model, from 1 to 3."""
        return Route(model="").tier if self.route is None else self.route.tier


class ModelRequirements(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of a run for its model."""

    needs: tuple[Capability, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    tools: int = 0
    has_code: bool = False
    has_pictures: bool = False
    is_background: bool = False
    budget_usd_micros: int | None = None

    @property
    def complexity(self) -> Complexity:
        """Complexity of the request; see the module's docstring."""
        signs = (
            self.input_tokens >= LONG_TOKENS,
            self.input_tokens >= VERY_LONG_TOKENS,
            self.tools >= MANY_TOOLS,
            self.has_code,
            self.has_pictures,
        )
        marks = sum(signs)
        if marks < 2:  # noqa: PLR2004 - see the top
            return "simple"
        return "ordinary" if marks == 2 else "demanding"  # noqa: PLR2004 - likewise


# --- reasons against a model --------------------------------------------------------------------


def lacking(route: Route | None, needs: Iterable[Capability]) -> tuple[Capability, ...]:
    """Return the needed capabilities that the model is known to lack."""
    if route is None:
        return ()
    return tuple(need for need in needs if not getattr(route, need))


def find_obstacles(prospect: RouteCandidate, demand: ModelRequirements) -> tuple[Reason, ...]:
    """Return the reasons why the model cannot answer; empty if it can."""
    if not prospect.is_there:
        return (Reason("missing", "no provider has it"),)
    found = [
        Reason(f"no_{need}", f"it lacks {need}") for need in lacking(prospect.route, demand.needs)
    ]
    window = 0 if prospect.route is None else prospect.route.window
    if 0 < window < demand.input_tokens:
        found.append(
            Reason(
                "window", f"its window of {window} tokens is too small for {demand.input_tokens}"
            )
        )
    standing = prospect.standing
    if not standing.admits:
        found.append(Reason("left_alone", f"{prospect.model} kept failing and is left alone"))
    budget = demand.budget_usd_micros
    if budget is not None and prospect.usd_micros is None:
        found.append(Reason("unpriced", "the run has a budget of money, and it has no price"))
    elif budget is not None and prospect.usd_micros is not None and prospect.usd_micros > budget:
        found.append(
            Reason("over_budget", f"{prospect.usd_micros} micro-dollars are more than {budget}")
        )
    return tuple(found)


# --- the plan of a run ---------------------------------------------------------------------------

_Rank = tuple[tuple[str, int], ...]
_BETTER = {
    "tier": "its tier suits what is asked",
    "busy": "it is free at once",
    "price": "it is the cheapest",
    "tier_excess": "its tier is no larger than needed",
    "order": "it comes first in the list",
}
_WORSE = {
    "tier": "its tier is too low for what is asked",
    "busy": "a call would have to wait",
    "price": "it is dearer",
    "tier_excess": "its tier is larger than needed",
    "order": "it comes later in the list",
}


def plan_route(
    mode: Mode,
    choice: ModelChoice,
    own: str,
    demand: ModelRequirements,
    prospects: Sequence[RouteCandidate],
) -> RoutePlan:
    """Plan the route of a run whose own model is `own`, which is one of the candidates."""
    obstacles = {each.model: find_obstacles(each, demand) for each in prospects}
    eligible = [each for each in prospects if not obstacles[each.model]]
    ranks = _rank(eligible, demand)
    chosen, reason = _choose(choice, own, ranks)
    passed = {**obstacles, **_outranked(chosen, reason, ranks)}
    by_name = {each.model: each for each in prospects}
    return RoutePlan(
        mode=mode,
        model=chosen,
        provider=by_name[chosen].standing.provider,
        uses=chosen if mode == "enforced" else own,
        reasons=(reason, *_said_of_mode(mode, chosen, own), *obstacles[chosen]),
        needs=demand.needs,
        complexity=demand.complexity,
        estimate=Estimate(
            input_tokens=demand.input_tokens,
            output_tokens=demand.output_tokens,
            usd_micros=by_name[chosen].usd_micros,
        ),
        budget_usd_micros=demand.budget_usd_micros,
        candidates=tuple(
            ConsideredModel(
                model=each.model,
                provider=each.standing.provider,
                is_eligible=not obstacles[each.model],
                usd_micros=each.usd_micros,
                reasons=passed.get(each.model, ()),
            )
            for each in prospects
        ),
    )


def _rank(eligible: Sequence[RouteCandidate], demand: ModelRequirements) -> dict[str, _Rank]:
    """Return the rank of each candidate: criteria in order of importance, less is better."""
    wanted = TIERS[demand.complexity]
    has_prices = all(each.usd_micros is not None for each in eligible)
    ranks: dict[str, _Rank] = {}
    for place, each in enumerate(eligible):
        busy = ("busy", int(each.standing.is_busy))
        price = ("price", (each.usd_micros or 0) if has_prices else 0)
        ranks[each.model] = (
            ("tier", max(0, wanted - each.tier)),
            *((price, busy) if demand.is_background else (busy, price)),
            ("tier_excess", max(0, each.tier - wanted)),
            ("order", place),
        )
    return ranks


def _choose(choice: ModelChoice, own: str, ranks: dict[str, _Rank]) -> tuple[str, Reason]:
    """Return the chosen model and the reason for it."""
    if choice == "pinned":
        return own, Reason("pinned", "the client named it")
    if choice == "preferred" and own in ranks:
        return own, Reason("preferred", "the run's agent names it, and it can answer")
    if not ranks:
        return own, Reason("none_eligible", "no model can answer; the run keeps its own")
    best, *others = sorted(ranks, key=lambda model: _values(ranks[model]))
    if not others:
        return best, Reason("only_eligible", "no other model can answer")
    code = _first_difference(ranks[best], ranks[others[0]])
    return best, Reason(code, _BETTER[code])


def _outranked(chosen: str, reason: Reason, ranks: dict[str, _Rank]) -> dict[str, tuple[Reason]]:
    """Return the reason against each eligible model that was not chosen."""
    best = ranks.get(chosen)
    found: dict[str, tuple[Reason]] = {}
    for model, rank in ranks.items():
        if model == chosen:
            continue
        if best is None or reason.code in {"pinned", "preferred"}:
            found[model] = (Reason("own_model", f"{chosen} is the run's own"),)
        else:
            code = _first_difference(best, rank)
            found[model] = (Reason(code, _WORSE[code]),)
    return found


def _values(rank: _Rank) -> tuple[int, ...]:
    return tuple(value for _, value in rank)


def _first_difference(better: _Rank, worse: _Rank) -> str:
    return next(name for (name, less), (_, more) in zip(better, worse, strict=True) if less != more)


def _said_of_mode(mode: Mode, chosen: str, own: str) -> tuple[Reason, ...]:
    """Explain the effect of the mode on a choice that differs from the run's own model."""
    if chosen == own:
        return ()
    said = {
        "suggest": f"only suggested: the run keeps {own}",
        "dry_run": f"a dry run: enforced, {chosen} would answer; the run keeps {own}",
        "enforced": f"the run leaves {own}",
    }
    return (Reason(mode, said[mode]),)


# --- replacement during a run --------------------------------------------------------------------


def next_route(
    prospects: Iterable[RouteCandidate],
    demand: ModelRequirements,
    *,
    tried: Iterable[str],
    left: ProviderHealth,
    leaving: Leaving,
) -> RouteCandidate | None:
    """Return the first eligible replacement for a model of the provider `left`, or None.

    Each model is tried once per turn.
    """
    tried = frozenset(tried)
    for each in prospects:
        shares_key = leaving in OF_THE_KEY and each.standing.provider == left.provider
        if each.model not in tried and not shares_key and not find_obstacles(each, demand):
            return each
    return None
