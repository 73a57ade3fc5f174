"""Fair shares of a queue that several principals share.

The next place goes to the principal that holds the fewest, and within a principal to its first entry.
So a principal with thousands of entries delays another one by no more than the work in progress.
Equal shares at each place are max-min fairness, as in Nagle, "On packet switches with infinite
storage", RFC 970.  Pure: the entries come from iterators, of which no more is read than is taken.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")


def pick_fairly(
    queues: Mapping[str, Iterator[T]],
    held: Mapping[str, int],
    order: Callable[[T], Any],
    limit: int,
) -> list[T]:
    """Return at most `limit` entries of the queues, whose order is `order`.

    `held` is the number of places that a principal has; of equal ones the entry that is first counts.
    """
    heads = [
        (held.get(principal, 0), order(first), principal, first)
        for principal, queue in queues.items()
        if (first := next(queue, None)) is not None
    ]
    heapify(heads)
    picked = list[T]()
    while heads and len(picked) < limit:
        count, _, principal, entry = heappop(heads)
        picked.append(entry)
        following = next(queues[principal], None)
        if following is not None:
            heappush(heads, (count + 1, order(following), principal, following))
    return picked
