"""Routing, decided: what passes a model over, what ranks those that remain, who takes over."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.route_plan import ModelChoice, RoutePlan
from palyra.core.model.routing import (
    FAILS_OVER,
    ModelRequirements,
    ProviderHealth,
    Route,
    RouteCandidate,
    RouteTable,
    find_obstacles,
    lacking,
    next_route,
    plan_route,
)
from tests.rows import every_row

OWN = "own/model"
ILL = ProviderHealth(provider="p", breaker="open", admits=False)


def prospect(model: str, standing: ProviderHealth | None = None, **facts: Any) -> RouteCandidate:
    """A candidate model with the given facts."""
    usd_micros = facts.pop("usd_micros", None)
    provider = model.partition("/")[0]
    return RouteCandidate(
        model=model,
        standing=standing or ProviderHealth(provider=provider),
        route=Route(model=model, **facts) if facts else None,
        usd_micros=usd_micros,
    )


def plan(
    *others: RouteCandidate,
    own: RouteCandidate | None = None,
    choice: ModelChoice = "default",
    mode: Any = "enforced",
    **demand: Any,
) -> RoutePlan:
    """The plan of a run for these."""
    prospects = [own or prospect(OWN), *others]
    return plan_route(mode, choice, OWN, ModelRequirements(**demand), prospects)


def codes(found: RoutePlan, model: str) -> list[str]:
    """Why that candidate was passed over."""
    reasons = next(each.reasons for each in found.candidates if each.model == model)
    return [reason.code for reason in reasons]


@every_row(
    ("facts", "demand", "code"),
    [
        ({"vision": False}, {"needs": ("vision",)}, "no_vision"),
        ({"json": False}, {"needs": ("json",)}, "no_json"),
        ({"tools": False}, {"needs": ("tools",)}, "no_tools"),
        ({"window": 1_000}, {"input_tokens": 1_001}, "window"),
        ({"tier": 1, "usd_micros": 11}, {"budget_usd_micros": 10}, "over_budget"),
        ({"tier": 1}, {"budget_usd_micros": 10}, "unpriced"),
    ],
)
def test_a_model_without_a_needed_capability_is_excluded(
    facts: dict[str, Any], demand: dict[str, Any], code: str
) -> None:
    """A model that lacks a needed capability is excluded, and the plan names the capability."""
    found = plan(
        prospect("b/able", vision=True, usd_micros=9), own=prospect(OWN, **facts), **demand
    )
    assert ("b/able", "b/able", [code]) == (found.model, found.uses, codes(found, OWN))
    assert [False, True] == [each.is_eligible for each in found.candidates]


@every_row(
    ("facts", "demand"),
    [
        ({"vision": True}, {"needs": ("vision", "json", "tools")}),
        ({"window": 1_000}, {"input_tokens": 1_000}),
        ({"window": 0, "tier": 1}, {"input_tokens": 10**9}),
        ({"tier": 1, "usd_micros": 10}, {"budget_usd_micros": 10}),
    ],
)
def test_a_model_that_can_is_not(facts: dict[str, Any], demand: dict[str, Any]) -> None:
    """The same just inside the bound is no obstacle."""
    assert () == find_obstacles(prospect(OWN, **facts), ModelRequirements(**demand))


def test_a_model_without_an_entry_counts_as_capable() -> None:
    """A model without an entry in models.routes is not excluded."""
    assert () == lacking(None, ("vision", "json", "tools"))
    assert ("vision",) == lacking(Route(model="m"), ("vision", "json", "tools"))


def test_an_unavailable_provider_and_a_missing_model_are_excluded() -> None:
    """Neither is chosen, whatever its rank."""
    gone = RouteCandidate(model="c/gone", standing=ProviderHealth(provider="c"), is_there=False)
    found = plan(gone, prospect("b/well", tier=1), own=prospect(OWN, ILL))
    assert "b/well" == found.uses
    assert (["left_alone"], ["missing"]) == (codes(found, OWN), codes(found, "c/gone"))


@every_row(
    ("better", "worse", "demand", "code"),
    [
        ({"tier": 3}, {"tier": 2}, {"input_tokens": 40_000, "has_code": True}, "tier"),
        ({"tier": 2, "usd_micros": 5}, {"tier": 2, "usd_micros": 6}, {}, "price"),
        ({"tier": 1}, {"tier": 3}, {}, "tier_excess"),
        ({"tier": 2}, {"tier": 2}, {}, "order"),
    ],
)
def test_the_rank(
    better: dict[str, Any], worse: dict[str, Any], demand: dict[str, Any], code: str
) -> None:
    """The first criterion that differs decides, and both reasons name it."""
    two = [prospect("a/better", **better), prospect("b/worse", **worse)]
    ill = prospect(OWN, ILL)
    found = plan(*(two if code == "order" else reversed(two)), own=ill, **demand)
    assert "a/better" == found.model
    assert (code, [code]) == (found.reasons[0].code, codes(found, "b/worse"))


def test_only_a_foreground_run_avoids_a_busy_model() -> None:
    """A foreground run prefers a free model to a cheap one; a background run does not."""
    busy = ProviderHealth(provider="a", under_way=4, parallel=4)
    cheap, free = prospect("a/x", busy, tier=2, usd_micros=1), prospect("b/y", usd_micros=9)
    ill = prospect(OWN, ILL)
    assert "b/y" == plan(cheap, free, own=ill).model
    assert "a/x" == plan(cheap, free, own=ill, is_background=True).model


def test_prices_count_only_if_all_have_one() -> None:
    """A model without a price is not taken for a cheap one."""
    found = plan(prospect("a/x", tier=2, usd_micros=5), prospect("b/y"), own=prospect(OWN, ILL))
    assert ("a/x", "order") == (found.model, found.reasons[0].code)


@every_row(
    ("demand", "complexity"),
    [
        ({}, "simple"),
        ({"tools": 10}, "simple"),
        ({"tools": 10, "has_code": True}, "ordinary"),
        ({"input_tokens": 4_000, "has_pictures": True}, "ordinary"),
        ({"input_tokens": 32_000}, "ordinary"),
        ({"input_tokens": 32_000, "has_code": True}, "demanding"),
    ],
)
def test_complexity_is_a_sum_of_signs(demand: dict[str, Any], complexity: str) -> None:
    """As the head of the module says."""
    assert complexity == ModelRequirements(**demand).complexity


@every_row(("mode", "uses"), [("suggest", OWN), ("dry_run", OWN), ("enforced", "a/x")])
def test_only_enforced_switches(mode: str, uses: str) -> None:
    """The other two choose alike, keep the run's own, and say so."""
    found = plan(prospect("a/x", tier=1), own=prospect(OWN, vision=True, tier=3), mode=mode)
    assert ("a/x", uses, mode) == (found.model, found.uses, found.mode)
    assert mode in [reason.code for reason in found.reasons]
    assert OWN in found.reasons[-1].text


