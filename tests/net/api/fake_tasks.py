"""Fake tasks and schedules for connections: one of each, and the recorded requests."""

from palyra.core.access import Caller
from palyra.core.journal.changes import TaskFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import Cron, ScheduleRecord, TaskRecord, Timing
from palyra.core.task.life import Submission
from palyra.core.task.views import TaskCounts
from palyra.services.task.schedules import AddSchedule
from tests.net.api.fake_registry import Asked

TASK = TaskRecord(
    task_id="tsk_1",
    kind="prompt",
    principal="ann",
    payload={"text": "hello"},
    rank_ms=1,
    created_ms=1,
    not_before_ms=1,
)
SCHEDULE = ScheduleRecord(
    schedule_id="sch_1",
    principal="ann",
    name="nightly",
    timing=Cron(expression="30 2 * * *", zone="Europe/Berlin"),
    kind="prompt",
    payload={"text": "hello"},
    handled_ms=1,
    next_ms=9,
    created_ms=1,
)


class FakeTasks(Asked):
    """One task; changes are kept for the test and change nothing."""

    async def submit(
        self, caller: Caller, wanted: Submission, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        await self.note(TASK, "submit", caller.principal, wanted, receipt)
        return TASK

    async def list_all(self, caller: Caller, wanted: TaskFilter) -> list[TaskRecord]:
        await self.note(TASK, "list", caller.principal, wanted)
        return [TASK]

    async def count(self, caller: Caller) -> TaskCounts:
        found = TaskCounts(due=2, running=1, oldest_due_ms=5, failed=3, own=1, own_limit=9)
        await self.note(found, "count", caller.principal)
        return found

    async def get(self, caller: Caller, task_id: str) -> TaskRecord:
        await self.note(TASK, "get", caller.principal, task_id)
        return TASK

    async def cancel(
        self, caller: Caller, task_id: str, reason: str, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        await self.note(TASK, "cancel", caller.principal, task_id, reason, receipt)
        return TASK

    async def pause(
        self, caller: Caller, task_id: str, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        await self.note(TASK, "pause", caller.principal, task_id, receipt)
        return TASK

    async def resume(
        self, caller: Caller, task_id: str, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        await self.note(TASK, "resume", caller.principal, task_id, receipt)
        return TASK

    async def retry(
        self,
        caller: Caller,
        task_id: str,
        expires_ms: int | None = None,
        receipt: IdempotencyKey | None = None,
    ) -> TaskRecord:
        await self.note(TASK, "retry", caller.principal, task_id, expires_ms, receipt)
        return TASK


class FakeSchedules(Asked):
    """One schedule; changes are kept for the test and change nothing."""

    async def add(
        self, caller: Caller, wanted: AddSchedule, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        await self.note(SCHEDULE, "add", caller.principal, wanted, receipt)
        return SCHEDULE

    async def list_all(self, caller: Caller) -> list[ScheduleRecord]:
        await self.note(SCHEDULE, "list", caller.principal)
        return [SCHEDULE]

    async def get(self, caller: Caller, schedule_id: str) -> ScheduleRecord:
        await self.note(SCHEDULE, "get", caller.principal, schedule_id)
        return SCHEDULE

    async def preview(self, caller: Caller, timing: Timing) -> list[int]:
        await self.note(SCHEDULE, "preview", caller.principal, timing)
        return [9, 10]

    async def next(self, caller: Caller, schedule_id: str) -> list[int]:
        await self.note(SCHEDULE, "next", caller.principal, schedule_id)
        return [9, 10]

    async def pause(
        self, caller: Caller, schedule_id: str, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        await self.note(SCHEDULE, "pause", caller.principal, schedule_id, receipt)
        return SCHEDULE

    async def resume(
        self, caller: Caller, schedule_id: str, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        await self.note(SCHEDULE, "resume", caller.principal, schedule_id, receipt)
        return SCHEDULE

    async def remove(
        self, caller: Caller, schedule_id: str, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        await self.note(SCHEDULE, "remove", caller.principal, schedule_id, receipt)
        return SCHEDULE
