"""Agents as data: the default agent, changes and their validation, allowed tools."""

from collections.abc import Collection
from difflib import get_close_matches

import msgspec
from msgspec import UNSET, UnsetType

from palyra.core.journal.records import AgentRecord, MemoryScope
from palyra.core.tool.spec import Catalogue, build_catalogue
from palyra.errors import InvalidParams

# Built in and immutable: version 0 of these names on an older tape means the same agent.
DEFAULT_AGENT = AgentRecord(
    name="default",
    version=0,
    instructions="You are a careful assistant. Use tools when they help; say what you did.",
)
# For plain conversation: no tools, so no calls to wait for or to approve.
PLAIN_AGENT = AgentRecord(
    name="plain",
    version=0,
    instructions="You are a careful assistant. You have no tools: answer from the conversation.",
    tools=(),
)
BUILT_IN = {agent.name: agent for agent in (DEFAULT_AGENT, PLAIN_AGENT)}
MAX_AGENTS = 256


class AgentChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of an agent; an unset field stays unchanged."""

    instructions: str | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    tools: tuple[str, ...] | UnsetType | None = UNSET
    labels: tuple[str, ...] | UnsetType = UNSET
    memory_scope: MemoryScope | UnsetType = UNSET


def next_version(agent: AgentRecord, change: AgentChange, now_ms: int) -> AgentRecord:
    """Return the agent after the change, with the next version."""
    fields = {
        name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET
    }
    return msgspec.structs.replace(agent, **fields, version=agent.version + 1, updated_ms=now_ms)


def check_agent(agent: AgentRecord, models: Collection[str], tools: Collection[str]) -> None:
    """Raise InvalidParams for an unknown model or tool."""
    if agent.model is not None and agent.model not in models:
        known = ", ".join(sorted(models))
        raise InvalidParams(f"no model {agent.model!r}; known: {known}", field="model")
    for name in agent.tools or ():
        if name not in tools:
            near = get_close_matches(name, tools, n=1)
            known = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(tools))}"
            raise InvalidParams(f"no tool {name!r}; {known}", field="tools")


def tools_of(principal: str, workspace: str, catalogue: Catalogue) -> Catalogue:
    """Return the catalogue without the tools of other principals and workspaces."""
    if not catalogue.has_owned:
        return catalogue
    return build_catalogue(
        spec
        for spec in catalogue.tools.values()
        if spec.principal in {"", principal} and spec.workspace in {"", workspace}
    )


def allowed_tools(agent: AgentRecord, catalogue: Catalogue) -> Catalogue:
    """Return the agent's part of the catalogue, with its own hash."""
    if agent.tools is None:
        return catalogue
    return build_catalogue(spec for name, spec in catalogue.tools.items() if name in agent.tools)


def placeholder_agent(name: str, version: int) -> AgentRecord:
    """Return an agent without tools, for one that is missing from the journal."""
    return AgentRecord(name=name, version=version, instructions="", tools=())
