"""The work branch: one dynamic supervisor whose children are all sessions and runs.

Owns: nothing of theirs.  A run's end is told to its session, whatever the end was; the session
decides what follows.
Restart: permanent.  Everything below it begins anew from the tapes, so the directory is emptied.
"""

from contextlib import suppress
from functools import partial

import trio

from palyra.actors.child import ChildSpec, Exit
from palyra.actors.directory import Directory
from palyra.actors.dynamic import DynamicSupervisor
from palyra.actors.session_handle import Ended
from palyra.errors import ActorGone, Overloaded

GRACE_S = 30.0  # ten thousand runs need some seconds to leave, each within its own grace


def build_work(directory: Directory, max_children: int) -> DynamicSupervisor:
    """The supervisor of sessions and runs."""
    return DynamicSupervisor(
        "work", max_children=max_children, on_exit=partial(report_ended, directory)
    )


def report_ended(directory: Directory, end: Exit) -> None:
    """Tell a run's session that the run's actor is gone."""
    run = directory.runs.get(end.id.removeprefix("run:"))
    if run is None or end.outcome == "stuck":
        return
    session = directory.sessions.get(run.run.accepted.session_id)
    if session is not None:
        with suppress(ActorGone, Overloaded):  # it is being stopped itself
            session.inbox.offer(Ended(run.run_id))


def child_spec(work: DynamicSupervisor, directory: Directory) -> ChildSpec:
    """Permanent; ready when children may start."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        directory.clear()
        await work.run(task_status=task_status)

    return ChildSpec("work", start, grace_s=GRACE_S, snapshot=work.snapshot)
