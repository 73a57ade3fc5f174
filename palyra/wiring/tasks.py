"""Wiring of background tasks and schedules: the handlers of the kinds, the queue, its supervisors."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from palyra.actors import housekeeping
from palyra.actors.kernel.child import ChildSpec, ExitListener
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.session.registry import SessionServices
from palyra.actors.task_queue import Background, child_spec, note_exit
from palyra.config.load import Config
from palyra.core.journal.changes import Change
from palyra.core.journal.records import TaskKind
from palyra.core.ports import TaskHandler
from palyra.operations.runs import Gateway
from palyra.operations.task_handlers import (
    Cleanup,
    Embed,
    Maintain,
    Maintenance,
    MemoryRebuild,
    Reflection,
    RunWork,
    compaction,
    prompt,
)
from palyra.services.learning.candidates import Learning
from palyra.services.memory.items import Memories
from palyra.services.task.queue import TaskQueue
from palyra.services.task.schedules import Schedules
from palyra.services.task.tasks import Tasks
from palyra.wiring.host import Host
from palyra.wiring.runs import MemoryIndexes


class TaskParts(NamedTuple):
    """Tasks and schedules for clients, and the actors behind them."""

    tasks: Tasks
    schedules: Schedules
    background: Background
    is_daily: bool  # retention is applied once a day

    def child_specs(self) -> list[ChildSpec]:
        """Return the supervisor of the workers, the queue, which starts them, and the daily cleanup."""
        daily = [housekeeping.child_spec(self.tasks)] if self.is_daily else []
        return [self.background.workers.child_spec(), child_spec(self.background), *daily]


def build_handlers(
    *,
    services: SessionServices,
    gateway: Gateway,
    memories: Memories,
    indexes: MemoryIndexes | None,
    learning: Learning,
    maintain: Maintain | None,
) -> dict[TaskKind, TaskHandler]:
    """Return the table of handlers; a kind without one is refused."""
    embed = None if indexes is None else Embed(indexes)
    handlers: dict[TaskKind, TaskHandler] = {
        "prompt": RunWork(gateway, services.journal, prompt),
        "compaction": RunWork(gateway, services.journal, compaction),
        "memory_rebuild": MemoryRebuild(memories, indexes or ()),
        "cleanup": Cleanup(maintain),
        "maintenance": Maintenance(services.journal),
        "reflection": Reflection(learning),
    }
    if embed is not None:
        handlers["embed"] = embed
    return handlers


def _note_own(services: SessionServices, host: Host, counts: Mapping[str, int]) -> None:
    """Take the numbers of reflections, and submit those of runs that were left out."""
    due = services.reflections.note_open(counts, services.incidents, host.now_ms())
    for task in due:
        services.journal.append(Change(records=(task,)))
    if due:
        services.reflections.notify()


def build_tasks(  # noqa: PLR0913 - all by name
    config: Config,
    host: Host,
    *,
    services: SessionServices,
    gateway: Gateway,
    handlers: dict[TaskKind, TaskHandler],
    epoch: Callable[[], int],
    notice: ExitListener,
) -> TaskParts:
    """Build the queue and its parts; `notice` gets the crashes of workers."""
    tasks = Tasks(
        journal=services.journal,
        hub=services.hub,
        redactor=services.redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        handlers=handlers,
    )
    schedules = Schedules(
        journal=services.journal,
        tasks=tasks,
        incidents=services.incidents,
        redactor=services.redactor,
        now_ms=host.now_ms,
        new_id=host.new_id,
        run_blocking=host.run_blocking,
    )
    queue = TaskQueue(
        journal=services.journal,
        tasks=tasks,
        redactor=services.redactor,
        epoch=epoch,
        now_ms=host.now_ms,
        random=host.random,
        new_id=host.new_id,
    )
    most = config.tasks.max_running
    workers = DynamicSupervisor(
        "tasks",
        max_children=4 * most + 64,
        on_exit=partial(note_exit, queue, notice),
        rng=host.random,
    )
    background = Background(
        queue, schedules, workers, most, lambda: gateway.is_idle, services.incidents
    )
    gateway.admission.on_resumed = tasks.notify
    tasks.stopped = background.stop
    services.reflections.notify = tasks.notify
    queue.note_own = partial(_note_own, services, host)
    return TaskParts(tasks, schedules, background, config.retention.daily)
