"""Planted bugs of background tasks, schedules, delegated runs and learning; see `plants`."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.learning.extraction import read_texts
from palyra.core.tape.events import ToolCompleted
from palyra.errors import NotFound
from palyra.operations.delegation import Delegations
from palyra.operations.task_handlers import RunWork
from palyra.services.learning import candidates as learning
from palyra.services.task import queue as task_queue
from palyra.services.task import schedules
from palyra.services.task.tasks import Tasks
from tests.simulate.plants import Plant


def shift_firings() -> Plant:
    """The key of a firing has another instant."""
    return patch.object(schedules, "firing_key", lambda name, at_ms: f"{name}@{at_ms + 1}")


def keep_dead_leases() -> Plant:
    """The tasks of a killed process are never queued again."""
    return patch.object(task_queue, "is_lapsed", lambda *_: False)


def acknowledge_tasks_early() -> Plant:
    """A task is acknowledged before its commit, which may be refused."""

    async def careless(self: Tasks, task: Any, receipt: Any) -> None:
        del receipt
        await trio.lowlevel.checkpoint()
        self.publish(task)

    return patch.object(Tasks, "_commit", careless)


def show_all_tasks() -> Plant:
    """A task is shown to who knows its id."""

    async def careless(self: Tasks, caller: Any, task_id: str) -> Any:
        del caller
        found = await self._journal.find(lambda store: store.find_task(task_id))
        if found is None:
            raise NotFound(f"no task {task_id!r}", field="task_id")
        return found

    return patch.object(Tasks, "get", careless)


def believe_the_worker() -> Plant:
    """A task succeeds when its run is begun."""

    async def careless(self: RunWork, task: Any, progress: Any) -> dict[str, Any]:
        del progress
        await self._gateway.start_run(
            _caller(task), msgspec.structs.replace(self._command(task.payload), run_id=task.run_id)
        )
        return {}

    return patch.object(RunWork, "work", careless)


def _caller(task: Any) -> Any:
    return Caller(principal=task.principal, role="client", token_id=task.task_id)


def forget_the_child() -> Plant:
    """A call that is executed again starts its child again."""

    async def careless(*_: Any) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    return patch.object(Delegations, "_is_known", careless)


def learn_from_tools() -> Plant:
    """The outputs of tools are read like messages."""

    def careless(events: Any) -> Any:
        events = list(events)
        texts = read_texts(events)
        told = [(seq, each.output) for seq, each in events if isinstance(each, ToolCompleted)]
        return msgspec.structs.replace(texts, messages=(*texts.messages, *told))

    return patch.object(learning, "read_texts", careless)


def learn_for_others() -> Plant:
    """What one person said is learned for another."""

    def careless(events: Any) -> Any:
        return msgspec.structs.replace(read_texts(events), principal="oda")

    return patch.object(learning, "read_texts", careless)


# The bug, and the invariants of which one has to break.
PLANNER_PLANTS: list[tuple[Callable[[], Plant], set[str]]] = [
    (shift_firings, {"only instants of the schedule fire"}),
    (keep_dead_leases, {"every run ends"}),
    (acknowledge_tasks_early, {"an acknowledged task is durable", "an acknowledged task is there"}),
    (show_all_tasks, {"nothing crosses principals", "scope isolation"}),
    (believe_the_worker, {"a task succeeds with its run"}),
    (
        forget_the_child,
        {"the journal refuses nothing sound", "the end of a delegated run is true"},
    ),
    (learn_from_tools, {"what a tool says is not learned"}),
    (learn_for_others, {"scope isolation"}),
]
