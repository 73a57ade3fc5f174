"""Schedules as clients use them, and the firings of the schedules that are due.

Owns: nothing; schedules are records of the journal.  Talks to: the journal, the tasks.
Never: fires an instant twice.  The tasks of a firing and the schedule's next revision are one
change, so a crash leaves both or none, and a second writer is refused by the revision.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache, partial
from importlib.resources import files
from itertools import islice
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import trio
import tzdata  # type: ignore[import-untyped]  # data only; it has no types

from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.incident.kinds import schedule_key, schedule_paused
from palyra.core.journal.changes import Change, TaskFilter
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import (
    Cron,
    MissedPolicy,
    OverlapPolicy,
    Record,
    ScheduleRecord,
    TaskKind,
    TaskRecord,
    Timing,
)
from palyra.core.ports import (
    IncidentReporter,
    Journal,
    JournalStore,
    NowMs,
    PendingWrite,
    RunBlocking,
)
from palyra.core.redaction.redactor import Redactor
from palyra.core.task.life import Submission, cancel, submit
from palyra.core.task.schedule import (
    Firing,
    check_timing,
    decide_firing,
    firing_key,
    is_ahead,
    set_back,
    upcoming,
)
from palyra.errors import Conflict, IllegalState, InvalidParams, NotFound, Overloaded
from palyra.services.task.tasks import READ, TRIES, WRITE, Tasks

MAX_SCHEDULES = 20_000  # of one principal
BATCH = 128  # schedules that one sweep decides about
FIRED_LOOK = 100  # newest tasks of a schedule that are searched for an instant
NEXT = 10  # instants that a listing of the next ones shows


class AddSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a schedule."""

    name: str
    timing: Timing
    kind: TaskKind
    payload: dict[str, Any] = {}
    priority: int = 5
    max_attempts: int = 3
    expires_after_ms: int | None = None
    missed: MissedPolicy = "once"
    overlap: OverlapPolicy = "forbid"


class DueSchedule(NamedTuple):
    """A schedule that is due, and the tasks of its earlier firings that have not ended."""

    schedule: ScheduleRecord
    active: list[TaskRecord]


class PlannedFiring(NamedTuple):
    """The change of one firing."""

    firing: Firing
    tasks: tuple[TaskRecord, ...]
    cancelled: tuple[TaskRecord, ...]


@lru_cache(maxsize=1_024)
def find_zone(name: str) -> tzinfo:
    """Return the rules of a time zone.  Raises InvalidParams for a name without rules.

    They are those of the package `tzdata`, so a schedule fires at the same instants on every machine.
    """
    if name not in _zone_names():
        raise InvalidParams(
            f"zone {name!r} is not known: write an IANA name such as Europe/Berlin", field="zone"
        )
    with files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    """Return the names that have rules."""
    return frozenset(files(tzdata).joinpath("zones").read_text("ascii").split())


def zone_of(timing: Timing) -> tzinfo:
    """Return the time zone of the timing; that of a timing without one is UTC."""
    return find_zone(timing.zone) if isinstance(timing, Cron) else UTC


def find_problem(timing: Timing) -> str:
    """Return why a schedule cannot fire, "" if it can: its zone may be unknown by now."""
    if isinstance(timing, Cron) and timing.zone not in _zone_names():
        return f"the zone {timing.zone!r} is not known"
    return ""


def find_due(store: JournalStore, now_ms: int) -> list[DueSchedule]:
    """Return the schedules to decide about."""
    return [
        DueSchedule(each, [] if each.overlap == "queue" else store.list_fired(each.schedule_id))
        for each in store.list_due_schedules(now_ms=now_ms, limit=BATCH)
    ]


