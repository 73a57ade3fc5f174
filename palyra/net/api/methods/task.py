"""task.* and schedule.*: background work, at once or at later times."""

from typing import Annotated, Any

import msgspec

from palyra.core.journal.changes import TaskFilter
from palyra.core.journal.records import (
    At,
    Cron,
    Every,
    MissedPolicy,
    OverlapPolicy,
    ScheduleRecord,
    TaskKind,
    TaskRecord,
    TaskState,
    Timing,
)
from palyra.core.task.life import Submission
from palyra.core.task.views import ScheduleView, TaskCounts, TaskView
from palyra.errors import InvalidParams
from palyra.net.api.method import (
    Duration,
    Id,
    Instant,
    Limit,
    Method,
    MethodCall,
    Mutation,
    cursor_of,
)
from palyra.net.protocol.params import NAME, Params
from palyra.net.protocol.results import ScheduleInstants, ScheduleList, TaskPage
from palyra.services.task.schedules import AddSchedule, find_problem

Priority = Annotated[int, msgspec.Meta(ge=0, le=9)]
Attempts = Annotated[int, msgspec.Meta(ge=1, le=20)]
States = Annotated[list[TaskState], msgspec.Meta(max_length=7)]
Reason = Annotated[str, msgspec.Meta(max_length=1_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128), NAME]
CronText = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Zone = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class TaskSubmit(Mutation, frozen=True, kw_only=True):
    """Work to do in the background."""

    kind: TaskKind
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    priority: Priority = 5
    not_before_ms: Instant | None = None
    expires_ms: Instant | None = None
    max_attempts: Attempts = 3


class TaskGet(Params, frozen=True, kw_only=True):
    """One task."""

    task_id: Id


class TaskListParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    states: States | None = None
    kind: TaskKind | None = None
    schedule_id: Id | None = None
    limit: Limit = 100
    cursor: Annotated[str, cursor_of("tsk")] | None = None


class TaskCountsParams(Params, frozen=True, kw_only=True):
    """All tasks that the caller sees."""


class TaskChange(Mutation, frozen=True, kw_only=True):
    """The task to change."""

    task_id: Id


class TaskRetry(Mutation, frozen=True, kw_only=True):
    """The failed or expired task to repeat; without `expires_ms` the new one does not expire."""

    task_id: Id
    expires_ms: Instant | None = None


class TaskCancel(Mutation, frozen=True, kw_only=True):
    """The task to cancel."""

    task_id: Id
    reason: Reason = ""


class ScheduleAdd(Mutation, frozen=True, kw_only=True):
    """A schedule; give one of `cron`, `every_ms` and `at_ms`."""

    name: Name
    kind: TaskKind = "prompt"
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    cron: CronText | None = None
    zone: Zone | None = None  # of `cron`; UTC
    every_ms: Duration | None = None
    at_ms: Instant | None = None
    priority: Priority = 5
    max_attempts: Attempts = 3
    expires_after_ms: Duration | None = None
    missed: MissedPolicy = "once"
    overlap: OverlapPolicy = "forbid"


class SchedulePreview(Params, frozen=True, kw_only=True):
    """A timing, by one of `cron`, `every_ms` and `at_ms`, that no schedule needs to have."""

    cron: CronText | None = None
    zone: Zone | None = None  # of `cron`; UTC
    every_ms: Duration | None = None
    at_ms: Instant | None = None


class ScheduleGet(Params, frozen=True, kw_only=True):
    """One schedule."""

    schedule_id: Id


class ScheduleListParams(Params, frozen=True, kw_only=True):
    """All schedules that the caller sees."""


class ScheduleChange(Mutation, frozen=True, kw_only=True):
    """The schedule to change."""

    schedule_id: Id


async def submit(call: MethodCall, params: TaskSubmit) -> TaskView:
    wanted = Submission(
        kind=params.kind,
        payload=params.payload,
        priority=params.priority,
        not_before_ms=params.not_before_ms,
        expires_ms=params.expires_ms,
        max_attempts=params.max_attempts,
    )
    tasks = call.backend.tasks
    done = await call.once(
        TaskRecord, lambda: tasks.submit(call.caller, wanted, call.key), is_kept_by_effect=True
    )
    return TaskView.of(done)


async def get(call: MethodCall, params: TaskGet) -> TaskView:
    return TaskView.of(await call.backend.tasks.get(call.caller, params.task_id))


async def list_(call: MethodCall, params: TaskListParams) -> TaskPage:
    wanted = TaskFilter(
        states=tuple(params.states or ()),
        kind=params.kind,
        schedule_id=params.schedule_id,
        before=params.cursor,
        limit=params.limit,
    )
    found = await call.backend.tasks.list_all(call.caller, wanted)
    next_cursor = found[-1].task_id if len(found) == params.limit else None
    return TaskPage(tasks=[TaskView.of(each) for each in found], next_cursor=next_cursor)


async def count(call: MethodCall, params: TaskCountsParams) -> TaskCounts:
    del params
    return await call.backend.tasks.count(call.caller)


async def cancel(call: MethodCall, params: TaskCancel) -> TaskView:
    tasks = call.backend.tasks
    done = await call.once(
        TaskRecord,
        lambda: tasks.cancel(call.caller, params.task_id, params.reason, call.key),
        is_kept_by_effect=True,
    )
    return TaskView.of(done)


async def pause(call: MethodCall, params: TaskChange) -> TaskView:
    tasks = call.backend.tasks
    done = await call.once(
        TaskRecord,
        lambda: tasks.pause(call.caller, params.task_id, call.key),
        is_kept_by_effect=True,
    )
    return TaskView.of(done)


