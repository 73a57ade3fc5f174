"""Modes of a session: what passes without a question, what is refused, and who may change them."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.access import Caller
from palyra.core.journal.records import ModeChange, SessionMode, SessionRecord
from palyra.core.policy.modes import ACCEPT_EDITS, PLAN_MODE, PROPOSE_PLAN
from palyra.core.run.calls import LAPSED, STALE
from palyra.core.tape.events import RunAccepted
from palyra.core.tool.spec import CallFacts, ToolCall, ToolOutput
from palyra.errors import Forbidden, NotFound
from palyra.services.policy.gate import Gate
from palyra.tools.plan import plan_tools
from palyra.tools.toolbox import InlineTool
from tests.actors.run.asking_kit import (
    AskingKit,
    answer,
    ask,
    count_asked,
    keyed,
    new_store,
    pending,
)
from tests.actors.run.office_kit import OPERATOR, STRANGER, call, running, say, spec
from tests.store.memory.journal import MemoryJournal

CLIENT = Caller(principal="ann", role="client", token_id="tok_program")
PERSON = Caller(principal="ann", role="person", token_id="tok_person")


class ModesKit(AskingKit):
    """`ask_edit` writes files; `mcp_edit` claims the same from outside."""

    def tools(self) -> list[Any]:
        def edit(called: ToolCall) -> ToolOutput:
            self.effects.append(f"edit {called.arguments['text']}")
            return ToolOutput(text="edited")

        def keyless(_arguments: Mapping[str, Any]) -> CallFacts:
            return CallFacts(paths=("../x",))

        plain = spec("ask_edit", tool_class="path_scoped")
        plain = msgspec.structs.replace(plain, capabilities=("fs.write",))
        return [
            *super().tools(),
            InlineTool(plain, edit, facets=keyed),
            InlineTool(msgspec.structs.replace(plain, name="ask_outside"), edit, facets=keyless),
            InlineTool(
                msgspec.structs.replace(
                    plain, name="ask_both", capabilities=("fs.write", "process")
                ),
                edit,
                facets=keyed,
            ),
            InlineTool(
                msgspec.structs.replace(plain, name="ask_effect", tool_class="effect"),
                edit,
                facets=keyed,
            ),
            InlineTool(
                msgspec.structs.replace(
                    spec("forbidden_edit", "path_scoped"), capabilities=("fs.write",)
                ),
                edit,
                facets=keyed,
            ),
        ]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    """A journal for one test, of a daemon with tools that edit."""
    monkeypatch.setattr("tests.actors.run.office_kit.Kit", ModesKit)
    return new_store()


async def enter(kit: Any, mode: SessionMode, caller: Caller = PERSON) -> str:
    """A session in that mode; its id."""
    kit.services.toolbox.put("plan", plan_tools(kit.sessions.accept_plan))
    session = await kit.sessions.resolve(OPERATOR, key="work", session_id=None)
    changed: SessionRecord = await kit.sessions.set_mode(caller, session.session_id, mode)
    return changed.session_id


async def test_accept_edits_allows_edits_and_names_who_decided(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An edit runs without a question, in this session only; the tape names mode and person."""
    async with running(store) as kit:
        session_id = await enter(kit, "accept_edits")
        run_id = await ask(kit, "a.py", "ask_edit", session_id=session_id)
        assert (await count_asked(kit, run_id), kit.effects) == (0, ["edit a.py"])
        (decided,) = kit.events(run_id, "tool.decided")
        assert (decided.reason_code, "ann" in decided.reason) == (ACCEPT_EDITS, True)
        assert kit.events(run_id, "run.started")[0].mode == "accept_edits"
        other = await ask(kit, "a.py", "ask_edit")
        assert await count_asked(kit, other) == 1


@pytest.mark.parametrize("tool", ["ask_do", "ask_note", "ask_outside", "ask_both", "ask_effect"])
async def test_accept_edits_allows_nothing_else(
    store: MemoryJournal, autojump_clock: MockClock, tool: str
) -> None:
    """A program, a path without a key, a write that also runs something: each is asked about."""
    async with running(store) as kit:
        session_id = await enter(kit, "accept_edits")
        run_id = await ask(kit, "a.py", tool, session_id=session_id)
        assert (await count_asked(kit, run_id), kit.effects) == (1, [])


