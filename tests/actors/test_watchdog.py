"""The watchdog on virtual time: progress, remedies, escalation, gaps; see also `test_fault_matrix`."""

import importlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.actors.kernel.awake_clock import AwakeClock
from palyra.core.healing.rules import PERIOD_MS, RULES, cool_down_s, is_stuck
from palyra.core.incident import kinds
from palyra.core.incident.incident import UNRESOLVED
from palyra.core.model.messages import Delta, ModelFailure
from palyra.core.model.routing import ProviderHealth
from palyra.core.tape.events import ToolCompleted
from palyra.core.tool.spec import ToolOutput
from tests.actors.healing_kit import (
    SWEEP_S,
    Desk,
    add_tool,
    crash,
    damage_index,
    elapse,
    forever,
    submit_task,
    watching,
)
from tests.actors.run.office_kit import OPERATOR, call, say
from tests.actors.task_kit import Work
from tests.store.memory.journal import MemoryJournal

# --- runs


async def test_a_silent_run_is_found_after_the_window(autojump_clock: MockClock) -> None:
    """Not a sweep earlier, not two later, and once."""
    async with watching("observe_only") as desk:
        desk.play(forever)
        run_id = await desk.kit.start()
        await elapse(119)
        assert [] == desk.incidents()
        await elapse(2 * SWEEP_S)
        (found,) = desk.incidents()
        assert (f"run_stuck:{run_id}", "open", 1) == (found.key, found.state, found.count)
        assert ("resume_run", 0) == (found.remedy, found.attempts)
        await elapse(3_00)
        assert [] == desk.tried
        assert 1 == len(desk.incidents())


async def test_a_slow_run_with_progress_is_never_found(autojump_clock: MockClock) -> None:
    """A token every 100 s is progress."""

    async def slow(_request: Any, on_delta: Any) -> Any:
        for _ in range(8):
            await elapse(100)
            on_delta(Delta("text", "word "))
        return say("done")

    async with watching("auto") as desk:
        desk.play(slow)
        run_id = await desk.kit.start()
        assert "done" == await desk.kit.end(run_id)
        assert [] == desk.incidents()


async def test_a_run_that_stays_silent_is_resumed_twice_then_cancelled(
    autojump_clock: MockClock,
) -> None:
    """Attempts keep their cool-down, and the incident ends with the run."""
    async with watching("auto") as desk:
        desk.play(forever)
        run_id = await desk.kit.start()
        assert "cancelled" == await desk.kit.end(run_id)
        await elapse(2 * SWEEP_S)
        assert ["resume_run", "resume_run", "cancel_run"] == desk.remedies
        first, second, third = (at_s for _, at_s in desk.tried)
        assert second - first >= 120
        assert third - second >= 120
        (found,) = desk.incidents()
        assert ("resolved", 3, "palyra") == (found.state, found.attempts, found.by)


async def test_a_resumed_run_that_answers_resolves_its_incident(autojump_clock: MockClock) -> None:
    """One attempt helped; nobody is asked."""
    async with watching("auto") as desk:
        stream = desk.kit.model.stream
        desk.kit.model.turns = [say("here I am")]
        desk.play(forever)
        run_id = await desk.kit.start()
        await elapse(119)
        desk.play(stream)
        assert "done" == await desk.kit.end(run_id)
        await elapse(2 * SWEEP_S)
        assert ["resume_run"] == desk.remedies
        assert ["resolved"] == [each.state for each in desk.incidents()]


async def test_a_hung_call_is_stopped_and_its_run_goes_on(autojump_clock: MockClock) -> None:
    """Its effect is unknown, so it is not repeated: the model gets the outcome."""
    async with watching("auto") as desk:
        add_tool(desk, "frozen", forever)
        desk.kit.model.turns = [call(("frozen", {"text": "x"})), say("then not")]
        run_id = await desk.kit.start()
        assert "done" == await desk.kit.end(run_id)
        await elapse(2 * SWEEP_S)
        assert ["end_call"] == desk.remedies
        assert [(f"call_stuck:{run_id}", "resolved")] == [
            (each.key, each.state) for each in desk.incidents()
        ]
        (outcome,) = desk.kit.events(run_id, ToolCompleted.KIND)
        assert ("timed_out", True) == (
            outcome.status,
            "no sign of life" in f"{outcome.output}{outcome.error}",
        )


