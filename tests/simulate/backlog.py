"""The part of the oracle about what the daemon does by itself: tasks, firings, delegated runs, learning."""

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from palyra.core.journal.records import (
    At,
    CandidateRecord,
    Every,
    MemoryRecord,
    RunRecord,
    ScheduleRecord,
    TaskRecord,
)
from palyra.core.run.state import Run
from palyra.core.tape import events as ev
from palyra.core.task.life import TASK_MOVES
from palyra.core.tool.spec import ToolCall
from tests.simulate.marks import find_marks, owner_of

Fail = Callable[[str, str], None]
MOVES = {(before, after) for froms, after in TASK_MOVES.values() for before in froms}


class Backlog:
    """Every task, schedule and delegated run there ever was, by their commits."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self.tasks: dict[str, TaskRecord] = {}
        self.schedules: dict[str, ScheduleRecord] = {}
        self.firings: dict[str, str] = {}  # key of a firing -> its task
        self._works: dict[str, str] = {}  # run -> its task
        self._parents: dict[str, tuple[str, str]] = {}  # run -> run and call that delegate to it
        self.started: dict[str, list[ev.DelegationStarted]] = {}  # by delegating run
        self.ended: dict[str, list[ev.DelegationEnded]] = {}

    # --- what is committed

    def take(self, record: msgspec.Struct) -> None:
        """A record is committed."""
        match record:
            case TaskRecord():
                self._take_task(record)
            case ScheduleRecord():
                self.schedules[record.schedule_id] = record
            case CandidateRecord(kind=kind) if kind != "procedure":  # which has what was called
                self._check_learned(record.candidate_id, record.text, record.principal)
            case MemoryRecord():
                self._check_learned(record.memory_id, record.text, record.principal)
            case _:
                pass

    def _take_task(self, task: TaskRecord) -> None:
        before = self.tasks.get(task.task_id)
        if before is None:
            self._take_firing(task)
        elif before.is_final:
            self._fail("the end of a task never changes", f"{before} then {task}")
        elif before.state != task.state and (before.state, task.state) not in MOVES:
            self._fail("a task moves as its life says", f"{before.state} to {task.state}")
        if task.run_id is None and task.attempts > task.max_attempts:  # a run outlives its worker
            self._fail("attempts are bounded", f"{task.task_id}: {task.attempts}")
        self.tasks[task.task_id] = task
        if task.run_id is not None and self._works.setdefault(task.run_id, task.task_id) != (
            task.task_id
        ):
            self._fail("a run does the work of one task", task.run_id)

    def _take_firing(self, task: TaskRecord) -> None:
        """An instant has one task, and is one of its schedule."""
        if task.firing is None:
            return
        if task.firing in self.firings:
            self._fail("an instant fires once", f"{task.firing}: {task.task_id}")
        self.firings[task.firing] = task.task_id
        schedule_id, _, at = task.firing.rpartition("@")
        schedule, at_ms = self.schedules.get(schedule_id), int(at)
        match schedule and schedule.timing:
            case Every(period_ms=period_ms, anchor_ms=anchor_ms):
                is_instant = at_ms > anchor_ms and (at_ms - anchor_ms) % period_ms == 0
            case At(at_ms=planned_ms):
                is_instant = at_ms == planned_ms
            case None:
                is_instant = False
            case _:
                is_instant = at_ms % 60_000 == 0
        if not is_instant:
            self._fail("only instants of the schedule fire", task.firing)

    def _check_learned(self, name: str, text: str, principal: str) -> None:
        """What a person said is learned for that person, what a tool said for nobody."""
        for mark in find_marks(text):
            if owner_of(mark) != principal:
                self._fail("scope isolation", f"{name} of {principal} has {mark}")
            if mark in find_marks(text, "to"):
                self._fail("what a tool says is not learned", f"{name} has {mark}")

    def note(self, run_id: str, event: ev.Event) -> None:
        """A row of a tape is committed."""
        match event:
            case ev.DelegationStarted():
                self.started.setdefault(run_id, []).append(event)
                named = self._parents.setdefault(event.run_id, (run_id, event.call_id))
                if named != (run_id, event.call_id):
                    self._fail("a run is delegated once", event.run_id)
            case ev.DelegationEnded():
                self.ended.setdefault(run_id, []).append(event)
            case ev.RunAccepted(depth=depth) if depth and run_id not in self._parents:
                self._fail("no child before its parent's tape names it", run_id)
            case ev.RunAccepted(origin=origin) if origin == "background":
                task = self.tasks.get(self._works.get(run_id, ""))
                if task is None or task.state != "running":
                    self._fail("no run without its task", f"{run_id}: {task}")
            case _:
                pass

    def has_child(self, call: ToolCall, runs: Mapping[str, Run]) -> bool:
        """Return True if the run that the call delegates to exists."""
        return any(
            each.run_id in runs
            for each in self.started.get(call.run_id, ())
            if each.call_id == call.call_id
        )

    # --- at the end

    def find_open(self) -> list[str]:
        """Tasks that will still be done, schedules that may still fire."""
        tasks = [
            f"{each.task_id} {each.kind} {each.state}"
            for each in self.tasks.values()
            if not each.is_final and each.state != "paused"
        ]
        schedules = [key for key, each in self.schedules.items() if each.removed_ms is None]
        return tasks + schedules

    def check_end(self, runs: dict[str, Run], records: dict[str, RunRecord]) -> None:
        """Check that each end is told where it is waited for, when all runs have ended."""
        for task in self.tasks.values():
            run = runs.get(task.run_id or "")
            if task.state == "succeeded" and task.run_id and (run is None or run.state != "done"):
                self._fail("a task succeeds with its run", f"{task.task_id}: {run and run.state}")
        for run_id in self.started:
            self._check_children(run_id, runs, records)

    def _check_children(
        self, run_id: str, runs: dict[str, Run], records: dict[str, RunRecord]
    ) -> None:
        started, ended = self.started[run_id], self.ended.get(run_id, [])
        if Counter(each.run_id for each in started) != Counter(each.run_id for each in ended):
            self._fail("each delegated run ends once on its parent's tape", run_id)
        for end in ended:
            child = records.get(end.run_id)
            if child is None:
                if end.state not in {"refused", "cancelled"}:
                    self._fail("the end of a delegated run is true", f"{end}, and no run")
                continue
            state = "partial" if (child.state, child.reason) == ("done", "partial") else child.state
            is_own = end.state == "cancelled" and runs[run_id].state != "done"
            if end.state != state and not is_own:
                self._fail("the end of a delegated run is true", f"{end}, but {child}")
            if child.parent_run_id != run_id or child.principal != records[run_id].principal:
                self._fail("a delegated run knows its parent", end.run_id)
