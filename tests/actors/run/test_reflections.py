"""The task that reads a run for learning, committed with the run's end."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.journal.changes import IncidentFilter, TaskFilter
from palyra.core.journal.records import TaskRecord
from palyra.core.model.messages import ModelFailure
from palyra.core.run.state import COMPACTION, begin
from palyra.core.tape.events import RunAccepted
from palyra.core.task.life import MAX_OPEN_OWN
from palyra.services.learning.candidates import EXPIRES_MS, Reflections
from tests.actors.run.office_kit import OPERATOR, OTHER, Kit, running
from tests.rows import every_row
from tests.store.memory.journal import MemoryJournal

ACCEPTED = RunAccepted(principal="me", session_id="ses_1", agent="default", model="scripted")


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


def learns(kit: Kit) -> list[str]:
    """Switch learning on; the list grows with each wake-up of the queue."""
    woken: list[str] = []
    kit.services.reflections.is_on = True
    kit.services.reflections.notify = lambda: woken.append("woken")
    return woken


def tasks(store: MemoryJournal) -> list[TaskRecord]:
    return store.list_tasks(TaskFilter())


async def test_a_run_that_ended_has_one_task(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The task belongs to the run's principal, waits behind all other work, and expires."""
    async with running(store) as kit:
        woken = learns(kit)
        run_id = await kit.start()
        assert "done" == await kit.end(run_id)
        await wait_all_tasks_blocked(0.0001)
    (task,) = tasks(store)
    assert ("reflection", {"run_id": run_id}, OPERATOR.principal) == (
        task.kind, task.payload, task.principal,
    )  # fmt: skip
    assert (0, "queued", EXPIRES_MS) == (
        task.priority, task.state, (task.expires_ms or 0) - task.created_ms,
    )  # fmt: skip
    assert woken


