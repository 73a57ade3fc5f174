"""The page check: after an unclean end somebody walks the whole journal, beside the work.

Owns: nothing.  Talks to: the journal's store, in a reader's thread.
Never: delays a start or a stop, or repairs anything.
Restart: transient; damage is found again at once each time, so that the daemon ends and says why.
"""

from functools import partial

import trio

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.kernel.child import ChildSpec
from palyra.errors import Unavailable


async def page_check(
    journal: JournalHandle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Look once.  Raises Unavailable with the finding when the file is damaged.

    Cancellation: the walk is ended; one that was due is due again at the next start.
    """
    task_status.started()
    walk = _Walk()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_when_cancelled, walk)
        damage = await journal.read(lambda store: store.check(lambda: walk.is_stopped))
        nursery.cancel_scope.cancel("it has been looked at")
    if damage is not None:
        raise Unavailable(damage)


class _Walk:
    """What the walking thread looks at now and then."""

    is_stopped = False


async def _stop_when_cancelled(walk: _Walk) -> None:
    """A call in a thread hears of no cancel by itself."""
    try:
        await trio.sleep_forever()
    finally:
        walk.is_stopped = True


def child_spec(journal: JournalHandle) -> ChildSpec:
    """The last child of the daemon: nothing depends on it."""
    return ChildSpec("page-check", partial(page_check, journal), "transient")