async def test_a_run_whose_calls_keep_hanging_is_cancelled(autojump_clock: MockClock) -> None:
    """The attempts of its calls count together, however well the run goes on in between."""
    async with watching("auto") as desk:
        add_tool(desk, "frozen", forever)
        desk.kit.model.turns = [call(("frozen", {"text": "x"})) for _ in range(9)]
        run_id = await desk.kit.start()
        assert "cancelled" == await desk.kit.end(run_id)
        assert ["end_call", "end_call", "cancel_run"] == desk.remedies


@pytest.mark.parametrize("pause_s", [0.5, 100, 400])
async def test_a_flicker_is_no_recovery(autojump_clock: MockClock, pause_s: float) -> None:
    """A model that sends a token, or some for a while, and then hangs has three attempts, not one a flicker."""

    async def flicker(_request: Any, on_delta: Any) -> Any:
        for _ in range(4):
            await elapse(pause_s / 4)
            on_delta(Delta("text", "word "))
        await forever()

    async with watching("auto") as desk:
        desk.play(flicker)
        run_id = await desk.kit.start()
        assert "cancelled" == await desk.kit.end(run_id)
        assert ["resume_run", "resume_run", "cancel_run"] == desk.remedies
        pauses = [later - at_s for (_, at_s), (_, later) in pairwise(desk.tried)]
        assert all(pause >= cool_down_s(1 + at) for at, pause in enumerate(pauses))


@pytest.mark.parametrize("stuck_s", [1.0, 120.0])
async def test_the_run_of_a_task_is_treated_as_a_run(
    autojump_clock: MockClock, stuck_s: float
) -> None:
    """A task whose run streams is not put back, and one whose run hangs has no incident besides."""

    async def slow(_request: Any, on_delta: Any) -> Any:
        for _ in range(3):
            await elapse(stuck_s / 2)
            on_delta(Delta("text", "word "))
        await forever()

    async with watching("auto") as desk:
        desk.watchdog.modes.stuck_s = stuck_s
        desk.play(slow)
        run_id = await desk.kit.start()
        task_id = await submit_task(desk, kind="prompt", payload={"text": "x"}, max_attempts=2)
        await wait_all_tasks_blocked()
        entry = desk.office.queue.running[task_id]
        entry.task = msgspec.structs.replace(entry.task, run_id=run_id)
        assert "cancelled" == await desk.kit.end(run_id)
        assert {f"run_stuck:{run_id}"} == {each.key for each in desk.incidents()}
        assert 1 == entry.task.attempts


async def test_a_task_that_starts_again_has_not_recovered(autojump_clock: MockClock) -> None:
    """A sign of life at the start of each attempt ends neither the incident nor its count."""

    class Starter(Work):
        async def work(self, task: Any, progress: Any) -> Any:
            progress()
            return await super().work(task, progress)

    async with watching("auto") as desk:
        desk.office.work = Starter()
        desk.office.tasks.handlers = dict.fromkeys(desk.office.tasks.handlers, desk.office.work)
        task_id = await submit_task(desk, max_attempts=2)
        await elapse(2_000)
        assert ["requeue_task", "requeue_task"] == desk.remedies
        ended = desk.office.task(task_id)
        assert ("failed", 2) == (ended.state, ended.attempts)
        assert [("resolved", 2)] == [(each.state, each.attempts) for each in desk.incidents()]


def mend_index(desk: Desk, _key: str) -> None:
    """Undo `damage_index`."""
    desk.index.damage = ""


