"""Wiring of models: the scripted one, the embedding model, and those of configured providers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import trio
from msgspec.structs import asdict

from palyra.actors.kernel.child import ChildSpec
from palyra.config.load import Config
from palyra.config.sections import ModelProvider, ModelRoute
from palyra.core.journal.records import Usage
from palyra.core.model.routing import ProviderHealth, Route, RouteTable
from palyra.core.ports import EmbeddingModel, IncidentReporter, LanguageModel, RerankModel
from palyra.errors import InvalidParams
from palyra.models.catalogue import ModelCatalogue, OpenProviders
from palyra.models.lexical_embeddings import NAME, EmbeddedEmbeddings
from palyra.models.scripted.model import Scripted
from palyra.models.scripted.scripts import parse_scripts
from palyra.models.table import known_at
from palyra.secrets.service import SecretService
from palyra.services.registry.model_router import Look, ModelRouter
from palyra.services.usage.budgets import Budgets
from palyra.wiring.host import Host, new_id


def scripted_model(config: Config) -> Scripted:
    """Build the model that needs no provider.  Raises InvalidParams for invalid scripts."""
    if not config.models.scripts:
        return Scripted(new_id)
    path = Path(config.models.scripts)
    try:
        return Scripted(new_id, parse_scripts(path.read_bytes()))
    except OSError as error:
        raise InvalidParams(f"models.scripts = {str(path)!r}: {error.strerror}") from None


def default_model(config: Config, models: Mapping[str, LanguageModel]) -> str:
    """Return the model of runs that name none.  Raises InvalidParams for an unknown model."""
    name = config.models.default
    if name not in models:
        raise InvalidParams(
            f"models.default = {name!r}: there is no such model, only {', '.join(sorted(models))}",
            field="models.default",
        )
    return name


EMBEDDED = "embedded"
MEMORY_EMBEDDERS = ("auto", "hashed", "minilm")  # those of this machine
# The hashed embedder, which both settings have, under the name of the other one and its full name.
ALIASES = {"hashed": EMBEDDED, NAME: EMBEDDED}
MEMORY_ALIASES = {EMBEDDED: "hashed", NAME: "hashed"}


def memory_embedder(config: Config) -> str:
    """Return the configured embedder of the memory by its short name."""
    wanted = config.memory.embedder
    return MEMORY_ALIASES.get(wanted, wanted)


class ConfiguredModels:
    """The built-in models and those of the configured providers, which may change at any time."""

    def __init__(
        self,
        fixed: Mapping[str, LanguageModel],
        open_providers: Callable[[Sequence[ModelProvider]], OpenProviders],
    ) -> None:
        self.catalogue = ModelCatalogue(fixed)
        self.names: list[str] = []  # of the providers
        self.providers: OpenProviders | None = None  # None: none was configured yet
        self._open_providers = open_providers

    def configure(self, given: Sequence[ModelProvider]) -> None:
        """Replace the providers.  Blocks.  Raises InvalidParams, and changes nothing then."""
        if self.providers is not None:
            self.providers.configure(given)
        elif given:
            self.providers = self._open_providers(given)
        if self.providers is not None:
            self.providers.fill(self.catalogue)
        self.names[:] = [each.name for each in given]

    def look(self, name: str) -> ProviderHealth:
        """See `Providers.look`."""
        if self.providers is None:
            return ProviderHealth(provider=name.partition("/")[0])
        return self.providers.look(name)

    def trip(self, model: str) -> None:
        """See `Providers.trip`."""
        if self.providers is not None:
            self.providers.trip(model)

    async def keep_open(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Allow kept connections while this runs.  Cancellation: the connections are closed."""
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            if self.providers is not None:
                await self.providers.close()  # noqa: ASYNC102 - shielded inside


