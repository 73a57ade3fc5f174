"""Tasks and schedules as clients see them: without lease, order and revision."""

from typing import Any, assert_never

import msgspec

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
)


class TaskView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A background task."""

    task_id: str
    kind: TaskKind
    principal: str
    state: TaskState
    priority: int
    created_ms: int
    not_before_ms: int
    attempts: int
    max_attempts: int
    payload: dict[str, Any] = {}
    expires_ms: int | None = None
    progress_ms: int | None = None
    finished_ms: int | None = None
    run_id: str | None = None
    result: dict[str, Any] = {}
    error: str = ""
    firing: str | None = None
    retry_of: str | None = None

    @classmethod
    def of(cls, task: TaskRecord) -> "TaskView":
        """Return the view of a task."""
        return cls(**{name: getattr(task, name) for name in cls.__struct_fields__})


class TaskCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the queue in numbers, of the tasks that a caller sees."""

    due: int  # queued, and their time has come
    running: int
    oldest_due_ms: int | None  # since when the first of the due ones could run
    failed: int  # within the last day
    own: int  # open ones that the daemon submits for a principal, such as reflections
    own_limit: int  # of one principal


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule; one of `cron` with `zone`, `every_ms` and `at_ms` is present."""

    schedule_id: str
    name: str
    principal: str
    kind: TaskKind
    priority: int
    max_attempts: int
    missed: MissedPolicy
    overlap: OverlapPolicy
    created_ms: int
    cron: str | None = None
    zone: str | None = None
    every_ms: int | None = None
    at_ms: int | None = None
    payload: dict[str, Any] = {}
    expires_after_ms: int | None = None
    paused: bool = False
    next_ms: int | None = None
    fired: int = 0
    left_out: int = 0
    problem: str = ""  # why it cannot fire

    @classmethod
    def of(cls, schedule: ScheduleRecord, problem: str = "") -> "ScheduleView":
        """Return the view of a schedule."""
        own = {"cron", "zone", "every_ms", "at_ms", "paused", "problem"}
        fields = {
            name: getattr(schedule, name) for name in cls.__struct_fields__ if name not in own
        }
        match schedule.timing:
            case Cron(expression=cron, zone=zone):
                fields |= {"cron": cron, "zone": zone}
            case Every(period_ms=every_ms):
                fields |= {"every_ms": every_ms}
            case At(at_ms=at_ms):
                fields |= {"at_ms": at_ms}
            case _:
                assert_never(schedule.timing)
        return cls(**fields, paused=schedule.is_paused, problem=problem)
