"""Questions to people: what is approved is what runs, once, by whom the token says, under the rules."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.run import actor as run_actors
from palyra.actors.run.approval import ApprovalAnswer, Granted
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.channel import SetChannel
from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.views import Resolved
from palyra.core.run.environment import RunLimits
from palyra.core.tool.spec import Preflight, ToolCall, ToolFailure
from palyra.errors import DigestMismatch, Forbidden, NotFound
from palyra.tools.toolbox import Toolbox
from tests.actors.run.asking_kit import (
    WORLD,
    AskingKit,
    answer,
    ask,
    count_asked,
    new_store,
    pending,
)
from tests.actors.run.office_kit import OPERATOR, OTHER, Kit, call, running, say
from tests.services.test_grants import a_grant
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    """A journal for one test, of a daemon whose tools ask."""
    monkeypatch.setattr("tests.actors.run.office_kit.Kit", AskingKit)
    return new_store()


def asking(kit: Kit) -> AskingKit:
    """The kit, as what it is."""
    assert isinstance(kit, AskingKit)
    return kit


# --- what is approved is what runs ---------------------------------------------------------------

OTHER_WORLDS: dict[str, Preflight | ToolFailure | OSError] = {
    "binary": msgspec.structs.replace(WORLD, binary="/tmp/git"),  # noqa: S108 - a name
    "cwd": msgspec.structs.replace(WORLD, cwd="src/.."),
    "variable": msgspec.structs.replace(WORLD, environment={"LANG": "C"}),
    "one more": msgspec.structs.replace(WORLD, environment={"LANG": "C.UTF-8", "LD_PRELOAD": ""}),
    "one less": msgspec.structs.replace(WORLD, environment={}),
    "content": msgspec.structs.replace(WORLD, operands={"a.py": "1" * 64}),
    "operand": msgspec.structs.replace(WORLD, operands={"b.py": "0" * 64}),
    "profile": msgspec.structs.replace(WORLD, profile="network"),
    "gone": ToolFailure("a.py is not there any more"),
    "forbidden": PermissionError(13, "Permission denied", "/proc/1/exe"),
}


@pytest.mark.parametrize("change", sorted(OTHER_WORLDS))
async def test_a_call_whose_surroundings_changed_does_not_run(
    store: MemoryJournal, autojump_clock: MockClock, change: str
) -> None:
    """Any single difference from the approved inspection refuses the call without effect."""
    async with running(store) as kit:
        run_id = await ask(kit, tool="ask_look")
        (asked,) = await pending(kit, run_id)
        asking(kit).world = OTHER_WORLDS[change]
        await answer(kit, asked)
        assert await kit.end(run_id) == "done"
        (completed,) = kit.events(run_id, "tool.completed")
        assert (completed.status, kit.effects) == ("failed", [])


OTHER_CALLS: dict[str, list[Any]] = {
    "call_id": ["call_x"],
    "run_id": ["run_x"],
    "session_id": ["ses_x"],
    "principal": ["bob"],
    "tool": ["ask_do", "note"],
    "tool_version": ["2"],
    "arguments": [
        {}, {"text": "git log"}, {"text": "git status "}, {"text": 1}, {"text": 1.5}, {"text": True},
        {"text": None}, {"text": ["git status"]}, {"text": {"git": "status"}}, {"Text": "git status"},
        {"text": "git status", "more": ""},
    ],
    "workspace": ["site", ""],
}  # fmt: skip


@pytest.mark.parametrize("field", [*sorted(OTHER_CALLS), "nothing"])
async def test_another_call_than_the_approved_one_does_not_run(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Whatever field of it were exchanged, for whatever value: nothing happens."""
    fields = {each.name for each in msgspec.structs.fields(ToolCall)}
    from_run = {
        "audience",
        "trust",
    }  # read from the tape of run_id, which is covered
    assert fields - {"inspection"} - from_run == OTHER_CALLS.keys()  # of that the test above
    actor_type = run_actors._RunActor
    as_approved = actor_type.tool_call
    for value in OTHER_CALLS.get(field, [None]):
        changes = {} if field == "nothing" else {field: value}
        async with running(store) as kit:
            run_id = await ask(kit, tool="ask_look")
            (asked,) = await pending(kit, run_id)
            with monkeypatch.context() as patch:
                patch.setattr(
                    actor_type,
                    "tool_call",
                    lambda actor, call_id, changes=changes: msgspec.structs.replace(
                        as_approved(actor, call_id), **changes
                    ),
                )
                assert (await answer(kit, asked)).won
                await wait_all_tasks_blocked()
            assert kit.effects == (["git status"] if field == "nothing" else [])
            await kit.gateway.cancel_run(OPERATOR, run_id, "enough")


