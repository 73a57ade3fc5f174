"""Agents: definitions, stored in the journal with all their versions.

Owns: a bounded cache of versions, which never change, and of request prefixes; a restart loses
nothing.  Talks to: the journal.  Written by: operators, through the API.
A run keeps the version that it was accepted with, even if the agent is updated or deleted, and
over restarts.

Built-in agents have version 0.  A stored agent that is called like one of them, from before it was
built in, comes first; only `default` was always built in.
"""

from collections.abc import Mapping

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.agent import (
    BUILT_IN,
    DEFAULT_AGENT,
    MAX_AGENTS,
    AgentChange,
    allowed_tools,
    check_agent,
    next_version,
    tools_of,
)
from palyra.core.context.assembly import Prefix, stable_prefix
from palyra.core.journal.changes import Change
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import DEFAULT_WORKSPACE, AgentRecord, Record, SessionMode
from palyra.core.policy.modes import PLAN_NOTE, shown_in
from palyra.core.ports import Journal, LanguageModel, NowMs, ToolRunner
from palyra.core.redaction.redactor import Redactor
from palyra.core.text.names import check_new_name
from palyra.errors import Conflict, IllegalState, InvalidParams, NotFound, TooLarge

MAX_KNOWN = 256  # cached versions and prefixes; a full cache is emptied


