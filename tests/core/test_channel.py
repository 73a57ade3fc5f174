"""Channels as data: places, identities, codes."""

from typing import Any

import msgspec
import pytest

from palyra.core.channel import (
    CODE_TTL_MS,
    MAX_ATTEMPTS,
    check_identity,
    check_place,
    choose_agent,
    digest_code,
    is_waiting,
    request_pairing,
    revoke_pairing,
    try_code,
)
from palyra.core.journal.records import ChannelRecord, PairingRecord, SessionRecord
from palyra.core.session.commands import StartRun
from palyra.errors import IllegalState, InvalidParams
from tests.rows import every_row

BLANK = PairingRecord(
    pairing_id="pai_1",
    principal="ann",
    channel="chat",
    sender="sam",
    state="pending",
    code_sha256="",
    requested_ms=0,
    expires_ms=0,
)
ASKED = request_pairing(BLANK, None, code="ABCD2345", now_ms=1_000)
CHAT = {"channel": "chat", "conversation_id": "1"}


@every_row(
    ("fields", "field"),
    [
        ({"conversation_id": "1"}, "channel"),
        ({"sender": "sam"}, "channel"),
        ({"channel": "chat"}, "conversation_id"),
        ({**CHAT, "session_key": "k"}, "session_key"),
    ],
)
def test_an_incomplete_channel_address_is_refused(fields: dict[str, Any], field: str) -> None:
    """A channel needs a conversation, and excludes any other name of the session."""
    with pytest.raises(InvalidParams) as caught:
        check_place(StartRun(text="x", **fields))
    assert field == caught.value.field


@every_row("fields", [{}, {"session_key": "k"}, CHAT, {**CHAT, "sender": "sam"}])
def test_a_complete_channel_address_is_accepted(fields: dict[str, Any]) -> None:
    """A message without a channel, and one with a conversation, with or without a sender, are valid."""
    check_place(StartRun(text="x", **fields))


def test_the_channel_decides_on_the_agent() -> None:
    """A message may repeat the channel's agent and not choose another."""
    bound = ChannelRecord(
        principal="ann", channel="chat", agent="scout", created_ms=0, updated_ms=0
    )
    found = [choose_agent(StartRun(text="x", agent=agent), bound) for agent in (None, "scout")]
    assert ["scout", "scout"] == found
    with pytest.raises(InvalidParams, match="answered by 'scout'"):
        choose_agent(StartRun(text="x", agent="default"), bound)


@every_row(
    ("place", "fields", "is_allowed"),
    [
        ({}, {}, True),
        ({}, CHAT, False),
        (CHAT, {**CHAT, "agent": "scout"}, True),
        (CHAT, {}, False),
        (CHAT, {"agent": "scout"}, False),
        (CHAT, {**CHAT, "agent": "other"}, False),
        (CHAT, {**CHAT, "conversation_id": "2", "agent": "scout"}, False),
        (CHAT, {**CHAT, "channel": "mail", "agent": "scout"}, False),
    ],
)
def test_a_session_is_entered_from_its_own_place(
    place: dict[str, Any], fields: dict[str, Any], *, is_allowed: bool
) -> None:
    """Agent, channel and conversation must all be the session's."""
    agent = "scout" if place else None
    session = SessionRecord(
        session_id="ses_1", principal="ann", key=None, created_ms=0, updated_ms=0, agent=agent,
        **place,
    )  # fmt: skip
    command = StartRun(text="x", **fields)
    if is_allowed:
        check_identity(session, command)
        return
    with pytest.raises(InvalidParams) as caught:
        check_identity(session, command)
    assert "session_id" == caught.value.field


def test_a_code_is_kept_as_a_hash_only() -> None:
    """Nothing of the code is in the record, and the same code of another request hashes otherwise."""
    assert b"ABCD2345" not in msgspec.json.encode(ASKED)
    assert digest_code("pai_1", "ABCD2345") == ASKED.code_sha256
    assert digest_code("pai_2", "ABCD2345") != ASKED.code_sha256


@every_row("typed", ["ABCD2345", "abcd-2345", " Abcd 2345 "])
def test_the_right_code_pairs(typed: str) -> None:
    """However it is typed; the record says who approved it."""
    paired = try_code(ASKED, typed, by="op", now_ms=2_000)
    assert ("paired", "op", 2_000, 2) == (
        paired.state, paired.by, paired.decided_ms, paired.revision,
    )  # fmt: skip


def test_wrong_codes_are_counted() -> None:
    """After the last attempt not even the right code is taken."""
    pairing = ASKED
    for attempt in range(1, MAX_ATTEMPTS + 1):
        pairing = try_code(pairing, "WRONG222", by="op", now_ms=2_000)
        assert ("pending", attempt) == (pairing.state, pairing.attempts)
        assert (attempt < MAX_ATTEMPTS) is is_waiting(pairing, 2_000)  # the last one ends it
    with pytest.raises(IllegalState, match="wrong codes"):
        try_code(pairing, "ABCD2345", by="op", now_ms=2_000)


def test_a_code_expires() -> None:
    """At its last millisecond it is good, at the next it is not."""
    end_ms = 1_000 + CODE_TTL_MS
    assert [True, False] == [is_waiting(ASKED, now) for now in (end_ms - 1, end_ms)]
    assert "paired" == try_code(ASKED, "ABCD2345", by="op", now_ms=end_ms - 1).state
    with pytest.raises(IllegalState, match="expired"):
        try_code(ASKED, "ABCD2345", by="op", now_ms=end_ms)


def test_a_decided_pairing_accepts_no_code() -> None:
    """Neither a paired nor a revoked pairing accepts a code."""
    paired = try_code(ASKED, "ABCD2345", by="op", now_ms=2_000)
    revoked = revoke_pairing(paired, by="op", now_ms=3_000)
    assert ("revoked", 3) == (revoked.state, revoked.revision)
    assert revoked is revoke_pairing(revoked, by="op", now_ms=4_000)
    for decided in (paired, revoked):
        with pytest.raises(IllegalState, match=decided.state):
            try_code(decided, "ABCD2345", by="op", now_ms=2_000)


def test_a_request_takes_the_place_of_an_earlier_one() -> None:
    """Same id, next revision, no attempts used."""
    worn = try_code(ASKED, "WRONG222", by="op", now_ms=2_000)
    blank = msgspec.structs.replace(BLANK, pairing_id="pai_2")
    again = request_pairing(blank, worn, code="EFGH2345", now_ms=9_000)
    assert ("pai_1", 3, 0) == (again.pairing_id, again.revision, again.attempts)
    assert digest_code("pai_1", "EFGH2345") == again.code_sha256
