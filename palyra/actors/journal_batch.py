"""How long a batch of the journal stays open for what may still join it."""

from collections.abc import Sized

import trio

QUIET_TURNS = 3  # turns of the scheduler: a model that answers at once needs two
GROW_S = 0.001  # a batch waits no longer for what may join it


async def let_grow(batch: Sized, most: int) -> None:
    """Give way until nothing more joins, the batch is full, or the first has waited long enough.

    Cancellation: nothing is changed.
    """
    until_s = trio.current_time() + GROW_S
    quiet = 0
    while quiet < QUIET_TURNS and len(batch) < most and trio.current_time() < until_s:
        size = len(batch)
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if len(batch) == size else 0
