"""The recall pack: what is in it, and in which order."""

from typing import Any

from palyra.core.memory.items import MemoryHit, MemoryHits, RecallPack
from palyra.core.memory.packing import MAX_LASTING, pack_hits, render_line
from palyra.core.text.tokens import estimate_tokens
from tests.store.kit import memory

DAY_MS = 86_400_000


def hit(memory_id: str, text: str = "words", score: float = 1.0, **fields: Any) -> MemoryHit:
    item = memory(memory_id, text, **{"kind": "turn", "at_ms": 0, **fields})
    return MemoryHit(item=item, score=score, parts={})


def pack(*ranked: MemoryHit, tokens: int = 1_500) -> RecallPack:
    return pack_hits(MemoryHits(hits=ranked, mode="hybrid", degraded="why"), tokens)


def ids(found: RecallPack) -> list[str]:
    return [each.item.memory_id for each in found.hits]


def test_facts_come_first_and_at_most_eight() -> None:
    """Lasting statements lead by rank; the ninth is not in the pack."""
    facts = [hit(f"f{number}", kind="fact") for number in range(9)]
    assert [*(f"f{number}" for number in range(MAX_LASTING)), "t"] == ids(pack(hit("t"), *facts))


def test_a_weak_fact_has_no_place_before_the_answer() -> None:
    """A fact with less than half of the best score follows by time; one without a score is left out."""
    weak, strong = hit("weak", score=0.49, kind="fact"), hit("strong", score=0.5, kind="fact")
    foreign = [hit("zero", score=0.0, kind="fact"), hit("less", score=-0.1)]
    found = pack(hit("turn", at_ms=1), strong, hit("late", at_ms=2), weak, *foreign)
    assert ["strong", "weak", "turn", "late"] == ids(found)


def test_turns_are_in_time_order_within_their_conversation() -> None:
    """Conversations are in the order of their first turn, and each is whole."""
    found = pack(
        hit("b2", session_id="b", at_ms=4), hit("a2", session_id="a", at_ms=5),
        hit("b1", session_id="b", at_ms=3), hit("note", kind="note", at_ms=2),
        hit("a1", session_id="a", at_ms=1),
    )  # fmt: skip
    assert ["a1", "a2", "note", "b1", "b2"] == ids(found)


def test_the_budget_bounds_the_rendered_lines() -> None:
    """The best items that fit are in; a long one is passed over for a shorter one behind it."""
    ranked = [hit("1"), hit("long", "x " * 500, at_ms=1), hit("2", at_ms=2)]
    found = pack(*ranked, tokens=30)
    assert ["1", "2"] == ids(found)
    used = sum(estimate_tokens(render_line(each.item) + "\n") for each in found.hits)
    assert (used, True) == (found.tokens, used <= 30)
    assert [] == ids(pack(*ranked, tokens=0))


def test_a_pack_says_how_it_was_found() -> None:
    """Mode and reason of the search are those of the pack."""
    assert ("hybrid", "why") == (pack().mode, pack().degraded)


def test_a_line_names_date_and_author() -> None:
    """A rendered item has its absolute date and author; later lines are indented."""
    item = hit("1", "one\ntwo\n", author="Ann", at_ms=2 * DAY_MS).item
    assert "- 1970-01-03 Ann: one\n  two" == render_line(item)
    assert "- 1970-01-01 words" == render_line(hit("1").item)


def test_lasting_statements_and_turns_share_one_budget() -> None:
    """A budget that one line fills exactly holds that line and no other."""
    fact, said = hit("f", kind="fact"), hit("t")
    cost = estimate_tokens(render_line(fact.item) + "\n")
    assert ["f"] == ids(pack(said, fact, tokens=cost))
    assert [] == ids(pack(said, fact, tokens=cost - 1))
    assert ["f", "t"] == ids(pack(said, fact, tokens=2 * cost))
