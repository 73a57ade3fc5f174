"""Router of models: choose a run's model from the configuration and the health of providers.

Owns: nothing; reads models, provider health and prices at each call.
Never: calls a model, or switches a run's model by itself; `core.run` records its result on the tape.

A run is routed twice.  `plan` ranks the models when the run begins.  `change` names a replacement
when the model in use has failed, is refused by its circuit breaker, or was removed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from palyra.core.access import Caller
from palyra.core.context.layers import ContextLimits
from palyra.core.learning.procedures import MODEL
from palyra.core.model.route_plan import Capability, Leaving, RouteChange, RoutePlan
from palyra.core.model.routing import (
    MAX_ROUTES,
    ModelRequirements,
    ProviderHealth,
    Route,
    RouteCandidate,
    RouteTable,
    lacking,
    next_route,
    plan_route,
)
from palyra.core.model.views import ModelList, ModelView
from palyra.core.ports import LanguageModel
from palyra.core.run.state import Run
from palyra.errors import InvalidParams

Look = Callable[[str], ProviderHealth]  # health of a model, or of a provider
Price = Callable[[str, int, int], int | None]  # model, input and output tokens to micro-dollars
Rates = Callable[[str], tuple[int, int] | None]  # input and output, micro-dollars per million
Measure = Callable[[Run], ModelRequirements]
_SAID = ("vision", "json", "tools", "window")  # properties of a model from its route


class ModelRouter:
    """Chooses the model of a run."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        models: Mapping[str, LanguageModel],
        table: RouteTable | None = None,
        *,
        look: Look | None = None,
        known: Mapping[str, Route] = MappingProxyType({}),
        price: Price = lambda _model, _input, _output: None,
        rates: Rates = lambda _model: None,
        output_tokens: int = 0,
        providers: Sequence[str] = (),
        default: str = "",
        has_clock: bool = False,
        describes_pictures: bool = False,
    ) -> None:
        """`output_tokens` is the expected length of an answer; `default` is the daemon's own model.

        `known` has the published facts of models that no route describes.
        `has_clock` ends each prompt with the time; `describes_pictures` shows a model without vision
        a line for each picture instead of refusing them.

        Raises InvalidParams for a table that names an unknown model.
        """
        self.output_tokens = output_tokens
        self._models = models
        self._look = look
        self._price, self._rates = price, rates
        self._providers = providers
        self.describes_pictures = describes_pictures
        self._plain = ContextLimits(has_clock=has_clock)  # without routes nothing is known
        self.configure(table or RouteTable(), known, default)

    def configure(self, table: RouteTable, known: Mapping[str, Route], default: str) -> None:
        """Replace the routes, the published facts and the daemon's own model.

        A run keeps its model; its next change to another one follows the new routes.  Raises
        InvalidParams for a table that names an unknown model, and changes nothing then.
        """
        _check(table, self._models)
        self.table, self._known, self.default = table, known, default
        windows = [route.window for route in (*table.routes, *known.values())]
        self.least_window = min(filter(None, windows), default=0)  # tokens; 0 if none is known

    # --- at acceptance

    def check(self, model: str, needs: tuple[Capability, ...]) -> None:
        """Raise InvalidParams if the model's route lacks a needed capability."""
        lacks = lacking(self._facts(model), needs)
        if lacks:
            words = " and ".join(lacks)
            raise InvalidParams(
                f"the model {model!r} lacks {words} (models.routes), which this run needs: name "
                "another model, or omit it",
                field="model",
            )

    # --- in a run

    def limits(self, run: Run) -> ContextLimits:
        """Return the limits of the next prompt: windows of the model and of those that may take over."""
        table = self.table
        if not table.routes and not self._known:
            return self._plain
        brief = run.accepted.brief
        asked = None if brief is None else brief.sampling.max_output_tokens
        routes = [self._facts(name) for name in self._takers(run)]
        lacks_vision = self._lacks_vision(run.model)
        return ContextLimits(
            windows=tuple(0 if route is None else route.window for route in routes),
            reserved=asked or self.output_tokens,
            is_reserved_exactly=asked is not None,
            has_clock=self._plain.has_clock,
            shows_pictures=not (self.describes_pictures and lacks_vision),
            shows_returned=not lacks_vision,
        )

    def _lacks_vision(self, model: str) -> bool:
        """True if the model is known to see no pictures."""
        return bool(lacking(self._facts(model), ("vision",)))

    def _facts(self, model: str) -> Route | None:
        """Return the configured or else the published properties of the model, or None."""
        return self.table.find(model) or self._known.get(model)

    def _takers(self, run: Run) -> Iterator[str]:
        """Yield the model in use and its possible replacements, by the configuration alone."""
        yield run.model
        for name in self.table.alternatives(
            run.accepted.model, run.model, run.accepted.model_choice
        ):
            if name != run.model and self.is_there(name):
                yield name

    def provider(self, model: str) -> str:
        """Return the name of the model's provider."""
        try:  # without a call of Python: each turn asks
            return self._models[model].provider
        except KeyError:
            return model.partition("/")[0]

    def window(self, model: str) -> int:
        """Return the window of the model in tokens; 0 if it is not known."""
        route = self._facts(model)
        return 0 if route is None else route.window

    def is_there(self, model: str) -> bool:
        """True if a provider has the model."""
        if model == MODEL:
            return True
        try:
            self._models[model]
        except KeyError:
            return False
        return True

    def find_cheapest(self) -> str:
        """Return the model of a provider that costs least for work in the background; "" for none.

        Of the default model and those with a route that give JSON: the lowest price, if it is known,
        then the lowest tier, then the configured order.
        """
        names = dict.fromkeys((self.default, *(route.model for route in self.table.routes)))
        able = [
            name
            for name in names
            if self.provider(name) in self._providers and not lacking(self._facts(name), ("json",))
        ]
        return min(able, key=self._cost_of, default="")

    def _cost_of(self, model: str) -> tuple[bool, int, int]:
        rates, route = self._rates(model), self._facts(model) or Route(model=model)
        return rates is None, sum(rates or ()), route.tier

    def plan(self, run: Run, measure: Measure) -> RoutePlan | None:
        """Return the route plan of a run that begins; None if no routes are configured."""
        table = self.table
        if not table.routes:
            return None
        own, demand = run.accepted.model, measure(run)
        prospects = [self._prospect(name, demand) for name in table.candidates(own)]
        return plan_route(table.mode, run.accepted.model_choice, own, demand, prospects)

    def change(
        self, run: Run, leaving: Leaving, measure: Measure, *, may_retry: bool
    ) -> RouteChange | None:
        """Return the change to a replacement of the model in use; None to keep the model.

        A model that may be retried is replaced only if its breaker refuses calls.
        """
        if leaving == "gone" and self.is_there(run.model):
            return None
        left = self.standing(run.model)
        accepted = run.accepted
        names = self.table.alternatives(accepted.model, run.model, accepted.model_choice)
        if not names or (may_retry and left.admits):
            return None
        demand = measure(run)
        prospects = [self._prospect(name, demand) for name in names]
        if leaving == "gone":  # no model to keep: an unhealthy provider is better than none
            prospects = [_well(each) for each in prospects]
        tried = (*run.left, run.model)
        found = next_route(prospects, demand, tried=tried, left=left, leaving=leaving)
        if found is None:
            return None
        return RouteChange(
            turn=run.turn,
            from_model=run.model,
            model=found.model,
            provider=found.standing.provider,
            reason=leaving,
            text=_explain(run, leaving, may_retry=may_retry),
        )

    def standing(self, model: str) -> ProviderHealth:
        """Return the current health of the model."""
        if self._look is None:
            return ProviderHealth(provider=self.provider(model))
        return self._look(model)

    def _prospect(self, model: str, demand: ModelRequirements) -> RouteCandidate:
        return RouteCandidate(
            model=model,
            standing=self.standing(model),
            route=self._facts(model),
            is_there=self.is_there(model),
            usd_micros=self._price(model, demand.input_tokens, demand.output_tokens),
        )

    # --- for clients

    def list_all(self, caller: Caller) -> ModelList:
        """Return every configured or known model, the default one first.

        Numbers of running and waiting calls are included only for callers that see all principals.
        """
        caller.require("system:read")
        named = [route.model for route in self.table.routes]
        names = dict.fromkeys([self.default, *named, *self.table.failover, *self._models])
        sees_all = caller.principal_filter is None
        return ModelList(
            models=[self._view(name, sees_all=sees_all) for name in names if name],
            routing=self.table.mode,
            failover=self.table.failover,
        )

    def _view(self, model: str, *, sees_all: bool) -> ModelView:
        rates = self._rates(model) or (None, None)
        standing, route, facts = self.standing(model), self.table.find(model), self._facts(model)
        said = {} if facts is None else {key: getattr(facts, key) for key in _SAID}
        return ModelView(
            name=model,
            provider=standing.provider,
            api=standing.api,
            is_default=model == self.default,
            tier=None if route is None else route.tier,
            is_published=route is None and facts is not None,
            breaker=standing.breaker,
            opens_in_ms=standing.opens_in_ms,
            parallel=standing.parallel,
            under_way=standing.under_way if sees_all else None,
            waiting=standing.waiting if sees_all else None,
            input_usd_micros=rates[0],
            output_usd_micros=rates[1],
            **said,
        )

    def standings(self) -> list[ProviderHealth]:
        """Return the current health of each configured provider."""
        return [] if self._look is None else [self._look(name) for name in self._providers]


