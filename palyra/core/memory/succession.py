"""Succession: of found items that say different things about one subject, the newer one comes first.

Not every change supersedes: an import compares nothing, an addition to an earlier statement leaves its
other parts true, and the rules of `changes` rather keep both.  Among the best hits, one that a newer hit
changes is marked with the id of that, and follows it.

No rule knows all words for a change.  So of two statements of one author that hold the same words of the
question and score nearly alike, the newer one comes first, too, without a mark: if both are true nothing
is lost, and if one is outdated it is the other.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.changes import compare, follows
from palyra.core.memory.items import MemoryHit
from palyra.core.memory.packing import stands_alone
from palyra.core.memory.query import SearchQuestion, content_words
from palyra.core.memory.ranking import Hit

COMPARED = 12  # hits, best first
ALIKE = 0.7  # of the earlier one's score
_FORM_CHARS = 5  # that the forms of a word have in common


def list_hits(
    ranked: Iterable[Hit], items: Mapping[int, MemoryRecord], question: SearchQuestion
) -> tuple[MemoryHit, ...]:
    """Return what a search has found: the ranked rows that still are items, newer ones first."""
    found = [
        MemoryHit(item=items[hit.row], score=hit.score, parts=msgspec.structs.asdict(hit.parts))
        for hit in ranked
        if hit.row in items
    ]
    return newest_first(found, question.terms, is_dated=bool(question.dates))


def newest_first(
    hits: Sequence[MemoryHit], terms: Sequence[str] = (), *, is_dated: bool = False
) -> tuple[MemoryHit, ...]:
    """Return the hits with each newer one in front of the earlier ones that it follows.

    `terms` are the question's words.  A hit that moves has the score of the one that it comes before,
    as the part `newer`.  A question that names a day asks for what held then: its hits are marked and
    stay in their order.
    """
    begins = {term[:_FORM_CHARS] for term in terms}
    held = {hit.item.memory_id: _held(hit, begins) for hit in hits[:COMPARED]}

    def comes_before(new: MemoryHit, old: MemoryHit) -> bool:
        if not _may_follow(new.item, old.item):
            return False
        same = held[new.item.memory_id]
        is_alike = bool(same) and same == held[old.item.memory_id]
        is_near = is_alike and new.score >= ALIKE * old.score
        return is_near or follows(new.item.text, old.item.text)

    head = sorted(hits[:COMPARED], key=lambda hit: (hit.item.at_ms, hit.item.memory_id))
    followers = {
        old.item.memory_id: [
            new.item.memory_id for new in reversed(head[at + 1 :]) if comes_before(new, old)
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
    return new.author == old.author and stands_alone(new) and stands_alone(old)


def _held(hit: MemoryHit, begins: Iterable[str]) -> frozenset[str]:
    """Return the words of the question that the text holds, by what their forms begin with."""
    words = content_words(hit.item.text)
    return frozenset(begin for begin in begins if any(word.startswith(begin) for word in words))


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