async def test_attempts_of_a_key_count_for_an_hour_and_across_restarts(
    autojump_clock: MockClock,
) -> None:
    """Damage that comes again goes on with the next remedy, after its cool-down; after an hour with the first."""
    store = MemoryJournal()
    store.open()
    for known in (0, 1, 2):
        async with watching("auto", store) as desk:
            desk.helps = partial(mend_index, desk)
            damage_index(desk)
            await elapse(300)
            assert [RULES["index_damaged"].remedies[known]] == desk.remedies
            assert known == 0 or desk.tried[0][1] - desk.begun_s >= cool_down_s(known)
    async with watching("auto", store) as desk:
        damage_index(desk)
        await elapse(300)
        assert [] == desk.remedies
        assert "escalated" == desk.incidents()[-1].state
        desk.index.damage = ""
        await elapse(PERIOD_MS / 1000 + 60)
        damage_index(desk)
        await elapse(60)
        assert ["rebuild_vectors"] == desk.remedies


async def test_a_run_that_waits_for_a_person_is_not_stuck(autojump_clock: MockClock) -> None:
    """An open approval is no lack of progress."""
    async with watching("auto") as desk:
        desk.kit.model.turns = [call(("ask_note", {"text": "x"}))]
        await desk.kit.start()
        await elapse(600)
        assert [] == desk.incidents()


async def test_events_are_progress(autojump_clock: MockClock) -> None:
    """A run whose turns and calls take 100 s each, without a token or output, is never found."""

    async def think(_request: Any, _on_delta: Any) -> Any:
        await elapse(100)
        return turns.pop()

    async def nap(_call: Any, _on_output: Any) -> Any:
        await elapse(100)
        return ToolOutput(text="rested")

    turns = [say("done"), *(call(("nap", {"text": "x"})) for _ in range(3))]
    async with watching("auto") as desk:
        add_tool(desk, "nap", nap)
        desk.play(think)
        assert "done" == await desk.kit.end(await desk.kit.start())
        assert [] == desk.incidents()


async def test_time_in_the_queue_of_a_session_does_not_count(autojump_clock: MockClock) -> None:
    """A run that hangs in its first steps is found a window after they began."""
    async with watching("observe_only") as desk:
        agents: Any = desk.kit.services.agents

        async def speak_for_200_s(_request: Any, on_delta: Any) -> Any:
            agents.find_version = forever
            for _ in range(4):
                on_delta(Delta("text", "word "))
                await elapse(50)
            return say("done")

        desk.play(speak_for_200_s)
        first = await desk.kit.start()
        session_id = desk.kit.live(first).run.accepted.session_id
        await desk.kit.start(session_id=session_id)
        assert await is_found_at(desk, trio.current_time() + 200 + 120)


async def is_found_at(desk: Desk, at_s: float) -> bool:
    """True if there is no incident before that time on the clock of the test, and one soon after."""
    await trio.sleep_until(at_s - 1)
    assert [] == desk.incidents()
    await elapse(1 + 2 * SWEEP_S)
    return 1 == len(desk.incidents())


async def test_the_pause_before_a_retry_does_not_count(autojump_clock: MockClock) -> None:
    """A call that hangs after a long pause is found a window after the pause."""

    async def refuse_then_hang(request: Any, _on_delta: Any) -> Any:
        if request.attempt == 1:
            raise ModelFailure("rate_limited", "busy", 200_000)
        await forever()

    async with watching("observe_only") as desk:
        desk.play(refuse_then_hang)
        await desk.kit.start()
        assert await is_found_at(desk, trio.current_time() + 200 + 120)


@pytest.mark.parametrize("tokens", [0, 1])
async def test_time_in_the_queue_of_a_provider_does_not_count(
    autojump_clock: MockClock, tokens: int
) -> None:
    """A call without a token may be in the queue; one with a token is not."""

    async def answer_then_hang(_request: Any, on_delta: Any) -> Any:
        for _ in range(tokens):
            on_delta(Delta("text", "word"))
        await forever()

    async with watching("observe_only") as desk:
        queue_ends_s = trio.current_time() + 503
        desk.watchdog.providers = ("scripted",)
        desk.watchdog.find_health = lambda name: ProviderHealth(
            provider=name, waiting=trio.current_time() < queue_ends_s
        )
        desk.play(answer_then_hang)
        await desk.kit.start()
        begins_s = trio.current_time() if tokens else queue_ends_s
        assert await is_found_at(desk, begins_s + 120)