def test_a_named_model_wins() -> None:
    """Pinned it is kept though it is worse or cannot; preferred while it can."""
    better = prospect("a/x", tier=1)
    for choice, own, uses, code in (
        ("pinned", prospect(OWN, tier=3), OWN, "pinned"),
        ("pinned", prospect(OWN, ILL), OWN, "pinned"),
        ("preferred", prospect(OWN, tier=3), OWN, "preferred"),
        ("preferred", prospect(OWN, ILL), "a/x", "only_eligible"),
    ):
        found = plan(better, own=own, choice=choice)  # type: ignore[arg-type]  # one of them
        assert (uses, code) == (found.uses, found.reasons[0].code)


def test_without_anybody_the_run_keeps_its_own() -> None:
    """And the plan says why each other was not it."""
    found = plan(prospect("a/x", json=False), own=prospect(OWN, json=False), needs=("json",))
    assert (OWN, "none_eligible") == (found.uses, found.reasons[0].code)
    assert (["no_json"], ["no_json"]) == (codes(found, OWN), codes(found, "a/x"))


PROSPECTS = st.lists(
    st.builds(
        lambda name, tier, vision, admits, price, busy: prospect(
            f"p{name}/m",
            ProviderHealth(provider=f"p{name}", admits=admits, waiting=busy),
            tier=tier,
            vision=vision,
            usd_micros=price,
        ),
        st.integers(0, 9),
        st.integers(1, 3),
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(0, 9),
        st.integers(0, 1),
    ),
    max_size=6,
    unique_by=lambda each: each.model,
)


