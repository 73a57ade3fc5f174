"""The queue of background tasks over a store in memory, with work that a test steers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, cast

import trio
from trio.testing import wait_all_tasks_blocked

from palyra.actors.hub import Hub
from palyra.actors.kernel.child import Exit, ExitListener
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.task_queue import Background, keep_queue, note_exit
from palyra.core.access import Caller
from palyra.core.ids import Prefix
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.changes import TaskFilter
from palyra.core.journal.records import Every, Role, TaskRecord, TaskState
from palyra.core.ports import Progress
from palyra.core.task.life import Submission
from palyra.errors import (
    InvalidParams,
)
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.services.task.queue import TaskQueue
from palyra.services.task.schedules import AddSchedule, Schedules
from palyra.services.task.tasks import Tasks
from tests.actors.run.office_kit import InlineJournal, shared_redactor
from tests.store.memory.journal import MemoryJournal


def caller(principal: str = "ann", role: Role = "client") -> Caller:
    return Caller(principal=principal, role=role, token_id="tok_1")


ANN = caller()


class Work:
    """A handler that a test steers: it fails, waits, progresses or crashes as it is asked to."""

    def __init__(self) -> None:
        self.is_for_all = False
        self.begun: list[str] = []
        self.abandoned: list[str] = []
        self.errors: list[Exception] = []  # of the next attempts
        self.gate: trio.Event | None = None  # attempts wait for it
        self.progress_s: float | None = None  # between two signs of progress of a waiting one

    async def check(self, payload: dict[str, Any]) -> None:
        if "bad" in payload:
            raise InvalidParams("payload: bad", field="payload")

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:
        self.begun.append(task.task_id)
        if self.errors:
            raise self.errors.pop(0)
        while self.gate is not None and not self.gate.is_set():
            with trio.move_on_after(self.progress_s or float("inf")):
                await self.gate.wait()
            progress()
        return {"attempt": task.attempts}

    async def abandon(self, task: TaskRecord) -> None:
        self.abandoned.append(task.task_id)


class Alarms:
    """Reported incidents."""

    def __init__(self) -> None:
        self.reported: list[IncidentReport] = []

    def report(self, report: IncidentReport) -> None:
        self.reported.append(report)

    def clear(self, key: str, reason: str) -> None:
        pass


async def inline(fn: Callable[..., Any], *args: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return fn(*args)


class Office:
    """The queue with its parts over a store; `live` runs it."""

    def __init__(self, store: MemoryJournal | None = None, *, slots: int = 2) -> None:
        self.store = store or MemoryJournal(now_ms=self.now_ms)
        self.skew_ms = 0  # of the wall clock
        self.crashes: list[Exit] = []  # of workers, as a watchdog gets them
        self.listener: ExitListener = self.crashes.append
        self.work, self.alarms, self.is_idle = Work(), Alarms(), False
        self.epoch = self.store.open().owner_epoch
        hub = Hub(encode_notification)
        self.journal = InlineJournal(self.store, hub)
        journal, numbers = cast("Any", self.journal), count(1)

        def new_id(prefix: Prefix) -> str:
            return f"{prefix}_{self.epoch}_{next(numbers):04}"

        common: dict[str, Any] = {
            "journal": journal,
            "redactor": shared_redactor(),
            "now_ms": self.now_ms,
            "new_id": new_id,
        }
        self.tasks = Tasks(
            **common,
            hub=hub,
            handlers={"embed": self.work, "prompt": self.work, "reflection": self.work},
        )
        incidents = cast("Any", self.alarms)
        self.schedules = Schedules(
            **common, tasks=self.tasks, incidents=incidents, run_blocking=cast("Any", inline)
        )
        self.queue = TaskQueue(
            **common,
            tasks=self.tasks,
            epoch=lambda: self.epoch,
            random=lambda: 1.0,
        )
        workers = DynamicSupervisor(
            "tasks",
            max_children=9,
            on_exit=partial(note_exit, self.queue, self.note),
        )
        self.parts = Background(
            self.queue, self.schedules, workers, slots, lambda: self.is_idle, incidents
        )
        self.tasks.stopped = self.parts.stop

    def note(self, end: Exit) -> None:
        self.listener(end)

    def now_ms(self) -> int:
        return 1_000_000_000_000 + round(trio.current_time() * 1_000) + self.skew_ms

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.parts.workers.run)
            await nursery.start(partial(keep_queue, self.parts))
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def submit(self, **wanted: Any) -> TaskRecord:
        return await self.tasks.submit(ANN, Submission(**{"kind": "embed", **wanted}))

    async def add(self, **wanted: Any) -> str:
        every = Every(period_ms=60_000, anchor_ms=self.now_ms())
        request = AddSchedule(**{"name": "n", "timing": every, "kind": "embed", **wanted})
        return (await self.schedules.add(ANN, request)).schedule_id

    def states(self) -> list[TaskState]:
        """Of all tasks, oldest first."""
        return [each.state for each in self.store.list_tasks(TaskFilter(limit=500))][::-1]

    def task(self, task_id: str) -> TaskRecord:
        found = self.store.find_task(task_id)
        assert found is not None
        return found


async def settle(seconds: float = 0.0) -> None:
    """Wait until everything that happens within this time has happened."""
    await trio.sleep(seconds)
    await wait_all_tasks_blocked()