async def resume(call: MethodCall, params: TaskChange) -> TaskView:
    tasks = call.backend.tasks
    done = await call.once(
        TaskRecord,
        lambda: tasks.resume(call.caller, params.task_id, call.key),
        is_kept_by_effect=True,
    )
    return TaskView.of(done)


async def retry(call: MethodCall, params: TaskRetry) -> TaskView:
    tasks = call.backend.tasks
    done = await call.once(
        TaskRecord,
        lambda: tasks.retry(call.caller, params.task_id, params.expires_ms, call.key),
        is_kept_by_effect=True,
    )
    return TaskView.of(done)


async def add_schedule(call: MethodCall, params: ScheduleAdd) -> ScheduleView:
    wanted = AddSchedule(
        name=params.name,
        timing=_timing(params, call.backend.now_ms()),
        kind=params.kind,
        payload=params.payload,
        priority=params.priority,
        max_attempts=params.max_attempts,
        expires_after_ms=params.expires_after_ms,
        missed=params.missed,
        overlap=params.overlap,
    )
    schedules = call.backend.schedules
    done = await call.once(
        ScheduleRecord, lambda: schedules.add(call.caller, wanted, call.key), is_kept_by_effect=True
    )
    return ScheduleView.of(done)


def _timing(params: ScheduleAdd | SchedulePreview, now_ms: int) -> Timing:
    given = [each for each in (params.cron, params.every_ms, params.at_ms) if each is not None]
    if len(given) != 1:
        raise InvalidParams("give exactly one of cron, every_ms and at_ms", field="cron")
    if params.zone is not None and params.cron is None:
        raise InvalidParams("a zone belongs to cron: omit it", field="zone")
    if params.cron is not None:
        return Cron(expression=params.cron, zone=params.zone or "UTC")
    if params.every_ms is not None:
        return Every(period_ms=params.every_ms, anchor_ms=now_ms)
    assert params.at_ms is not None  # noqa: S101 - one of the three is given
    return At(at_ms=params.at_ms)


async def get_schedule(call: MethodCall, params: ScheduleGet) -> ScheduleView:
    found = await call.backend.schedules.get(call.caller, params.schedule_id)
    return ScheduleView.of(found, find_problem(found.timing))


async def list_schedules(call: MethodCall, params: ScheduleListParams) -> ScheduleList:
    del params
    found = await call.backend.schedules.list_all(call.caller)
    return ScheduleList(
        schedules=[ScheduleView.of(each, find_problem(each.timing)) for each in found]
    )


async def next_instants(call: MethodCall, params: ScheduleGet) -> ScheduleInstants:
    schedules = call.backend.schedules
    found = await schedules.get(call.caller, params.schedule_id)
    return ScheduleInstants(
        schedule_id=found.schedule_id,
        instants=await schedules.next(call.caller, params.schedule_id),
        zone=found.timing.zone if isinstance(found.timing, Cron) else "UTC",
    )


async def preview(call: MethodCall, params: SchedulePreview) -> ScheduleInstants:
    timing = _timing(params, call.backend.now_ms())
    return ScheduleInstants(
        schedule_id="",
        instants=await call.backend.schedules.preview(call.caller, timing),
        zone=timing.zone if isinstance(timing, Cron) else "UTC",
    )


async def pause_schedule(call: MethodCall, params: ScheduleChange) -> ScheduleView:
    schedules = call.backend.schedules
    done = await call.once(
        ScheduleRecord,
        lambda: schedules.pause(call.caller, params.schedule_id, call.key),
        is_kept_by_effect=True,
    )
    return ScheduleView.of(done)


async def resume_schedule(call: MethodCall, params: ScheduleChange) -> ScheduleView:
    schedules = call.backend.schedules
    done = await call.once(
        ScheduleRecord,
        lambda: schedules.resume(call.caller, params.schedule_id, call.key),
        is_kept_by_effect=True,
    )
    return ScheduleView.of(done)


async def remove_schedule(call: MethodCall, params: ScheduleChange) -> ScheduleView:
    schedules = call.backend.schedules
    done = await call.once(
        ScheduleRecord,
        lambda: schedules.remove(call.caller, params.schedule_id, call.key),
        is_kept_by_effect=True,
    )
    return ScheduleView.of(done)


METHODS = (
    Method("task.submit", TaskSubmit, TaskView, "tasks:write", submit),
    Method("task.get", TaskGet, TaskView, "tasks:read", get),
    Method("task.list", TaskListParams, TaskPage, "tasks:read", list_, is_bulk=True),
    Method("task.counts", TaskCountsParams, TaskCounts, "tasks:read", count),
    Method("task.cancel", TaskCancel, TaskView, "tasks:write", cancel),
    Method("task.pause", TaskChange, TaskView, "tasks:write", pause),
    Method("task.resume", TaskChange, TaskView, "tasks:write", resume),
    Method("task.retry", TaskRetry, TaskView, "tasks:write", retry),
    Method("schedule.add", ScheduleAdd, ScheduleView, "tasks:write", add_schedule),
    Method("schedule.get", ScheduleGet, ScheduleView, "tasks:read", get_schedule),
    Method(
        "schedule.list",
        ScheduleListParams,
        ScheduleList,
        "tasks:read",
        list_schedules,
        is_bulk=True,
    ),
    Method("schedule.next", ScheduleGet, ScheduleInstants, "tasks:read", next_instants),
    Method("schedule.preview", SchedulePreview, ScheduleInstants, "tasks:read", preview),
    Method("schedule.pause", ScheduleChange, ScheduleView, "tasks:write", pause_schedule),
    Method("schedule.resume", ScheduleChange, ScheduleView, "tasks:write", resume_schedule),
    Method("schedule.remove", ScheduleChange, ScheduleView, "tasks:write", remove_schedule),
)