@given(
    others=PROSPECTS,
    choice=st.sampled_from(["pinned", "preferred", "default"]),
    needs_vision=st.booleans(),
    is_background=st.booleans(),
)
def test_every_plan_can_be_read(
    *, others: list[RouteCandidate], choice: ModelChoice, needs_vision: bool, is_background: bool
) -> None:
    """The chosen one can answer unless it is the run's own; every other has a reason against it."""
    needs: tuple[Any, ...] = ("vision",) if needs_vision else ()
    found = plan(*others, choice=choice, needs=needs, is_background=is_background)
    eligible = {each.model for each in found.candidates if each.is_eligible}
    assert found.model in eligible | {OWN}
    assert found.reasons
    assert all(each.reasons for each in found.candidates if each.model != found.model)
    assert choice != "pinned" or found.uses == OWN
    if choice == "default" and eligible:
        assert found.model in eligible


# --- who takes over ------------------------------------------------------------------------------

TABLE = RouteTable(
    routes=(Route(model=OWN, failover=("x/special",)), Route(model="r/two")),
    failover=("f/one",),
)


@every_row(
    ("choice", "mode", "expected"),
    [
        ("default", "suggest", ("x/special", "f/one", OWN)),
        ("preferred", "enforced", ("x/special", "f/one", OWN, "r/two")),
        ("pinned", "enforced", ("x/special", OWN)),
    ],
)
def test_alternatives(choice: ModelChoice, mode: Any, expected: tuple[str, ...]) -> None:
    """Its own first, then everybody's, then enforced routes; a pinned model has only its own."""
    table = RouteTable(mode=mode, routes=TABLE.routes, failover=TABLE.failover)
    assert expected == table.alternatives(OWN, OWN, choice)


def test_without_failover_no_model_takes_over() -> None:
    """Without a configured failover no model is chosen, not even the run's own."""
    assert () == RouteTable().alternatives(OWN, OWN, "default")
    assert () == TABLE.alternatives("r/two", "r/two", "pinned")


def test_each_takes_over_once_and_only_if_it_can() -> None:
    """Ill ones, those that lack something and those that were left in this turn are passed over."""
    prospects = [prospect("a/ill", ILL), prospect("b/blind", tier=1), prospect("c/left"),
                 prospect("d/next", vision=True)]  # fmt: skip
    found = next_route(
        prospects,
        ModelRequirements(needs=("vision",)),
        tried=("c/left",),
        left=ProviderHealth(provider="own"),
        leaving="transient",
    )
    assert found is not None
    assert "d/next" == found.model
    tried = ("c/left", "d/next")
    left = ProviderHealth(provider="own")
    demand = ModelRequirements(needs=("vision",))
    assert next_route(prospects, demand, tried=tried, left=left, leaving="transient") is None


@every_row(("leaving", "model"), [("quota", "b/y"), ("auth", "b/y"), ("timeout", "a/x")])
def test_a_key_without_credit_is_not_tried_with_another_model(leaving: Any, model: str) -> None:
    """A failure of the key excludes all models of the provider."""
    found = next_route(
        [prospect("a/x"), prospect("b/y")],
        ModelRequirements(),
        tried=(),
        left=ProviderHealth(provider="a"),
        leaving=leaving,
    )
    assert found is not None
    assert model == found.model


def test_a_refusal_is_not_sent_to_another_model() -> None:
    """Refused content and invalid requests do not fail over."""
    refused = {"content_policy", "invalid_request", "malformed", "context_overflow"}
    assert not refused & FAILS_OVER
