"""Standing items: which of a principal's items are in every prompt, and in which order."""

from typing import Any

import pytest

from palyra.core.journal.changes import MemoryPlace
from palyra.core.journal.records import MemoryRecord
from palyra.core.memory.items import MemoryDraft, make_item
from palyra.core.memory.standing import Standing, choose_standing, rank_standing

HERE = MemoryPlace(principal="ann", session_id="ses_1")


def item(number: int, **fields: Any) -> MemoryRecord:
    """An item that was stored at that time."""
    draft = {"text": f"preference number {number}", "kind": "preference", "at_ms": number, **fields}
    return make_item(
        MemoryDraft(**draft), memory_id=f"mem_{number}", principal="ann", by="ann", now_ms=number
    )


def choose(*items: MemoryRecord, tokens: int = 800, **uses: int) -> Standing:
    return choose_standing(rank_standing(items, uses), HERE, tokens)


def ids(found: Standing) -> list[str]:
    return [each.memory_id for each in found.shown]


def test_preferences_stand_and_facts_only_when_pinned() -> None:
    """Facts are recalled by similarity unless their owner pinned them."""
    found = choose(item(1), item(2, kind="fact"), item(3, kind="fact", pinned=True))
    assert ["mem_1", "mem_3"] == ids(found)


@pytest.mark.parametrize("trust", ["mixed", "external_untrusted"])
def test_a_text_of_others_never_stands(trust: str) -> None:
    """A pin does not change who wrote a text; a preference from files of the workspace waits for a pin."""
    assert [] == ids(choose(item(1, trust=trust), item(2, trust=trust, pinned=True)))
    assert ["mem_2"] == ids(
        choose(item(1, trust="workspace"), item(2, trust="workspace", pinned=True))
    )


def test_the_budget_keeps_pinned_then_used_then_new_ones() -> None:
    """What does not fit is counted."""
    items = [item(number) for number in range(1, 7)]
    items[1] = item(2, pinned=True)
    full = choose(*items, mem_3=4)
    assert 6 == len(full.shown)
    each = rank_standing(items, {})[0].tokens
    found = choose(*items, tokens=3 * each, mem_3=4)
    assert (["mem_2", "mem_3", "mem_6"], 3) == (ids(found), found.left_out)


def test_an_item_that_is_too_long_does_not_keep_out_the_next() -> None:
    """It is passed over, not cut."""
    found = choose(item(1), item(2, text="very long words " * 300, pinned=True))
    assert (["mem_1"], 1) == (ids(found), found.left_out)


def test_a_new_item_is_added_at_the_end() -> None:
    """The prompt before it stays as it is, also if the new item is the most used one."""
    before = choose(item(1), item(2, pinned=True)).shown
    after = choose(item(1), item(2, pinned=True), item(3), mem_3=9).shown
    assert before == after[:2]


def test_an_item_of_another_place_does_not_stand_here() -> None:
    """Sessions, channels and principals keep theirs."""
    assert [] == ids(choose(item(1, scope="session", session_id="ses_2")))
    assert [] == ids(choose(item(1, scope="channel", channel="irc")))
    assert () == choose_standing(rank_standing([item(1)], {}), MemoryPlace(principal="bob")).shown
