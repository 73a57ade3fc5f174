"""The part of the journal on SQLite that answers `core.ports.Registry`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import apsw

from palyra.core.journal import PairingFilter
from palyra.core.records import (
    AgentRecord,
    ChannelRecord,
    GrantRecord,
    PairingRecord,
    SessionRecord,
)
from palyra.store import projections

T = TypeVar("T")


class SqliteRegistry(ABC):
    """Reads agents, channels, pairings and conversations."""

    @abstractmethod
    def _read(self, query: Callable[[apsw.Connection], T]) -> T: ...

    def find_conversation(
        self, principal: str, agent: str, channel: str, conversation_id: str
    ) -> SessionRecord | None:
        """One that is not archived."""
        return self._read(
            lambda c: projections.find_conversation(c, principal, agent, channel, conversation_id)
        )

    def find_agent(self, name: str, version: int | None = None) -> AgentRecord | None:
        """That version, or the newest, deleted or not."""
        return self._read(lambda c: projections.find_agent(c, name, version))

    def list_agents(self) -> list[AgentRecord]:
        """The newest version of each that is not deleted, by name."""
        return self._read(projections.list_agents)

    def find_channel(
        self, principal: str, channel: str, conversation_id: str
    ) -> ChannelRecord | None:
        """Deleted or not."""
        return self._read(
            lambda c: projections.find_channel(c, principal, channel, conversation_id)
        )

    def list_channels(self, principal: str | None) -> list[ChannelRecord]:
        """By principal, channel and conversation; none that is deleted."""
        return self._read(lambda c: projections.list_channels(c, principal))

    def find_pairing(self, pairing_id: str) -> PairingRecord | None:
        return self._read(lambda c: projections.find_pairing(c, pairing_id))

    def find_sender(self, principal: str, channel: str, sender: str) -> PairingRecord | None:
        return self._read(lambda c: projections.find_sender(c, principal, channel, sender))

    def list_pairings(self, wanted: PairingFilter) -> list[PairingRecord]:
        """Newest first."""
        return self._read(lambda c: projections.list_pairings(c, wanted))

    def find_grant(self, grant_id: str) -> GrantRecord | None:
        return self._read(lambda c: projections.find_grant(c, grant_id))

    def list_grants(
        self, *, principal: str | None, live_at_ms: int | None, limit: int
    ) -> list[GrantRecord]:
        return self._read(
            lambda c: projections.list_grants(
                c, principal=principal, live_at_ms=live_at_ms, limit=limit
            )
        )
