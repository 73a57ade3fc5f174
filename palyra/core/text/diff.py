"""Difference of two sequences: which items both have, in order.  Pure and bounded.

Two steps.  Items that occur exactly once on both sides are anchors, and the longest increasing sequence
of them splits the rest into gaps (patience diff, Bram Cohen; O(n log n)).  Each gap is compared
with the greedy algorithm of Myers ("An O(ND) Difference Algorithm", 1986), whose cost is quadratic
in the number of differences.  The steps of all gaps share one budget; a gap that exceeds it counts
as replaced whole, which is a correct difference and not the smallest.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

MAX_STEPS = 20_000  # of Myers' inner loop in one comparison: some 10 ms


class Same(NamedTuple):
    """A run of equal items: index on each side, and length."""

    old: int
    new: int
    length: int


def find_same(old: Sequence[str], new: Sequence[str], max_steps: int = MAX_STEPS) -> list[Same]:
    """Return the runs that both sides have, in order; adjacent runs are joined."""
    pairs: list[tuple[int, int]] = []
    steps = max_steps
    at_old = at_new = 0
    for anchor_old, anchor_new in [*_anchors(old, new), (len(old), len(new))]:
        if at_old < anchor_old and at_new < anchor_new:
            gap, used = _compare(old[at_old:anchor_old], new[at_new:anchor_new], steps)
            pairs.extend((at_old + x, at_new + y) for x, y in gap)
            steps -= used
        if anchor_old < len(old) and anchor_new < len(new):
            pairs.append((anchor_old, anchor_new))
        at_old, at_new = anchor_old + 1, anchor_new + 1
    return _joined(pairs)


def _joined(pairs: Sequence[tuple[int, int]]) -> list[Same]:
    found: list[Same] = []
    for x, y in pairs:
        last = found[-1] if found else None
        if last is not None and (x, y) == (last.old + last.length, last.new + last.length):
            found[-1] = last._replace(length=last.length + 1)
        else:
            found.append(Same(x, y, 1))
    return found


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest increasing sequence of the items that occur once on both sides."""
    counts_old, counts_new = Counter(old), Counter(new)
    place = {item: at for at, item in enumerate(new) if counts_new[item] == 1}
    once = [
        (at, place[item]) for at, item in enumerate(old) if counts_old[item] == 1 and item in place
    ]
    tails: list[int] = []  # smallest end of an increasing sequence of each length
    ends: list[int] = []  # index in `once` of that end
    before: list[int] = []
    for at, (_, there) in enumerate(once):
        length = len(tails) if not tails or there > tails[-1] else bisect_left(tails, there)
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(there)
            ends.append(at)
        else:
            tails[length], ends[length] = there, at
    found: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(once[at])
        at = before[at]
    return found[::-1]


def _compare(
    old: Sequence[str], new: Sequence[str], steps: int
) -> tuple[list[tuple[int, int]], int]:
    """Return the pairs of a gap and the steps that were used."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    inner = old[head : len(old) - tail], new[head : len(new) - tail]
    middle, used = ([], 0) if set(inner[0]).isdisjoint(inner[1]) else _myers(*inner, steps)
    return [
        *((at, at) for at in range(head)),
        *((head + x, head + y) for x, y in middle),
        *((len(old) - at, len(new) - at) for at in range(tail, 0, -1)),
    ], used


def _myers(old: Sequence[str], new: Sequence[str], steps: int) -> tuple[list[tuple[int, int]], int]:
    """Return the pairs of the shortest edit script; none if it takes more steps."""
    reach = {1: 0}  # diagonal to furthest x
    trace: list[dict[int, int]] = []
    used = 0
    for depth in range(len(old) + len(new) + 1):
        used += 2 * depth + 1  # the loop, and the copy of the diagonals
        if used > steps:
            return [], steps
        trace.append(dict(reach))
        for k in range(-depth, depth + 1, 2):
            is_down = k == -depth or (k != depth and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if is_down else reach[k - 1] + 1
            while x < len(old) and 0 <= x - k < len(new) and old[x] == new[x - k]:
                x += 1
                used += 1
            reach[k] = x
            if x >= len(old) and x - k >= len(new):
                return _walk_back(trace, len(old), len(new)), used
    return [], used  # pragma: no cover - the script of all removals and additions ends the loop


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for depth in range(len(trace) - 1, -1, -1):
        reach, k = trace[depth], x - y
        is_down = k == -depth or (k != depth and reach[k - 1] < reach[k + 1])
        before_k = k + 1 if is_down else k - 1
        before_x = reach[before_k] if depth else 0
        before_y = before_x - before_k if depth else 0
        while x > before_x and y > before_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = before_x, before_y
    return pairs[::-1]
