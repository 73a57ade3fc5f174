"""Typed methods about background tasks and schedules."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from palyra.client.requests import RequestMethods
from palyra.core.journal.records import MissedPolicy, OverlapPolicy, TaskKind, TaskState
from palyra.core.task.views import ScheduleView, TaskCounts, TaskView
from palyra.net.protocol.results import ScheduleInstants, ScheduleList, TaskPage


class TaskOptions(TypedDict, total=False):
    """Params of a task besides its kind and payload."""

    priority: int
    not_before_ms: int | None
    expires_ms: int | None
    max_attempts: int
    idempotency_key: str | None


class TasksWanted(TypedDict, total=False):
    """Filter of `task.list`."""

    states: Sequence[TaskState]
    kind: TaskKind | None
    schedule_id: str | None
    cursor: str | None
    limit: int


class ScheduleOptions(TypedDict, total=False):
    """Params of a schedule besides its name; one of `cron`, `every_ms` and `at_ms` is needed."""

    kind: TaskKind
    payload: dict[str, Any]
    cron: str | None
    zone: str | None
    every_ms: int | None
    at_ms: int | None
    priority: int
    max_attempts: int
    expires_after_ms: int | None
    missed: MissedPolicy
    overlap: OverlapPolicy
    idempotency_key: str | None


class TaskMethods(RequestMethods):
    """Submit and follow background tasks, add and remove schedules."""

    async def submit_task(
        self, kind: TaskKind, payload: dict[str, Any], **options: Unpack[TaskOptions]
    ) -> TaskView:
        """Submit a background task; on return it is durable."""
        params = {"kind": kind, "payload": payload, **options}
        return await self._mutate("task.submit", params, TaskView)

    async def get_task(self, task_id: str) -> TaskView:
        """Return a task.  Raises NotFound."""
        return await self._ask("task.get", {"task_id": task_id}, TaskView)

    async def list_tasks(self, **wanted: Unpack[TasksWanted]) -> TaskPage:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        return await self._ask("task.list", {**wanted}, TaskPage)

    async def count_tasks(self) -> TaskCounts:
        """The state of the queue in numbers."""
        return await self._ask("task.counts", {}, TaskCounts)

    async def cancel_task(self, task_id: str, reason: str = "") -> TaskView:
        """Cancel a task.  Raises NotFound."""
        return await self._mutate("task.cancel", {"task_id": task_id, "reason": reason}, TaskView)

    async def pause_task(self, task_id: str) -> TaskView:
        """Pause a queued task.  Raises NotFound, or IllegalState unless it is queued."""
        return await self._mutate("task.pause", {"task_id": task_id}, TaskView)

    async def resume_task(self, task_id: str) -> TaskView:
        """Queue a paused task again.  Raises NotFound."""
        return await self._mutate("task.resume", {"task_id": task_id}, TaskView)

    async def retry_task(self, task_id: str, *, expires_ms: int | None = None) -> TaskView:
        """Submit a task that repeats a failed or expired one."""
        return await self._mutate(
            "task.retry", {"task_id": task_id, "expires_ms": expires_ms}, TaskView
        )

    async def add_schedule(self, name: str, **options: Unpack[ScheduleOptions]) -> ScheduleView:
        """Add a schedule, by exactly one of `cron`, `every_ms` and `at_ms`."""
        return await self._mutate("schedule.add", {"name": name, **options}, ScheduleView)

    async def get_schedule(self, schedule_id: str) -> ScheduleView:
        """Return a schedule.  Raises NotFound."""
        return await self._ask("schedule.get", {"schedule_id": schedule_id}, ScheduleView)

    async def list_schedules(self) -> list[ScheduleView]:
        """List the schedules."""
        return (await self._ask("schedule.list", {}, ScheduleList)).schedules

    async def next_instants(self, schedule_id: str) -> ScheduleInstants:
        """The coming instants, at most ten."""
        return await self._ask("schedule.next", {"schedule_id": schedule_id}, ScheduleInstants)

    async def preview_schedule(
        self,
        *,
        cron: str | None = None,
        zone: str | None = None,
        every_ms: int | None = None,
        at_ms: int | None = None,
    ) -> ScheduleInstants:
        """Return the first instants of a timing, by exactly one of `cron`, `every_ms` and `at_ms`."""
        timing = {"cron": cron, "zone": zone, "every_ms": every_ms, "at_ms": at_ms}
        return await self._ask("schedule.preview", timing, ScheduleInstants)

    async def pause_schedule(self, schedule_id: str) -> ScheduleView:
        """Pause a schedule: no instant fires until it is resumed.  Raises NotFound."""
        return await self._mutate("schedule.pause", {"schedule_id": schedule_id}, ScheduleView)

    async def resume_schedule(self, schedule_id: str) -> ScheduleView:
        """Fire from the next instant on; the instants of the pause are left out."""
        return await self._mutate("schedule.resume", {"schedule_id": schedule_id}, ScheduleView)

    async def remove_schedule(self, schedule_id: str) -> ScheduleView:
        """Remove a schedule.  Raises NotFound."""
        return await self._mutate("schedule.remove", {"schedule_id": schedule_id}, ScheduleView)
