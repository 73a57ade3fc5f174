"""The incident writer: commits incident records that wait in `services.upkeep.incidents`.

Owns: nothing; the waiting records belong to the service.  Talks to: the service.
Restart: permanent; the records outlive the incarnation.
"""

from functools import partial

import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.services.upkeep.incidents import RETRY_S, Incidents


async def keep_incidents(
    incidents: Incidents, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Commit waiting records until cancelled.

    Cancellation: uncommitted records stay with the service.
    """
    task_status.started()
    while True:
        await incidents.wait_unsaved()
        if not await incidents.save():
            await trio.sleep(RETRY_S)


def child_spec(incidents: Incidents) -> ChildSpec:
    """Return the spec of the writer; no other child depends on it."""
    return ChildSpec("incidents", partial(keep_incidents, incidents))
