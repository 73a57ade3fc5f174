"""Guards of the loop in a running daemon: time limit, answers, partial ends; on virtual time."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.approval import ResolveApproval
from palyra.core.journal.records import Usage
from palyra.core.model.messages import FinishReason, ModelFailure, ModelTurn
from palyra.core.run.environment import RunLimits
from palyra.core.tape.events import TERMINAL_KINDS, Budget
from tests.actors.run.office_kit import OPERATOR, Kit, call, running, say
from tests.store.memory.journal import MemoryJournal


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


def cut(text: str, finish: FinishReason = "length") -> ModelTurn:
    """A text that did not end by itself."""
    return ModelTurn(text=text, calls=(), finish_reason=finish, usage=Usage())


def final(kit: Kit, run_id: str) -> str:
    """The one final text."""
    (message,) = kit.events(run_id, "message.completed")
    return str(message.text)


async def failed_by_wall(kit: Kit, run_id: str) -> None:
    """The run ends by its time limit, with every call closed."""
    assert await kit.end(run_id) == "failed"
    assert kit.events(run_id, "run.failed")[0].failure_class == "wall_clock"
    kinds = kit.kinds(run_id)
    assert sum(kind in TERMINAL_KINDS for kind in kinds) == 1
    assert kinds.count("tool.proposed") == kinds.count("tool.attested")
    assert kinds.count("approval.requested") == kinds.count("approval.resolved")


# --- the wall clock ------------------------------------------------------------------------------

WAITS: dict[str, list[Callable[[], Any]]] = {
    "model": [trio.Event],
    "tool": [lambda: call(("hang_safe", {}))] * 2,
    "batch": [lambda: call(*[("hang_safe", {"text": str(n)}) for n in range(5)])] * 2,
    "back-off": [lambda: ModelFailure("transient", "503")] * 3,
    "between turns": [lambda: call(("sleep", {"seconds": 1}))] * 9,
}


@pytest.mark.parametrize("wait", WAITS)
async def test_the_wall_clock_fires_in_every_wait(
    store: MemoryJournal, autojump_clock: MockClock, wait: str
) -> None:
    """A stalled model, a tool, a batch and a pause before a retry all end at the time limit."""
    wall_ms = 150 if wait == "back-off" else 3_500  # the kit's pauses are 100 ms an attempt
    async with running(store) as kit:
        began_s = trio.current_time()
        kit.model.turns = [make() for make in WAITS[wait]]
        run_id = await kit.start(budget=Budget(wall_ms=wall_ms))
        await failed_by_wall(kit, run_id)
        assert trio.current_time() - began_s == pytest.approx(wall_ms / 1000, abs=0.05)


@pytest.mark.parametrize("wall_ms", [2**64, 10**400], ids=["beyond 64 bits", "beyond a float"])
async def test_a_run_may_not_take_longer_than_the_daemon_allows(
    store: MemoryJournal, autojump_clock: MockClock, wall_ms: int
) -> None:
    """A budget shortens what the operator allows; a tape with an absurd one can be followed."""
    async with running(store, RunLimits(wall_ms=3_000)) as kit:
        began_s = trio.current_time()
        kit.model.turns = [trio.Event()]
        await failed_by_wall(kit, await kit.start(budget=Budget(wall_ms=wall_ms)))
        assert trio.current_time() - began_s == pytest.approx(3, abs=0.05)


async def test_the_wall_clock_continues_after_an_answer(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The time of the approval is not counted, the time before it is."""
    async with running(store, RunLimits(wall_ms=5_000, approval_ms=7_200_000)) as kit:
        asks = call(("ask_note", {"text": "x"}))
        kit.model.turns = [call(("sleep", {"seconds": 3})), asks, trio.Event()]
        run_id = await kit.start()
        await attention(kit, run_id)
        autojump_clock.jump(3_600)
        await allow(kit, run_id)
        began_s = trio.current_time()
        await failed_by_wall(kit, run_id)
        assert trio.current_time() - began_s == pytest.approx(2, abs=0.05)


async def test_time_of_people_counts_if_the_setting_says_so(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The question is closed as aborted, and nothing ran."""
    limits = RunLimits(wall_ms=5_000, approval_ms=7_200_000, wall_counts_approvals=True)
    async with running(store, limits) as kit:
        began_s = trio.current_time()
        kit.model.turns = [call(("ask_note", {"text": "x"}))]
        run_id = await kit.start()
        await failed_by_wall(kit, run_id)
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.05)
        assert kit.events(run_id, "approval.resolved")[0].decision == "abort"
        assert kit.effects == []


async def test_an_answered_question_counts_if_the_setting_says_so(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The clock does not stop in between."""
    limits = RunLimits(wall_ms=5_000, approval_ms=7_200_000, wall_counts_approvals=True)
    async with running(store, limits) as kit:
        began_s = trio.current_time()
        kit.model.turns = [call(("ask_note", {"text": "x"})), trio.Event()]
        run_id = await kit.start()
        await attention(kit, run_id)
        autojump_clock.jump(3)
        await allow(kit, run_id)
        await failed_by_wall(kit, run_id)
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.05)


