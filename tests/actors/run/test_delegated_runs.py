"""Delegated runs on virtual time: clocks, silence, strays and restarts of a run and its children."""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.journal.changes import Change
from palyra.core.journal.records import RunRecord
from palyra.core.model.messages import Delta, ModelRequest, ModelTurn
from palyra.core.run.delegation import DELEGATE
from palyra.core.run.environment import RunLimits
from palyra.core.run.inputs import Cancel
from palyra.operations.delegation import Delegations
from palyra.tools.delegation import delegation_tools
from tests.actors.healing_kit import SWEEP_S, elapse, watching
from tests.actors.run.asking_kit import answer, pending
from tests.actors.run.office_kit import OPERATOR, Kit, call, running, say
from tests.actors.session.test_recovery import POISON, open_tape
from tests.store.memory.journal import MemoryJournal

HOUR_S = 3_600
WINDOW_S = 500  # above that of silence, below the deadline of a question
LIMITS = RunLimits(wall_ms=5_000, approval_ms=7_200_000)
ASKS = call(("ask_note", {"text": "x"}))


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


def delegate(*tasks: str) -> ModelTurn:
    """A turn that gives each task to a run of its own."""
    return call(*[(DELEGATE, {"task": task}) for task in tasks])


def nap(seconds: float) -> ModelTurn:
    """A turn that sleeps."""
    return call(("sleep", {"seconds": seconds}))


def equip(kit: Kit, **scripts: list[ModelTurn]) -> None:
    """Add the tool, and play the turns of a script to each run whose message is its name."""
    kit.services.toolbox.put(  # type: ignore[attr-defined]  # of the kit
        DELEGATE, delegation_tools(Delegations(kit.services, kit.gateway))
    )
    played: dict[str, int] = defaultdict(int)

    async def stream(request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        del on_delta
        await trio.lowlevel.checkpoint()
        task = next(name for name in scripts if f"'{name}'" in repr(request.messages[:1]))
        place = played[request.run_id]
        played[request.run_id] += 1
        turns = scripts[task]
        return turns[place] if place < len(turns) else say(f"{task} is done")

    kit.model.stream = stream  # type: ignore[method-assign]


async def children(kit: Kit, run_id: str) -> list[RunRecord]:
    """The runs that this one has delegated to, in the order of their start."""
    await wait_all_tasks_blocked()
    found = [kit.journal.store.find_run(e.run_id) for e in kit.events(run_id, "delegation.started")]
    return [each for each in found if each is not None]


async def asked(kit: Kit, run_id: str) -> Any:
    """The open question of a run, once it is asked."""
    await kit.gateway.wait_run(OPERATOR, run_id, until="attention", timeout_s=60)
    (question,) = await pending(kit, run_id)
    return question


# --- the clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_the_clock_is_paused_while_a_run_below_asks(
    store: MemoryJournal, autojump_clock: MockClock, levels: int
) -> None:
    """An answer after an hour finds each run above with the time that it had; then the clock runs."""
    names = ["top", *[f"level{n}" for n in range(1, levels + 1)]]
    scripts = {above: [delegate(below)] for above, below in pairwise(names)}
    scripts[names[-1]] = [ASKS, nap(2)]
    scripts["top"] = [nap(2), *scripts["top"], nap(2)]
    async with running(store, LIMITS) as kit:
        equip(kit, **scripts)
        run_id = lowest = await kit.start("top")
        await elapse(2.5)
        for _ in range(levels):
            lowest = (await children(kit, lowest))[0].run_id
        question = await asked(kit, lowest)
        await elapse(HOUR_S)
        assert not kit.live(run_id).run.is_terminal
        began_s = trio.current_time()
        await answer(kit, question)
        assert "failed" == await kit.end(run_id)
        assert trio.current_time() - began_s == pytest.approx(3, abs=0.1)
        assert "wall_clock" == kit.events(run_id, "run.failed")[0].failure_class
        (end,) = kit.events(run_id, "delegation.ended")
        assert "done" == end.state
        assert end.people_ms == pytest.approx(HOUR_S * 1000 + 500, abs=200)


