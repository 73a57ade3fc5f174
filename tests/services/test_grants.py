"""Grants: what a person allowed beyond one call, for what it holds, and how it ends."""

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.access import Caller
from palyra.core.journal.changes import Change
from palyra.core.journal.records import GrantRecord
from palyra.core.policy.grants import MAX_LIVE
from palyra.core.run.calls import LAPSED
from palyra.errors import Forbidden, InvalidParams, NotFound, Overloaded
from palyra.services.policy.grants import MOST_EARLY
from tests.actors.run.asking_kit import AskingKit, answer, ask, count_asked, new_store, pending
from tests.actors.run.office_kit import OPERATOR, OTHER, STRANGER, Kit, call, running, say
from tests.store.memory.journal import MemoryJournal

HOUR_MS = 3_600_000


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    """A journal for one test, of a daemon whose tools have keys."""
    monkeypatch.setattr("tests.actors.run.office_kit.Kit", AskingKit)
    return new_store()


async def grant(kit: Kit, **fields: Any) -> str:
    """The session of a run whose call was allowed with this scope."""
    run_id = await ask(kit)
    (asked,) = await pending(kit, run_id)
    resolved = await answer(kit, asked, **fields)
    assert await kit.end(run_id) == "done"
    assert resolved.grant_id == f"grt_{asked.approval_id.removeprefix('apr_')}"
    return asked.session_id


