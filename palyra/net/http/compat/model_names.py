"""The parameter `model`: an agent (`agent/NAME`), or a model for the default agent."""

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from palyra.core.access import Caller
from palyra.core.agent import DEFAULT_AGENT
from palyra.core.text.excerpt import truncate_safely
from palyra.errors import NotFound
from palyra.net.http.compat.errors import ModelNotFound
from palyra.net.http.compat.sources import CompatSources

AGENT_PREFIX = "agent/"
OWNER = "palyra"


class ModelTarget(NamedTuple):
    """The agent and the model of an answer; None is the default of the daemon or the agent."""

    agent: str | None
    model: str | None


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A name that `model` may have, for clients of either API."""

    id: str
    display_name: str
    object: str = "model"
    type: str = "model"
    created: int = 0  # Unix seconds; 0 if built in or configured
    created_at: str  # the same as RFC 3339
    owned_by: str = OWNER


class ModelCards(msgspec.Struct, frozen=True, kw_only=True):
    """All names, on one page."""

    object: str = "list"
    data: list[ModelCard]
    has_more: bool = False
    first_id: str
    last_id: str


async def find_target(sources: CompatSources, caller: Caller, name: str) -> ModelTarget:
    """Return the model of that whole name, else the agent.  Raises ModelNotFound."""
    if name in sources.models:
        return ModelTarget(None, name)
    agent = name.removeprefix(AGENT_PREFIX)
    try:
        found = await sources.backend.agents.get(caller, agent)
    except NotFound:
        raise ModelNotFound(
            f"no agent and no model {truncate_safely(name, 128)!r}; GET /v1/models lists them",
            field="model",
        ) from None
    return ModelTarget(found.name, None)


async def list_cards(sources: CompatSources, caller: Caller) -> ModelCards:
    """List agents, then listed models, then embeddings; a provider may have more models."""
    agents = await sources.backend.agents.list_all(caller)
    cards = [_card(AGENT_PREFIX + agent.name, agent.created_ms // 1000) for agent in agents]
    cards += [_card(name) for name in sources.models]
    cards += map(_card, sources.embedding_names)
    return ModelCards(data=cards, first_id=cards[0].id, last_id=cards[-1].id)


async def find_card(sources: CompatSources, caller: Caller, name: str) -> ModelCard:
    """Return the card of one name, listed or not.  Raises ModelNotFound."""
    if name in sources.embedding_names:
        return _card(name)
    target = await find_target(sources, caller, name)
    if target.model is not None:
        return _card(name)
    agent = await sources.backend.agents.get(caller, target.agent or DEFAULT_AGENT.name)
    return _card(name, agent.created_ms // 1000)


def _card(name: str, created: int = 0) -> ModelCard:
    provider, slash, _ = name.partition("/")
    is_provider = bool(slash) and not name.startswith(AGENT_PREFIX)
    return ModelCard(
        id=name,
        display_name=name,
        created=created,
        created_at=datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        owned_by=provider if is_provider else OWNER,
    )
