"""Channels: which agent answers a message from outside, and which senders are paired.

Owns: nothing that a restart would lose; bindings and pairings are records of the journal.
Talks to: the journal, the hub.  Written by: operators; a message of an unknown sender writes a
request for pairing.
Never: starts anything for an unpaired sender of a channel that requires pairing, or stores a code.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.channel import (
    MAX_ATTEMPTS,
    MAX_CHANNELS,
    MAX_PENDING,
    PairingRequested,
    SetChannel,
    check_place,
    choose_agent,
    is_waiting,
    request_pairing,
    revoke_pairing,
    try_code,
)
from palyra.core.ids import NewId
from palyra.core.journal.changes import Change, PairingFilter
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import ChannelRecord, PairingRecord, Record
from palyra.core.ports import Journal, JournalStore, Notifier, NowMs
from palyra.core.redaction.redactor import Redactor
from palyra.core.session.commands import StartRun
from palyra.core.text.names import check_new_name
from palyra.core.text.visible import pluralize
from palyra.errors import Conflict, InvalidParams, NotFound, TooLarge, Unpaired
from palyra.services.registry.agents import Agents

MOST_PAIRINGS = 500  # read of one channel to count pending ones


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels and pairings, for clients and for messages before they reach a session."""

    journal: Journal
    hub: Notifier
    agents: Agents
    redactor: Redactor
    now_ms: NowMs
    new_id: NewId
    new_code: Callable[[], str]

    # --- for messages

    async def route(self, caller: Caller, command: StartRun) -> StartRun:
        """Return the message with the agent of its channel; unchanged without a channel.

        Raises NotFound for an unknown channel, Unpaired, InvalidParams.
        """
        check_place(command)
        if command.channel is None:
            return command
        for field in ("channel", "conversation_id", "sender"):
            self._check_text(field, getattr(command, field))
        principal, channel = caller.principal, command.channel
        found = await self.journal.find(lambda store: _find_binding(store, principal, command))
        if found is None:
            raise NotFound(
                f"no channel {channel!r} of {principal!r}: an operator sets it with "
                f"`palyra channels set {channel} --principal {principal}`",
                field="channel",
            )
        agent = choose_agent(command, found)
        if found.pairing == "required":
            await self._require_paired(principal, channel, command.sender)
        return msgspec.structs.replace(command, agent=agent, reach=found.audience)

    def _check_text(self, field: str, text: str | None) -> None:
        """Refuse secrets: these texts are stored and shown in plain text."""
        if text is not None and self.redactor.redact_text(text)[1]:
            raise InvalidParams(f"{field} contains a secret: choose another", field=field)

    async def _require_paired(self, principal: str, channel: str, sender: str | None) -> None:
        if sender is None:
            raise InvalidParams(f"the channel {channel!r} requires a sender", field="sender")
        known = await self.journal.find(lambda s: s.find_sender(principal, channel, sender))
        if known is not None and known.state == "paired":
            return
        if known is None:
            paired = PairingFilter(
                principal=principal, channel=channel, state="paired", limit=MOST_PAIRINGS
            )
            found = await self.journal.read(lambda store: store.list_pairings(paired))
            names = [each.sender for each in found]
            check_new_name(sender, names, field="sender", folds_case=False)
        now_ms = self.now_ms()
        if known is not None and is_waiting(known, now_ms):
            raise _unpaired(known, None)
        await self._check_crowd(principal, channel, now_ms)
        blank = PairingRecord(
            pairing_id=self.new_id("pai"),
            principal=principal,
            channel=channel,
            sender=sender,
            state="pending",
            code_sha256="",
            requested_ms=now_ms,
            expires_ms=now_ms,
        )
        code = self.new_code()
        request = request_pairing(blank, known, code=code, now_ms=now_ms)
        try:
            await self.journal.commit(Change(records=(request,)))
        except Conflict:  # a concurrent message of the sender has already created the valid code
            raise _unpaired(request, None) from None
        self._tell(request)
        raise _unpaired(request, code)

    def _tell(self, request: PairingRecord) -> None:
        news = PairingRequested(
            pairing_id=request.pairing_id,
            principal=request.principal,
            channel=request.channel,
            sender=request.sender,
            expires_ms=request.expires_ms,
        )
        self.hub.notify(
            "pairing.requested", news, principal=request.principal, scope="channels:read"
        )

    async def _check_crowd(self, principal: str, channel: str, now_ms: int) -> None:
        wanted = PairingFilter(
            principal=principal, channel=channel, state="pending", limit=MOST_PAIRINGS
        )
        found = await self.journal.read(lambda store: store.list_pairings(wanted))
        waiting = sum(1 for pairing in found if is_waiting(pairing, now_ms))
        if waiting >= MAX_PENDING or len(found) >= MOST_PAIRINGS:
            raise Unpaired(
                f"{waiting} senders of the channel {channel!r} wait to be paired, which is the "
                "limit: try again later"
            )

    # --- for operators

    async def list_all(self, caller: Caller, principal: str | None) -> list[ChannelRecord]:
        """Return channels by principal, channel and conversation."""
        caller.require("channels:read")
        return await self.journal.read(lambda store: store.list_channels(principal))

    async def set(
        self, caller: Caller, wanted: SetChannel, receipt: IdempotencyKey | None = None
    ) -> ChannelRecord:
        """Set a channel, or one conversation of it, committed.

        Raises InvalidParams (no such agent, a secret), TooLarge, and Conflict after a
        concurrent change.  Existing sessions keep their agent.
        """
        caller.require("channels:write")
        for field in ("principal", "channel", "conversation_id"):
            self._check_text(field, getattr(wanted, field))
        await self.agents.get_present(wanted.agent)
        bound = await self.journal.read(lambda store: store.list_channels(None))
        tokens = await self.journal.read(lambda store: store.list_tokens())
        owners = [*(each.principal for each in bound), *(each.principal for each in tokens)]
        check_new_name(wanted.principal, owners, field="principal")
        names = [each.channel for each in bound if each.principal == wanted.principal]
        check_new_name(wanted.channel, names, field="channel")
        before = await self._find(wanted.principal, wanted.channel, wanted.conversation_id)
        if before is None or before.deleted_ms is not None:
            await self._check_count()
        now_ms = self.now_ms()
        record = ChannelRecord(
            principal=wanted.principal,
            channel=wanted.channel,
            conversation_id=wanted.conversation_id,
            agent=wanted.agent,
            pairing=wanted.pairing,
            audience=wanted.audience,
            revision=1 if before is None else before.revision + 1,
            created_ms=now_ms if before is None else before.created_ms,
            updated_ms=now_ms,
        )
        await self._keep(record, receipt)
        return record

    async def delete(
        self,
        caller: Caller,
        *,
        principal: str,
        channel: str,
        conversation_id: str,
        receipt: IdempotencyKey | None = None,
    ) -> ChannelRecord:
        """Remove a binding; a conversation then falls back to its channel's binding."""
        caller.require("channels:write")
        found = await self._find(principal, channel, conversation_id)
        if found is None or found.deleted_ms is not None:
            raise NotFound(f"no channel {channel!r} of {principal!r}", field="channel")
        gone = msgspec.structs.replace(found, revision=found.revision + 1, deleted_ms=self.now_ms())
        await self._keep(gone, receipt)
        return gone

    async def list_pairings(self, caller: Caller, wanted: PairingFilter) -> list[PairingRecord]:
        """Return pairings, newest first."""
        caller.require("channels:read")
        return await self.journal.read(lambda store: store.list_pairings(wanted))

    async def approve(
        self, caller: Caller, pairing_id: str, code: str, receipt: IdempotencyKey | None = None
    ) -> PairingRecord:
        """Pair a sender, committed.

        Raises InvalidParams for a wrong code, which is counted, NotFound, IllegalState, and
        Conflict after a concurrent attempt.
        """
        caller.require("channels:write")
        found = await self._get_pairing(pairing_id)
        tried = try_code(found, code, by=caller.principal, now_ms=self.now_ms())
        if tried.state != "paired":
            await self._keep(tried, None)
            left = MAX_ATTEMPTS - tried.attempts
            raise InvalidParams(f"wrong code; {pluralize(left, 'attempt')} left", field="code")
        await self._keep(tried, receipt)
        return tried

    async def revoke(
        self, caller: Caller, pairing_id: str, receipt: IdempotencyKey | None = None
    ) -> PairingRecord:
        """Revoke a pairing: the sender is refused; open runs continue."""
        caller.require("channels:write")
        found = await self._get_pairing(pairing_id)
        revoked = revoke_pairing(found, by=caller.principal, now_ms=self.now_ms())
        if revoked is not found:
            await self._keep(revoked, receipt)
        return revoked

    async def _find(
        self, principal: str, channel: str, conversation_id: str
    ) -> ChannelRecord | None:
        return await self.journal.find(
            lambda store: store.find_channel(principal, channel, conversation_id)
        )

    async def _check_count(self) -> None:
        found = await self.journal.read(lambda store: store.list_channels(None))
        if len(found) >= MAX_CHANNELS:
            raise TooLarge(f"{len(found)} channels exist, which is the limit: delete one")

    async def _get_pairing(self, pairing_id: str) -> PairingRecord:
        found = await self.journal.find(lambda store: store.find_pairing(pairing_id))
        if found is None:
            raise NotFound(f"no pairing {pairing_id!r}", field="pairing_id")
        return found

    async def _keep(
        self, record: ChannelRecord | PairingRecord, receipt: IdempotencyKey | None
    ) -> None:
        records: list[Record] = [record]
        if receipt is not None:
            records.append(receipt_for(receipt, record, self.now_ms()))
        with trio.CancelScope(
            shield=True
        ):  # committed or refused, never unknown; bounded by the disk
            await self.journal.commit(Change(records=tuple(records)))


def _find_binding(store: JournalStore, principal: str, command: StartRun) -> ChannelRecord | None:
    """Return the binding of the conversation, else that of the channel."""
    for conversation_id in (command.conversation_id or "", ""):
        found = store.find_channel(principal, command.channel or "", conversation_id)
        if found is not None and found.deleted_ms is None:
            return found
    return None


def _unpaired(pairing: PairingRecord, code: str | None) -> Unpaired:
    """Return the error for an unpaired sender."""
    who = f"the sender {pairing.sender!r} is not paired with the channel {pairing.channel!r}"
    if code is None:
        return Unpaired(
            f"{who}: an operator must approve the earlier code while it is valid",
            details={"pairing_id": pairing.pairing_id},
        )
    shown = f"{code[:4]}-{code[4:]}"
    return Unpaired(
        f"{who}: an operator must approve the code {shown} within 10 minutes, with "
        f"`palyra pairings approve {pairing.pairing_id} {shown}`",
        details={
            "pairing_id": pairing.pairing_id,
            "code": shown,
            "expires_ms": pairing.expires_ms,
        },
    )
