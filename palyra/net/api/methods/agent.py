"""agent.*: definitions of agents.  Every role may read them, operators change them."""

from typing import Annotated

import msgspec
from msgspec import UNSET

from palyra.core.agent import AgentChange
from palyra.core.journal.records import AgentRecord, MemoryScope
from palyra.core.session.commands import AgentName
from palyra.core.text.validation_errors import WORDS
from palyra.net.api.method import Method, MethodCall, Mutation
from palyra.net.protocol.params import SLUG, NoParams, Params
from palyra.net.protocol.results import Agent, AgentList

MAX_INSTRUCTIONS = 32_768
NewName = Annotated[str, SLUG]
Instructions = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_INSTRUCTIONS)]
Model = Annotated[str, msgspec.Meta(max_length=128)]
ToolNames = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=64)], ...], msgspec.Meta(max_length=256)
]
Label = Annotated[
    str,
    msgspec.Meta(
        max_length=64,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$",
        extra={WORDS: "letters, digits and . _ : / -, a letter or digit first"},
    ),
]
Labels = Annotated[tuple[Label, ...], msgspec.Meta(max_length=32)]
ALL_TOOLS = ("*",)


class AgentCreate(Mutation, frozen=True, kw_only=True):
    """A new agent."""

    name: NewName
    instructions: Instructions
    model: Model = ""  # the daemon's default
    tools: ToolNames = ALL_TOOLS
    labels: Labels = ()
    memory_scope: MemoryScope = "principal"


class AgentUpdate(Mutation, frozen=True, kw_only=True):
    """Changes to an agent; members that are left out keep their value."""

    name: AgentName
    instructions: Instructions | None = None
    model: Model | None = None
    tools: ToolNames | None = None
    labels: Labels | None = None
    memory_scope: MemoryScope | None = None


class AgentDelete(Mutation, frozen=True, kw_only=True):
    """The agent to delete."""

    name: AgentName


class AgentGet(Params, frozen=True, kw_only=True):
    """One agent."""

    name: AgentName


async def list_(call: MethodCall, _params: NoParams) -> AgentList:
    found = await call.backend.agents.list_all(call.caller)
    shown = [msgspec.structs.replace(_show(agent), instructions=None) for agent in found]
    return AgentList(agents=shown)


async def get(call: MethodCall, params: AgentGet) -> Agent:
    return _show(await call.backend.agents.get(call.caller, params.name))


async def create(call: MethodCall, params: AgentCreate) -> Agent:
    agents = call.backend.agents
    return _show(
        await call.once(
            AgentRecord,
            lambda: agents.create(call.caller, params.name, _change(params), call.key),
            is_kept_by_effect=True,
        )
    )


async def update(call: MethodCall, params: AgentUpdate) -> Agent:
    agents = call.backend.agents
    return _show(
        await call.once(
            AgentRecord,
            lambda: agents.update(call.caller, params.name, _change(params), call.key),
            is_kept_by_effect=True,
        )
    )


async def delete(call: MethodCall, params: AgentDelete) -> Agent:
    agents = call.backend.agents
    return _show(
        await call.once(
            AgentRecord,
            lambda: agents.delete(call.caller, params.name, call.key),
            is_kept_by_effect=True,
        )
    )


def _change(params: AgentCreate | AgentUpdate) -> AgentChange:
    model, tools = params.model, params.tools
    return AgentChange(
        instructions=UNSET if params.instructions is None else params.instructions,
        model=UNSET if model is None else model or None,
        tools=UNSET if tools is None else None if tools == ALL_TOOLS else tools,
        labels=UNSET if params.labels is None else params.labels,
        memory_scope=UNSET if params.memory_scope is None else params.memory_scope,
    )


def _show(agent: AgentRecord) -> Agent:
    """Return the record as the wire shows it: null members left out."""
    return Agent(**msgspec.structs.asdict(agent))


METHODS = (
    Method("agent.list", NoParams, AgentList, "agents:read", list_),
    Method("agent.get", AgentGet, Agent, "agents:read", get),
    Method("agent.create", AgentCreate, Agent, "agents:write", create),
    Method("agent.update", AgentUpdate, Agent, "agents:write", update),
    Method("agent.delete", AgentDelete, Agent, "agents:write", delete),
)
