"""Questions of the model: a person's words reach it, and nothing else answers."""

from typing import Any

import msgspec
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.cli.command.answers import Answer, PromptReader, describe_choices, read_answer
from palyra.core.policy.modes import PROPOSE_PLAN
from palyra.core.policy.questions import ASK_USER, check_words
from palyra.core.tape.events import ApprovalRequested
from palyra.errors import InvalidParams
from palyra.tools.questions import question_tools
from tests.actors.run.asking_kit import AskingKit, answer, new_store, pending
from tests.actors.run.office_kit import call, running, say
from tests.rows import every_row
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
        Answer("allow", words="dark blue"), Answer("allow", words="red"), None, None, None,
        Answer("deny", reason="never"),
    ]  # fmt: skip
    plan = msgspec.structs.replace(open_ended, tool=PROPOSE_PLAN)
    assert describe_choices(plan) == "accept the plan? y = yes, n [what to change] = no: "
    assert read_answer(open_ended, " no ") == Answer("allow", words="no")


FORM = {
    "question": "How should it be set up?",
    "form": {
        "type": "object",
        "properties": {
            "days": {"type": "integer", "minimum": 1, "maximum": 31},
            "size": {"type": "string", "enum": ["small", "large"], "title": "How large"},
            "rate": {"type": "number"},
            "name": {"type": "string", "minLength": 2, "maxLength": 5},
            "again": {"type": "boolean"},
        },
        "required": ["days", "again"],
    },
}


@every_row(
    ("words", "field"),
    [
        ('{"days": 3, "again": false}', ""),
        ('{"days": 3.0, "again": true, "size": "large", "rate": 0.5, "name": "abc"}', ""),
        ('{"days": 0, "again": true}', "answer.days"),
        ('{"days": 3.5, "again": true}', "answer.days"),
        ('{"days": true, "again": true}', "answer.days"),
        ('{"days": "3", "again": true}', "answer.days"),
        ('{"days": null, "again": true}', "answer.days"),
        ('{"days": 3}', "answer.again"),
        ('{"days": 3, "again": 1}', "answer.again"),
        ('{"days": 3, "again": true, "size": "medium"}', "answer.size"),
        ('{"days": 3, "again": true, "rate": "1"}', "answer.rate"),
        ('{"days": 3, "again": true, "name": "a"}', "answer.name"),
        ('{"days": 3, "again": true, "name": "abcdef"}', "answer.name"),
        ('{"days": 3, "again": true, "other": 1}', "answer.other"),
        ("[3, true]", "answer"),
        ("three days", "answer"),
        ("[" * 100_000, "answer"),
        (" ", "answer"),
    ],
)
def test_the_answer_to_a_form_fits_its_fields(words: str, field: str) -> None:
    """A wrong value is named with its field and with what the field takes."""
    if not field:
        check_words(FORM, words)
        return
    with pytest.raises(InvalidParams) as refused:
        check_words(FORM, words)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"choices": ["a", "b"]}, "not both"),
        ({"form": {"type": "object", "properties": {}}}, "form"),
        ({"form": {"type": "object", "properties": {"a": {"type": "array"}}}}, "array"),
        ({"form": {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}}, "pattern"),
        ({"form": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}}, "'b'"),
        ({"form": {"type": "object", "properties": {"a": {"type": "integer", "enum": ["x"]}}}}, "enum"),
        ({"form": {"type": "object", "properties": {"a": {"type": "boolean", "enum": [1]}}}}, "enum"),
        ({"form": {"type": "object", "properties": {"a": {"type": "number", "minimum": 2, "maximum": 1}}}}, "above"),
        ({"form": {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(13)}}}, "form"),
    ],
)  # fmt: skip
async def test_a_form_that_cannot_be_answered_goes_back_to_the_model(
    changed: dict[str, Any], said: str, store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Nobody is asked; the model reads what is wrong with it."""
    async with running(store) as kit:
        run_id = await begin(kit, FORM | changed)
        asked = await pending(kit, run_id)
        assert len(asked) == (not said)
        for each in asked:
            await answer(kit, each, reason='{"days": 3, "again": true}')
        assert await kit.end(run_id) == "done"
        last = str(kit.model.requests[-1].messages)
        assert (said or 'ann answers: {"days": 3, "again": true}') in last


def test_a_form_is_asked_field_by_field() -> None:
    """A line that does not fit is asked again with the reason; an optional field may be left out."""
    reader, prompts, taken = PromptReader(asking(FORM)), [], []
    for line in ("", "x", "3", "2", "", "a", "abc", "maybe", "Y"):
        prompts.append(reader.prompt)
        taken.append(reader.read(line))
    assert taken == [
        *[None] * 8,
        Answer("allow", words='{"days":3,"size":"large","name":"abc","again":true}'),
    ]
    assert [prompt.partition(":")[0] for prompt in prompts] == [
        "days", "days", "days", "size", "rate", "name", "name", "again", "again",
    ]  # fmt: skip


def test_a_form_is_answered_in_one_line_or_not_at_all() -> None:
    """Its JSON, or `/no` with a reason in front of any field."""
    reader = PromptReader(asking(FORM))
    assert reader.read('{"days": 40, "again": true}') is None
    assert "40 is not a whole number (at least 1, at most 31)" in reader.prompt
    said = reader.read('{"days": 4, "again": true}')
    assert said == Answer("allow", words='{"days": 4, "again": true}')
    assert said.options == {"scope": "once", "answer": '{"days": 4, "again": true}'}
    assert reader.read("/no later") == Answer("deny", reason="later")