class Modelset(NamedTuple):
    """Models by name, the embedding model, and the services that models need."""

    models: Mapping[str, LanguageModel]
    embeddings: EmbeddingModel
    services: Sequence[ChildSpec] = ()
    look: Look | None = None  # reads the health of a provider
    trip: Callable[[str], None] | None = None  # opens the breaker of a provider
    names: Sequence[str] = ()  # names of the providers now
    memory: EmbeddingModel | None = None  # a provider's, of the memory
    configure: Callable[[Sequence[ModelProvider]], None] | None = None  # replaces the providers
    reranker: RerankModel | None = None  # of the memory


def build_modelset(
    config: Config, host: Host, secrets: SecretService, alarms: IncidentReporter
) -> Modelset:
    """Build the configured models.  Raises InvalidParams for an invalid setting."""

    def open_providers(given: Sequence[ModelProvider]) -> OpenProviders:
        # Importing the HTTP client takes 0.1 s, which a daemon without providers saves.
        from palyra.models.providers import Providers  # noqa: PLC0415 - see above

        return Providers(
            given,
            secrets.find_key,
            new_id=host.new_id,
            now_ms=host.now_ms,
            alarms=alarms,
            outbound=config.outbound,
        )

    models = ConfiguredModels({"scripted": scripted_model(config)}, open_providers)
    models.configure(config.models.providers)

    def embed(field: str, wanted: str, built_in: tuple[str, ...]) -> EmbeddingModel | None:
        if wanted in built_in:
            return None
        if models.providers is None:
            raise _no_provider(field, wanted, ", ".join(built_in))
        return models.providers.embeddings(wanted, host.run_blocking, field, built_in)

    reranker: RerankModel | None = None
    if config.memory.reranker:
        if models.providers is None:
            raise _no_provider("memory.reranker", config.memory.reranker, '"" for none')
        reranker = models.providers.reranker(config.memory.reranker, "memory.reranker")
    wanted = ALIASES.get(config.models.embeddings, config.models.embeddings)
    return Modelset(
        models.catalogue,
        embed("models.embeddings", wanted, (EMBEDDED,)) or EmbeddedEmbeddings(host.run_blocking),
        [ChildSpec("models", models.keep_open)],
        models.look,
        models.trip,
        models.names,
        embed("memory.embedder", memory_embedder(config), MEMORY_EMBEDDERS),
        models.configure,
        reranker,
    )


def _no_provider(field: str, wanted: str, others: str) -> InvalidParams:
    return InvalidParams(
        f"{field} = {wanted!r}: there is no such provider; "
        f"name one in models.providers, or use {others}",
        field=field,
    )


def read_routes(config: Config) -> tuple[RouteTable, Mapping[str, Route]]:
    """Return the configured routes, and the published properties of the providers' models."""
    given = config.models
    known = known_at(given.providers).routes

    def route_of(configured: ModelRoute) -> Route:
        """Return the route; a window that it omits is the published one."""
        published = known.get(configured.model)
        window = configured.window or (0 if published is None else published.window)
        return Route(**{**asdict(configured), "window": window})

    table = RouteTable(
        mode=given.routing, routes=tuple(map(route_of, given.routes)), failover=given.failover
    )
    return table, known


def build_router(
    config: Config, models: Mapping[str, LanguageModel], modelset: Modelset, budgets: Budgets
) -> ModelRouter:
    """Build the router of the models, with the prices in force.

    Raises InvalidParams for a model that no provider has.
    """
    table, known = read_routes(config)

    def price(model: str, input_tokens: int, output_tokens: int) -> int | None:
        used = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return budgets.prices.cost(model, used, budgets.now_ms())

    def rates(model: str) -> tuple[int, int] | None:
        found = budgets.prices.find(model, budgets.now_ms())
        return None if found is None else (found.input, found.output)

    return ModelRouter(
        models,
        table,
        look=modelset.look,
        known=known,
        price=price,
        rates=rates,
        output_tokens=config.usage.reserve_tokens,
        providers=modelset.names,
        default=default_model(config, models),
        has_clock=config.context.clock,
        describes_pictures=config.context.pictures == "describe",
    )