async def test_time_on_a_full_disk_does_not_count(autojump_clock: MockClock) -> None:
    """After the disk has room again, a run has the whole window."""
    async with watching("observe_only") as desk:
        desk.play(forever)
        await desk.kit.start()
        await elapse(1)
        desk.kit.journal.is_writable = False
        await elapse(502)
        desk.kit.journal.is_writable = True
        assert await is_found_at(desk, trio.current_time() + 120)


async def test_output_of_a_tool_is_progress(autojump_clock: MockClock) -> None:
    """A call that writes a line now and then is never found, and its silence after that is."""

    async def chatter(_call: Any, on_output: Callable[[str], None]) -> Any:
        for _ in range(4):
            await elapse(100)
            on_output("still here\n")
        await forever()

    async with watching("observe_only") as desk:
        add_tool(desk, "chatter", chatter)
        desk.kit.model.turns = [call(("chatter", {"text": "x"}))]
        run_id = await desk.kit.start()
        assert await is_found_at(desk, trio.current_time() + 400 + 120)
        assert [f"call_stuck:{run_id}"] == [each.key for each in desk.incidents()]


async def test_an_incident_survives_a_restart_with_its_attempts(autojump_clock: MockClock) -> None:
    """The next life goes on counting, and no second incident is opened."""
    store = MemoryJournal()
    store.open()
    async with watching("auto", store) as desk:
        desk.play(forever)
        await desk.kit.start()
        await elapse(140)
        assert ["resume_run"] == desk.remedies
    async with watching("auto", store) as desk:
        desk.play(forever)
        desk.kit.incidents.end_start()
        await elapse(140)
        (found,) = desk.incidents()
        assert 2 == found.attempts


# --- approvals


async def test_an_overdue_approval_is_settled_as_unanswered(autojump_clock: MockClock) -> None:
    """A minute after its deadline, when the task of the question has missed it."""
    async with watching("auto") as desk:
        desk.kit.model.turns = [call(("ask_note", {"text": "x"})), say("denied, then")]
        run_id = await desk.kit.start()
        await wait_all_tasks_blocked()
        (question,) = desk.kit.approvals._open.values()
        question.deadline_s = trio.current_time() - 30
        await elapse(20)
        assert [] == desk.incidents()
        assert "done" == await desk.kit.end(run_id)
        await elapse(2 * SWEEP_S)
        assert ["expire_approval"] == desk.remedies
        assert ["resolved"] == [each.state for each in desk.incidents()]
        assert [] == desk.kit.effects


# --- remedies and crashes


async def test_attempts_that_do_not_help_end_in_an_escalation(autojump_clock: MockClock) -> None:
    """Three attempts, after pauses of 60 and 120 s; escalated 240 s after the last; never more."""
    async with watching("auto") as desk:
        damage_index(desk)
        await elapse(1_000)
        assert [*RULES["index_damaged"].remedies] == desk.remedies
        first, second, third = (at_s for _, at_s in desk.tried)
        assert 60 <= second - first < 60 + 2 * SWEEP_S
        assert 120 <= third - second < 120 + 2 * SWEEP_S
        (found,) = desk.incidents()
        assert ("escalated", 3) == (found.state, found.attempts)
        desk.index.damage = ""
        await elapse(2 * SWEEP_S)
        assert ["resolved"] == [each.state for each in desk.incidents()]


async def test_a_remedy_that_helps_resolves_the_incident(autojump_clock: MockClock) -> None:
    """The next sweep does not find it."""
    async with watching("auto") as desk:
        desk.helps = lambda _key: setattr(desk.index, "damage", "")
        damage_index(desk)
        await elapse(3 * SWEEP_S)
        assert [("resolved", 1)] == [(each.state, each.attempts) for each in desk.incidents()]


