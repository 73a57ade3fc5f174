"""Prompts of whole runs: windows and failover, pictures, the clock, long dialogues, corrections."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from trio.testing import MockClock

from palyra.core.journal.records import Usage
from palyra.core.model.messages import AssistantMessage, GuidanceMessage, UserMessage
from palyra.core.model.routing import Route, RouteTable
from palyra.core.ports import LanguageModel
from palyra.core.session.commands import StartRun
from palyra.services.registry.model_router import ModelRouter
from tests.actors.run import office_kit
from tests.actors.run.office_kit import OPERATOR, Kit, Model, call, say
from tests.pictures import attached, png
from tests.store.memory.journal import MemoryJournal

WORDS = "word " * 400


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


def router(*routes: Route, **options: Any) -> Any:
    """A router of these routes, the first of them the default model's."""

    def make(models: Mapping[str, LanguageModel]) -> ModelRouter:
        failover = tuple(route.model for route in routes[1:])
        table = RouteTable(routes=routes, failover=failover)
        return ModelRouter(models, table, output_tokens=8_192, **options)

    return make


async def talk(kit: Kit, text: str, **fields: Any) -> str:
    """One message to the session `k`, and its run's end."""
    command = StartRun(text=text, session_key="k", **fields)
    run_id = (await kit.gateway.start_run(OPERATOR, command)).run_id
    await kit.end(run_id)
    return run_id


async def replayed(kit: Kit, run_id: str) -> None:
    """The tape follows from its inputs, with today's settings and without."""
    for strict in (True, False):
        report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
        assert report.matched, report.first_divergence