async def test_control_an_unchanged_call_runs(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It is inspected before the approval and before the start, and then it runs."""
    async with running(store) as kit:
        run_id = await ask(kit, tool="ask_look")
        (asked,) = await pending(kit, run_id)
        assert asked.inspection == msgspec.to_builtins(WORLD)
        await answer(kit, asked)
        assert await kit.end(run_id) == "done"
        assert (kit.effects, asking(kit).looks) == (["git status"], 2)


async def test_a_failed_inspection_asks_no_approval(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The model gets the reason of the failure."""
    async with running(store) as kit:
        asking(kit).world = ToolFailure("no program gti")
        run_id = await ask(kit, tool="ask_look")
        assert kit.events(run_id, "tool.rejected")[0].reason == "no program gti"
        assert await count_asked(kit, run_id) == 0


async def test_an_operating_system_error_in_the_inspection_ends_the_call(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It ends the call, not the run's actor."""
    async with running(store) as kit:
        asking(kit).world = PermissionError(13, "Permission denied", "/proc/1/exe")
        run_id = await ask(kit, tool="ask_look")
        reason = kit.events(run_id, "tool.rejected")[0].reason
        assert reason == "the preflight of ask_look failed: permission denied"
        assert await kit.end(run_id) == "done"


async def test_an_inspection_has_a_deadline(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model learns the time limit; no approval is asked."""

    async def forever(_toolbox: Any, _call: Any) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Toolbox, "inspect", forever)
    async with running(store) as kit:
        run_id = await ask(kit, tool="ask_look")
        assert (
            "the preflight of ask_look took longer than 10 s"
            in kit.events(run_id, "tool.rejected")[0].reason
        )


async def test_a_denied_call_is_not_inspected(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Without an approval nothing has to be shown."""
    async with running(store) as kit:
        asking(kit).exchange_rules("v2", ask_look="deny")
        await kit.end(await ask(kit, tool="ask_look"))
        assert asking(kit).looks == 0


async def test_after_a_restart_the_world_is_compared_all_the_same(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The prompt is the same; what was shown is in its digest, not in memory."""
    async with running(store) as kit:
        run_id = await ask(kit, tool="ask_look")
        (before,) = await pending(kit, run_id)
    async with running(store) as kit:
        await wait_all_tasks_blocked()
        (asked,) = await pending(kit, run_id)
        assert asked == before
        await answer(kit, asked)
        assert await kit.end(run_id) == "done"
        assert kit.effects == ["git status"]


# --- once ----------------------------------------------------------------------------------------


async def test_an_approval_is_used_with_the_start_that_uses_it(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """One transaction: no start without the use, no use without the start, and nothing runs before."""
    async with running(store) as kit, trio.open_nursery() as nursery:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        kit.journal.hold = True
        nursery.start_soon(lambda: answer(kit, asked))
        await wait_all_tasks_blocked()
        (change,) = [change for change, _ in kit.journal.queued]
        assert "tool.started" in [row.kind for row in change.rows]
        assert [r.uses for r in change.records if isinstance(r, ApprovalRecord)] == [0, 1]
        found = store.find_approval(asked.approval_id)
        assert (found and found.state, kit.effects) == ("pending", [])
        kit.journal.release()
        await kit.end(run_id)
        found = store.find_approval(asked.approval_id)
        assert (found and (found.state, found.uses), kit.effects) == (
            ("allowed", 1),
            ["git status"],
        )


async def test_identical_calls_of_a_turn_are_one_question(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The answer is for both, each runs once, and the record says so; another call asks itself."""
    async with running(store) as kit:
        same = ("ask_do", {"text": "git status"})
        kit.model.turns = [call(same, same, ("ask_do", {"text": "git log"})), say("done")]
        run_id = await kit.start()
        await wait_all_tasks_blocked()
        (asked,) = await pending(kit, run_id)
        assert len(asked.covers) == 1
        await answer(kit, asked)
        await wait_all_tasks_blocked()
        (other,) = await pending(kit, run_id)
        await answer(kit, other)
        assert await kit.end(run_id) == "done"
        found = store.find_approval(asked.approval_id)
        assert (found and found.uses, sorted(kit.effects)) == (
            2, ["git log", "git status", "git status"],
        )  # fmt: skip


async def test_a_denied_call_is_not_asked_again_in_its_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Neither its duplicate in the turn nor the same proposal in the next one is asked."""
    async with running(store) as kit:
        same = ("ask_do", {"text": "git status"})
        kit.model.turns = [call(same, same), call(same), say("done")]
        run_id = await kit.start()
        await wait_all_tasks_blocked()
        (asked,) = await pending(kit, run_id)
        await answer(kit, asked, "deny")
        assert await kit.end(run_id) == "done"
        codes = [decided.reason_code for decided in kit.events(run_id, "tool.decided")]
        assert codes == ["denied_by_person", "denied_before", "denied_before"]


async def test_an_answer_ends_with_its_deadline(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A call that was approved first does not start when the next approval took too long."""
    async with running(store, RunLimits(approval_ms=1_000)) as kit:
        kit.model.turns = [
            call(("ask_do", {"text": "a"}), ("ask_do", {"text": "b"})), say("done"),
        ]  # fmt: skip
        run_id = await kit.start()
        for _ in range(2):
            await wait_all_tasks_blocked()
            (asked,) = await pending(kit, run_id)
            await trio.sleep((asked.expires_ms - asked.requested_ms) * 0.9 / 1_000)
            await answer(kit, asked)
        assert await kit.end(run_id) == "done"
        assert kit.effects == ["b"]
        codes = [decided.reason_code for decided in kit.events(run_id, "tool.decided")]
        assert codes == ["approved", "approved", "approval_void"]


# --- the rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("says", "effects"), [("allow", ["git status"]), ("deny", [])])
async def test_changed_policies_decide_open_approvals(
    store: MemoryJournal, autojump_clock: MockClock, says: str, effects: list[str]
) -> None:
    """An open approval is evaluated again; all clients learn that it is withdrawn."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        asking(kit).exchange_rules("v2", ask_do=says)
        assert await kit.end(run_id) == "done"
        assert kit.effects == effects
        outcome = await answer(kit, asked)
        assert (outcome.decision, outcome.won, outcome.by) == ("abort", False, "rules")


async def test_changed_policies_that_ask_again_create_a_new_approval(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The old answer is void; the new approval has its own id and digest."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (before,) = await pending(kit, run_id)
        asking(kit).exchange_rules("v2")
        await wait_all_tasks_blocked()
        (asked,) = await pending(kit, run_id)
        assert {before.approval_id, before.digest}.isdisjoint({asked.approval_id, asked.digest})
        assert (await answer(kit, before)).decision == "abort"
        await answer(kit, asked)
        assert await kit.end(run_id) == "done"
        assert kit.effects == ["git status"]


async def test_policies_that_changed_while_the_daemon_was_down_ask_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An earlier approval is evaluated again under the current policies."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (before,) = await pending(kit, run_id)
    async with running(store, hold=True) as kit:
        kit.policy.version = "v2"
        kit.journal.release()
        await wait_all_tasks_blocked()
        (asked,) = await pending(kit, run_id)
        assert asked.approval_id != before.approval_id
        await answer(kit, asked)
        assert await kit.end(run_id) == "done"


async def test_policies_that_change_between_verdict_and_start_stop_the_call(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A call allowed under the old policies does not run, approved or not."""
    async with running(store) as kit:
        kit.model.turns = [call(("note", {"text": "x"})), say("done")]
        kit.journal.keep = 2
        run_id = await kit.start()
        await wait_all_tasks_blocked()
        kit.policy.version, kit.journal.keep = "v2", None
        kit.journal.release()
        assert await kit.end(run_id) == "done"
        (completed,) = kit.events(run_id, "tool.completed")
        assert (completed.status, kit.effects) == ("failed", [])
        assert "rules have changed" in (completed.error or "")


async def test_a_decision_overtaken_by_a_policy_change_is_repeated(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload during an evaluation voids it; endless reloads deny."""
    async with running(store) as kit:
        decide = kit.policy.decide
        versions = iter(["v2", "v2", "v3", "v4", "v5", "v6", "v7", "v8"])

        def overtaken(request: Any) -> Any:
            decision = decide(request)
            kit.policy.version = next(versions)
            return decision

        monkeypatch.setattr(kit.policy, "decide", overtaken)
        codes = []
        for _ in range(2):
            run_id = await ask(kit, tool="note")
            codes.append(kit.events(run_id, "tool.decided")[0].reason_code)
        assert codes == ["allow", "policy_changing"]


# --- who answers ---------------------------------------------------------------------------------


async def hand_in(kit: Kit, approval_id: str, caller: Caller, digest: str) -> Resolved:
    """Pass an answer to the actor without the checks on the way."""
    mailbox = kit.approvals.find(approval_id)
    assert mailbox is not None
    command = ResolveApproval(approval_id=approval_id, decision="allow", digest=digest)
    outcome: Resolved = await mailbox.ask(
        lambda reply: ApprovalAnswer(command, caller, reply), timeout_s=5
    )
    return outcome


@pytest.mark.parametrize("role", ["client", "observer", "approver", "person"])
async def test_authority_is_checked_where_the_state_changes(
    store: MemoryJournal, autojump_clock: MockClock, role: Any
) -> None:
    """A role without the scope is refused by the prompt itself; with it, the answer counts."""
    caller = Caller(principal="ann", role=role, token_id="tok_x")
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        if role in {"approver", "person"}:
            assert (await hand_in(kit, asked.approval_id, caller, asked.digest)).won
        else:
            with pytest.raises(Forbidden):
                await hand_in(kit, asked.approval_id, caller, asked.digest)
            assert len(await pending(kit, run_id)) == 1


async def test_a_principal_who_does_not_see_the_run_cannot_answer(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with the scope: what one does not see is not there."""
    monkeypatch.setattr(Caller, "may", lambda _self, _scope: True)
    foreign = Caller(principal="eve", role="client", token_id="tok_e")
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        with pytest.raises(NotFound):
            await hand_in(kit, asked.approval_id, foreign, asked.digest)


async def test_a_person_answers_for_its_own_principal(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A person with the digest of another principal's approval finds nothing; its owner decides."""
    foreign = Caller(principal="eve", role="person", token_id="tok_e")
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        with pytest.raises(NotFound):
            await hand_in(kit, asked.approval_id, foreign, asked.digest)
        own = msgspec.structs.replace(foreign, principal=asked.principal)
        assert (await hand_in(kit, asked.approval_id, own, asked.digest)).won


async def test_policies_may_forbid_an_answer(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Policies are evaluated for the answer too; the approval stays open."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        asking(kit).policy.answers = {"approval.decide": "deny"}  # type: ignore[attr-defined]  # as made
        with pytest.raises(Forbidden, match="may not answer"):
            await answer(kit, asked, caller=OTHER)
        asking(kit).policy.answers = {}  # type: ignore[attr-defined]  # likewise
        assert (await answer(kit, asked, caller=OTHER)).won


async def test_an_answer_to_another_question_does_not_count(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Replayed for another run, or after the deadline: refused; a grant for something else: nothing."""
    async with running(store, RunLimits(approval_ms=1_000)) as kit:
        first, second = await ask(kit, "git a"), await ask(kit, "git b")
        (asked,), (other,) = await pending(kit, first), await pending(kit, second)
        with pytest.raises(DigestMismatch):
            await answer(kit, other, digest=asked.digest)
        mailbox = kit.approvals.find(other.approval_id)
        assert mailbox is not None
        mailbox.offer(Granted(a_grant("grt_x")))
        await wait_all_tasks_blocked()
        assert len(await pending(kit, second)) == 1
        await trio.sleep((other.expires_ms - other.requested_ms) / 1_000)
        late = await answer(kit, other)
        assert (late.decision, late.by, late.won) == ("deny", "deadline", False)


async def test_a_tool_that_is_gone_can_only_be_denied(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An answer to a call that nothing could run any more."""
    async with running(store) as kit:
        run_id = await ask(kit)
        (asked,) = await pending(kit, run_id)
        kit.services.toolbox.put("builtin", [])  # type: ignore[attr-defined]  # the real toolbox
        with pytest.raises(Forbidden, match="could not run any more"):
            await answer(kit, asked)
        assert (await answer(kit, asked, "deny")).won
        assert (await kit.end(run_id), kit.effects) == ("done", [])


async def test_a_tool_that_went_away_is_not_asked_about(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Though the run's model was shown it: one that was taken away, or is another one by now."""
    async with running(store) as kit:
        for tools in ([], [_newer(tool) for tool in kit.tools()]):
            wait = trio.Event()
            kit.model.turns = [wait, call(("ask_do", {"text": "git status"})), say("done")]
            run_id = await kit.start()
            await wait_all_tasks_blocked()
            kit.services.toolbox.put("builtin", tools)  # type: ignore[attr-defined]  # the real toolbox
            wait.set()
            assert await kit.end(run_id) == "done"
            (rejected,) = kit.events(run_id, "tool.rejected")
            assert "ask_do is not available any more" in rejected.reason
            kit.services.toolbox.put("builtin", kit.tools())  # type: ignore[attr-defined]  # likewise
        assert kit.effects == []


def _newer(tool: Any) -> Any:
    return replace(tool, spec=msgspec.structs.replace(tool.spec, version="2"))


# --- delegation ----------------------------------------------------------------------------------


async def test_a_tool_that_was_not_handed_down_is_denied_and_never_asked_about(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The reason names who decides it; what was handed down is judged as ever."""
    async with running(store) as kit:
        for handed_down, code in ((("echo",), "outside_delegation"), (("ask_do",), "ask")):
            run = kit.live(await ask(kit)).run
            accepted = msgspec.structs.replace(run.accepted, tools=handed_down, depth=1)
            child = msgspec.structs.replace(run, accepted=accepted)
            prefix = kit.services.agents.prefix(await kit.services.agents.get_present(None), "ann")
            named = call(("ask_do", {"text": "git"})).calls[0]
            gate = kit.services.gate
            verdict = gate.evaluate(child, named, gate.validate(named, prefix), prefix).verdict
            assert verdict.reason_code == code  # type: ignore[union-attr]  # not refused
            if code == "outside_delegation":
                assert "outside what the run that delegated handed down" in verdict.reason


async def test_concurrent_approvals_count_against_the_limit(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Each is counted before the next call is evaluated, although none is committed yet."""
    async with running(store) as kit:
        begin = trio.Event()
        kit.model.turns = [begin] * 40
        runs = [await kit.start() for _ in range(40)]
        await wait_all_tasks_blocked()
        kit.model.turns = [call(("ask_do", {"text": f"git {number}"})) for number in range(40)]
        begin.set()
        await wait_all_tasks_blocked()
        assert len(await pending(kit)) == 32
        codes = [event.reason_code for run in runs for event in kit.events(run, "tool.decided")]
        assert codes == ["too_many_prompts"] * 8


async def test_more_questions_than_anybody_reads_are_denied(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """At most 32 are open for a principal; the next is denied with the reason."""
    async with running(store) as kit:
        runs = [await ask(kit, f"git {number}") for number in range(33)]
        assert len(await pending(kit)) == 32
        (decided,) = kit.events(runs[-1], "tool.decided")
        assert decided.reason_code == "too_many_prompts"


async def test_conversations_of_a_channel_do_not_use_up_the_questions(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The owner is asked however many questions senders have brought up, and each sender for itself."""
    async with running(store) as kit:
        channel = SetChannel(
            principal=OPERATOR.principal, channel="chat", agent="default", pairing="open"
        )
        await kit.services.channels.set(OPERATOR, channel)
        for number in range(33):
            await ask(kit, f"git {number}", channel="chat", conversation_id=str(number))
        await ask(kit, "git status")
        assert 34 == len(await pending(kit))
        opened = msgspec.structs.replace(channel, audience="principal")
        await kit.services.channels.set(OPERATOR, opened)
        for number in range(33, 66):
            await ask(kit, f"git {number}", channel="chat", conversation_id=str(number))
        assert 33 + 32 == len(await pending(kit))
