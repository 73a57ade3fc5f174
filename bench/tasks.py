"""Background tasks: drain of due tasks without work, and the lateness of schedules.

Prints one JSON line.  Both run over a durable journal in a temporary folder: every task is committed
three times (submitted, claimed, ended), every firing with its schedule in one transaction.
"""

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import trio

from palyra.actors.hub import Hub
from palyra.actors.journal.actor import JournalHandle, journal
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.threads import run_sync
from palyra.actors.task_queue import Background, keep_queue, note_exit
from palyra.core.journal.changes import Change, TaskFilter
from palyra.core.journal.records import At, Record, ScheduleRecord, TaskRecord
from palyra.core.ports import Progress
from palyra.core.redaction.redactor import Redactor
from palyra.core.task.life import Submission, submit
from palyra.daemon import SWITCH_INTERVAL_S
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.services.task.queue import TaskQueue
from palyra.services.task.schedules import Schedules
from palyra.services.task.tasks import Tasks
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal
from palyra.wiring.host import new_id, now_ms

COUNT = 10_000
SLOTS = 16  # the default of tasks.max_running
SPREAD_MS = 20_000  # the schedules' instants lie in this time
LEAD_MS = 1_000


class Nothing:
    """Work that is done at once."""

    is_for_all = False

    async def check(self, payload: dict[str, Any]) -> None: ...

    async def work(self, task: TaskRecord, progress: Progress) -> dict[str, Any]:  # noqa: PLR6301 - the handler's signature
        del task, progress
        return {}

    async def abandon(self, task: TaskRecord) -> None: ...


class Quiet:
    """Incidents that nobody reads."""

    def report(self, report: object) -> None: ...
    def clear(self, key: str, reason: str) -> None: ...


async def main() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteJournal(Path(folder) / "j.sqlite3", KeyRing(bytes(32)), now_ms=now_ms)
        handle = JournalHandle(store)
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(journal, handle, on_committed=lambda _: None, on_opened=lambda _: None)
            )
            parts = build(handle)
            result = {"drain": await drain(handle, parts), "schedules": await fire(handle, parts)}
            nursery.cancel_scope.cancel()
    print(json.dumps(result))


def build(handle: JournalHandle) -> Background:
    common: dict[str, Any] = {
        "journal": handle,
        "redactor": Redactor([]),
        "now_ms": now_ms,
        "new_id": new_id,
    }
    tasks = Tasks(**common, hub=Hub(encode_notification), handlers={"embed": Nothing()})
    incidents = cast("Any", Quiet())
    schedules = Schedules(**common, tasks=tasks, incidents=incidents, run_blocking=run_sync)
    queue = TaskQueue(
        **common,
        tasks=tasks,
        epoch=lambda: handle.state.epoch,
        random=lambda: 0.5,
    )
    workers = DynamicSupervisor(
        "tasks", max_children=128, on_exit=partial(note_exit, queue, lambda _end: None)
    )
    return Background(queue, schedules, workers, SLOTS, lambda: False, incidents)


async def drain(handle: JournalHandle, parts: Background) -> dict[str, float]:
    """Drain `COUNT` due tasks."""
    for _ in range(COUNT // 100):
        tasks = [
            submit(Submission(kind="embed"), new_id("tsk"), "ann", now_ms()) for _ in range(100)
        ]
        records: tuple[Record, ...] = tuple(tasks)
        await handle.commit(Change(records=records))
    begun_s = time.perf_counter()
    await run_until(handle, parts, COUNT)
    spent_s = time.perf_counter() - begun_s
    return {"tasks": COUNT, "seconds": round(spent_s, 2), "per_s": round(COUNT / spent_s)}


async def fire(handle: JournalHandle, parts: Background) -> dict[str, float]:
    """Fire `COUNT` schedules, each once, spread over `SPREAD_MS`."""
    begin_ms = now_ms() + LEAD_MS + 4_000
    records: tuple[Record, ...] = tuple(
        ScheduleRecord(
            schedule_id=new_id("sch"),
            principal="ann",
            name="n",
            timing=At(at_ms=begin_ms + n * SPREAD_MS // COUNT),
            kind="embed",
            handled_ms=0,
            next_ms=begin_ms + n * SPREAD_MS // COUNT,
            created_ms=0,
        )
        for n in range(COUNT)
    )
    await handle.commit(Change(records=records))
    await run_until(handle, parts, 2 * COUNT)
    found = await handle.read(lambda store: store.list_tasks(TaskFilter(limit=COUNT)))
    late = sorted(each.created_ms - int((each.firing or "@0").rpartition("@")[2]) for each in found)
    return {
        "schedules": len({each.firing for each in found}),
        "late_ms_p50": late[len(late) // 2],
        "late_ms_p99": late[len(late) * 99 // 100],
    }


async def run_until(handle: JournalHandle, parts: Background, ended: int) -> None:
    """Run the queue until so many tasks have ended."""
    async with trio.open_nursery() as nursery:
        await nursery.start(parts.workers.run)
        await nursery.start(partial(keep_queue, parts))
        wanted = TaskFilter(states=("succeeded",), limit=ended)
        while len(await handle.read(lambda store: store.list_tasks(wanted))) < ended:  # noqa: ASYNC110 - a poll of the journal is the measure
            await trio.sleep(1.0)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
