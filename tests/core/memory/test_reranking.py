"""Re-ranking of hits: the order changes, the floors of a recall do not."""

import msgspec

from palyra.core.memory.items import MemoryHit
from palyra.core.memory.reranking import TEXT_CHARS, reorder, texts_to_judge
from tests.store.kit import memory


def hit(memory_id: str, score: float) -> MemoryHit:
    item = memory(memory_id, memory_id * 2, author="Ann", at_ms=0)
    return MemoryHit(item=item, score=score, parts={"lexical": score})


def test_hits_take_the_order_of_the_scores_and_the_scores_of_their_places() -> None:
    """Those that were not judged follow; the parts of each add up to its score."""
    hits = [hit("a", 2.0), hit("b", 1.0), hit("c", 0.5), hit("d", 0.25)]
    found = reorder(hits, [0.1, -3.0, 0.9])
    assert ["c", "a", "b", "d"] == [each.item.memory_id for each in found]
    assert [2.0, 1.0, 0.5, 0.25] == [each.score for each in found]
    assert [sum(each.parts.values()) for each in found] == [each.score for each in found]
    assert tuple(hits) == reorder(hits, [])


def test_a_hit_stays_behind_the_newer_one_that_changes_it() -> None:
    """Unless it was in front of it, as for a question about an earlier day."""
    hits = [hit("new", 2.0), hit("old", 1.0)]
    marked = [hits[0], msgspec.structs.replace(hits[1], later="new")]
    assert ["old", "new"] == [each.item.memory_id for each in reorder(hits, [0.1, 0.9])]
    assert ["new", "old"] == [each.item.memory_id for each in reorder(marked, [0.1, 0.9])]
    assert ["old", "new"] == [each.item.memory_id for each in reorder(marked[::-1], [0.9, 0.1])]


def test_equal_scores_change_nothing() -> None:
    """A model that does not tell two items apart leaves them in their order."""
    assert ["a", "b"] == [
        each.item.memory_id for each in reorder([hit("a", 2.0), hit("b", 1.0)], [1.0, 1.0])
    ]


def test_the_model_reads_date_and_author() -> None:
    """A text is what a prompt would show, cut."""
    assert ["1970-01-01 Ann: aa"] == texts_to_judge([hit("a", 1.0)])
    assert TEXT_CHARS == len(texts_to_judge([hit("a" * TEXT_CHARS, 1.0)])[0])