async def test_the_task_is_committed_with_the_end(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A crash before the commit leaves neither; the run that is continued then has one task."""
    async with running(store) as kit:
        learns(kit)
        wait = trio.Event()
        kit.model.turns = [wait]
        run_id = await kit.start()
        kit.journal.hold = True
        wait.set()
        await wait_all_tasks_blocked(0.0001)
        assert kit.live(run_id).run.is_terminal
        assert [] == tasks(store)
    async with running(store) as kit:
        learns(kit)
        assert "done" == await kit.end(run_id)
    async with running(store) as kit:
        learns(kit)
        await wait_all_tasks_blocked(0.0001)
    assert [{"run_id": run_id}] == [task.payload for task in tasks(store)]


async def test_failed_and_cancelled_runs_are_read(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """What a person said holds, however the run ended."""
    async with running(store) as kit:
        learns(kit)
        kit.model.turns = [ModelFailure("auth", "no key")]
        failed = await kit.start()
        assert "failed" == await kit.end(failed)
        kit.model.turns = [trio.Event()]
        cancelled = await kit.start()
        await wait_all_tasks_blocked(0.0001)
        await kit.gateway.cancel_run(OPERATOR, cancelled, "enough")
    assert {failed, cancelled} == {task.payload["run_id"] for task in tasks(store)}


async def test_without_learning_there_is_no_task(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Off is the default."""
    async with running(store) as kit:
        woken = learns(kit)
        kit.services.reflections.is_on = False
        await kit.end(await kit.start())
    assert ([], []) == (tasks(store), woken)


@every_row(
    ("accepted", "turn"),
    [
        (ACCEPTED, 0),
        (msgspec.structs.replace(ACCEPTED, depth=1, parent_run_id="run_0"), 1),
        (msgspec.structs.replace(ACCEPTED, parent_run_id="run_0"), 1),
        (msgspec.structs.replace(ACCEPTED, origin=COMPACTION), 1),
    ],
)
def test_runs_without_words_of_a_person_are_not_read(accepted: RunAccepted, turn: int) -> None:
    """A run before its first turn, a delegated run and a compaction teach nothing."""
    reflections = Reflections(lambda prefix: f"{prefix}_1", is_on=True)
    run = msgspec.structs.replace(begin("run_1", accepted, 0), turn=turn)
    assert reflections.task_for(run, 5) is None
    own = msgspec.structs.replace(begin("run_1", ACCEPTED, 0), turn=1)
    assert reflections.task_for(own, 5) is not None


async def test_only_runs_of_the_sample_are_read(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A run outside the sample has no task and no incident; the control with all of them has one."""
    async with running(store) as kit:
        learns(kit)
        kit.services.reflections.sample_bps = 0
        await kit.end(await kit.start())
        await wait_all_tasks_blocked(0.0001)
        assert ([], []) == (tasks(store), store.list_incidents(IncidentFilter()))
        kit.services.reflections.sample_bps = 10_000
        read = await kit.start()
        await kit.end(read)
    assert [read] == [task.payload["run_id"] for task in tasks(store)]


def test_a_session_is_read_once_in_a_cool_down() -> None:
    """Runs that end within it wait for its end together; another session is read at once."""
    reflections = Reflections(lambda prefix: f"{prefix}_1", is_on=True, cooldown_ms=300)

    def reading_ms(session_id: str, now_ms: int) -> int:
        accepted = msgspec.structs.replace(ACCEPTED, session_id=session_id)
        run = msgspec.structs.replace(begin("run_1", accepted, 0), turn=1)
        task = reflections.task_for(run, now_ms)
        assert task is not None
        return task.not_before_ms

    assert [1_000, 1_300, 1_300] == [reading_ms("ses_a", at) for at in (1_000, 1_100, 1_299)]
    assert 1_200 == reading_ms("ses_b", 1_200)
    assert [1_600, 1_600] == [reading_ms("ses_a", at) for at in (1_300, 1_500)]
    assert 5_000 == reading_ms("ses_a", 5_000)
    assert 4_300 == reading_ms("ses_c", 4_000) + 300
    clock_set_back = [reading_ms("ses_a", at) for at in (100, 400)]
    assert [100, 400] == clock_set_back


def test_without_a_cool_down_every_run_is_read_at_once() -> None:
    """The default."""
    reflections = Reflections(lambda prefix: f"{prefix}_1", is_on=True)
    run = msgspec.structs.replace(begin("run_1", ACCEPTED, 0), turn=1)
    found = [reflections.task_for(run, at) for at in (5, 6)]
    assert [5, 6] == [task.not_before_ms for task in found if task is not None]


async def test_a_backlog_refuses_no_task_of_a_person_and_reads_later_what_it_left_out(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """At the bound runs end without their task and one incident counts them, until there is room again."""
    async with running(store) as kit:
        learns(kit)
        kit.services.reflections.note_open({OPERATOR.principal: MAX_OPEN_OWN - 1}, kit.incidents, 7)
        run_ids = [await kit.start() for _ in range(4)]
        assert ["done"] * 4 == [await kit.end(each) for each in run_ids]
        await wait_all_tasks_blocked(0.0001)
        assert [run_ids[0]] == [each.payload["run_id"] for each in tasks(store)]
        (found,) = store.list_incidents(IncidentFilter())
        assert ("reflections_skipped:ann", "open", 3) == (found.key, found.state, found.count)
        assert run_ids[3] == found.evidence["run_id"]
        other = await kit.start(caller=OTHER)
        await kit.gateway.wait_run(OTHER, other, until="terminal", timeout_s=60)
        assert other in {each.payload["run_id"] for each in tasks(store)}
        kit.services.reflections.note_open({OPERATOR.principal: MAX_OPEN_OWN - 1}, kit.incidents, 7)
        await wait_all_tasks_blocked(0.0001)
        assert ["open"] == [each.state for each in store.list_incidents(IncidentFilter())]
        due = kit.services.reflections.note_open({OPERATOR.principal: 1}, kit.incidents, 7)
        assert run_ids[1:] == [each.payload["run_id"] for each in due]
        await wait_all_tasks_blocked(0.0001)
        assert ["resolved"] == [each.state for each in store.list_incidents(IncidentFilter())]
        assert "done" == await kit.end(await kit.start())
    assert 3 == len(tasks(store))


def test_runs_that_were_left_out_are_read_in_portions() -> None:
    """Each when the backlog is down to half, in their order; the incident lasts until the last."""
    reflections = Reflections(lambda prefix: f"{prefix}_1", is_on=True)
    cleared = list[str]()
    alarms: Any = SimpleNamespace(clear=lambda key, _reason: cleared.append(key))
    reflections.note_open({"me": MAX_OPEN_OWN}, alarms, 0)
    for number in range(600):
        run = msgspec.structs.replace(begin(f"run_{number}", ACCEPTED, 0), turn=1)
        assert reflections.task_for(run, 5) is None
        reflections.report_skipped(run)
    read = list[str]()
    for rounds in range(3):
        assert [] == reflections.note_open({"me": MAX_OPEN_OWN // 2 + 1}, alarms, 0)
        assert [] == cleared
        due = reflections.note_open({"me": MAX_OPEN_OWN // 2}, alarms, 0)
        read += [each.payload["run_id"] for each in due]
        assert min(600, 250 * (rounds + 1)) == len(read)
    assert [f"run_{number}" for number in range(600)] == read
    assert 1 == len(cleared)
