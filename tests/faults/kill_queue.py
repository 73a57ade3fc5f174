"""kill -9 of a daemon with tasks and schedules: `python -m tests.faults.kill_queue --kills N`.

A client submits tasks, cancels some, and adds schedules of one moment; the daemon is killed at random,
sometimes while it starts, and started again on the same home.  In the end the tasks, their runs and the
firings are compared with what was acknowledged.  Prints sums as JSON; the exit code is 1 when a
promise was broken.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio

from palyra.client import Client, reconnecting
from palyra.core.backoff import Backoff
from palyra.core.session.commands import RunView
from palyra.core.task.views import TaskView
from palyra.errors import IllegalState, InvalidParams
from tests.e2e.daemon_process import DaemonProcess

LIFE_S, STARTING_S = 1.5, 0.6  # at most, until the next kill
WITHIN_S = 300.0  # for a start, and for the end: a bound against hanging, not a promise
PAUSE_S = 0.2  # at most, between two requests of the client
POLL_S = 0.5
ATTEMPTS = 20
PAGE = 500
QUICK = Backoff(base_s=0.02, cap_s=0.2)


class QueueStorm:
    """One home, and the acknowledgements of its daemons."""

    def __init__(self, base: Path, seed: int) -> None:
        self.daemon = DaemonProcess(
            base, PALYRA_LOGGING__LEVEL="error", PALYRA_TASKS__MAX_RUNNING="8"
        )
        self.rng = random.Random(seed)
        self.submitted: dict[str, TaskView] = {}
        self.cancelled: dict[str, TaskView] = {}
        self.scheduled: dict[str, int] = {}  # the instant of each schedule
        self.counts: Counter[str] = Counter()
        self.is_over = False

    async def rage(self, kills: int) -> list[str]:
        """Kill so many daemons, then let one end all tasks; return the broken promises."""
        await trio.to_thread.run_sync(self.daemon.start)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.use)
            while self.counts["kills"] < kills:
                with trio.fail_after(WITHIN_S):
                    await self.kill_one()
            self.is_over = True
            nursery.cancel_scope.deadline = trio.current_time() + WITHIN_S
        assert not nursery.cancel_scope.cancelled_caught, "a request that is never answered"
        async with self.daemon.connect() as client:
            with trio.fail_after(WITHIN_S):
                tasks = await self.wait_ended(client)
                runs = await read_runs(client)
            report = await client.verify_tape()
        self.counts["broken_links"] = report.breaks
        self.counts["chained_events"] = report.checked_events
        return [*self.find_problems(tasks, runs)]

    async def kill_one(self) -> None:
        """Let the daemon work for a moment, kill it, start the next one."""
        await trio.sleep(self.rng.random() * LIFE_S)
        await trio.to_thread.run_sync(self.daemon.kill)
        self.counts["kills"] += 1
        while self.rng.random() < 0.2:
            await trio.to_thread.run_sync(self.daemon.launch)
            await trio.sleep(self.rng.random() * STARTING_S)
            await trio.to_thread.run_sync(self.daemon.kill)
            self.counts["kills"] += 1
            self.counts["kills_while_starting"] += 1
        await trio.to_thread.run_sync(self.daemon.start)

    # --- the client

    async def use(self) -> None:
        """Submit, schedule and cancel until it is over."""
        async with self.daemon.follow() as client:
            number = 0
            while not self.is_over:
                number += 1
                deed = self.rng.choice((self.submit, self.submit, self.schedule, self.cancel))
                try:
                    await deed(client, f"deed-{number}")
                except InvalidParams:  # its moment was over when the daemon was back
                    self.counts["refused"] += 1
                await trio.sleep(self.rng.random() * PAUSE_S)

    async def submit(self, client: Client, key: str) -> None:
        """Submit a task, perhaps one that expires."""
        options: dict[str, Any] = {"priority": self.rng.randint(0, 9)}
        now_ms = round(time.time() * 1_000)
        if self.rng.random() < 0.2:
            options["expires_ms"] = now_ms + self.rng.randint(1_000, 5_000)
        if self.rng.random() < 0.2:
            options["not_before_ms"] = now_ms + self.rng.randint(1, 900)
        text = f"/delay {self.rng.randint(1, 60)}\n/tokens {self.rng.randint(1, 9)}"
        task = await client.submit_task(
            "prompt", {"text": text}, max_attempts=ATTEMPTS, idempotency_key=key, **options
        )
        self.submitted[task.task_id] = task

    async def schedule(self, client: Client, key: str) -> None:
        """Add a schedule of one moment soon."""
        at_ms = round(time.time() * 1_000) + self.rng.randint(2_000, 9_000)
        added = await client.add_schedule(
            key,
            at_ms=at_ms,
            payload={"text": "/tokens 2"},
            max_attempts=ATTEMPTS,
            missed="once",
            idempotency_key=key,
        )
        self.scheduled[added.schedule_id] = at_ms

    async def cancel(self, client: Client, key: str) -> None:
        """Cancel one of the last tasks, if it has not ended."""
        recent = [each for each in list(self.submitted)[-6:] if each not in self.cancelled]
        if not recent or self.rng.random() < 0.5:
            return
        task_id = self.rng.choice(recent)
        try:
            self.cancelled[task_id] = await client.cancel_task(task_id, key)
        except IllegalState:  # it has ended
            self.counts["cancels_too_late"] += 1

    async def wait_ended(self, client: Client) -> list[TaskView]:
        """Return all tasks, once each has ended and each schedule has fired."""
        while True:
            tasks = await read_tasks(client)
            fired = {each.firing for each in tasks if each.firing}
            if all(each.finished_ms for each in tasks) and len(fired) >= len(self.scheduled):
                return tasks
            await trio.sleep(POLL_S)

    # --- promises

    def find_problems(self, tasks: list[TaskView], runs: dict[str, RunView]) -> Iterator[str]:
        """Yield every promise that was broken."""
        found = {each.task_id: each for each in tasks}
        self.counts.update(f"tasks_{each.state}" for each in tasks)
        self.counts.update(tasks=len(tasks), attempts=sum(each.attempts for each in tasks))
        self.counts["schedules"] = len(self.scheduled)
        if self.counts["broken_links"]:
            yield "the chain is broken"
        for task_id in self.submitted.keys() - found.keys():
            yield f"{task_id} was acknowledged and is lost"
        for task_id in self.cancelled:
            if found[task_id].state != "cancelled":
                yield f"{task_id} was cancelled and is {found[task_id].state}"
        firings = Counter(each.firing for each in tasks if each.firing)
        expected = Counter(
            f"{schedule_id}@{at_ms}" for schedule_id, at_ms in self.scheduled.items()
        )
        for firing in firings.keys() | expected.keys():
            if firings[firing] != expected[firing]:
                yield f"{firing} fired {firings[firing]} times"
        run_ids = Counter(each.run_id for each in tasks if each.run_id)
        yield from (f"{each} belongs to {n} tasks" for each, n in run_ids.items() if n > 1)
        yield from (f"{each} has no task" for each in runs.keys() - run_ids.keys())
        for task in tasks:
            yield from self._find_task_problems(task, runs.get(task.run_id or ""))

    def _find_task_problems(self, task: TaskView, run: RunView | None) -> Iterator[str]:
        state = None if run is None else run.state
        if task.state == "succeeded" and state != "done":
            yield f"{task.task_id} succeeded, its run is {state}"
        if task.state == "failed" and state != "failed":  # a run gives up after many kills
            yield f"{task.task_id} failed: {task.error}"
        # A run may give up after many kills just before its task expires or is cancelled.
        gave_up = state == "failed" and (run.reason or "").startswith("recovery_exhausted")  # type: ignore[union-attr]  # a state has a run
        has_ended = gave_up and task.state in {"expired", "cancelled"}
        if state not in {None, "done", "cancelled"} and task.state != "failed" and not has_ended:
            yield f"{task.task_id} is {task.state}, its run is {state}"
        if task.state == "expired" and task.result:
            yield f"{task.task_id} expired and has a result"


async def read_tasks(client: Client) -> list[TaskView]:
    """Return all tasks."""
    tasks: list[TaskView] = []
    cursor: str | None = None
    while True:
        page = await client.list_tasks(limit=PAGE, cursor=cursor)
        tasks += page.tasks
        cursor = page.next_cursor
        if cursor is None:
            return tasks


async def read_runs(client: Client) -> dict[str, RunView]:
    """Return all runs by id, once none is open."""
    while True:
        runs: dict[str, RunView] = {}
        cursor: str | None = None
        while True:
            page = await client.list_runs(limit=PAGE, cursor=cursor)
            runs |= {each.run_id: each for each in page.runs}
            cursor = page.next_cursor
            if cursor is None:
                break
        if all(each.state in {"done", "failed", "cancelled"} for each in runs.values()):
            return runs
        await trio.sleep(POLL_S)


def kill_queues(kills: int, seed: int) -> dict[str, Any]:
    """Kill so many daemons; return sums of what happened, and what was wrong."""
    with tempfile.TemporaryDirectory() as name, patch.object(reconnecting, "BACKOFF", QUICK):
        storm = QueueStorm(Path(name), seed)
        try:
            problems = trio.run(storm.rage, kills)
            drained = storm.daemon.stop()
        finally:
            storm.daemon.end()
    if drained != 0:
        problems.append(f"the last daemon ended with {drained}")
    return {**dict(sorted(storm.counts.items())), "problems": problems}


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="kill -9 of a daemon with tasks and schedules.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = kill_queues(options.kills, options.seed)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
