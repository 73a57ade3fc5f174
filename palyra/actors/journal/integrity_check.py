"""The page check: after an unclean shutdown, read all pages of the journal file once.

Talks to: the journal's store, in a worker thread, while the daemon serves.
Never: delays a start or a stop, or repairs anything.
Restart: transient; the finding is remembered, so each restart fails at once until the daemon ends
with it.

A journal that is closed, because it has crashed and is about to be opened again, is no finding: the
check waits for it.  Crashing with it would use up the restarts of the daemon within milliseconds.
"""

from collections.abc import Callable
from functools import partial

import structlog
import trio

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.threads import run_stoppable
from palyra.errors import Unavailable

log = structlog.get_logger("palyra.journal")
RETRY_S = 5.0


async def page_check(
    journal: JournalHandle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Check once.  Raises Unavailable with the finding when the file is damaged.

    Cancellation: the check is stopped and is due again at the next start.
    """
    task_status.started()
    damage = await run_stoppable(partial(_find_damage, journal))
    if damage is not None:
        raise Unavailable(damage)


async def _find_damage(journal: JournalHandle, is_stopped: Callable[[], bool]) -> str | None:
    """Return the finding of a check of all pages, as soon as the journal is open."""
    while True:
        try:
            return await journal.read(lambda store: store.check(is_stopped))
        except Unavailable as error:
            log.warning("page check waits", error=error.message, retry_s=RETRY_S)
            await trio.sleep(RETRY_S)


def child_spec(journal: JournalHandle) -> ChildSpec:
    """Return the last child of the daemon: no other child depends on it."""
    return ChildSpec("page-check", partial(page_check, journal), "transient")
