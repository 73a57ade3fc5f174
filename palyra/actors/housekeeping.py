"""The daily cleanup: submits a task of the kind `cleanup` once a day.

Owns: nothing; the key of the firing is in the journal.  Talks to: the tasks.
Never: removes anything itself; the task does, in steps.
Restart: permanent.
"""

from functools import partial

import structlog
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.errors import ActorGone, Overloaded, PalyraError, Unavailable
from palyra.services.task.tasks import Tasks

log = structlog.get_logger("palyra.housekeeping")
LOOK_S = 600.0  # a new day is noticed by then
_LATER: tuple[type[PalyraError], ...] = (Unavailable, Overloaded, ActorGone)


async def keep_house(
    tasks: Tasks, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Submit the cleanup of each day until cancelled.  Cancellation: it may have been submitted."""
    task_status.started()
    while True:
        try:
            if await tasks.submit_daily("cleanup"):
                log.info("the cleanup of the day is queued")
        except _LATER as error:
            log.warning("the cleanup of the day waits", error=error.message)
        await trio.sleep(LOOK_S)


def child_spec(tasks: Tasks) -> ChildSpec:
    """Return the spec; it starts after the queue."""
    return ChildSpec("housekeeping", partial(keep_house, tasks))