async def test_accept_edits_gives_way_to_the_rules(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A call that they deny stays denied; an answer that its giver may not give allows nothing."""
    async with running(store) as kit:
        session_id = await enter(kit, "accept_edits")
        denied = await ask(kit, "a.py", "forbidden_edit", session_id=session_id)
        assert kit.events(denied, "tool.decided")[0].verdict == "deny"
        kit.exchange_rules("v2", **{"approval.decide": "deny"})  # type: ignore[attr-defined]
        run_id = await ask(kit, "a.py", "ask_edit", session_id=session_id)
        assert (await count_asked(kit, run_id), kit.effects) == (1, [])


async def test_an_edit_that_was_allowed_does_not_start_in_another_mode(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The mode ends while another call of the turn waits for its answer."""
    async with running(store) as kit:
        session_id = await enter(kit, "accept_edits")
        kit.model.turns = [
            call(("ask_edit", {"text": "a.py"}), ("ask_do", {"text": "git status"})), say("done"),
        ]  # fmt: skip
        run_id = await kit.start(session_id=session_id)
        await wait_all_tasks_blocked()
        (question,) = await pending(kit, run_id)
        await kit.sessions.set_mode(PERSON, session_id, "ask")
        await answer(kit, question)
        assert (await kit.end(run_id), kit.effects) == ("done", ["git status"])
        assert LAPSED in [each.reason for each in kit.events(run_id, "tool.decided")]


async def test_plan_mode_refuses_every_call_that_may_change_something(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The refusal tells the model what it may do; nobody is asked, and reading goes on."""
    async with running(store) as kit:
        kit.gate_open.set()
        session_id = await enter(kit, "plan")
        names = [name for name in kit.services.toolbox.catalogue().tools if name != PROPOSE_PLAN]
        for tool in names:
            run_id = await ask(kit, "a.py", tool, session_id=session_id)
            assert await kit.end(run_id) == "done"
            known = kit.services.gate.find_spec(tool)
            reads = known is not None and known.tool_class == "read_only_safe"
            codes = [each.reason_code for each in kit.events(run_id, "tool.decided")]
            assert reads or codes in ([PLAN_MODE], ["deny"]), tool
        assert kit.effects == []
        assert f"by {PROPOSE_PLAN}" in str([each.messages for each in kit.model.requests])
        assert PROPOSE_PLAN in [tool["name"] for tool in kit.model.requests[-1].tools]


async def test_an_accepted_plan_returns_to_the_mode_before(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The run that proposed it goes on in that mode; its next prompts are not offered the tool."""
    async with running(store) as kit:
        session_id = await enter(kit, "accept_edits")
        await kit.sessions.set_mode(PERSON, session_id, "plan")
        kit.model.turns = [
            call((PROPOSE_PLAN, {"plan": "1. edit a.py"})),
            call(("ask_edit", {"text": "a.py"})),
            say("done"),
        ]
        run_id = await kit.start(session_id=session_id)
        await wait_all_tasks_blocked()
        (question,) = await pending(kit, run_id)
        assert (question.tool, question.scopes) == (PROPOSE_PLAN, ("once",))
        await answer(kit, question, caller=PERSON)
        assert (await kit.end(run_id), kit.effects) == ("done", ["edit a.py"])
        assert (await kit.sessions.get(OPERATOR, session_id)).mode == "accept_edits"
        await kit.end(await kit.start(session_id=session_id))
        assert PROPOSE_PLAN not in [tool["name"] for tool in kit.model.requests[-1].tools]


async def test_a_denied_plan_keeps_the_mode_and_gives_the_reason(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Rules that would allow the call do not accept the plan, and an unattended run has no person."""
    async with running(store) as kit:
        session_id = await enter(kit, "plan")
        kit.exchange_rules("v2", **{PROPOSE_PLAN: "allow"})  # type: ignore[attr-defined]
        kit.model.turns = [call((PROPOSE_PLAN, {"plan": "rewrite all"})), say("done")]
        run_id = await kit.start(session_id=session_id)
        await wait_all_tasks_blocked()
        (question,) = await pending(kit, run_id)
        await answer(kit, question, "deny", reason="only the tests")
        assert await kit.end(run_id) == "done"
        assert "only the tests" in str(kit.model.requests[-1].messages)
        kit.model.turns = [call((PROPOSE_PLAN, {"plan": "again"})), say("done")]
        unattended = await kit.start(session_id=session_id, approval_mode="deny")
        assert await kit.end(unattended) == "done"
        assert kit.events(unattended, "tool.decided")[0].reason_code == "no_approver"
        assert (await kit.sessions.get(OPERATOR, session_id)).mode == "plan"


async def test_plan_mode_withdraws_what_was_asked_before(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A question about a call that it refuses is withdrawn; an allowed call does not start."""
    async with running(store) as kit:
        session_id = await enter(kit, "ask")
        kit.model.turns = [
            call(("note", {"text": "x"}), ("ask_do", {"text": "git status"})), say("done"),
        ]  # fmt: skip
        run_id = await kit.start(session_id=session_id)
        await wait_all_tasks_blocked()
        await kit.sessions.set_mode(PERSON, session_id, "plan")
        assert (await kit.end(run_id), kit.effects) == ("done", [])
        assert await pending(kit, run_id) == []
        reasons = [each.reason for each in kit.events(run_id, "tool.decided")]
        assert reasons[0] == "by name"
        assert STALE in reasons


async def test_who_may_change_the_mode(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Those who may answer approvals; a program cannot, nor leave plan mode by a reset."""
    async with running(store) as kit:
        session_id = await enter(kit, "plan")
        modes: tuple[SessionMode, ...] = ("ask", "accept_edits", "plan")
        for mode in modes:
            with pytest.raises(Forbidden):
                await kit.sessions.set_mode(CLIENT, session_id, mode)
            with pytest.raises(Forbidden):
                await kit.start(caller=CLIENT, session_id=session_id, mode=mode)
        stranger = msgspec.structs.replace(STRANGER, role="person")
        with pytest.raises(NotFound):
            await kit.sessions.set_mode(stranger, session_id, "ask")
        await kit.sessions.reset(CLIENT, session_id)
        assert (await kit.sessions.get(OPERATOR, session_id)).mode == "plan"
        await kit.sessions.set_mode(PERSON, session_id, "accept_edits")
        await kit.sessions.reset(CLIENT, session_id)
        assert (await kit.sessions.get(OPERATOR, session_id)).mode == "ask"


async def test_a_mode_survives_a_restart_and_no_fork(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A message can bring the mode; the next daemon has it, and a fork of its run has not."""
    async with running(store) as kit:
        run_id = await kit.start(mode="accept_edits", caller=PERSON)
        await kit.end(run_id)
        session_id = store.find_run(run_id).session_id  # type: ignore[union-attr]
    async with running(store) as kit:
        after = await ask(kit, "a.py", "ask_edit", session_id=session_id)
        assert (await count_asked(kit, after), kit.effects) == (0, ["edit a.py"])
        head = store.find_run(run_id).head_seq  # type: ignore[union-attr]
        forked = await kit.gateway.fork_run(OPERATOR, run_id, head, "go on")
        assert (await kit.sessions.get(OPERATOR, forked.session_id)).mode == "ask"


def test_a_delegated_run_works_in_plan_mode_below_one() -> None:
    """At any depth; `accept_edits` goes no further than its session."""
    names: tuple[SessionMode, ...] = ("plan", "accept_edits", "ask")
    sessions = {
        mode: SessionRecord(
            session_id=mode, principal="ann", key=None, created_ms=0, updated_ms=0, mode=mode,
            mode_set=ModeChange(by="ann", role="person", at_ms=0),
        )
        for mode in names
    }  # fmt: skip

    def accepted(session_id: str, above: str = "") -> RunAccepted:
        return RunAccepted(
            principal="ann", session_id=session_id, agent="default", model="m",
            depth=1 if above else 0, parent_run_id=above or None,
        )  # fmt: skip

    runs = {
        "run_plan": accepted("plan"),
        "run_edits": accepted("accept_edits"),
        "run_between": accepted("ask", "run_plan"),
    }
    gate = Gate(
        None, None, lambda _: 0, modes=sessions, find_accepted=runs.get,  # type: ignore[arg-type]
    )  # fmt: skip
    below = [gate.mode_of(accepted("ask", above)) for above in (*runs, "run_gone")]
    assert below == ["plan", "ask", "plan", "ask"]
