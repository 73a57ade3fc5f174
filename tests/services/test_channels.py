"""Messages from outside: routed, let in or not, and in the session that is theirs."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.access import Caller
from palyra.core.agent import AgentChange
from palyra.core.channel import CODE_TTL_MS, MAX_ATTEMPTS, MAX_PENDING, SetChannel
from palyra.core.journal.changes import PairingFilter, RunFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import PairingRecord
from palyra.core.text.visible import pluralize
from palyra.errors import (
    Conflict,
    Forbidden,
    IllegalState,
    InvalidParams,
    NotFound,
    TooLarge,
    Unpaired,
)
from tests.actors.run.office_kit import OPERATOR, OTHER, SECRET, STRANGER, Kit, running
from tests.store.memory.journal import MemoryJournal

CHAT: dict[str, Any] = {"channel": "chat", "conversation_id": "1"}
SAM: dict[str, Any] = {**CHAT, "sender": "sam"}


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal(now_ms=lambda: 0)
    journal.open()
    return journal


async def bind(kit: Kit, channel: str = "chat", **fields: Any) -> None:
    """Set a channel of ann's; open by default."""
    wanted = {"principal": "ann", "agent": "default", "pairing": "open", **fields}
    await kit.services.channels.set(OPERATOR, SetChannel(channel=channel, **wanted))


async def make_agent(kit: Kit, name: str) -> None:
    await kit.services.agents.create(OPERATOR, name, AgentChange(instructions=f"I am {name}."))


async def session_of(kit: Kit, run_id: str) -> str:
    return (await kit.gateway.get_run(OPERATOR, run_id)).session_id


async def ask_in(kit: Kit, **fields: Any) -> tuple[PairingRecord, str]:
    """Send as an unknown sender; the request for pairing and its code."""
    with pytest.raises(Unpaired) as caught:
        await kit.start(**{**SAM, **fields})
    details = caught.value.details or {}
    record = kit.journal.store.find_pairing(str(details["pairing_id"]))
    assert record is not None
    return record, str(details["code"])


# --- routing -------------------------------------------------------------------------------------


async def test_an_unknown_channel_is_refused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """No run starts, and the remedy is named."""
    async with running(store) as kit:
        with pytest.raises(NotFound, match="palyra channels set chat --principal ann"):
            await kit.start(**CHAT)
        assert [] == store.list_runs(RunFilter())


async def test_a_conversation_keeps_its_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The same channel and conversation lead to the same session, over a restart as well."""
    async with running(store) as kit:
        await bind(kit)
        first = await kit.start(**CHAT)
        other = await kit.start(**{**CHAT, "conversation_id": "2"})
        await kit.end(first)
        await kit.end(other)
        found = [await session_of(kit, run_id) for run_id in (first, other)]
        assert found[0] != found[1]
    async with running(store) as kit:
        again = await kit.start(**CHAT)
        assert found[0] == await session_of(kit, again)
        (accepted,) = kit.events(again, "run.accepted")
        assert ("chat", "1", None) == (
            accepted.channel,
            accepted.conversation_id,
            accepted.sender,
        )


async def test_two_messages_at_once_share_the_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The second message finds the session that the first one is creating."""
    async with running(store) as kit:
        await bind(kit)
        runs: list[str] = []

        async def send() -> None:
            runs.append(await kit.start(**CHAT))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(send)
        sessions = {await session_of(kit, run_id) for run_id in runs}
        assert 1 == len(sessions)