def needs_of(*, has_pictures: bool, json_mode: bool, has_tools: bool) -> tuple[Capability, ...]:
    """Return the capabilities that a request needs."""
    wanted: dict[Capability, bool] = {
        "vision": has_pictures,
        "json": json_mode,
        "tools": has_tools,
    }
    return tuple(capability for capability, is_wanted in wanted.items() if is_wanted)


def _check(table: RouteTable, models: Mapping[str, LanguageModel]) -> None:
    names = [route.model for route in table.routes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None or len(names) > MAX_ROUTES:
        what = f"{twice!r} is there twice" if twice else f"at most {MAX_ROUTES} are taken"
        raise InvalidParams(f"models.routes: {what}", field="models.routes")
    alternatives = [*table.failover, *(name for route in table.routes for name in route.failover)]
    for field, given in (("models.routes", names), ("models.failover", alternatives)):
        for name in given:
            if name not in models:
                raise InvalidParams(
                    f"{field}: no provider has {name!r}; a model is called PROVIDER/NAME, and its "
                    "provider is in models.providers",
                    field=field,
                )


def _well(prospect: RouteCandidate) -> RouteCandidate:
    standing = msgspec.structs.replace(prospect.standing, admits=True)
    return msgspec.structs.replace(prospect, standing=standing)


def _explain(run: Run, leaving: Leaving, *, may_retry: bool) -> str:
    if leaving == "gone":
        return f"{run.model} is not there any more"
    if may_retry:
        return f"{run.model} kept failing and is left alone; last: {leaving}"
    attempts = run.attempt - run.spent_attempts
    return f"{run.model} failed {attempts} time(s) in this turn; last: {leaving}"
