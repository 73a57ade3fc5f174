"""The part of the journal in memory that answers `core.ports.Registry`."""

from abc import ABC, abstractmethod
from typing import TypeVar

from palyra.core.journal.changes import PairingFilter
from palyra.core.journal.records import (
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    ChannelRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    PairingRecord,
    RunRecord,
    SessionRecord,
    TokenRecord,
    UsageRecord,
)

R = TypeVar(
    "R",
    RunRecord,
    SessionRecord,
    ApprovalRecord,
    IdempotencyRecord,
    TokenRecord,
    AgentRecord,
    ChannelRecord,
    PairingRecord,
    GrantRecord,
    UsageRecord,
    BudgetRecord,
    IncidentRecord,
)


class MemoryRegistry(ABC):
    """Reads agents, channels, pairings and conversations."""

    @abstractmethod
    def _find(self, kind: type[R], *key: str | int) -> R | None: ...

    @abstractmethod
    def _list(self, kind: type[R]) -> list[R]: ...

    def find_conversation(
        self, principal: str, agent: str, channel: str, conversation_id: str
    ) -> SessionRecord | None:
        """One that is not archived."""
        wanted = principal, agent, channel, conversation_id
        found = self._list(SessionRecord)
        return next((s for s in found if s.place == wanted), None)

    def find_agent(self, name: str, version: int | None = None) -> AgentRecord | None:
        """That version, or the newest, deleted or not."""
        if version is not None:
            return self._find(AgentRecord, name, version)
        return next((a for a in reversed(self._list(AgentRecord)) if a.name == name), None)

    def list_agents(self) -> list[AgentRecord]:
        """The newest version of each that is not deleted, by name."""
        newest = {agent.name: agent for agent in self._list(AgentRecord)}
        return [agent for agent in newest.values() if agent.deleted_ms is None]

    def find_channel(
        self, principal: str, channel: str, conversation_id: str
    ) -> ChannelRecord | None:
        """Deleted or not."""
        return self._find(ChannelRecord, principal, channel, conversation_id)

    def list_channels(self, principal: str | None) -> list[ChannelRecord]:
        """By principal, channel and conversation; none that is deleted."""
        return [
            found
            for found in self._list(ChannelRecord)
            if found.deleted_ms is None and principal in {None, found.principal}
        ]

    def find_pairing(self, pairing_id: str) -> PairingRecord | None:
        return self._find(PairingRecord, pairing_id)

    def find_sender(self, principal: str, channel: str, sender: str) -> PairingRecord | None:
        wanted = principal, channel, sender
        found = self._list(PairingRecord)
        return next((p for p in found if (p.principal, p.channel, p.sender) == wanted), None)

    def list_pairings(self, wanted: PairingFilter) -> list[PairingRecord]:
        """Newest first."""
        found = [
            pairing
            for pairing in self._list(PairingRecord)
            if wanted.principal in {None, pairing.principal}
            and wanted.channel in {None, pairing.channel}
            and wanted.state in {None, pairing.state}
            and (wanted.before is None or pairing.pairing_id < wanted.before)
        ]
        return found[::-1][: wanted.limit]

    def find_grant(self, grant_id: str) -> GrantRecord | None:
        return self._find(GrantRecord, grant_id)

    def list_grants(
        self, *, principal: str | None, live_at_ms: int | None, limit: int
    ) -> list[GrantRecord]:
        """Newest first; with `live_at_ms` only those that hold then."""
        found = [
            grant
            for grant in self._list(GrantRecord)
            if principal in {None, grant.principal}
            and (live_at_ms is None or grant.is_live(live_at_ms))
        ]
        return found[::-1][:limit]