async def test_a_conversation_may_have_an_agent_of_its_own(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The record of the conversation wins over that of the channel, until it is deleted."""
    async with running(store) as kit:
        for name in ("scout", "clerk"):
            await make_agent(kit, name)
        await bind(kit, agent="clerk")
        await bind(kit, agent="scout", conversation_id="2")
        names = []
        for conversation_id in ("1", "2"):
            await kit.end(await kit.start(channel="chat", conversation_id=conversation_id))
            names.append(kit.model.requests[-1].agent)
        assert ["clerk", "scout"] == names
        await kit.services.channels.delete(
            OPERATOR, principal="ann", channel="chat", conversation_id="2"
        )
        await kit.end(await kit.start(channel="chat", conversation_id="2"))
        assert "clerk" == kit.model.requests[-1].agent


async def test_another_agent_is_another_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Agent, channel and conversation together name the session; the old one is not entered."""
    async with running(store) as kit:
        await make_agent(kit, "scout")
        await bind(kit)
        run_id = await kit.start(**CHAT)
        await kit.end(run_id)
        before = await session_of(kit, run_id)
        await bind(kit, agent="scout")
        after = await session_of(kit, await kit.start(**CHAT))
        assert before != after
        with pytest.raises(InvalidParams, match="leave session_id out"):
            await kit.start(**CHAT, session_id=before)
        await bind(kit)
        assert before == await session_of(kit, await kit.start(**CHAT))


async def test_no_way_round_the_channel(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """A channel's session is not entered from elsewhere, nor another one through the channel."""
    async with running(store) as kit:
        await bind(kit)
        inside = await session_of(kit, await kit.start(**CHAT))
        outside = await session_of(kit, await kit.start(session_key="k"))
        for fields in (
            {"session_id": inside},
            {**CHAT, "conversation_id": "2", "session_id": inside},
            {**CHAT, "session_id": outside},
        ):
            with pytest.raises(InvalidParams) as caught:
                await kit.start(**fields)
            assert "session_id" == caught.value.field
        assert inside == await session_of(kit, await kit.start(**CHAT, session_id=inside))


async def test_channels_never_cross_principals(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A channel of ann's is none of bob's: neither its binding, nor its pairings, nor its session."""
    async with running(store) as kit:
        await bind(kit)
        anns = await session_of(kit, await kit.start(**CHAT))
        with pytest.raises(NotFound):
            await kit.start(caller=OTHER, **CHAT)
        await bind(kit, principal="bob", pairing="required")
        record, code = await ask_in(kit, caller=OTHER)
        await kit.services.channels.approve(OPERATOR, record.pairing_id, code)
        with pytest.raises(NotFound):
            await kit.start(caller=OTHER, **SAM, session_id=anns)
        bobs = await session_of(kit, await kit.start(caller=OTHER, **SAM))
        assert anns != bobs
        await bind(kit, pairing="required")
        with pytest.raises(Unpaired):
            await kit.start(**SAM)


async def test_an_archived_conversation_gets_a_new_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Also while the old session is live, and after a restart."""
    async with running(store) as kit:
        await bind(kit)
        kit.model.turns = [trio.Event()]
        first = await session_of(kit, await kit.start(**CHAT))
        await kit.sessions.archive(OPERATOR, first)
        second = await session_of(kit, await kit.start(**CHAT))
        assert first != second
        assert second == await session_of(kit, await kit.start(**CHAT))
    async with running(store) as kit:
        assert second == await session_of(kit, await kit.start(**CHAT))


@pytest.mark.parametrize("field", ["channel", "conversation_id", "sender"])
async def test_a_place_holds_no_secret(
    store: MemoryJournal, autojump_clock: MockClock, field: str
) -> None:
    """Names of places are stored and shown as they are."""
    async with running(store) as kit:
        await bind(kit)
        with pytest.raises(InvalidParams, match="contains a secret") as caught:
            await kit.start(**{**SAM, field: SECRET})
        assert (field, False) == (caught.value.field, SECRET in caught.value.message)


# --- pairing -------------------------------------------------------------------------------------


async def test_an_unpaired_sender_starts_nothing(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """No run, no session, no turn: only a request that an operator may approve."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        record, code = await ask_in(kit)
        assert ("sam", "pending") == (record.sender, record.state)
        assert code not in repr(record)
        assert [] == store.list_runs(RunFilter())
        assert [] == store.list_sessions(None, before=None, limit=9)
        assert [] == kit.model.requests
        await bind(kit, pairing="open")
        assert "done" == await kit.end(await kit.start(**SAM))


async def test_an_approved_sender_is_let_in(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The code pairs only this sender, over restarts, until it is revoked."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        record, code = await ask_in(kit)
        paired = await kit.services.channels.approve(OPERATOR, record.pairing_id, code)
        assert ("paired", "ann") == (paired.state, paired.by)
    async with running(store) as kit:
        run_id = await kit.start(**SAM)
        assert "done" == await kit.end(run_id)
        assert "sam" == kit.events(run_id, "run.accepted")[0].sender
        with pytest.raises(Unpaired):
            await kit.start(**{**SAM, "sender": "eve"})
        with pytest.raises(Unpaired):
            await kit.start(**{**SAM, "sender": "Sam"})
        await kit.services.channels.revoke(OPERATOR, record.pairing_id)
        with pytest.raises(Unpaired):
            await kit.start(**SAM)


async def test_a_pairing_is_for_one_channel(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A sender that is paired in one channel is unpaired in the next."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        await bind(kit, "mail", pairing="required")
        record, code = await ask_in(kit)
        await kit.services.channels.approve(OPERATOR, record.pairing_id, code)
        with pytest.raises(Unpaired):
            await kit.start(**{**SAM, "channel": "mail"})


async def test_the_sender_must_be_named(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """A channel with pairing refuses a message without a sender."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        with pytest.raises(InvalidParams) as caught:
            await kit.start(**CHAT)
        assert "sender" == caught.value.field


async def test_one_code_at_a_time(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """While a code is out, further messages get none; when it has expired, another."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        record, code = await ask_in(kit)
        with pytest.raises(Unpaired, match="earlier code") as caught:
            await kit.start(**SAM)
        assert {"pairing_id": record.pairing_id} == caught.value.details
        autojump_clock.jump(CODE_TTL_MS / 1000)
        with pytest.raises(IllegalState, match="expired"):
            await kit.services.channels.approve(OPERATOR, record.pairing_id, code)
        again, other = await ask_in(kit)
        assert (record.pairing_id, True) == (again.pairing_id, code != other)
        with pytest.raises(InvalidParams):
            await kit.services.channels.approve(OPERATOR, record.pairing_id, code)
        await kit.services.channels.approve(OPERATOR, record.pairing_id, other)
        await kit.start(**SAM)


async def test_wrong_codes_use_up_the_attempts(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Each is counted in the journal; then the right one is refused too, also after a restart."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        record, code = await ask_in(kit)
        for left in range(MAX_ATTEMPTS - 1, -1, -1):
            with pytest.raises(InvalidParams, match=pluralize(left, "attempt") + " left"):
                await kit.services.channels.approve(OPERATOR, record.pairing_id, "AAAA-AAAA")
    async with running(store) as kit:
        with pytest.raises(IllegalState, match="wrong codes"):
            await kit.services.channels.approve(OPERATOR, record.pairing_id, code)
        record, fresh = await ask_in(kit)  # the sender's next message asks anew
        assert 0 == record.attempts
        await kit.services.channels.approve(OPERATOR, record.pairing_id, fresh)
        await kit.start(**SAM)


async def test_attempts_at_once_are_all_counted_or_refused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Guessing in parallel buys no attempt that is not counted."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        record, _ = await ask_in(kit)
        kit.journal.hold = True
        outcomes: list[str] = []

        async def guess() -> None:
            try:
                await kit.services.channels.approve(OPERATOR, record.pairing_id, "AAAA-AAAA")
            except (InvalidParams, Conflict) as refused:
                outcomes.append(type(refused).__name__)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(guess)
            await wait_all_tasks_blocked(0.0001)
            kit.journal.flush()
        assert ["Conflict"] * 3 + ["InvalidParams"] == sorted(outcomes)
        found = store.find_pairing(record.pairing_id)
        assert found is not None
        assert 1 == found.attempts


async def test_two_first_messages_share_one_code(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Of two concurrent messages one gets the code, the other learns that there is one."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        kit.journal.hold = True
        told: list[bool] = []

        async def send() -> None:
            try:
                await kit.start(**SAM)
            except Unpaired as unpaired:
                told.append("code" in (unpaired.details or {}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(send)
            await wait_all_tasks_blocked(0.0001)
            kit.journal.flush()
        assert [False, True] == sorted(told)


async def test_pairing_requests_are_bounded(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Above the limit there is no code and no record."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        for number in range(MAX_PENDING):
            await ask_in(kit, sender=f"stranger {number}")
        with pytest.raises(Unpaired, match="which is the limit") as caught:
            await kit.start(**SAM)
        assert None is caught.value.details
        assert MAX_PENDING == len(store.list_pairings(PairingFilter(limit=500)))
        autojump_clock.jump(CODE_TTL_MS / 1000)
        await ask_in(kit)


# --- operators -----------------------------------------------------------------------------------


async def test_only_operators_manage_channels(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A client cannot set a channel, list senders, or approve itself."""
    async with running(store) as kit:
        channels = kit.services.channels
        await bind(kit, principal="eve", pairing="required")
        record, code = await ask_in(kit, caller=STRANGER)
        wanted = SetChannel(principal="eve", channel="chat", agent="default", pairing="open")
        with pytest.raises(Forbidden):
            await channels.set(STRANGER, wanted)
        with pytest.raises(Forbidden):
            await channels.delete(STRANGER, principal="eve", channel="chat", conversation_id="")
        with pytest.raises(Forbidden):
            await channels.approve(STRANGER, record.pairing_id, code)
        with pytest.raises(Forbidden):
            await channels.revoke(STRANGER, record.pairing_id)
        with pytest.raises(Forbidden):
            await channels.list_all(STRANGER, None)
        with pytest.raises(Forbidden):
            await channels.list_pairings(STRANGER, PairingFilter())
        with pytest.raises(Unpaired):
            await kit.start(caller=STRANGER, **SAM)


async def test_channels_are_set_listed_and_deleted(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Setting again changes; deleting ends what came in there, and can be undone by setting."""
    async with running(store) as kit:
        channels = kit.services.channels
        await bind(kit)
        await bind(kit, pairing="required")
        await bind(kit, "mail", principal="bob")
        found = await channels.list_all(OPERATOR, None)
        assert [("ann", "chat", "required"), ("bob", "mail", "open")] == [
            (one.principal, one.channel, one.pairing) for one in found
        ]
        assert found[:1] == await channels.list_all(OPERATOR, "ann")
        gone: dict[str, Any] = {"principal": "ann", "channel": "chat", "conversation_id": ""}
        await channels.delete(OPERATOR, **gone)
        with pytest.raises(NotFound):
            await channels.delete(OPERATOR, **gone)
        with pytest.raises(NotFound):
            await kit.start(**CHAT)
        await bind(kit)
        await kit.start(**CHAT)


async def test_an_invalid_channel_is_refused(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown agents, secrets and one channel above the limit are refused."""
    async with running(store) as kit:
        with pytest.raises(InvalidParams, match="no agent 'scout'"):
            await bind(kit, agent="scout")
        with pytest.raises(InvalidParams, match="contains a secret"):
            await bind(kit, conversation_id=SECRET)
        monkeypatch.setattr("palyra.services.registry.channels.MAX_CHANNELS", 1)
        await bind(kit)
        await bind(kit, pairing="required")
        with pytest.raises(TooLarge):
            await bind(kit, "mail")


async def test_a_channel_without_its_agent_is_an_error(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """No other agent answers."""
    async with running(store) as kit:
        await make_agent(kit, "scout")
        await bind(kit, agent="scout")
        await kit.services.agents.delete(OPERATOR, "scout")
        with pytest.raises(InvalidParams, match="no agent 'scout'"):
            await kit.start(**CHAT)


async def test_unknown_pairings_are_not_there(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Neither approved nor revoked."""
    async with running(store) as kit:
        with pytest.raises(NotFound):
            await kit.services.channels.approve(OPERATOR, "pai_x", "code")
        with pytest.raises(NotFound):
            await kit.services.channels.revoke(OPERATOR, "pai_x")


class Inbox:
    """A connection that keeps its notices."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.notices: list[bytes] = []

    def notify(self, message: bytes) -> None:
        self.notices.append(message)

    def hang_up(self, code: int, reason: str) -> None:
        raise AssertionError((code, reason))


async def test_operators_are_notified_of_a_request(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Once for each code, without it; other clients are not."""
    async with running(store) as kit:
        inboxes = [Inbox(caller) for caller in (OPERATOR, STRANGER)]
        for inbox in inboxes:
            kit.hub.attach(inbox)
        await bind(kit, principal="eve", pairing="required")
        record, code = await ask_in(kit, caller=STRANGER)
        with pytest.raises(Unpaired):
            await kit.start(caller=STRANGER, **SAM)
        (notice,) = inboxes[0].notices
        assert b"pairing.requested" in notice
        assert record.pairing_id.encode() in notice
        assert code.replace("-", "").encode() not in notice
        assert record.code_sha256.encode() not in notice
        assert [] == inboxes[1].notices


async def test_a_receipt_is_kept_with_each_change(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Approving is one commit with its receipt; revoking twice changes nothing further."""
    async with running(store) as kit:
        await bind(kit, pairing="required")
        record, code = await ask_in(kit)
        key = IdempotencyKey(principal="ann", key="k", body_sha256="00")
        await kit.services.channels.approve(OPERATOR, record.pairing_id, code, key)
        assert None is not store.find_receipt("ann", "k", now_ms=0)
        first = await kit.services.channels.revoke(OPERATOR, record.pairing_id)
        assert first == await kit.services.channels.revoke(OPERATOR, record.pairing_id)
        assert [first] == await kit.services.channels.list_pairings(OPERATOR, PairingFilter())