async def test_a_timeboxed_grant_of_200_ms_asks_twice_over_three_runs(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The first run is asked, the second is not, the third is asked after the expiry."""
    async with running(store) as kit:
        asked = []
        for pause_s in (0, 0.1, 0.3):
            await trio.sleep(pause_s)
            run_id = await ask(kit)
            asked.append(await count_asked(kit, run_id))
            for question in await pending(kit, run_id):
                await answer(kit, question, scope="timeboxed", ttl_ms=200)
            assert await kit.end(run_id) == "done"
        assert (asked, kit.effects) == ([1, 0, 1], ["git status"] * 3)


async def test_allow_once_is_never_used_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The same call, in the same session, is asked each time."""
    async with running(store) as kit:
        for _ in range(3):
            run_id = await ask(kit, session_key="work")
            (question,) = await pending(kit, run_id)
            await answer(kit, question)
            await kit.end(run_id)
        assert len(kit.effects) == 3


OUTSIDE: list[dict[str, Any]] = [
    {"text": "rm -r"},
    {"text": "gitk"},
    {"tool": "ask_other"},
    {"session_id": None},
    {"session_id": None, "caller": OTHER},
]


@pytest.mark.parametrize("other", OUTSIDE)
async def test_a_session_grant_holds_for_its_key_in_its_session(
    store: MemoryJournal, autojump_clock: MockClock, other: dict[str, Any]
) -> None:
    """Another argument of the same key runs; another key, tool, session or principal asks."""
    async with running(store) as kit:
        session_id = await grant(kit, scope="session")
        same = await ask(kit, "git log", session_id=session_id)
        assert await count_asked(kit, same) == 0
        assert kit.effects == ["git status", "git log"]
        assert kit.events(same, "tool.decided")[0].reason_code == "granted"
        run_id = await ask(kit, **({"session_id": session_id} | other))
        assert await count_asked(kit, run_id) == 1


async def test_a_timeboxed_grant_applies_to_the_principal(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In every session of that principal, and in no other's."""
    async with running(store) as kit:
        await grant(kit, scope="timeboxed", ttl_ms=HOUR_MS)
        assert await count_asked(kit, await ask(kit)) == 0
        assert await count_asked(kit, await ask(kit, caller=OTHER)) == 1


async def test_another_agent_has_to_ask_itself(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A grant is for the agent whose call was allowed."""
    from palyra.core.agent import AgentChange  # noqa: PLC0415 - only here

    async with running(store) as kit:
        await kit.services.agents.create(OPERATOR, "scout", AgentChange(instructions="Look."))
        await grant(kit, scope="timeboxed", ttl_ms=HOUR_MS)
        assert await count_asked(kit, await ask(kit, agent="scout")) == 1


async def test_a_reset_ends_the_grants_of_the_session(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Those of the session, and no timeboxed one; the record says so, durably."""
    async with running(store) as kit:
        session_id = await grant(kit, scope="session")
        await kit.sessions.reset(OPERATOR, session_id)
        run_id = await ask(kit, session_id=session_id)
        assert await count_asked(kit, run_id) == 1
        (record,) = store.list_grants(principal=None, live_at_ms=None, limit=9)
        assert record.ended_by == "session.reset"
        (question,) = await pending(kit, run_id)
        await answer(kit, question, scope="timeboxed", ttl_ms=HOUR_MS)
        await kit.sessions.reset(OPERATOR, session_id)
        assert await count_asked(kit, await ask(kit, session_id=session_id)) == 0


async def test_a_revoked_grant_no_longer_applies(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Later calls ask; revoking it twice changes nothing."""
    async with running(store) as kit:
        session_id = await grant(kit, scope="session")
        grants = kit.services.grants
        (live,) = await grants.list_seen(OPERATOR, live_only=True, limit=9)
        ended = await grants.revoke(OTHER, live.grant_id)
        assert (ended.ended_by, await grants.revoke(OPERATOR, live.grant_id)) == ("bob", ended)
        assert await grants.list_seen(OPERATOR, live_only=True, limit=9) == []
        assert await grants.list_seen(OPERATOR, live_only=False, limit=9) == [ended]
        assert await count_asked(kit, await ask(kit, session_id=session_id)) == 1


async def test_two_may_end_a_grant_at_once(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """The first end is final, and the second request gets it."""
    async with running(store) as kit:
        await grant(kit, scope="session")
        grants, ended = kit.services.grants, list[GrantRecord]()
        (live,) = await grants.list_seen(OPERATOR, live_only=True, limit=9)

        async def revoke(caller: Caller) -> None:
            ended.append(await grants.revoke(caller, live.grant_id))

        kit.journal.hold = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(revoke, OPERATOR)
            nursery.start_soon(revoke, OTHER)
            await wait_all_tasks_blocked()
            kit.journal.release()
        assert ended == [ended[0]] * 2


@pytest.mark.parametrize("end", ["nothing", "its time", "somebody", "a reset"])
async def test_a_call_allowed_by_an_ended_grant_does_not_start(
    store: MemoryJournal, autojump_clock: MockClock, end: str
) -> None:
    """It waited for the approval of another call; the model gets the reason."""
    ten = {"scope": "timeboxed", "ttl_ms": 600_000}
    async with running(store) as kit:
        session_id = await grant(kit, **({"scope": "session"} if end == "a reset" else ten))
        kit.model.turns = [
            call(("ask_do", {"text": "git log"}), ("ask_do", {"text": "rm x"})), say("done"),
        ]  # fmt: skip
        run_id = await kit.start(session_id=session_id, origin="delegated")  # outlives a reset
        await wait_all_tasks_blocked()
        (asked,) = await pending(kit, run_id)
        await trio.sleep(700 if end == "its time" else 500)
        if end == "somebody":
            await kit.services.grants.revoke(OTHER, a_grant_of(store).grant_id)
        elif end == "a reset":
            await kit.sessions.reset(OPERATOR, session_id)
        await answer(kit, asked)
        assert await kit.end(run_id) == "done"
        held = end == "nothing"
        assert kit.effects == ["git status", *(["git log"] if held else []), "rm x"]
        last = kit.events(run_id, "tool.decided")[-1]
        assert held or (last.verdict, last.reason) == ("deny", LAPSED)


def a_grant_of(store: MemoryJournal) -> GrantRecord:
    """The only one there is."""
    (found,) = store.list_grants(principal=None, live_at_ms=None, limit=9)
    return found


async def test_a_grant_that_ends_during_its_commit_never_applies(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Its commit is durable and not yet announced when it ends."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        runs = [await ask(kit, text) for text in ("git a", "git b")]
        (asked,) = await pending(kit, runs[0])
        kit.journal.hold = True
        nursery.start_soon(lambda: answer(kit, asked, scope="timeboxed", ttl_ms=HOUR_MS))
        await wait_all_tasks_blocked()
        store.commit([change for change, _ in kit.journal.queued])
        nursery.start_soon(kit.services.grants.revoke, OTHER, a_grant_of(store).grant_id)
        await wait_all_tasks_blocked()
        kit.journal.release()
        await wait_all_tasks_blocked()
        assert a_grant_of(store).ended_by == "bob"
        assert [left.run_id for left in await pending(kit)] == [runs[1]]
        assert await count_asked(kit, await ask(kit, "git c")) == 1


async def test_the_memory_of_early_ends_is_bounded(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Ends of grants that were never announced are dropped."""
    many = [a_grant(f"grt_{number}") for number in range(MOST_EARLY + 3)]
    async with running(store) as kit:
        store.commit([Change(records=tuple(many))])
        grants = kit.services.grants
        for each in many:
            assert (await grants.revoke(OPERATOR, each.grant_id)).ended_by == OPERATOR.principal
        assert [grants.add(each) for each in many] == [True] * 3 + [False] * MOST_EARLY
        assert [grants.add(each) for each in many[3:]] == [True] * MOST_EARLY  # each is told once


async def test_a_repeated_early_end_is_remembered_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A repeated end displaces no other one."""
    first, second = a_grant("grt_1"), a_grant("grt_2")
    async with running(store) as kit, trio.open_nursery() as nursery:
        store.commit([Change(records=(first, second))])
        grants = kit.services.grants
        await grants.revoke(OPERATOR, first.grant_id)
        kit.journal.hold = True
        for _ in range(MOST_EARLY):
            nursery.start_soon(grants.revoke, OPERATOR, second.grant_id)
        await wait_all_tasks_blocked()
        assert not grants.add(first)
        kit.journal.release()


async def test_a_session_grant_answers_no_question_from_before_a_reset(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Nor one from after it, when it is from before: a delegated run outlives the reset."""
    async with running(store) as kit:
        before = await ask(kit, "git a", session_key="work", origin="delegated")
        (old,) = await pending(kit, before)
        await kit.sessions.reset(OPERATOR, old.session_id)
        after = await ask(kit, "git b", session_id=old.session_id)
        (new,) = await pending(kit, after)
        await answer(kit, new, scope="session")
        await wait_all_tasks_blocked()
        assert [left.run_id for left in await pending(kit)] == [before]


async def test_roles_that_see_and_end_grants(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A client sees its own grants and ends none; others do not exist for it."""
    async with running(store) as kit:
        await grant(kit, scope="session")
        grants = kit.services.grants
        (live,) = await grants.list_seen(OPERATOR, live_only=True, limit=9)
        assert await grants.list_seen(STRANGER, live_only=True, limit=9) == []
        with pytest.raises(Forbidden):
            await grants.revoke(STRANGER, live.grant_id)
        with pytest.raises(NotFound):
            await grants.revoke(OPERATOR, "grt_x")


async def test_a_grant_answers_what_is_asked_already(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Questions with its key are answered at once, others stay."""
    async with running(store) as kit:
        runs = [await ask(kit, text) for text in ("git a", "git b", "rm c")]
        (first,) = await pending(kit, runs[0])
        await answer(kit, first, scope="timeboxed", ttl_ms=HOUR_MS)
        assert [await kit.end(run_id) for run_id in runs[:2]] == ["done", "done"]
        (resolved,) = kit.events(runs[1], "approval.resolved")
        assert (resolved.decision, resolved.by, resolved.grant_id) == ("allow", "ann", None)
        assert sorted(kit.effects) == ["git a", "git b"]
        assert [asked.run_id for asked in await pending(kit)] == [runs[2]]


async def test_a_session_grant_answers_nothing_in_other_sessions(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The control of the test above: without the key's session the question stays."""
    async with running(store) as kit:
        first, second = await ask(kit, "git a"), await ask(kit, "git b")
        (asked,) = await pending(kit, first)
        await answer(kit, asked, scope="session")
        await wait_all_tasks_blocked()
        assert [left.run_id for left in await pending(kit)] == [second]


async def test_a_denial_is_remembered_only_when_the_person_says_so(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A denial once asks again in the next run; a denial for a time does not."""
    async with running(store) as kit:
        for scope in ({}, {"scope": "timeboxed", "ttl_ms": HOUR_MS}):
            run_id = await ask(kit)
            (asked,) = await pending(kit, run_id)
            await answer(kit, asked, "deny", reason="not now", **scope)
            assert await kit.end(run_id) == "done"
        run_id = await ask(kit)
        assert await count_asked(kit, run_id) == 0
        (decided,) = kit.events(run_id, "tool.decided")
        assert (decided.verdict, decided.reason_code) == ("deny", "denied_by_grant")
        assert decided.grant_id in decided.reason
        assert "ann denied ask_do for git (timeboxed): not now; ending grt_" in decided.reason
        assert kit.effects == []


async def test_grants_survive_a_restart(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Valid grants are read from the journal; expired ones are not."""
    async with running(store) as kit:
        await grant(kit, scope="timeboxed", ttl_ms=60_000)
    async with running(store) as kit:
        assert await count_asked(kit, await ask(kit)) == 0
    await trio.sleep(HOUR_MS / 1_000)
    async with running(store) as kit:
        assert await count_asked(kit, await ask(kit)) == 1


async def test_a_grant_is_committed_with_its_answer(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Before the commit it does not hold, and a crash then leaves nothing of it."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        kit.journal.hold = True
        nursery.start_soon(lambda: answer(kit, asked, scope="timeboxed", ttl_ms=HOUR_MS))
        await wait_all_tasks_blocked()
        found = kit.services.grants.find("ann", "default", "ask_do", "git", "default")
        assert (found, store.list_grants(principal=None, live_at_ms=None, limit=9)) == ((), [])
        kit.journal.release()
        await wait_all_tasks_blocked()
        assert len(kit.services.grants.find("ann", "default", "ask_do", "git", "default")) == 1


BAD: list[dict[str, Any]] = [
    {"scope": "timeboxed"},
    {"scope": "timeboxed", "ttl_ms": 25 * HOUR_MS},
    {"scope": "session", "ttl_ms": 5},
    {"ttl_ms": 5},
]


@pytest.mark.parametrize("fields", BAD)
async def test_a_time_goes_with_timeboxed_and_with_nothing_else(
    store: MemoryJournal, autojump_clock: MockClock, fields: dict[str, Any]
) -> None:
    """A bad one is refused, names the field, and leaves the question open."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        with pytest.raises(InvalidParams) as refused:
            await answer(kit, asked, **fields)
        assert refused.value.field == "ttl_ms"
        assert len(await pending(kit, run_id)) == 1


async def test_a_call_without_a_key_is_asked_about_each_time(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """There is nothing an answer beyond once could hold for."""
    async with running(store) as kit:
        run_id = await ask(kit, tool="ask_note")
        (asked,) = await pending(kit, run_id)
        assert (asked.scopes, asked.grant_key) == (("once",), "")
        with pytest.raises(InvalidParams, match="scope"):
            await answer(kit, asked, scope="session")


async def test_there_are_only_so_many_grants(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Over the limit an answer beyond once is refused; once is always possible."""
    async with running(store) as kit:
        run_id = await ask(kit)
        for number in range(MAX_LIVE):
            kit.services.grants.add(a_grant(f"grt_{number}"))
        (asked,) = await pending(kit, run_id)
        with pytest.raises(Overloaded, match="revoke some"):
            await answer(kit, asked, scope="session")
        await answer(kit, asked)
        assert await kit.end(run_id) == "done"


def a_grant(grant_id: str) -> GrantRecord:
    """One for something else."""
    return GrantRecord(
        grant_id=grant_id, principal="ann", agent="default", tool="ask_do", key="cargo",
        decision="allow", scope="session", session_id="ses_x", epoch=0, approval_id="apr_x",
        by="ann", granted_ms=0,
    )  # fmt: skip


async def test_only_what_holds_for_the_principal_takes_room(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Neither grants of others nor those whose time is over."""
    async with running(store) as kit:
        grants = kit.services.grants
        gone = {"scope": "timeboxed", "expires_ms": 0}
        for number in range(2 * MAX_LIVE):
            one = msgspec.structs.replace(a_grant(f"grt_{number}"), key=f"key {number}")
            grants.add(
                msgspec.structs.replace(one, **({"principal": "bob"} if number % 2 else gone))
            )
        grants.check_room("ann")


async def test_a_start_counts_only_valid_grants(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Grants that ended by time, reset or revocation do not count against the limit."""
    async with running(store) as kit:
        grants, one = kit.services.grants, a_grant("grt_1")
        of_one = (one.principal, one.agent, one.tool, one.key, one.workspace)
        grants.add(one)
        grants.put([])
        assert () == grants.find(*of_one)
        over = msgspec.structs.replace(a_grant("grt_0"), scope="timeboxed", expires_ms=0)
        elsewhere = msgspec.structs.replace(a_grant("grt_2"), session_id="ses_y")
        for each in (over, one, elsewhere):
            grants.add(each)
        assert (one, elsewhere) == grants.find(*of_one)
        assert ["grt_1"] == [each.grant_id for each in grants.end_session("ses_x")]
        assert (elsewhere,) == grants.find(*of_one)
        grants.end_session("ses_y")
        assert not grants._live


async def test_an_expired_grant_cannot_be_revoked(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A later revocation changes nothing."""
    async with running(store) as kit:
        over = msgspec.structs.replace(a_grant("grt_1"), scope="timeboxed", expires_ms=0)
        store.commit([Change(records=(over,))])
        assert over == await kit.services.grants.revoke(OPERATOR, "grt_1")
        assert over == a_grant_of(store)


async def test_the_prompt_says_what_an_answer_would_hold_for(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Record and event show the key and the scopes."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        (event,) = kit.events(run_id, "approval.requested")
        assert (asked.grant_key, event.grant_key) == ("git", "git")
        assert asked.scopes == event.scopes == ("once", "session", "timeboxed")


async def test_an_unattended_run_may_use_a_grant(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Without one it is denied at once, with the reason."""
    async with running(store) as kit:
        run_id = await ask(kit, origin="background", approval_mode="deny")
        assert kit.events(run_id, "tool.decided")[0].reason_code == "no_approver"
        await grant(kit, scope="timeboxed", ttl_ms=HOUR_MS)
        run_id = await ask(kit, origin="background", approval_mode="deny")
        assert kit.events(run_id, "tool.decided")[0].reason_code == "granted"
        run_id = await ask(kit, approval_mode="deny", text="rm")
        assert kit.events(run_id, "tool.decided")[0].reason_code == "no_approver"