async def test_pauses_of_children_that_ask_together_are_counted_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Two that ask for one hour pause the clock for an hour, and the ends on the tape say so."""
    async with running(store, LIMITS) as kit:
        equip(kit, top=[delegate("one", "two"), nap(4), nap(4)], one=[ASKS], two=[ASKS])
        run_id = await kit.start("top")
        questions = [await asked(kit, each.run_id) for each in await children(kit, run_id)]
        await elapse(HOUR_S / 2)
        await answer(kit, questions[0])
        await elapse(HOUR_S / 2)
        began_s = trio.current_time()
        await answer(kit, questions[1])
        assert "failed" == await kit.end(run_id)
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.1)
        ends = kit.events(run_id, "delegation.ended")
        assert HOUR_S * 1000 == pytest.approx(sum(each.people_ms for each in ends), abs=100)


async def test_a_pause_outlives_a_restart(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Asked before a crash and answered after it: the run has the time that was left."""
    scripts = {"top": [nap(2), delegate("one"), nap(2)], "one": [ASKS]}
    async with running(store, LIMITS) as kit:
        equip(kit, **scripts)
        run_id = await kit.start("top")
        await elapse(2.5)
        await children(kit, run_id)
        await elapse(HOUR_S)
    autojump_clock.jump(HOUR_S)
    async with running(store, LIMITS) as kit:
        equip(kit, **{**scripts, "top": [nap(2), nap(2)]})
        (child,) = await children(kit, run_id)
        question = await asked(kit, child.run_id)
        await elapse(HOUR_S / 2)
        began_s = trio.current_time()
        await answer(kit, question)
        assert "failed" == await kit.end(run_id)
        assert trio.current_time() - began_s == pytest.approx(3, abs=0.1)


async def test_control_the_clock_runs_if_people_count(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """With `wall_counts_approvals` a question of a child pauses nothing."""
    limits = msgspec.structs.replace(LIMITS, wall_counts_approvals=True)
    async with running(store, limits) as kit:
        equip(kit, top=[delegate("one")], one=[ASKS])
        began_s = trio.current_time()
        run_id = await kit.start("top")
        assert "failed" == await kit.end(run_id)
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.1)