class Schedules:
    """Schedules for clients and for the queue."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        *,
        journal: Journal,
        tasks: Tasks,
        incidents: IncidentReporter,
        redactor: Redactor,
        now_ms: NowMs,
        new_id: NewId,
        run_blocking: RunBlocking,
    ) -> None:
        self._journal = journal
        self._tasks = tasks
        self._incidents = incidents
        self._redactor = redactor
        self._now_ms = now_ms
        self._new_id = new_id
        self._run_blocking = run_blocking

    # --- firing

    async def fire(self, due: Sequence[DueSchedule]) -> int:
        """Submit the tasks of the schedules that are due, each with its schedule in one change.

        Returns the number of schedules that were decided about.
        Raises Unavailable.  Cancellation: a firing was committed or not; the next sweep finds that.
        """
        if not due:
            return 0
        decided = 0
        now_ms = self._now_ms()
        planned = await self._run_blocking(lambda: [self._plan(each, now_ms) for each in due])
        pending: list[tuple[PlannedFiring, PendingWrite]] = []
        for plan in planned:
            records: tuple[Record, ...] = (
                plan.firing.schedule,
                *plan.tasks,
                *plan.cancelled,
            )
            pending.append((plan, self._journal.append(Change(records=records))))
        for plan, write in pending:
            made: PlannedFiring | None = plan
            try:
                await write.wait()
            except Conflict:  # changed meanwhile, or fired before the clock was set back
                made = await self._without_fired(plan)
            if made is None:
                continue
            decided += 1
            for task in (*made.tasks, *made.cancelled):
                self._tasks.publish(task)
            for task in made.cancelled:
                self._tasks.stopped(task)
        return decided

    async def _without_fired(self, plan: PlannedFiring) -> PlannedFiring | None:
        """Commit a refused firing without the instants that fired already; None if it is outdated.

        Raises Unavailable.
        """
        schedule_id = plan.firing.schedule.schedule_id
        wanted = TaskFilter(schedule_id=schedule_id, limit=FIRED_LOOK)
        known = await self._journal.read(lambda store: store.list_tasks(wanted))
        fired = {task.firing for task in known}
        tasks = tuple(task for task in plan.tasks if task.firing not in fired)
        if len(tasks) == len(plan.tasks):
            return None
        schedule = msgspec.structs.replace(
            plan.firing.schedule,
            fired=plan.firing.schedule.fired - len(plan.tasks) + len(tasks),
        )
        cancelled = plan.cancelled if tasks else ()
        try:
            await self._journal.commit(Change(records=(schedule, *tasks, *cancelled)))
        except Conflict:  # the next sweep decides again
            return None
        return plan._replace(tasks=tasks, cancelled=cancelled)

    async def set_back(self) -> tuple[int, int]:
        """Give up times of a clock that was ahead; return the number of schedules, and the latest.

        Raises Unavailable.  Cancellation: some were set back.
        """
        now_ms = self._now_ms()

        def read(store: JournalStore) -> list[ScheduleRecord]:
            found = store.list_schedules(None)
            return [
                each for each in found if is_ahead(each, now_ms) and not find_problem(each.timing)
            ]

        count = latest_ms = 0
        for found in await self._journal.read(read):
            try:
                await self._journal.commit(
                    Change(records=(set_back(found, zone_of(found.timing), now_ms),))
                )
            except Conflict:  # changed meanwhile, by the same clock
                continue
            count, latest_ms = count + 1, max(latest_ms, found.handled_ms)
        if count:
            self._tasks.notify()
        return count, latest_ms

    def _plan(self, due: DueSchedule, now_ms: int) -> PlannedFiring:
        schedule, active = due
        try:
            firing = decide_firing(
                schedule, zone_of(schedule.timing), is_active=bool(active), now_ms=now_ms
            )
        except InvalidParams as error:  # the rules of its zone are gone
            return self._give_up(schedule, error.message)
        tasks = []
        for at_ms in firing.submit:
            wanted = Submission(
                kind=schedule.kind,
                payload=schedule.payload,
                priority=schedule.priority,
                max_attempts=schedule.max_attempts,
                firing=firing_key(schedule.schedule_id, at_ms),
                expires_ms=None
                if schedule.expires_after_ms is None
                else max(at_ms, now_ms) + schedule.expires_after_ms,
            )
            tasks.append(submit(wanted, self._new_id("tsk"), schedule.principal, now_ms))
        cancelled: tuple[TaskRecord, ...] = ()
        if firing.replaces:
            cancelled = tuple(cancel(each, "replaced by a later firing", now_ms) for each in active)
        return PlannedFiring(firing, tuple(tasks), cancelled)

    def _give_up(self, schedule: ScheduleRecord, why: str) -> PlannedFiring:
        paused = _paused(schedule, is_paused=True, next_ms=None)
        self._incidents.report(schedule_paused(schedule.schedule_id, schedule.name, why))
        return PlannedFiring(Firing(schedule=paused, submit=(), replaces=False), (), ())

    # --- for clients

    async def add(
        self, caller: Caller, wanted: AddSchedule, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        """Return the committed schedule; its first instant is after now.

        Raises InvalidParams, Overloaded above `MAX_SCHEDULES`, Unavailable.
        """
        caller.require(WRITE)
        await self._tasks.check_work(caller, wanted.kind, wanted.payload)
        if self._redactor.redact_text(wanted.name)[1]:
            raise InvalidParams("the name contains a secret: choose another", field="name")
        now_ms = self._now_ms()
        schedule_id = self._new_id("sch")
        _check_submission(wanted, now_ms)
        first_ms = await self._run_blocking(lambda: _first(wanted.timing, now_ms))
        count = len(await self._journal.read(lambda store: store.list_schedules(caller.principal)))
        if count >= MAX_SCHEDULES:
            raise Overloaded(f"{count} schedules exist, which is the limit", retry_after_ms=1_000)
        record = ScheduleRecord(
            schedule_id=schedule_id,
            principal=caller.principal,
            name=wanted.name,
            timing=wanted.timing,
            kind=wanted.kind,
            payload=wanted.payload,
            priority=wanted.priority,
            max_attempts=wanted.max_attempts,
            expires_after_ms=wanted.expires_after_ms,
            missed=wanted.missed,
            overlap=wanted.overlap,
            handled_ms=now_ms,
            next_ms=first_ms,
            created_ms=now_ms,
        )
        await self._commit(record, receipt)
        return record

    async def list_all(self, caller: Caller) -> list[ScheduleRecord]:
        """Return the schedules that the caller sees, by creation."""
        caller.require(READ)
        return await self._journal.read(lambda store: store.list_schedules(caller.principal_filter))

    async def get(self, caller: Caller, schedule_id: str) -> ScheduleRecord:
        """Return the schedule.  Raises NotFound, also for a removed one or another principal's."""
        caller.require(READ)
        found = await self._journal.find(lambda store: store.find_schedule(schedule_id))
        if found is None or found.removed_ms is not None or not caller.sees(found.principal):
            raise NotFound(f"no schedule {schedule_id!r}", field="schedule_id")
        return found

    async def next(self, caller: Caller, schedule_id: str) -> list[int]:
        """Return the coming instants, at most `NEXT`; also those of a paused schedule."""
        found = await self.get(caller, schedule_id)
        after_ms = self._now_ms()
        if not is_ahead(found, after_ms):
            after_ms = max(found.handled_ms, after_ms)
        return await self._run_blocking(lambda: _next(found.timing, after_ms))

    async def preview(self, caller: Caller, timing: Timing) -> list[int]:
        """Return the first instants that a schedule added now would have, at most `NEXT`.

        Raises InvalidParams for a timing that `add` would refuse.
        """
        caller.require(READ)
        now_ms = self._now_ms()

        def find() -> list[int]:
            check_timing(timing, zone_of(timing), now_ms)
            return _next(timing, now_ms)

        return await self._run_blocking(find)

    async def pause(
        self, caller: Caller, schedule_id: str, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        """Fire nothing until the schedule is resumed; tasks that exist are not touched."""

        def change(found: ScheduleRecord) -> ScheduleRecord:
            if found.is_paused:
                raise IllegalState(f"{schedule_id} is paused already")
            return _paused(found, is_paused=True, next_ms=None)

        return await self._change(caller, schedule_id, change, receipt)

    async def resume(
        self, caller: Caller, schedule_id: str, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        """Fire from the next instant on; the instants of the pause are left out."""

        def change(found: ScheduleRecord) -> ScheduleRecord:
            if not found.is_paused:
                raise IllegalState(f"{schedule_id} is not paused")
            now_ms = self._now_ms()
            if is_ahead(found, now_ms):
                resumed = msgspec.structs.replace(found, is_paused=False)
                return set_back(resumed, zone_of(found.timing), now_ms)
            now_ms = max(found.handled_ms, now_ms)
            next_ms = next(upcoming(found.timing, zone_of(found.timing), now_ms), None)
            resumed = _paused(found, is_paused=False, next_ms=next_ms)
            return msgspec.structs.replace(resumed, handled_ms=now_ms)

        done = await self._change(caller, schedule_id, change, receipt)
        self._incidents.clear(schedule_key(schedule_id), "the schedule was resumed")
        return done

    async def remove(
        self, caller: Caller, schedule_id: str, receipt: IdempotencyKey | None = None
    ) -> ScheduleRecord:
        """Remove the schedule; tasks that exist are not touched."""
        now_ms = self._now_ms()

        def change(found: ScheduleRecord) -> ScheduleRecord:
            removed = _paused(found, is_paused=found.is_paused, next_ms=None)
            return msgspec.structs.replace(removed, removed_ms=now_ms)

        done = await self._change(caller, schedule_id, change, receipt)
        self._incidents.clear(schedule_key(schedule_id), "the schedule was removed")
        return done

    async def _change(
        self,
        caller: Caller,
        schedule_id: str,
        move: Callable[[ScheduleRecord], ScheduleRecord],
        receipt: IdempotencyKey | None,
    ) -> ScheduleRecord:
        """Commit the change of the newest revision; a firing meanwhile is a further one.

        Raises Conflict after `TRIES` refusals.  Cancellation: the change may have been committed.
        """
        caller.require(WRITE)
        for _ in range(TRIES):
            found = await self.get(caller, schedule_id)
            changed = await self._run_blocking(partial(move, found))
            try:
                await self._commit(changed, receipt)
            except Conflict:
                continue
            return changed
        raise Conflict(f"{schedule_id} changes all the time: try again")

    async def _commit(self, schedule: ScheduleRecord, receipt: IdempotencyKey | None) -> None:
        records: list[Record] = [schedule]
        if receipt is not None:
            records.append(receipt_for(receipt, schedule, self._now_ms()))
        with trio.CancelScope(shield=True):  # committed or refused; bounded by the disk
            await self._journal.commit(Change(records=tuple(records)))
        self._tasks.notify()


def _paused(schedule: ScheduleRecord, *, is_paused: bool, next_ms: int | None) -> ScheduleRecord:
    return msgspec.structs.replace(
        schedule, is_paused=is_paused, next_ms=next_ms, revision=schedule.revision + 1
    )


def _next(timing: Timing, after_ms: int) -> list[int]:
    return list(islice(upcoming(timing, zone_of(timing), after_ms), NEXT))


def _first(timing: Timing, now_ms: int) -> int | None:
    """Return the first instant.  Raises InvalidParams for a timing without one."""
    zone = zone_of(timing)
    check_timing(timing, zone, now_ms)
    return next(upcoming(timing, zone, now_ms), None)


def _check_submission(wanted: AddSchedule, now_ms: int) -> None:
    """Refuse values that every task of the schedule would be refused for."""
    if wanted.expires_after_ms is not None and wanted.expires_after_ms < 1:
        raise InvalidParams("expires_after_ms must be at least 1", field="expires_after_ms")
    submit(
        Submission(kind=wanted.kind, priority=wanted.priority, max_attempts=wanted.max_attempts),
        "",
        "",
        now_ms,
    )