async def test_a_restart_does_not_reset_the_wall_clock(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Time spent on the tape stays spent; the time without a daemon does not count."""
    limits = RunLimits(wall_ms=5_000)
    async with running(store, limits) as kit:
        kit.model.turns = [call(("sleep", {"seconds": 3})), trio.Event()]
        run_id = await kit.start()
        await trio.sleep_until(trio.current_time() + 4)  # one second into the second turn
    autojump_clock.jump(60)
    async with running(store, limits) as kit:
        began_s = trio.current_time()
        kit.model.turns = [trio.Event()]
        await failed_by_wall(kit, run_id)
        assert trio.current_time() - began_s == pytest.approx(2, abs=0.05)


async def attention(kit: Kit, run_id: str) -> None:
    """Wait until an approval is pending."""
    view, _ = await kit.gateway.wait_run(OPERATOR, run_id, until="attention", timeout_s=60)
    assert view.phase == "awaiting_approval"


async def allow(kit: Kit, run_id: str) -> None:
    """A person says yes."""
    (asked,) = await kit.answers.list_seen(OPERATOR, run_id=run_id, pending_only=True, limit=10)
    await kit.answers.resolve(
        OPERATOR,
        ResolveApproval(approval_id=asked.approval_id, decision="allow", digest=asked.digest),
    )


# --- answers and partial ends --------------------------------------------------------------------


async def test_a_repeated_denial_ends_as_partial(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The guard ends the run with what was done and what was not."""
    async with running(store) as kit:
        denied = ("forbidden", {"text": "x"})
        kit.model.turns = [call(("note", {"text": "a"})), *[call(denied) for _ in range(5)]]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert kit.kinds(run_id)[-3:] == ["guard.blocked", "message.completed", "run.done"]
        assert 'Done:\n- note(text="a")' in final(kit, run_id)
        assert 'Not done:\n- forbidden(text="x"): denied' in final(kit, run_id)
        assert (await kit.gateway.get_run(OPERATOR, run_id)).reason == "partial"


async def test_a_restart_keeps_the_count(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Two denials before the crash and one after it are three."""
    async with running(store) as kit:
        kit.model.turns = [*[call(("forbidden", {})) for _ in range(2)], trio.Event()]
        run_id = await kit.start()
        await wait_all_tasks_blocked(0.0001)
    async with running(store) as kit:
        kit.model.turns = [call(("forbidden", {})), say("not reached")]
        assert await kit.end(run_id) == "done"
        assert kit.events(run_id, "run.done")[0].cause == "no_progress"


async def test_a_call_written_out_is_sent_back_and_made(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The live setting knows the tools of the catalogue."""
    async with running(store) as kit:
        text = '{"name": "note", "arguments": {"text": "x"}}'
        kit.model.turns = [say(text), call(("note", {"text": "x"})), say("noted")]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert kit.events(run_id, "answer.rejected")[0].reason == "tool_markup"
        assert (kit.effects, final(kit, run_id)) == (["x"], "noted")


async def test_a_cut_answer_is_whole_in_the_end(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Four turns, one text."""
    async with running(store) as kit:
        kit.model.turns = [cut("al"), cut("pha"), cut("be"), say("t")]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert final(kit, run_id) == "alphabet"


async def test_a_filtered_text_is_a_partial_answer_that_says_so(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It is not asked for again, and never passes for the whole answer."""
    async with running(store) as kit:
        kit.model.turns = [cut("half", "content_filter"), cut("still half", "content_filter")]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert final(kit, run_id).startswith("half\n\n[The answer ")
        assert kit.kinds(run_id).count("turn.started") == 1
        assert "partial" == (await kit.gateway.get_run(OPERATOR, run_id)).reason


async def test_the_cap_of_256_turns_ends_a_run_that_never_answers(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A run that always finds something to do is done in part after 256 turns."""
    async with running(store) as kit:
        kit.model.turns = [call(("echo", {"text": str(n)})) for n in range(300)]
        run_id = await kit.start()
        assert await kit.end(run_id) == "done"
        assert len(kit.model.requests) == 256
        ended = await kit.gateway.get_run(OPERATOR, run_id)
        assert (ended.turns, ended.reason) == (256, "partial")