async def test_thirty_turns_of_a_dialogue_reach_the_model(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Facts of turns 1, 15 and 29 are in the thirtieth prompt, word for word."""
    async with office_kit.running(store, history_tokens=32_000) as kit:
        for number in range(1, 31):
            await talk(kit, f"fact {number}: the port of service {number} is {8_000 + number}")
        said = repr(kit.model.requests[-1].messages)
        for number in (1, 15, 29, 30):
            assert f"the port of service {number} is {8_000 + number}" in said


async def test_the_window_cuts_the_history_and_the_cut_stays(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Oldest exchanges go, the tape says how many, later turns begin alike, a replay agrees."""
    routes = router(Route(model="scripted", window=4_000))
    async with office_kit.running(store, history_tokens=32_000, make_router=routes) as kit:
        for number in range(6):
            await talk(kit, f"old {number} {WORDS}")
        kit.model.turns = [call(("echo", {"text": "x"})), call(("echo", {"text": "y"})), say("z")]
        run_id = await talk(kit, "now")
        events = kit.events(run_id, "context.assembled")
        assert 3 == len(events)
        (omitted,) = {event.budget.omitted for event in events}
        assert 0 < omitted < 12
        for event in events:
            room = event.budget
            assert (4_000, 1_000, 125) == (room.window, room.reserved, room.margin)
            assert event.input_tokens <= room.available + room.tools
        first, *later = [request.messages for request in kit.model.requests[-3:]]
        assert all(messages[: len(first)] == first for messages in later)
        assert isinstance(first[0], UserMessage)
        await replayed(kit, run_id)


async def test_the_smallest_window_of_the_failover_counts(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A model that may take over could take this prompt; one that is not there does not count."""
    small = Model()
    routes = router(
        Route(model="scripted", window=100_000), Route(model="small", window=5_000),
        Route(model="tiny", window=600),
    )  # fmt: skip
    async with office_kit.running(
        store, history_tokens=32_000, make_router=routes, models={"small": small, "tiny": Model()}
    ) as kit:
        run_id = await talk(kit, "hello")
        (event,) = kit.events(run_id, "context.assembled")
        assert 5_000 == event.budget.window, "tiny cannot even hold the instructions and tools"
        await replayed(kit, run_id)


async def test_a_message_that_does_not_fit_ends_its_run(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """No model is called; the reason has the numbers, and the explanation what was dropped."""
    routes = router(Route(model="scripted", window=2_000))
    async with office_kit.running(store, history_tokens=32_000, make_router=routes) as kit:
        await talk(kit, "before")
        calls = len(kit.model.requests)
        run_id = await talk(kit, WORDS * 10)
        view = await kit.gateway.get_run(OPERATOR, run_id)
        assert "failed" == view.state
        assert str(view.reason).startswith("context_budget_exhausted: instructions, message and ")
        assert "a window of 2000" in str(view.reason)
        assert calls == len(kit.model.requests)
        explained = await kit.gateway.explain_context(OPERATOR, run_id)
        assert explained.budget is not None
        assert explained.budget.is_exhausted
        assert ["over_budget"] == [
            each.why for each in explained.segments if not each.kept and each.why
        ]
        await replayed(kit, run_id)


async def test_pictures_become_lines_if_the_operator_wants_it(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Refused by default; described, the message runs and the model reads what it cannot see."""
    picture = attached(png(640, 480))
    routes = router(Route(model="scripted", vision=False), describes_pictures=True)
    async with office_kit.running(store, make_router=routes) as kit:
        run_id = await talk(kit, "look", attachments=(picture,))
        assert "run.done" == kit.kinds(run_id)[-1]
        (message,) = kit.model.requests[-1].messages
        assert isinstance(message, UserMessage)
        assert not message.pictures
        assert "the model sees no pictures" in message.text


async def test_the_clock_is_last_and_on_request(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The time of the step, the same again in a replay."""
    async with office_kit.running(store, make_router=router(has_clock=True)) as kit:
        kit.model.turns = [call(("echo", {"text": "x"})), say("y")]
        run_id = await talk(kit, "hello")
        for request in kit.model.requests:
            last = request.messages[-1]
            assert isinstance(last, GuidanceMessage)
            assert last.text.startswith("It is ")
            assert 1 == request.volatile
        await replayed(kit, run_id)


async def test_a_factor_is_learned_and_on_the_tape(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The provider counts twice as many tokens: the next run expects more, and says so."""
    async with office_kit.running(store) as kit:

        def counted(tokens: int) -> Any:
            return msgspec.structs.replace(say("ok"), usage=Usage(input_tokens=tokens))

        kit.model.turns = [counted(10_000)]
        first = await talk(kit, WORDS * 10)
        kit.model.turns = [counted(10_000)]
        second = await talk(kit, WORDS * 10)
        (before,), (after,) = (
            kit.events(run_id, "context.assembled") for run_id in (first, second)
        )
        assert {} == kit.events(first, "run.started")[0].token_bps
        (factor,) = kit.events(second, "run.started")[0].token_bps.values()
        assert 10_000 < factor == after.budget.factor_bps
        assert before.input_tokens < after.input_tokens < 10_000
        await replayed(kit, second)


async def test_old_outputs_become_stubs_and_the_tape_keeps_them(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A long run: stubs in later prompts, whole outputs on the tape, a prefix that holds between."""
    async with office_kit.running(store) as kit:
        kit.model.turns = [
            *(call(("echo", {"text": f"{n} " * 3_000})) for n in range(14)),
            say("z"),
        ]
        run_id = await talk(kit, "go")
        events = kit.events(run_id, "context.assembled")
        moves = [event.budget.pruned if event.budget else 0 for event in events]
        assert moves == sorted(moves)
        assert {0, 16} == set(moves)
        last = kit.model.requests[-1].messages
        assert "the rest is left out" in repr(last[2])
        assert isinstance(last[-2], AssistantMessage)
        assert "the rest is left out" not in repr(last[-1])
        outputs = kit.events(run_id, "tool.completed")
        assert all(len(each.output) > 5_000 for each in outputs)
        changed = [
            number
            for number, (one, two) in enumerate(
                zip(kit.model.requests, kit.model.requests[1:], strict=False)
            )
            if two.messages[: len(one.messages)] != one.messages
        ]
        assert 1 == len(changed), "one move, one change of the prefix"
        await replayed(kit, run_id)


async def test_a_route_is_planned_for_the_gathered_prompt(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """References count for the choice of the model: gathered first, then planned, then assembled."""
    routes = router(Route(model="scripted", window=50_000), Route(model="small", window=40_000))
    async with office_kit.running(store, make_router=routes, models={"small": Model()}) as kit:
        first = await talk(kit, WORDS)
        kit.model.turns = [call(("echo", {"text": "x"})), say("y")]
        run_id = await talk(kit, f"see @run:{first}")
        assert kit.kinds(run_id)[2:7] == [
            "run.started", "context.gathered", "context.gathered", "route.planned",
            "context.assembled",
        ]  # fmt: skip
        (plan,) = kit.events(run_id, "route.planned")
        assembled = kit.events(run_id, "context.assembled")
        assert plan.estimate.input_tokens == assembled[0].input_tokens > 400
        assert ["references"] * 2 == [
            segment["layer"]
            for event in assembled
            for segment in event.segments
            if segment["layer"] == "references"
        ]
        await replayed(kit, run_id)
