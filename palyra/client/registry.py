"""Typed methods about agents, channels and pairings."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from palyra.client.requests import RequestMethods
from palyra.core.journal.records import ChannelAudience, MemoryScope, PairingMode, PairingState
from palyra.net.protocol.results import Agent, AgentList, Channel, ChannelList, Pairing, PairingPage

ALL_TOOLS = ("*",)


class AgentOptions(TypedDict, total=False):
    """Params of an agent besides its name and instructions."""

    model: str | None  # "": the daemon's default
    tools: Sequence[str] | None  # `ALL_TOOLS`: every tool
    labels: Sequence[str] | None
    memory_scope: MemoryScope | None


class PairingsWanted(TypedDict, total=False):
    """Filter of `pairing.list`."""

    principal: str | None
    channel: str | None
    state: PairingState | None
    cursor: str | None
    limit: int | None


class RegistryMethods(RequestMethods):
    """Change agents and channels, admit senders."""

    # --- agents ---

    async def list_agents(self) -> list[Agent]:
        """List the default agent, then the others by name, without instructions."""
        return (await self._ask("agent.list", {}, AgentList)).agents

    async def get_agent(self, name: str) -> Agent:
        """Return an agent with its instructions and tools.  Raises NotFound."""
        return await self._ask("agent.get", {"name": name}, Agent)

    async def create_agent(
        self, name: str, instructions: str, **options: Unpack[AgentOptions]
    ) -> Agent:
        """Create an agent."""
        params = {"name": name, "instructions": instructions, **options}
        return await self._mutate("agent.create", params, Agent)

    async def update_agent(
        self, name: str, *, instructions: str | None = None, **options: Unpack[AgentOptions]
    ) -> Agent:
        """Create the next version of an agent; omitted members keep their value.

        Runs accepted from now on use it.
        """
        params = {"name": name, "instructions": instructions, **options}
        return await self._mutate("agent.update", params, Agent)

    async def delete_agent(self, name: str) -> Agent:
        """Delete an agent: it takes no new runs; its open runs continue."""
        return await self._mutate("agent.delete", {"name": name}, Agent)

    # --- channels ---

    async def list_channels(self, principal: str | None = None) -> list[Channel]:
        """List the settings of channels, by default those of every principal."""
        return (await self._ask("channel.list", {"principal": principal}, ChannelList)).channels

    async def set_channel(
        self,
        channel: str,
        *,
        principal: str | None = None,
        conversation_id: str | None = None,
        agent: str | None = None,
        pairing: PairingMode | None = None,
        audience: ChannelAudience | None = None,
    ) -> Channel:
        """Set the agent of a channel or of one conversation; pairing is required by default.

        The audience `conversation`, which is the default, keeps memory, references, learning and
        procedures of its runs within their conversation; `principal` opens those of its owner.
        """
        params = {
            "channel": channel,
            "principal": principal,
            "conversation_id": conversation_id,
            "agent": agent,
            "pairing": pairing,
            "audience": audience,
        }
        return await self._mutate("channel.set", params, Channel)

    async def delete_channel(
        self, channel: str, *, principal: str | None = None, conversation_id: str | None = None
    ) -> Channel:
        """Delete the settings of a channel and return them with `deleted_ms`."""
        params = {
            "channel": channel,
            "principal": principal,
            "conversation_id": conversation_id,
        }
        return await self._mutate("channel.delete", params, Channel)

    # --- pairings ---

    async def list_pairings(self, **wanted: Unpack[PairingsWanted]) -> PairingPage:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        return await self._ask("pairing.list", {**wanted}, PairingPage)

    async def approve_pairing(self, pairing_id: str, code: str) -> Pairing:
        """Admit the sender that has given this code."""
        params = {"pairing_id": pairing_id, "code": code}
        return await self._mutate("pairing.approve", params, Pairing)

    async def revoke_pairing(self, pairing_id: str) -> Pairing:
        """Revoke a pairing: its sender is no longer let in.  Raises NotFound."""
        return await self._mutate("pairing.revoke", {"pairing_id": pairing_id}, Pairing)
