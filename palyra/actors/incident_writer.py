from functools import partial

import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.services.incidents import RETRY_S, Incidents


async def keep_incidents(
    book: Incidents, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Commit what is told, for ever.  Cancellation: what is not committed stays in the book."""
    task_status.started()
    while True:
        await book.wait_unsaved()
        if not await book.save():
            await trio.sleep(RETRY_S)


def child_spec(book: Incidents) -> ChildSpec:
    """Nothing depends on it."""
    return ChildSpec("incidents", partial(keep_incidents, book))
