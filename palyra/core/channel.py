"""Channels: agent and session of a message from outside, and the pairing of its sender.

A channel belongs to one principal: a bridge to a chat, a mailbox, a help desk.  Its messages name
the channel, the conversation and, where the channel requires pairing, the sender.  Unknown channels
and unpaired senders are refused.
"""

import hmac

import msgspec

from palyra.core.journal.records import (
    ChannelAudience,
    ChannelRecord,
    PairingMode,
    PairingRecord,
    SessionRecord,
)
from palyra.core.session.commands import StartRun
from palyra.core.text.canonical_json import digest_of
from palyra.errors import IllegalState, InvalidParams

CODE_TTL_MS = 600_000  # long enough to pass the code on, too short to guess it
CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without letters and digits that look alike
CODE_CHARS = 8  # 40 bits
MAX_ATTEMPTS = 5
MAX_PENDING = 20  # of one channel, so that strangers cannot fill the journal
MAX_CHANNELS = 512

# --- where a message belongs ---------------------------------------------------------------------


def check_place(command: StartRun) -> None:
    """Raise InvalidParams for a message whose origin is incomplete."""
    if command.channel is None:
        for field in ("conversation_id", "sender"):
            if getattr(command, field) is not None:
                raise InvalidParams(f"{field} needs a channel", field="channel")
    elif command.conversation_id is None:
        raise InvalidParams("a channel needs a conversation_id", field="conversation_id")
    elif command.session_key is not None:
        raise InvalidParams(
            "the session follows from channel and conversation_id: leave session_key out",
            field="session_key",
        )


def choose_agent(command: StartRun, channel: ChannelRecord) -> str:
    """Return the channel's agent.  Raises InvalidParams if the message names another."""
    if command.agent not in {None, channel.agent}:
        raise InvalidParams(
            f"the channel {channel.channel!r} is answered by {channel.agent!r}: leave agent out, "
            "or have an operator set the channel",
            field="agent",
        )
    return channel.agent


def check_identity(session: SessionRecord, command: StartRun) -> None:
    """Raise InvalidParams unless the message may enter the session.

    Agent, channel and conversation must be the session's own: a session of a channel is entered
    through that channel, with its pairing, or not at all.
    """
    if (session.channel, session.conversation_id) != (command.channel, command.conversation_id):
        raise InvalidParams(
            f"{session.session_id} belongs to {_place_text(session)}, not to where this message "
            "comes from",
            field="session_id",
        )
    if session.channel is not None and session.agent != command.agent:
        raise InvalidParams(
            f"{session.session_id} is answered by {session.agent!r}, the channel now by "
            f"{command.agent!r}: leave session_id out",
            field="session_id",
        )


def _place_text(session: SessionRecord) -> str:
    if session.channel is None:
        return "no channel"
    return f"the conversation {session.conversation_id!r} of the channel {session.channel!r}"


# --- who may send --------------------------------------------------------------------------------


def digest_code(pairing_id: str, code: str) -> str:
    """Return the stored digest of a code, ignoring case and dashes."""
    plain = "".join(char for char in code.upper() if char.isalnum())
    return digest_of(["pairing", pairing_id, plain])


def is_waiting(pairing: PairingRecord, now_ms: int) -> bool:
    """True if the pairing has a code that can still be approved."""
    return pairing.state == "pending" and now_ms < pairing.expires_ms


def request_pairing(
    blank: PairingRecord, earlier: PairingRecord | None, *, code: str, now_ms: int
) -> PairingRecord:
    """Return the sender's request with a fresh code; it replaces an earlier request."""
    pairing_id = blank.pairing_id if earlier is None else earlier.pairing_id
    return msgspec.structs.replace(
        blank,
        pairing_id=pairing_id,
        code_sha256=digest_code(pairing_id, code),
        requested_ms=now_ms,
        expires_ms=now_ms + CODE_TTL_MS,
        revision=1 if earlier is None else earlier.revision + 1,
    )


def try_code(pairing: PairingRecord, code: str, *, by: str, now_ms: int) -> PairingRecord:
    """Return the pairing after an operator's attempt: paired, or with one attempt less.

    The last wrong attempt ends the request.  Raises IllegalState if there is nothing to approve.
    Compares in constant time.
    """
    if pairing.state != "pending":
        raise IllegalState(f"{pairing.pairing_id} is {pairing.state}")
    if pairing.attempts >= MAX_ATTEMPTS:
        raise IllegalState(
            f"{MAX_ATTEMPTS} wrong codes ended the request: the sender gets another code with the "
            "next message"
        )
    if not is_waiting(pairing, now_ms):
        raise IllegalState("the code has expired: the sender gets another with the next message")
    tried = msgspec.structs.replace(pairing, revision=pairing.revision + 1)
    digest = digest_code(pairing.pairing_id, code)
    if not hmac.compare_digest(pairing.code_sha256, digest):
        attempts = pairing.attempts + 1
        ends_ms = now_ms if attempts >= MAX_ATTEMPTS else pairing.expires_ms
        return msgspec.structs.replace(tried, attempts=attempts, expires_ms=ends_ms)
    return msgspec.structs.replace(tried, state="paired", by=by, decided_ms=now_ms)


def revoke_pairing(pairing: PairingRecord, *, by: str, now_ms: int) -> PairingRecord:
    """Revoke the pairing: its sender is refused.  Idempotent."""
    if pairing.state == "revoked":
        return pairing
    return msgspec.structs.replace(
        pairing, state="revoked", revision=pairing.revision + 1, by=by, decided_ms=now_ms
    )


class SetChannel(msgspec.Struct, frozen=True, kw_only=True):
    """Set the agent of a principal's channel, or of one conversation in it."""

    principal: str
    channel: str
    conversation_id: str = ""
    agent: str
    pairing: PairingMode
    audience: ChannelAudience = "conversation"


class PairingRequested(msgspec.Struct, frozen=True, kw_only=True):
    """Notification that a sender waits for pairing, without the code."""

    pairing_id: str
    principal: str
    channel: str
    sender: str
    expires_ms: int
