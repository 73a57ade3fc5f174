"""Upkeep of an index, of items or of conversations: what is new is indexed, embedded and saved in steps.

Owns: nothing; the index belongs to `services.memory.index`.  Talks to: that service.
Never: stops the daemon: a journal or an embedder that is down is tried again after `RETRY_S`.
Restart: permanent; the next step finds what is missing.
"""

from functools import partial

import structlog
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.errors import ActorGone, Unavailable
from palyra.services.memory.index import SharedMemoryIndex

log = structlog.get_logger("palyra.memory")
RETRY_S = 30.0
PAUSE_S = 0.05  # between two steps, so that searches and runs have the processor as well


async def keep_memory_index(
    index: SharedMemoryIndex, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Take steps of upkeep until cancelled.

    Cancellation: the index file may be older than the journal; the next start reads the gap.
    """
    async with trio.open_nursery() as home:
        with index.at_home(home):
            task_status.started()
            await _keep_up(index)


async def _keep_up(index: SharedMemoryIndex) -> None:
    await index.wait_needed()
    while True:
        try:
            is_busy = await index.upkeep()
        except (Unavailable, ActorGone) as error:
            log.warning("memory index waits", error=error.message, retry_s=RETRY_S)
            await trio.sleep(RETRY_S)
            continue
        if is_busy:
            await trio.sleep(PAUSE_S)
        else:
            await index.wait_needed()


def child_specs(items: SharedMemoryIndex, conversations: SharedMemoryIndex) -> list[ChildSpec]:
    """Return the specs of the upkeep of both indexes; no other child depends on them."""
    return [
        ChildSpec("memory", partial(keep_memory_index, items)),
        ChildSpec("conversations", partial(keep_memory_index, conversations)),
    ]
