"""Search by words alone: the same filters and the same order of what is found as with vectors."""

from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.core.journal.changes import MemoryFilter
from palyra.core.memory.items import supersede
from palyra.errors import Unavailable
from palyra.store.sqlite.word_search import WordSearch
from tests.store.kit import memory
from tests.store.vectors.kit import NOW_MS, Memory

pytestmark = pytest.mark.real
Find = Callable[..., list[str]]
REASON = "numpy is not installed"


@pytest.fixture
def kept(tmp_path: Path) -> Memory:
    return Memory(tmp_path)


@pytest.fixture
def find(kept: Memory) -> Find:
    """Ids of the hits by words alone."""
    search = WordSearch(kept.file, kept.path, REASON)

    def ids(query: str, **fields: object) -> list[str]:
        wanted = MemoryFilter(**{"principal": "alice", "now_ms": NOW_MS, **fields})  # type: ignore[arg-type]
        question, texts = search.ask(query, wanted)
        assert () == texts
        hits = search.find(question, wanted, ())
        assert ("lexical", REASON) == (hits.mode, hits.degraded)
        return [hit.item.memory_id for hit in hits.hits]

    return ids


def test_rare_words_count_more(kept: Memory, find: Find) -> None:
    """The item with the rarer word of the question is first."""
    kept.say("the build is green", "the build uses bazel", "a build log", "a tree")
    assert "m1" == find("bazel build")[0]
    assert "m3" not in find("bazel build")


def test_other_forms_of_a_word_are_found(kept: Memory, find: Find) -> None:
    """A question of the past finds the base form, as with vectors."""
    kept.say("we went to Lisbon", "a tree")
    assert ["m0"] == find("where did they go?")


def test_the_day_of_a_question_decides_between_equals(kept: Memory, find: Find) -> None:
    """Of two items with the same words the one that names the day is first."""
    kept.say("the race was on 7 May 2023", "the race was on 9 June 2023", "a tree")
    assert "m0" == find("which race was on 7 May 2023?")[0]
    assert "m1" == find("which race was on 9 June 2023?")[0]


def test_a_question_of_a_day_finds_what_is_of_it(kept: Memory, find: Find) -> None:
    """Said on that day, or naming it; nothing else, whatever its words, and nothing of others."""
    day_ms = 86_400_000  # NOW_MS is on 15 June 2025
    kept.file.put(
        memory("m0", "the boiler broke", at_ms=NOW_MS - day_ms),
        memory("m1", "Ann happened to call", at_ms=NOW_MS - 9 * day_ms),
        memory("m2", "the fair was on 14 June 2025", at_ms=NOW_MS),
        memory("m3", "the mast fell", at_ms=NOW_MS - day_ms, principal="bob"),
    )
    assert {"m0", "m2"} == set(find("what happened on 14 June?"))
    assert {"m0", "m2"} == set(find("yesterday"))
    assert ["m2"] == find("yesterday", since_ms=NOW_MS - 1)
    assert [] == find("what happened on 3 May?")


def test_a_foreign_question_finds_nothing(kept: Memory, find: Find) -> None:
    """Without a word in common, or without any word, nothing is returned."""
    kept.say("the build is green")
    for query in ("boiling point of nitrogen", "", '"', "NEAR(port", "text : x*"):
        assert [] == find(query)


def test_items_of_others_and_old_ones_are_not_found(kept: Memory, find: Find) -> None:
    """Principal, supersession and limit hold; the scores do not depend on items of others."""
    first = memory("m0", "the port is 8080", at_ms=NOW_MS)
    kept.file.put(first)
    second = memory("m1", "the port is 9090", at_ms=NOW_MS)
    kept.file.put(second, supersede(first, second))
    kept.file.put(*(memory(f"x{at}", "port", principal="bob", at_ms=NOW_MS) for at in range(9)))
    assert ["m1"] == find("port")
    assert {"m0", "m1"} == set(find("port", with_superseded=True))
    assert 1 == len(find("port", with_superseded=True, limit=1))
    assert 9 == len(find("port", principal="bob"))


def test_the_file_of_an_earlier_index_is_deleted(kept: Memory, tmp_path: Path) -> None:
    """The vector of a forgotten item does not stay in a file that is not written any more."""
    search = WordSearch(kept.file, kept.path, REASON)
    search.save()
    kept.path.parent.mkdir()
    kept.path.write_bytes(b"vectors")
    assert None is search.plan_build()
    assert [] == search.list_unembedded(10)
    search.save()
    assert not kept.path.exists()
    with pytest.raises(Unavailable, match="was not deleted"):
        WordSearch(kept.file, tmp_path, REASON).save()
