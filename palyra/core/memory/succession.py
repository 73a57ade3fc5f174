"""Succession: of found items that say different things about one subject, the newer one comes first.

Not every change supersedes: an import compares nothing, an addition to an earlier statement leaves its
other parts true, and the rules of `changes` rather keep both.  Among the best hits, one that a newer hit
changes is marked with the id of that, and follows it.
"""

from collections.abc import Sequence

import msgspec

from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.changes import compare, follows
from palyra.core.memory.items import MemoryHit

COMPARED = 12  # hits, best first


def newest_first(hits: Sequence[MemoryHit], *, is_dated: bool = False) -> tuple[MemoryHit, ...]:
    """Return the hits with each newer one in front of the earlier ones that it follows.

    A hit that moves has the score of the one that it comes before, as the part `newer`.  A question
    that names a day asks for what held then: its hits are marked and stay in their order.
    """
    head = sorted(hits[:COMPARED], key=lambda hit: (hit.item.at_ms, hit.item.memory_id))
    followers = {
        old.item.memory_id: [
            new.item.memory_id
            for new in reversed(head[at + 1 :])
            if _may_follow(new.item, old.item) and follows(new.item.text, old.item.text)
        ]
        for at, old in enumerate(head)
    }
    left = {hit.item.memory_id: hit for hit in hits[:COMPARED]}
    placed: list[MemoryHit] = []
    for hit in hits[:COMPARED]:
        newer = [each for each in followers[hit.item.memory_id] if each in left and not is_dated]
        placed += [_raised(left.pop(each), hit.score) for each in newer]
        if left.pop(hit.item.memory_id, None) is not None:
            placed.append(hit)
    texts = {hit.item.memory_id: hit.item.text for hit in head}
    return (
        *(_marked(hit, followers[hit.item.memory_id], texts) for hit in placed),
        *hits[COMPARED:],
    )


def _may_follow(new: MemoryRecord, old: MemoryRecord) -> bool:
    """True of statements of one author; turns of a conversation are read with what is around them."""
    return new.author == old.author and "turn" not in {new.kind, old.kind}


def _raised(hit: MemoryHit, score: float) -> MemoryHit:
    gain = score - hit.score
    if gain <= 0:
        return hit
    return msgspec.structs.replace(hit, score=score, parts={**hit.parts, "newer": gain})


def _marked(hit: MemoryHit, newer: Sequence[str], texts: dict[str, str]) -> MemoryHit:
    """Name the newest item that changes the hit, not one that may be true beside it."""
    found = (each for each in newer if compare(texts[each], hit.item.text) != "unrelated")
    later = next(found, None)
    return hit if later is None else msgspec.structs.replace(hit, later=later)
