"""The queue actor: starts due tasks as supervised workers, and fires schedules.

Owns: nothing that a restart loses; running tasks belong to `services.task.queue`.
Talks to: the queue, the schedules, the supervisor `tasks` of the workers.
Never: does the work of a task itself, or waits for it.
Restart: permanent.  Workers are children of `tasks` and outlive it.

    woken (submission, change, end of work) or at the next due time, at most SWEEP_S
      -> settle -> look -> expire and lapse -> fire -> claim -> start workers -> wait

Without any task or schedule in the journal it sleeps until one is submitted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import msgspec
import structlog
import trio

from palyra.actors.kernel.child import ChildSpec, Exit, ExitListener
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.core.healing.rules import subject_of
from palyra.core.incident.kinds import clock_was_ahead
from palyra.core.journal.records import AHEAD_MS, TaskRecord
from palyra.core.ports import IncidentReporter, TaskHandler
from palyra.core.task.run_end import RunFailedEarly
from palyra.errors import (
    ActorGone,
    Conflict,
    Overloaded,
    PalyraError,
    TooSlow,
    Unavailable,
)
from palyra.services.task.queue import AttemptFailed, Succeeded, TaskQueue
from palyra.services.task.schedules import Schedules

log = structlog.get_logger("palyra.tasks")
SWEEP_S = 3.0  # a clock that was changed, or a task of another process, is noticed by then
RETRY_S = 1.0  # of a cycle that the journal refused
_WORKER, _STOPPER = "task:", "abandon:"
_LATER = (Unavailable, Overloaded, TooSlow, ActorGone)  # a later attempt may succeed


@dataclass(slots=True)
class Background:
    """The parts of the queue actor."""

    queue: TaskQueue
    schedules: Schedules
    workers: DynamicSupervisor
    max_running: int
    is_idle: Callable[[], bool]  # drains, or is suspended: starts no task and fires no schedule
    alarms: IncidentReporter

    def stop(self, task: TaskRecord) -> None:
        """Stop the work of a task that was ended or lapsed; never waits."""
        self.queue.forget(task.task_id)
        self.workers.cancel_child(f"{_WORKER}{task.task_id}", f"the task is {task.state}")
        if task.is_final:
            self.abandon(task)

    def abandon(self, task: TaskRecord) -> None:
        """Stop the run of an ended task, in a task of its own."""
        handler = self.queue.tasks.handlers.get(task.kind)
        if task.run_id is None or handler is None:
            return
        spec = ChildSpec(f"{_STOPPER}{task.task_id}", partial(_abandon, handler, task), "temporary")
        try:
            self.workers.spawn_child(spec)
        except (ActorGone, Conflict, Overloaded) as error:
            log.warning("run of a task was not stopped", task=task.task_id, error=error.message)

    def start(self, task: TaskRecord) -> None:
        """Start the worker of a claimed task."""
        handler = self.queue.tasks.handlers.get(task.kind)
        if handler is None:
            self.queue.finish(
                task, AttemptFailed(f"no handler of the kind {task.kind}", may_retry=False)
            )
            return
        start = partial(work, self.queue, handler, task)
        try:
            self.workers.spawn_child(ChildSpec(f"{_WORKER}{task.task_id}", start, "temporary"))
        except (ActorGone, Conflict, Overloaded) as error:  # an earlier attempt does not end
            self.queue.finish(task, AttemptFailed(error.message, may_retry=True))

    def give_up_lost(self) -> None:
        """Give up the tasks whose worker is gone without an outcome: its supervisor stopped it."""
        for task_id, entry in self.queue.running.items():
            if entry.outcome is None and f"{_WORKER}{task_id}" not in self.workers:
                self.queue.give_up(task_id, f"the worker of attempt {entry.task.attempts} was lost")


def note_exit(queue: TaskQueue, notice: ExitListener, end: Exit) -> None:
    """Note the crash of a worker as the outcome of its task, and as a crash of its kind."""
    task_id = end.id.removeprefix(_WORKER)
    entry = queue.running.get(task_id) if end.id.startswith(_WORKER) else None
    if entry is not None and end.error is not None:
        queue.finish(
            entry.task, AttemptFailed(f"the worker crashed: {end.error!r}", may_retry=True)
        )
        notice(msgspec.structs.replace(end, id=f"{_WORKER}{entry.task.kind}"))


def requeue_task(queue: TaskQueue, key: str) -> str:
    """Put the task of the incident back into the queue; the attempt counts."""
    if not queue.give_up(subject_of(key), "hung: it made no progress", is_hung=True):
        return "the attempt has ended"
    return "its work is stopped, and begins again later"


async def work(
    queue: TaskQueue,
    handler: TaskHandler,
    task: TaskRecord,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Do the work of one attempt and note its outcome.

    Cancellation: no outcome is noted; the canceller has ended the task, or its lease lapses.
    """
    task_status.started()
    try:
        result = await handler.work(task, partial(queue.progress, task.task_id))
    except PalyraError as error:
        may_retry, needs_run = isinstance(error, _LATER), isinstance(error, RunFailedEarly)
        queue.finish(task, AttemptFailed(error.message, may_retry, needs_run))
    else:
        queue.finish(task, Succeeded(result))


