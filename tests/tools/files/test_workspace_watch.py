"""The workspace watch: a workspace that cannot be used is a problem and an incident."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio
from trio.testing import MockClock

from palyra.core.incident.kinds import WORKSPACE
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.workspace_watch import LOOK_S, WorkspaceWatch
from tests.actors.fake_alarms import FakeAlarms

T = TypeVar("T")


async def inline(fn: Callable[..., T], *args: object) -> T:  # noqa: RUF029 - as threads are called
    """A thread that is none; virtual time would run away from a real one."""
    return fn(*args)


async def test_an_unusable_workspace_is_one_incident(
    nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    """It ends with the problem, also after an operator resolved it too early."""
    root, alarms = tmp_path / "ws", FakeAlarms()
    root.mkdir()
    watch = WorkspaceWatch([Workspace(root)], inline, alarms)
    await nursery.start(watch.serve)
    await trio.sleep(2.5 * LOOK_S)
    assert ((), []) == (watch.problems(), alarms.raised)
    shutil.rmtree(root)
    await trio.sleep(2 * LOOK_S)
    (problem,) = watch.problems()
    assert problem.startswith(f"the workspace {root} cannot be used: it is not there any more")
    assert [problem] == [alarm.evidence["problem"] for alarm in alarms.raised]
    alarms.standing.clear()
    await trio.sleep(LOOK_S)
    assert [WORKSPACE] * 2 == [alarm.key for alarm in alarms.raised]
    root.mkdir()
    await trio.sleep(LOOK_S)
    assert ((), f"-{WORKSPACE}") == (watch.problems(), alarms.told[-1])
