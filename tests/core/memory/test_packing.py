"""The recall pack: what is in it, and in which order."""

from typing import Any

from palyra.core.memory.packing import MOST_FACTS, Recalled, pack, render_line
from palyra.core.text.tokens import estimate_tokens

DAY_MS = 86_400_000


def item(memory_id: str, **fields: Any) -> Recalled:
    return Recalled(
        **{"memory_id": memory_id, "kind": "turn", "text": "words", "at_ms": 0, **fields}
    )


def ids(items: list[Recalled]) -> list[str]:
    return [each.memory_id for each in items]


def test_facts_come_first_and_at_most_eight() -> None:
    """Facts and preferences lead by rank; the ninth is not in the pack."""
    ranked = [item("t")] + [item(f"f{number}", kind="fact") for number in range(9)]
    assert [*(f"f{number}" for number in range(MOST_FACTS)), "t"] == ids(pack(ranked))


def test_turns_are_in_time_order_within_their_conversation() -> None:
    """Conversations are in the order of their first turn, and each is whole."""
    ranked = [
        item("b2", session_id="b", at_ms=4), item("a2", session_id="a", at_ms=5),
        item("b1", session_id="b", at_ms=3), item("note", kind="note", at_ms=2),
        item("a1", session_id="a", at_ms=1),
    ]  # fmt: skip
    assert ["a1", "a2", "note", "b1", "b2"] == ids(pack(ranked))


def test_the_budget_bounds_the_rendered_lines() -> None:
    """The best items that fit are in; a long one is passed over for a shorter one behind it."""
    ranked = [item("1"), item("long", text="x " * 500, at_ms=1), item("2", at_ms=2)]
    chosen = pack(ranked, 30)
    assert ["1", "2"] == ids(chosen)
    assert 30 >= sum(estimate_tokens(render_line(each) + "\n") for each in chosen)
    assert [] == pack(ranked, 0)


def test_a_line_names_date_and_author() -> None:
    """A rendered item has its absolute date and author; later lines are indented."""
    assert "- 1970-01-03 Ann: one\n  two" == render_line(
        item("1", author="Ann", text="one\ntwo\n", at_ms=2 * DAY_MS)
    )
    assert "- 1970-01-01 words" == render_line(item("1"))
