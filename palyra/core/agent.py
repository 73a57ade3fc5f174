"""Agents: who answers a message, as data; what a change makes of one, and what it may call."""

from collections.abc import Collection
from difflib import get_close_matches

import msgspec
from msgspec import UNSET, UnsetType

from palyra.core.journal.records import AgentRecord, MemoryScope
from palyra.core.tool.spec import Catalogue, build_catalogue
from palyra.errors import InvalidParams

# Always there, and nobody changes it: what an older tape calls `default` is this one.
DEFAULT_AGENT = AgentRecord(
    name="default",
    version=0,
    instructions="You are a careful assistant. Use tools when they help; say what you did.",
)
MAX_AGENTS = 256


class AgentChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change; a field left out stays as it is."""

    instructions: str | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    tools: tuple[str, ...] | UnsetType | None = UNSET
    labels: tuple[str, ...] | UnsetType = UNSET
    memory_scope: MemoryScope | UnsetType = UNSET


def next_version(agent: AgentRecord, change: AgentChange, now_ms: int) -> AgentRecord:
    """The agent after the change."""
    fields = {
        name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET
    }
    return msgspec.structs.replace(agent, **fields, version=agent.version + 1, updated_ms=now_ms)


def check_agent(agent: AgentRecord, models: Collection[str], tools: Collection[str]) -> None:
    """Raise InvalidParams for a model or a tool that is not there."""
    if agent.model is not None and agent.model not in models:
        known = ", ".join(sorted(models))
        raise InvalidParams(f"no model {agent.model!r}; known: {known}", field="model")
    for name in agent.tools or ():
        if name not in tools:
            near = get_close_matches(name, tools, n=1)
            known = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(tools))}"
            raise InvalidParams(f"no tool {name!r}; {known}", field="tools")


def allowed_tools(agent: AgentRecord, catalogue: Catalogue) -> Catalogue:
    """The part of the catalogue that is on the agent's list, with the hash of that part."""
    if agent.tools is None:
        return catalogue
    return build_catalogue(spec for name, spec in catalogue.tools.items() if name in agent.tools)


def placeholder_agent(name: str, version: int) -> AgentRecord:
    """What stands for an agent that is not in the journal: it can do nothing."""
    return AgentRecord(name=name, version=version, instructions="", tools=())
