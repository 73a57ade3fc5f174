"""channel.* and pairing.*: which agent answers external messages, and which senders may write.

Operators only.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from palyra.core.channel import SetChannel
from palyra.core.journal.changes import PairingFilter
from palyra.core.journal.records import (
    ChannelAudience,
    ChannelRecord,
    PairingMode,
    PairingRecord,
    PairingState,
)
from palyra.core.session.commands import AgentName
from palyra.net.api.method import (
    ChannelName,
    Id,
    Limit,
    Method,
    MethodCall,
    Mutation,
    OutsideId,
    cursor_of,
)
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import Channel, ChannelList, Pairing, PairingPage

Principal = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Code = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]


class ChannelListParams(Params, frozen=True, kw_only=True):
    """Channels of one principal, or of all without a principal."""

    principal: Principal | None = None


class ChannelSet(Mutation, frozen=True, kw_only=True):
    """The agent of a channel or of one conversation; the caller's own channel without a principal."""

    channel: ChannelName
    principal: Principal | None = None
    conversation_id: OutsideId | None = None
    agent: AgentName = "default"
    pairing: PairingMode = "required"
    audience: ChannelAudience = "conversation"

    renamed: ClassVar[Mapping[str, str]] = {"reach": "audience"}


class ChannelDelete(Mutation, frozen=True, kw_only=True):
    """The channel, or the one conversation of it, to delete."""

    channel: ChannelName
    principal: Principal | None = None
    conversation_id: OutsideId | None = None


class PairingListParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    principal: Principal | None = None
    channel: ChannelName | None = None
    state: PairingState | None = None
    limit: Limit = 100
    cursor: Annotated[str, cursor_of("pai")] | None = None


class PairingApprove(Mutation, frozen=True, kw_only=True):
    """Admit a sender that has given its code."""

    pairing_id: Id
    code: Code


class PairingRevoke(Mutation, frozen=True, kw_only=True):
    """Admit a sender no longer."""

    pairing_id: Id


async def list_(call: MethodCall, params: ChannelListParams) -> ChannelList:
    found = await call.backend.channels.list_all(call.caller, params.principal)
    return ChannelList(channels=[_show(channel) for channel in found])


async def set_(call: MethodCall, params: ChannelSet) -> Channel:
    wanted = SetChannel(
        principal=params.principal or call.caller.principal,
        channel=params.channel,
        conversation_id=params.conversation_id or "",
        agent=params.agent,
        pairing=params.pairing,
        audience=params.audience,
    )
    channels = call.backend.channels
    return _show(
        await call.once(
            ChannelRecord,
            lambda: channels.set(call.caller, wanted, call.key),
            is_kept_by_effect=True,
        )
    )


async def delete(call: MethodCall, params: ChannelDelete) -> Channel:
    channels = call.backend.channels
    return _show(
        await call.once(
            ChannelRecord,
            lambda: channels.delete(
                call.caller,
                principal=params.principal or call.caller.principal,
                channel=params.channel,
                conversation_id=params.conversation_id or "",
                receipt=call.key,
            ),
            is_kept_by_effect=True,
        )
    )


async def list_pairings(call: MethodCall, params: PairingListParams) -> PairingPage:
    wanted = PairingFilter(
        principal=params.principal,
        channel=params.channel,
        state=params.state,
        before=params.cursor,
        limit=params.limit,
    )
    found = await call.backend.channels.list_pairings(call.caller, wanted)
    next_cursor = found[-1].pairing_id if len(found) == params.limit else None
    return PairingPage(pairings=[_show_pairing(each) for each in found], next_cursor=next_cursor)


async def approve(call: MethodCall, params: PairingApprove) -> Pairing:
    channels = call.backend.channels
    return _show_pairing(
        await call.once(
            PairingRecord,
            lambda: channels.approve(call.caller, params.pairing_id, params.code, call.key),
            is_kept_by_effect=True,
        )
    )


async def revoke(call: MethodCall, params: PairingRevoke) -> Pairing:
    channels = call.backend.channels
    return _show_pairing(
        await call.once(
            PairingRecord,
            lambda: channels.revoke(call.caller, params.pairing_id, call.key),
            is_kept_by_effect=True,
        )
    )


def _show(channel: ChannelRecord) -> Channel:
    fields = msgspec.structs.asdict(channel)
    del fields["revision"]
    return Channel(**fields)


def _show_pairing(pairing: PairingRecord) -> Pairing:
    fields = msgspec.structs.asdict(pairing)
    del fields["revision"], fields["code_sha256"]
    return Pairing(**fields)


METHODS = (
    Method("channel.list", ChannelListParams, ChannelList, "channels:read", list_),
    Method("channel.set", ChannelSet, Channel, "channels:write", set_),
    Method("channel.delete", ChannelDelete, Channel, "channels:write", delete),
    Method("pairing.list", PairingListParams, PairingPage, "channels:read", list_pairings),
    Method("pairing.approve", PairingApprove, Pairing, "channels:write", approve),
    Method("pairing.revoke", PairingRevoke, Pairing, "channels:write", revoke),
)