async def _abandon(
    handler: TaskHandler,
    task: TaskRecord,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    task_status.started()
    try:
        await handler.abandon(task)
    except PalyraError as error:
        log.warning("run of a task was not stopped", task=task.task_id, error=error.message)


async def keep_queue(
    parts: Background, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run cycles until cancelled.

    Cancellation: outcomes that are not committed stay with the queue; claimed tasks without a
    worker lapse.
    """
    queue = parts.queue
    task_status.started()
    await _abandon_left(parts)
    obstacle, shift_ms = "", None  # of the wall clock against that of the event loop
    while True:
        try:
            shown_ms = queue.now_ms() - round(1_000 * trio.current_time())
            if shift_ms is None or shown_ms < shift_ms - AHEAD_MS:  # at the start, and set back
                await set_back(parts)
            shift_ms = shown_ms
            due_ms = await cycle(parts)
        except (Unavailable, ActorGone, Overloaded) as error:
            if error.message != obstacle:  # an outage is one line in the log, not one a second
                obstacle = error.message
                log.warning("the queue of tasks waits", error=obstacle, retry_s=RETRY_S)
            await trio.sleep(RETRY_S)
            continue
        if obstacle:
            log.info("the queue of tasks works again", after=obstacle)
            obstacle = ""
        with trio.move_on_after(_pause_s(queue, due_ms)):
            await queue.tasks.wait_woken()


async def set_back(parts: Background) -> None:
    """Give up times that a clock wrote that was ahead, and report that.  Raises Unavailable."""
    schedules, schedules_ms = await parts.schedules.set_back()
    tasks, tasks_ms = await parts.queue.set_back()
    if schedules or tasks:
        until = datetime.fromtimestamp(max(schedules_ms, tasks_ms) / 1_000, UTC)
        parts.alarms.report(clock_was_ahead(f"{until:%Y-%m-%dT%H:%M:%SZ}", schedules, tasks))


async def cycle(parts: Background) -> int | None:
    """Take one cycle; return when the next task or schedule is due, None for never.

    Raises Unavailable, ActorGone.
    """
    queue = parts.queue
    await queue.settle()
    parts.give_up_lost()
    slots = 0 if parts.is_idle() else parts.max_running - queue.count_busy
    look = await queue.look(slots)
    if queue.note_own is not None:
        queue.note_own(look.own)
    for task in await queue.reclaim(look):
        parts.stop(task)
    decided = 0
    if not parts.is_idle():
        decided = await parts.schedules.fire(look.schedules)
    for task in await queue.claim(look.claimable):
        parts.start(task)
    if slots <= 0:  # full or idle: the end of a worker wakes the queue, expiry the sweep
        return queue.now_ms() + round(1_000 * SWEEP_S)
    if decided or slots == len(look.claimable):  # there may be more
        return queue.now_ms()
    if look.schedules:  # all were refused: changed meanwhile, or damaged
        return queue.now_ms() + round(1_000 * RETRY_S)
    return look.next_due_ms


async def _abandon_left(parts: Background) -> None:
    try:
        for task in await parts.queue.list_abandoned():
            parts.abandon(task)
    except Unavailable as error:
        log.warning("ended tasks were not looked at", error=error.message)


def _pause_s(queue: TaskQueue, due_ms: int | None) -> float:
    """Return the time until the next cycle, in seconds."""
    if due_ms is None:
        return SWEEP_S if queue.running else float("inf")
    return min(SWEEP_S, max(0.0, (due_ms - queue.now_ms()) / 1_000))


def child_spec(parts: Background) -> ChildSpec:
    """Return the spec of the actor; it starts after the supervisor of the workers."""
    return ChildSpec("background", partial(keep_queue, parts))
