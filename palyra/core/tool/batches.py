"""Concurrency of the calls of a turn.

Calls run in the model's order, in batches; a batch is the longest run of calls from the front that
cannot disturb one another.  A `path_scoped` call has its path to itself: nothing else in the batch
touches that path, a folder above it or anything below it.  Reads of one path do not disturb each
other; an `effect` runs alone.
"""

from collections.abc import Sequence

from palyra.core.tool.spec import PARALLEL

MAX_PARALLEL = 4

Slot = tuple[str, str | None]  # tool class, path key (None: touches no path)


def next_batch(waiting: Sequence[Slot], limit: int = MAX_PARALLEL) -> int:
    """Return the number of calls from the front that may start together; at least 1 if any waits."""
    if not waiting:
        return 0
    size = 1
    while size < min(limit, len(waiting)):
        if any(_disturbs(waiting[size], other) for other in waiting[:size]):
            break
        size += 1
    return size


def _disturbs(one: Slot, other: Slot) -> bool:
    classes = {one[0], other[0]}
    if not classes <= PARALLEL:
        return True
    return "path_scoped" in classes and _overlap(one[1], other[1])


def _overlap(one: str | None, other: str | None) -> bool:
    """True if two keys are the same path, or one lies below the other; "" is the root."""
    if one is None or other is None:
        return False
    return (
        not one
        or not other
        or f"{one}/".startswith(f"{other}/")
        or f"{other}/".startswith(f"{one}/")
    )
