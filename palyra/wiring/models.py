"""Wiring of models: the scripted one, the embedding model, and those of configured providers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import asdict

from palyra.actors.kernel.child import ChildSpec
from palyra.config.load import Config
from palyra.config.sections import ModelRoute
from palyra.core.journal.records import Usage
from palyra.core.model.routing import Route, RouteTable
from palyra.core.ports import EmbeddingModel, IncidentReporter, LanguageModel
from palyra.errors import InvalidParams
from palyra.models.lexical_embeddings import NAME, EmbeddedEmbeddings
from palyra.models.scripted.model import Scripted
from palyra.models.scripted.scripts import parse_scripts
from palyra.models.table import known_at
from palyra.secrets.service import SecretService
from palyra.services.budgets import Budgets
from palyra.services.model_router import Look, ModelRouter
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


class Modelset(NamedTuple):
    """Models by name, the embedding model, and the services that models need."""

    models: Mapping[str, LanguageModel]
    embeddings: EmbeddingModel
    services: Sequence[ChildSpec] = ()
    look: Look | None = None  # reads the health of a provider
    trip: Callable[[str], None] | None = None  # opens the breaker of a provider
    names: tuple[str, ...] = ()  # names of the providers
    memory: EmbeddingModel | None = None  # a provider's, of the memory


def build_modelset(
    config: Config, host: Host, secrets: SecretService, alarms: IncidentReporter
) -> Modelset:
    """Build the configured models.  Raises InvalidParams for an invalid setting."""
    fixed: Mapping[str, LanguageModel] = {"scripted": scripted_model(config)}
    embedded = EmbeddedEmbeddings(host.run_blocking)
    wanted = ALIASES.get(config.models.embeddings, config.models.embeddings)
    of_memory = memory_embedder(config)
    if not config.models.providers:
        if wanted != EMBEDDED:
            raise _no_provider("models.embeddings", wanted, EMBEDDED)
        if of_memory not in MEMORY_EMBEDDERS:
            raise _no_provider("memory.embedder", of_memory, ", ".join(MEMORY_EMBEDDERS))
        return Modelset(fixed, embedded)
    # Importing the HTTP client takes 0.1 s, which a daemon without providers saves.
    from palyra.models.providers import Providers  # noqa: PLC0415 - see above

    providers = Providers(
        config.models.providers,
        secrets.find_key,
        new_id=host.new_id,
        now_ms=host.now_ms,
        alarms=alarms,
        outbound=config.outbound,
    )
    return Modelset(
        providers.catalogue(fixed),
        embedded if wanted == EMBEDDED else providers.embeddings(
            wanted, host.run_blocking, "models.embeddings", (EMBEDDED,)
        ),
        [ChildSpec("models", providers.keep_open)],
        providers.look,
        providers.trip,
        tuple(each.name for each in config.models.providers),
        None if of_memory in MEMORY_EMBEDDERS else providers.embeddings(
            of_memory, host.run_blocking, "memory.embedder", MEMORY_EMBEDDERS
        ),
    )  # fmt: skip


def _no_provider(field: str, wanted: str, others: str) -> InvalidParams:
    return InvalidParams(
        f"{field} = {wanted!r}: there is no such provider; "
        f"name one in models.providers, or use {others}",
        field=field,
    )


def build_router(
    config: Config, models: Mapping[str, LanguageModel], modelset: Modelset, budgets: Budgets
) -> ModelRouter:
    """Build the router of the models, with the prices in force.

    Raises InvalidParams for a model that no provider has.
    """
    given = config.models
    known = known_at(given.providers).routes

    def route_of(configured: ModelRoute) -> Route:
        """Return the route; a window that it omits is the published one."""
        published = known.get(configured.model)
        window = configured.window or (0 if published is None else published.window)
        return Route(**{**asdict(configured), "window": window})

    table = RouteTable(
        mode=given.routing,
        routes=tuple(map(route_of, given.routes)),
        failover=given.failover,
    )

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
        default=given.default,
        has_clock=config.context.clock,
        describes_pictures=config.context.pictures == "describe",
    )
