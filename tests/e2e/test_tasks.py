"""Background tasks and schedules in a real daemon, over kills and restarts."""

from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.core.task.views import TaskView
from palyra.errors import InvalidParams
from tests.e2e.daemon_process import running
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real

PROMPTS = 20
POLL_S = 0.05


async def wait_ended(client: Client, count: int) -> list[TaskView]:
    """All tasks, once there are as many and all have ended."""
    with trio.fail_after(WITHIN_S):
        while True:
            tasks = (await client.list_tasks(limit=500)).tasks
            if len(tasks) >= count and all(task.finished_ms is not None for task in tasks):
                return tasks
            await trio.sleep(POLL_S)


async def test_tasks_survive_kills(tmp_path: Path) -> None:
    """Every accepted task has one run, which ends once; a schedule's instant has one task."""
    with running(tmp_path, PALYRA_TASKS__MAX_RUNNING="4") as daemon:
        async with daemon.connect() as client:
            now_ms = (await client.call("ping", {}))["now_ms"]
            accepted = {
                (
                    await client.submit_task(
                        "prompt", {"text": f"/delay 100\n/tokens 3\n/say {n}"}, max_attempts=1
                    )
                ).task_id
                for n in range(PROMPTS)
            }
            schedule = await client.add_schedule(
                "soon", at_ms=now_ms + 1_500, payload={"text": "/say on time"}
            )
        for _ in range(2):
            await daemon.restart()
        async with daemon.connect() as client:
            tasks = await wait_ended(client, PROMPTS + 1)
            runs = (await client.list_runs(limit=500)).runs
    fired = [task.firing for task in tasks if task.task_id not in accepted]
    assert [f"{schedule.schedule_id}@{now_ms + 1_500}"] == fired
    assert {"succeeded"} == {task.state for task in tasks}
    assert sorted(task.run_id or "" for task in tasks) == sorted(run.run_id for run in runs)
    assert {"done"} == {run.state for run in runs}


async def test_a_cancelled_task_takes_its_run_along(tmp_path: Path) -> None:
    """A task without its payload is refused by the name of what it lacks."""
    with running(tmp_path) as daemon:
        async with daemon.connect() as client:
            task = await client.submit_task("prompt", {"text": "/delay 3600000\n/say late"})
            run_id = await wait_run_id(client, task.task_id)
            ended = await client.cancel_task(task.task_id, "enough")
            with trio.fail_after(WITHIN_S):
                await client.wait_run(run_id)
            run = await client.get_run(run_id)
            with pytest.raises(InvalidParams, match="run_id"):
                await client.submit_task("reflection", {})
    assert ("cancelled", "enough", "cancelled") == (ended.state, ended.error, run.state)


async def wait_run_id(client: Client, task_id: str) -> str:
    """The run of the task, once it is accepted."""
    with trio.fail_after(WITHIN_S):
        while True:
            run_id = (await client.get_task(task_id)).run_id
            if run_id in {run.run_id for run in (await client.list_runs()).runs}:
                return str(run_id)
            await trio.sleep(POLL_S)