class Agents:
    """Agents, for clients and for runs."""

    def __init__(
        self,
        journal: Journal,
        toolbox: ToolRunner,
        models: Mapping[str, LanguageModel],
        redactor: Redactor,
        now_ms: NowMs,
    ) -> None:
        self._journal = journal
        self._toolbox = toolbox
        self._models = models
        self._redactor = redactor
        self._now_ms = now_ms
        self._versions: dict[tuple[str, int], AgentRecord] = {}
        self._prefixes: dict[tuple[str, int, str, str, str, SessionMode], Prefix] = {}

    # --- for runs

    async def get_present(self, name: str | None) -> AgentRecord:
        """Return the current version of an agent (`None`: the default).  Raises InvalidParams."""
        if name in {None, DEFAULT_AGENT.name}:
            return DEFAULT_AGENT
        found = await self._find(name or "")
        if found is None:
            known = ", ".join(agent.name for agent in await self._list())
            raise InvalidParams(f"no agent {name!r}; known: {known}", field="agent")
        self._remember(found)
        return found

    async def find_version(self, name: str, version: int) -> AgentRecord | None:
        """Return the agent in a version, even if it is deleted."""
        if version == DEFAULT_AGENT.version:
            return BUILT_IN.get(name)
        known = self._versions.get((name, version))
        if known is None:
            known = await self._journal.find(lambda store: store.find_agent(name, version))
            if known is not None:
                self._remember(known)
        return known

    def prefix(
        self,
        agent: AgentRecord,
        principal: str,
        workspace: str = DEFAULT_WORKSPACE,
        mode: SessionMode = "ask",
    ) -> Prefix:
        """Return the stable part of the agent's model requests, with the tools it may call.

        Tools of one principal, procedures, are in the prefix of that principal only; tools of one
        workspace, such as those of an MCP server that works in it, in that of its runs only.
        `propose_plan`, and the words about it, are in that of runs in plan mode only.
        """
        catalogue = self._toolbox.catalogue()
        whose = (principal, workspace) if catalogue.has_owned else ("", "")
        key = (agent.name, agent.version, catalogue.hash, *whose, mode)
        if key not in self._prefixes:
            if len(self._prefixes) >= MAX_KNOWN:
                self._prefixes.clear()
            catalogue = tools_of(principal, workspace, catalogue)
            self._prefixes[key] = stable_prefix(
                agent,
                shown_in(mode, allowed_tools(agent, catalogue), catalogue),
                PLAN_NOTE if mode == "plan" else "",
            )
        return self._prefixes[key]

    async def _find(self, name: str) -> AgentRecord | None:
        found = await self._journal.find(lambda store: store.find_agent(name))
        return BUILT_IN.get(name) if found is None or found.deleted_ms is not None else found

    def _remember(self, agent: AgentRecord) -> None:
        if len(self._versions) >= MAX_KNOWN:
            self._versions.clear()
        self._versions[agent.name, agent.version] = agent

    # --- for clients

    async def list_all(self, caller: Caller) -> list[AgentRecord]:
        """Return the built-in agents, then all others by name."""
        caller.require("agents:read")
        return await self._list()

    async def _list(self) -> list[AgentRecord]:
        stored = await self._journal.read(lambda store: store.list_agents())
        hidden = {agent.name for agent in stored}
        return [*(agent for name, agent in BUILT_IN.items() if name not in hidden), *stored]

    async def get(self, caller: Caller, name: str) -> AgentRecord:
        """Return one agent.  Raises NotFound."""
        caller.require("agents:read")
        if name == DEFAULT_AGENT.name:
            return DEFAULT_AGENT
        return await self._get(name)

    async def create(
        self, caller: Caller, name: str, change: AgentChange, receipt: IdempotencyKey | None = None
    ) -> AgentRecord:
        """Create an agent, committed.  Raises Conflict for a name in use, TooLarge, InvalidParams.

        The name of a deleted agent can be used again; its version numbers continue.
        """
        caller.require("agents:write")
        before = await self._journal.find(lambda store: store.find_agent(name))
        if name in BUILT_IN or (before is not None and before.deleted_ms is None):
            raise Conflict(f"the agent {name!r} already exists: update it, or choose another name")
        agents = await self._journal.read(lambda store: store.list_agents())
        check_new_name(name, [*BUILT_IN, *(each.name for each in agents)], field="name")
        if len(agents) >= MAX_AGENTS:
            raise TooLarge(f"{len(agents)} agents exist, which is the limit: delete one")
        now_ms = self._now_ms()
        version = 0 if before is None else before.version
        blank = AgentRecord(name=name, version=version, instructions="", created_ms=now_ms)
        return await self._commit(next_version(blank, change, now_ms), receipt)

    async def update(
        self, caller: Caller, name: str, change: AgentChange, receipt: IdempotencyKey | None = None
    ) -> AgentRecord:
        """Commit the next version of an agent, for runs accepted from then on.

        Raises NotFound, IllegalState for a built-in agent, InvalidParams, and Conflict after a
        concurrent change.
        """
        caller.require("agents:write")
        before = await self._get_changeable(name)
        return await self._commit(next_version(before, change, self._now_ms()), receipt)

    async def delete(
        self, caller: Caller, name: str, receipt: IdempotencyKey | None = None
    ) -> AgentRecord:
        """Delete an agent: it takes no more runs; open runs continue.  Raises as `update`."""
        caller.require("agents:write")
        now_ms = self._now_ms()
        last = next_version(await self._get_changeable(name), AgentChange(), now_ms)
        deleted = msgspec.structs.replace(last, deleted_ms=now_ms)
        await self._append(deleted, receipt)
        return deleted

    async def _get(self, name: str) -> AgentRecord:
        found = await self._find(name)
        if found is None:
            raise NotFound(f"no agent {name!r}", field="name")
        return found

    async def _get_changeable(self, name: str) -> AgentRecord:
        found = DEFAULT_AGENT if name == DEFAULT_AGENT.name else await self._get(name)
        if found is BUILT_IN.get(name):
            raise IllegalState(
                f"the {name} agent is built in and cannot be changed: create another one"
            )
        return found

    async def _commit(self, agent: AgentRecord, receipt: IdempotencyKey | None) -> AgentRecord:
        check_agent(agent, self._models, self._toolbox.catalogue().tools)
        for field in ("name", "instructions", "labels"):
            _, is_secret = self._redactor.redact_text(str(getattr(agent, field)))
            if is_secret:
                raise InvalidParams(f"{field} contains a secret: remove it", field=field)
        await self._append(agent, receipt)
        return agent

    async def _append(self, agent: AgentRecord, receipt: IdempotencyKey | None) -> None:
        records: list[Record] = [agent]
        if receipt is not None:
            records.append(receipt_for(receipt, agent, self._now_ms()))
        with trio.CancelScope(
            shield=True
        ):  # committed or refused, never unknown; bounded by the disk
            await self._journal.commit(Change(records=tuple(records)))
