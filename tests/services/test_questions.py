"""Questions of the model: a person's words reach it, and nothing else answers."""

from typing import Any

import msgspec
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.cli.answers import Answer, describe_choices, read_answer
from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.policy.questions import ASK_USER
from palyra.core.tape.events import ApprovalRequested
from palyra.errors import InvalidParams
from palyra.tools.questions import question_tools
from tests.actors.run.asking_kit import AskingKit, answer, new_store, pending
from tests.actors.run.office_kit import call, running, say
from tests.store.memory.journal import MemoryJournal

COLOUR = {"question": "Which colour?", "choices": ["red", "dark blue"]}


class QuestionsKit(AskingKit):
    """A daemon whose models may ask."""

    def tools(self) -> list[Any]:
        return [*super().tools(), *question_tools(self.journal)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryJournal:
    """A journal for one test."""
    monkeypatch.setattr("tests.actors.run.office_kit.Kit", QuestionsKit)
    return new_store()


async def begin(kit: Any, arguments: dict[str, Any], **fields: Any) -> str:
    """A run whose model asks; the rules of the kit allow the call by its name."""
    kit.exchange_rules("v1", **{ASK_USER: "allow"})
    kit.model.turns = [call((ASK_USER, arguments)), say("done")]
    run_id: str = await kit.start(**fields)
    await wait_all_tasks_blocked()
    return run_id


async def test_the_words_of_a_person_reach_the_model(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Words that are none of the choices, or none at all, leave the question open."""
    async with running(store) as kit:
        run_id = await begin(kit, COLOUR)
        (asked,) = await pending(kit, run_id)
        assert asked.scopes == ("once",)
        for wrong in ("green", "", "Red"):
            with pytest.raises(InvalidParams):
                await answer(kit, asked, reason=wrong)
        await answer(kit, asked, reason="dark blue")
        assert await kit.end(run_id) == "done"
        assert "ann answers: dark blue" in str(kit.model.requests[-1].messages)


async def test_no_answer_is_a_result_for_the_model(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A denial with its reason, the deadline, and a run that cannot ask anybody."""
    async with running(store) as kit:
        run_id = await begin(kit, {"question": "May I?"})
        (asked,) = await pending(kit, run_id)
        await answer(kit, asked, "deny", reason="decide yourself")
        assert await kit.end(run_id) == "done"
        assert "decide yourself" in str(kit.model.requests[-1].messages)
        late = await begin(kit, {"question": "Now?"})
        assert await kit.end(late) == "done"
        assert kit.events(late, "tool.decided")[0].reason_code == "approval_expired"
        alone = await begin(kit, {"question": "Anybody?"}, approval_mode="deny")
        assert await kit.end(alone) == "done"
        assert kit.events(alone, "tool.decided")[0].reason_code == "no_approver"


async def test_a_question_waits_through_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The answer to the next daemon reaches the model."""
    async with running(store) as kit:
        run_id = await begin(kit, {"question": "Which?"})
    async with running(store) as kit:
        kit.exchange_rules("v1", **{ASK_USER: "allow"})  # type: ignore[attr-defined]
        await wait_all_tasks_blocked()
        (asked,) = await pending(kit, run_id)
        await answer(kit, asked, reason="the first")
        assert await kit.end(run_id) == "done"
        assert "ann answers: the first" in str(kit.model.requests[-1].messages)


async def test_other_calls_of_the_turn_run_while_a_question_waits(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """An effect behind the question has happened before anybody answers, and no turn has followed."""
    async with running(store) as kit:
        kit.exchange_rules("v1", **{ASK_USER: "allow", "ask_do": "allow"})  # type: ignore[attr-defined]
        kit.model.turns = [call((ASK_USER, COLOUR), ("ask_do", {"text": "meanwhile"})), say("done")]
        run_id = await kit.start()
        await wait_all_tasks_blocked()
        assert (kit.effects, len(kit.model.requests)) == (["meanwhile"], 1)
        (asked,) = await pending(kit, run_id)
        await answer(kit, asked, reason="red")
        assert await kit.end(run_id) == "done"
        assert "ann answers: red" in str(kit.model.requests[-1].messages)


def asking(arguments: dict[str, Any]) -> ApprovalRequested:
    """A question as a terminal gets it."""
    return ApprovalRequested(
        approval_id="apr_1", call_id="call_1", tool=ASK_USER, risk="low", summary="", digest="d",
        arguments=arguments, scopes=("once",), expires_ms=9, policy_reason="",
    )  # fmt: skip


def test_a_line_below_a_question_is_its_answer() -> None:
    """A number or the words of a choice; any text without choices; /no is none."""
    asked, open_ended = asking(COLOUR), asking({"question": "Which?"})
    assert describe_choices(asked).startswith("1 = red, 2 = dark blue, /no")
    said = [read_answer(asked, line) for line in ("2", "RED", "3", "y", "", "/no never")]
    assert said == [
        Answer("allow", reason="dark blue"), Answer("allow", reason="red"), None, None, None,
        Answer("deny", reason="never"),
    ]  # fmt: skip
    plan = msgspec.structs.replace(open_ended, tool=PROPOSE_PLAN)
    assert describe_choices(plan) == "accept the plan? y = yes, n [what to change] = no: "
    assert read_answer(open_ended, " no ") == Answer("allow", reason="no")
