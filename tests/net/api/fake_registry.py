"""Fake agents and channels: one of each, with a record of the calls."""

from typing import Any

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.agent import AgentChange
from palyra.core.channel import SetChannel
from palyra.core.context.assembly import Prefix, stable_prefix
from palyra.core.journal.changes import Change, PairingFilter
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import AgentRecord, ChannelRecord, PairingRecord
from palyra.core.tool.spec import Catalogue, ToolSpec
from tests.net.api.fake_store import FakeStore

SCOUT = AgentRecord(
    name="scout", version=2, instructions="Look round.", tools=("echo",), labels=("a",)
)
ECHO = ToolSpec(
    name="echo",
    version="1",
    description="",
    parameters={},
    tool_class="read_only_safe",
    risk="low",
)
CHAT = ChannelRecord(principal="ann", channel="chat", agent="scout", created_ms=1, updated_ms=2)
SAM = PairingRecord(
    pairing_id="pai_1",
    principal="ann",
    channel="chat",
    sender="sam",
    state="pending",
    code_sha256="secret hash",
    requested_ms=1,
    expires_ms=2,
)


class Asked:
    """Records requests, and the receipt of a change as the real services do."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.asked: list[Any] = []

    async def note(self, result: msgspec.Struct, *asked: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(asked)
        if asked and isinstance(asked[-1], IdempotencyKey):
            kept = receipt_for(asked[-1], result, 0)
            self.store.write(Change(records=(kept,)))


class FakeAgents(Asked):
    """One agent; changes are kept for the test and change nothing."""

    async def _answer(self, *asked: Any) -> AgentRecord:
        await self.note(SCOUT, *asked)
        return SCOUT

    async def list_all(self, caller: Caller) -> list[AgentRecord]:
        return [await self._answer("list", caller.principal)]

    async def get(self, caller: Caller, name: str) -> AgentRecord:
        return await self._answer("get", caller.principal, name)

    async def get_present(self, name: str | None) -> AgentRecord:
        return await self._answer("get_present", name)

    def prefix(self, agent: AgentRecord, _principal: str) -> Prefix:
        return stable_prefix(agent, Catalogue(tools={"echo": ECHO}, hash="h"))

    async def create(
        self, caller: Caller, name: str, change: AgentChange, receipt: IdempotencyKey | None = None
    ) -> AgentRecord:
        return await self._answer("create", caller.principal, name, change, receipt)

    async def update(
        self, caller: Caller, name: str, change: AgentChange, receipt: IdempotencyKey | None = None
    ) -> AgentRecord:
        return await self._answer("update", caller.principal, name, change, receipt)

    async def delete(
        self, caller: Caller, name: str, receipt: IdempotencyKey | None = None
    ) -> AgentRecord:
        return await self._answer("delete", caller.principal, name, receipt)


class FakeChannels(Asked):
    """One channel with one sender, alike."""

    async def list_all(self, caller: Caller, principal: str | None) -> list[ChannelRecord]:
        await self.note(CHAT, "list", caller.principal, principal)
        return [CHAT]

    async def set(
        self, caller: Caller, wanted: SetChannel, receipt: IdempotencyKey | None = None
    ) -> ChannelRecord:
        await self.note(CHAT, "set", caller.principal, wanted, receipt)
        return CHAT

    async def delete(
        self,
        caller: Caller,
        *,
        principal: str,
        channel: str,
        conversation_id: str,
        receipt: IdempotencyKey | None = None,
    ) -> ChannelRecord:
        await self.note(
            CHAT, "delete", caller.principal, principal, channel, conversation_id, receipt
        )
        return CHAT

    async def list_pairings(self, caller: Caller, wanted: PairingFilter) -> list[PairingRecord]:
        await self.note(SAM, "pairings", caller.principal, wanted)
        return [SAM]

    async def approve(
        self, caller: Caller, pairing_id: str, code: str, receipt: IdempotencyKey | None = None
    ) -> PairingRecord:
        await self.note(SAM, "approve", caller.principal, pairing_id, code, receipt)
        return SAM

    async def revoke(
        self, caller: Caller, pairing_id: str, receipt: IdempotencyKey | None = None
    ) -> PairingRecord:
        await self.note(SAM, "revoke", caller.principal, pairing_id, receipt)
        return SAM