async def test_a_remedy_that_fails_or_hangs_is_an_attempt(autojump_clock: MockClock) -> None:
    """Its failure is the outcome, and other incidents are treated meanwhile."""

    def fail(_key: str) -> None:
        raise ValueError("no")

    async with watching("auto") as desk:
        desk.helps = fail
        damage_index(desk)
        await elapse(2 * SWEEP_S)
        (found,) = desk.incidents()
        assert ("open", 1, "failed: ValueError") == (found.state, found.attempts, found.remedied)
    async with watching("auto") as desk:
        desk.watchdog.remedies = {**desk.watchdog.remedies, "rebuild_vectors": forever}
        damage_index(desk)
        desk.kit.incidents.report(kinds.provider_left_alone("acme", 3, "timeout"))
        await elapse(2 * SWEEP_S)
        assert ["trip_provider"] == desk.remedies
        await elapse(30)
        found = next(each for each in desk.incidents() if each.domain == "memory")
        assert ("open", "it did not end within 30 s") == (found.state, found.remedied)


async def test_a_crash_loop_is_treated_at_once(autojump_clock: MockClock) -> None:
    """The report of the supervisor wakes the watchdog, with the cause as evidence."""
    async with watching("auto") as desk:
        await elapse(SWEEP_S / 2)
        crash(desk, "services", "sandbox", 3)
        await elapse(0.1)
        (found,) = desk.incidents()
        assert ("escalated", "broken pipe") == (found.state, found.evidence["error"])
        await elapse(80)
        assert ["resolved"] == [each.state for each in desk.incidents()]


async def test_unresolved_states_only(autojump_clock: MockClock) -> None:
    """An incident that an interrupted attempt left in remediating is open again at the start."""
    store = MemoryJournal()
    store.open()
    async with watching("auto", store) as desk:
        desk.watchdog.remedies = {**desk.watchdog.remedies, "rebuild_vectors": forever}
        damage_index(desk)
        await elapse(2 * SWEEP_S)
        assert ["remediating"] == [each.state for each in desk.incidents()]
    async with watching("observe_only", store) as desk:
        damage_index(desk)
        await elapse(1)
        (found,) = desk.kit.incidents.list_unresolved()
        assert ("open", 1) == (found.state, found.attempts)
        assert found.state in UNRESOLVED


async def test_a_suspended_machine_makes_nothing_stuck() -> None:
    """An hour in which no code ran is no time on the daemon's clock; without that clock it would be."""

    async def found_after_gap(clock: trio.abc.Clock, raw: list[float]) -> bool:
        async def main() -> bool:
            since_s = trio.current_time()
            await trio.lowlevel.checkpoint()
            raw[0] += 3_600
            return is_stuck(since_s, trio.current_time())

        return await trio.to_thread.run_sync(partial(trio.run, main, clock=clock))

    raw = [0.0]
    assert not await found_after_gap(AwakeClock(lambda: raw[0]), raw)
    assert await found_after_gap(PlainClock(raw), raw)


class PlainClock(trio.abc.Clock):
    """A clock that counts gaps."""

    def __init__(self, raw: list[float]) -> None:
        self.raw = raw

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        return self.raw[0]

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return max(0.0, deadline - self.raw[0])


async def test_the_bench_of_sweeps_runs() -> None:
    """Its runs have all that a sweep reads."""
    bench = importlib.import_module("bench.healing")
    assert len(await bench.measure(20)) >= 5


async def test_a_damaged_record_is_reported_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its domain is not healed; when a person has resolved the incident, it stays so."""
    monkeypatch.setattr(MemoryJournal, "list_damaged", lambda _: ("tasks:tsk_1",))
    async with watching("disabled") as desk:
        await elapse(30)
        (found,) = desk.incidents()
        assert "record_damaged:tasks:tsk_1" == found.key
        await desk.kit.incidents.resolve(OPERATOR, found.incident_id, "it is gone")
        await elapse(60)
        assert ["resolved"] == [each.state for each in desk.incidents()]