async def test_control_the_clock_runs_while_a_child_works(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A child that asks nobody pauses nothing, and ends with its parent."""
    async with running(store, LIMITS) as kit:
        equip(kit, top=[nap(3), delegate("one")], one=[nap(4), nap(4)])
        began_s = trio.current_time()
        run_id = await kit.start("top")
        assert "failed" == await kit.end(run_id)
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.1)
        (child,) = await children(kit, run_id)
        assert await kit.end(child.run_id) in {"failed", "cancelled"}


async def test_a_cancel_ends_a_tree_that_asks(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The question closes, both runs end, and the tape above has one end of the child."""
    async with running(store, LIMITS) as kit:
        equip(kit, top=[delegate("one")], one=[ASKS])
        run_id = await kit.start("top")
        (child,) = await children(kit, run_id)
        await asked(kit, child.run_id)
        await kit.gateway.cancel_run(OPERATOR, run_id, "enough")
        assert ["cancelled"] * 2 == [await kit.end(each) for each in (run_id, child.run_id)]
        assert ["cancelled"] == [e.state for e in kit.events(run_id, "delegation.ended")]
        assert [] == await pending(kit)


# --- silence -------------------------------------------------------------------------------------


async def test_a_run_that_waits_for_a_child_is_patient(autojump_clock: MockClock) -> None:
    """A child that asks for a long time makes no incident, neither of its own nor of the run above."""
    async with watching("auto") as desk:
        equip(desk.kit, top=[delegate("one")], one=[ASKS])
        run_id = await desk.kit.start("top")
        (child,) = await children(desk.kit, run_id)
        await elapse(WINDOW_S)
        assert [] == desk.incidents()
        await answer(desk.kit, await asked(desk.kit, child.run_id))
        assert "done" == await desk.kit.end(run_id)


async def test_a_silent_child_is_found_and_its_parent_is_not(autojump_clock: MockClock) -> None:
    """The incident names the child; its cancel is a failed call, with which the parent goes on."""
    async with watching("auto") as desk:
        equip(desk.kit, top=[delegate("one")], one=[])
        stream = desk.kit.model.stream

        async def hang_below(request: ModelRequest, on_delta: Any) -> ModelTurn:
            if "'one'" in repr(request.messages[:1]):
                await trio.sleep_forever()
            return await stream(request, on_delta)

        desk.play(hang_below)
        run_id = await desk.kit.start("top")
        (child,) = await children(desk.kit, run_id)
        assert "done" == await desk.kit.end(run_id)
        await elapse(2 * SWEEP_S)
        assert {f"run_stuck:{child.run_id}"} == {each.key for each in desk.incidents()}
        assert ["resume_run", "resume_run", "cancel_run"] == desk.remedies
        assert ["cancelled"] == [e.state for e in desk.kit.events(run_id, "delegation.ended")]


# --- strays and restarts -------------------------------------------------------------------------


async def test_waiting_for_a_child_costs_no_attempt(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Over many restarts during a question below, no run is exhausted."""
    scripts = {"top": [delegate("one")], "one": [ASKS]}
    async with running(store, LIMITS) as kit:
        equip(kit, **scripts)
        run_id = await kit.start("top")
        (child,) = await children(kit, run_id)
        await asked(kit, child.run_id)
    for _ in range(5):
        async with running(store, LIMITS) as kit:
            equip(kit, top=[], one=[])
            await asked(kit, child.run_id)
    async with running(store, LIMITS) as kit:
        equip(kit, top=[], one=[])
        await answer(kit, await asked(kit, child.run_id))
        assert "done" == await kit.end(run_id)
        assert ["done"] == [each.state for each in kit.events(run_id, "delegation.ended")]
        assert 1 == len(kit.events(run_id, "delegation.started"))


async def test_a_child_whose_parent_ended_is_cancelled_at_the_next_start(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The parent's end was committed and the cancel of the child was not."""
    async with running(store, LIMITS) as kit:
        equip(kit, top=[delegate("one")], one=[ASKS])
        run_id = await kit.start("top")
        (child,) = await children(kit, run_id)
        await asked(kit, child.run_id)
        kit.journal.keep = 1  # the end of the parent
        kit.live(run_id).inbox.offer(Cancel(reason="enough", by="ann"))
        await wait_all_tasks_blocked()
        record = store.find_run(run_id)
        assert record is not None
        assert "cancelled" == record.state
    found = store.find_run(child.run_id)
    assert found is not None
    assert not found.is_terminal
    async with running(store, LIMITS) as kit:
        equip(kit, top=[], one=[])
        assert "cancelled" == await kit.end(child.run_id)
        assert [] == await pending(kit)


@pytest.mark.parametrize("name", POISON)
async def test_a_stranded_child_without_a_parent_is_given_up(
    store: MemoryJournal, autojump_clock: MockClock, name: str
) -> None:
    """Its tape cannot be read and no run above will ever wait for it; with a parent it stays."""
    async with running(store, LIMITS) as kit:
        equip(kit, top=[call(("ask_note", {"text": "x"}))])
        parent = await kit.start("top")
        await asked(kit, parent)
    change = open_tape("run_poison", *POISON[name])
    session, record = change.records
    assert isinstance(record, RunRecord)
    below = msgspec.structs.replace(record, depth=1, parent_run_id="run_gone")
    assert [None] == store.commit([Change(rows=change.rows, records=(session, below))])
    async with running(store, LIMITS) as kit:
        await wait_all_tasks_blocked()
        assert {} == kit.registry.stranded
        view = await kit.gateway.get_run(OPERATOR, "run_poison")
        assert "cancelled" == view.phase
        assert "delegated this task has ended" in (view.reason or "")


async def test_control_a_stranded_child_of_an_open_run_waits(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The run above gives it up, not the start."""
    async with running(store, LIMITS) as kit:
        equip(kit, top=[ASKS])
        parent = await kit.start("top")
        await asked(kit, parent)
    change = open_tape("run_poison", *POISON["a kind nobody knows"])
    session, record = change.records
    assert isinstance(record, RunRecord)
    below = msgspec.structs.replace(record, depth=1, parent_run_id=parent)
    assert [None] == store.commit([Change(rows=change.rows, records=(session, below))])
    async with running(store, LIMITS) as kit:
        await wait_all_tasks_blocked()
        assert {"run_poison"} == set(kit.registry.stranded)
