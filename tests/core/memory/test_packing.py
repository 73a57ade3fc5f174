"""The recall pack: what is in it, and in which order."""

from typing import Any

from palyra.core.memory.items import MemoryHit, MemoryHits, RecallPack
from palyra.core.memory.packing import MAX_STATEMENTS, pack_hits, render_line
from palyra.core.text.tokens import estimate_tokens
from tests.store.kit import memory

DAY_MS = 86_400_000


def hit(memory_id: str, text: str = "words", score: float = 1.0, **fields: Any) -> MemoryHit:
    item = memory(memory_id, text, **{"kind": "turn", "at_ms": 0, **fields})
    return MemoryHit(item=item, score=score, parts={})


def turn(memory_id: str, text: str = "words", score: float = 1.0, at_ms: int = 0) -> MemoryHit:
    return hit(memory_id, text, score, session_id="ses_1", at_ms=at_ms)


def pack(*ranked: MemoryHit, tokens: int = 1_500) -> RecallPack:
    return pack_hits(MemoryHits(hits=ranked, mode="hybrid", degraded="why"), tokens)


def ids(found: RecallPack) -> list[str]:
    return [each.item.memory_id for each in found.hits]


def test_facts_come_first_and_at_most_eight() -> None:
    """Lasting statements lead by rank; the ninth is not in the pack."""
    facts = [hit(f"f{number}", kind="fact") for number in range(9)]
    assert [*(f"f{number}" for number in range(MAX_STATEMENTS)), "t"] == ids(
        pack(turn("t"), *facts)
    )


def test_a_weak_item_is_left_out() -> None:
    """A statement needs a third of the best score, also one of no kind; a turn a fifth."""
    strong, note = hit("strong", score=0.34, kind="fact"), hit("note", score=0.34, kind="note")
    weak = [
        hit("weak", score=0.32, kind="fact"), hit("weak_note", score=0.32, kind="note"),
        turn("weak_turn", score=0.19, at_ms=1), hit("zero", score=0.0), turn("less", score=-0.1),
    ]  # fmt: skip
    found = pack(turn("turn", at_ms=1), strong, note, turn("late", score=0.21, at_ms=2), *weak)
    assert ["strong", "note", "turn", "late"] == ids(found)


def test_noise_counts_for_nothing() -> None:
    """The share of a statement is that of its score above what all texts have in common."""
    facts = [hit("best", score=1.5), hit("near", score=0.9), hit("other", score=0.7)]
    assert ["best", "near", "other"] == ids(pack(*facts))
    assert ["best", "near"] == ids(pack_hits(MemoryHits(hits=tuple(facts), noise=0.4)))


def test_a_foreign_prompt_gets_nothing() -> None:
    """Hits that say nothing about the prompt are not packed."""
    assert () == pack_hits(MemoryHits(hits=(hit("best"),), is_related=False)).hits


def test_turns_are_in_time_order_within_their_conversation() -> None:
    """Conversations are in the order of their first turn, and each is whole."""
    found = pack(
        hit("b2", session_id="b", at_ms=4), hit("a2", session_id="a", at_ms=5),
        hit("b1", session_id="b", at_ms=3), hit("note", kind="note", session_id="c", at_ms=2),
        hit("a1", session_id="a", at_ms=1),
    )  # fmt: skip
    assert ["a1", "a2", "note", "b1", "b2"] == ids(found)


def test_the_budget_bounds_the_rendered_lines() -> None:
    """The best items that fit are in; a long one is passed over for a shorter one behind it."""
    ranked = [turn("1"), turn("long", "x " * 500, at_ms=1), turn("2", at_ms=2)]
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
    fact, said = hit("f", kind="fact"), turn("t")
    cost = estimate_tokens(render_line(fact.item) + "\n")
    assert ["f"] == ids(pack(said, fact, tokens=cost))
    assert [] == ids(pack(said, fact, tokens=cost - 1))
    assert ["f", "t"] == ids(pack(said, fact, tokens=2 * cost))
