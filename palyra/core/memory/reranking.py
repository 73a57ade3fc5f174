"""Re-ranking of hits: what the model reads, and what its scores change.

The best `RERANKED` hits take the order of the model's scores, and each the score of its new place: the
model's scale says nothing about the floors of a recall, so `rerank` is a summand that moves a hit up or
down among the others.  Of the evidence that a search misses among its ten best hits, half is
between the 11th and the 50th place (`bench/recall.py`).
"""

from collections.abc import Sequence
from operator import itemgetter

import msgspec

from palyra.core.memory.items import MemoryHit
from palyra.core.memory.packing import render_line

RERANKED = 40
TEXT_CHARS = 1_000  # of one item: models cut longer texts themselves, but charge for them


def texts_to_judge(hits: Sequence[MemoryHit]) -> list[str]:
    """Return the texts of the hits with their dates and authors, as a prompt shows them."""
    return [render_line(hit.item).removeprefix("- ")[:TEXT_CHARS] for hit in hits]


def reorder(hits: Sequence[MemoryHit], scores: Sequence[float]) -> tuple[MemoryHit, ...]:
    """Return the hits with as many of the first ones as there are scores in the order of these.

    A hit that follows a newer one, which says otherwise, stays behind it.
    """
    given: dict[str, float] = {}
    for score, hit in zip(scores, hits, strict=False):
        given[hit.item.memory_id] = min(score, given.get(hit.later or "", score))
    judged = sorted(zip(given.values(), hits, strict=False), key=itemgetter(0), reverse=True)
    moved = [
        msgspec.structs.replace(
            hit, score=place.score, parts={**hit.parts, "rerank": place.score - hit.score}
        )
        for (_, hit), place in zip(judged, hits, strict=False)
    ]
    return (*moved, *hits[len(moved) :])
