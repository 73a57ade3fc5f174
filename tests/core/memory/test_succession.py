"""The order of found items that say different things about one subject."""

from palyra.core.journal.records import MemoryKind
from palyra.core.memory.items import MemoryDraft, MemoryHit, make_item
from palyra.core.memory.query import SearchQuestion
from palyra.core.memory.ranking import Hit, ScoreParts
from palyra.core.memory.succession import COMPARED, list_hits, newest_first

DAY_MS = 86_400_000


def hit(
    text: str, day: int, score: float, author: str | None = None, kind: MemoryKind = "fact"
) -> MemoryHit:
    session_id = "ses_1" if kind == "turn" else None
    draft = MemoryDraft(
        text=text, kind=kind, at_ms=day * DAY_MS, author=author, session_id=session_id
    )
    item = make_item(draft, memory_id=f"mem_{day}", principal="ann", by="ann", now_ms=1)
    return MemoryHit(item=item, score=score, parts={"lexical": score})


def ids(hits: tuple[MemoryHit, ...]) -> list[str]:
    return [each.item.memory_id for each in hits]


def test_a_row_that_is_no_item_any_more_is_left_out() -> None:
    """Forgotten between the ranking and the reading; the others keep score and parts."""
    kept, parts = hit("Our standup is at 9:15", 1, 0.9), ScoreParts(lexical=0.9)
    ranked = [Hit(1, 0.9, parts), Hit(2, 0.8, ScoreParts(lexical=0.8))]
    (found,) = list_hits(ranked, {1: kept.item}, SearchQuestion("standup", ("standup",)))
    assert (kept.item, 0.9, 0.9) == (found.item, found.score, found.parts["lexical"])


def test_the_newer_value_comes_first_and_the_earlier_one_says_so() -> None:
    """Its score is that of the place it takes, and the parts still add up to it."""
    old = hit("Our standup is at 9:15", 1, 0.9)
    new = hit("standup moved to 9:45", 90, 0.5)
    found = newest_first([old, hit("The cat is called Bo", 50, 0.7), new])
    assert ["mem_90", "mem_1", "mem_50"] == ids(found)
    assert (0.9, 0.9) == (found[0].score, sum(found[0].parts.values()))
    assert [None, "mem_90", None] == [each.later for each in found]


def test_a_question_of_a_day_keeps_the_order() -> None:
    """What held on that day is asked for; the mark still says that it changed."""
    hits = [hit("Our standup is at 9:15", 1, 0.9), hit("standup moved to 9:45", 90, 0.5)]
    found = newest_first(hits, is_dated=True)
    assert ["mem_1", "mem_90"] == ids(found)
    assert "mem_90" == found[0].later


def test_of_several_changes_the_newest_comes_first() -> None:
    """And each earlier one names the newest."""
    rents = ["The rent is 900 euros", "rent is 960 euros now", "rent went up to 1010 euros"]
    found = newest_first([hit(text, day, 1.0 - day / 10) for day, text in enumerate(rents, 1)])
    assert ["mem_3", "mem_2", "mem_1"] == ids(found)
    assert [None, "mem_3", "mem_3"] == [each.later for each in found]


def test_a_change_of_a_part_moves_forward_too() -> None:
    """The earlier statement is kept, and marked."""
    old = hit("Backups run at 2 and are stored on S3", 1, 0.9)
    found = newest_first([old, hit("backups now run at 4", 2, 0.4)])
    assert ["mem_2", "mem_1"] == ids(found)
    assert "mem_2" == found[1].later


def test_what_may_be_true_beside_it_is_not_marked() -> None:
    """Two facts that share half of their words: the newer first, without a mark."""
    found = newest_first([hit("Yoga is on Tuesdays", 1, 0.9), hit("Yoga is on Thursdays", 2, 0.8)])
    assert ["mem_2", "mem_1"] == ids(found)
    assert [None, None] == [each.later for each in found]


def test_of_two_with_the_same_words_of_the_question_the_newer_comes_first() -> None:
    """No rule knows the change; with other words, or a far lower score, the order stays."""
    old = hit("The log level in production is debug.", 1, 0.56)
    new = hit("production logs at warn, the noise was too much", 90, 0.5)
    assert ["mem_90", "mem_1"] == ids(newest_first([old, new], ("production",)))
    assert ["mem_1", "mem_90"] == ids(newest_first([old, new], ("production", "level")))
    far = hit(new.item.text, 90, 0.3)
    assert ["mem_1", "mem_90"] == ids(newest_first([old, far], ("production",)))


def test_others_stay_in_their_places() -> None:
    """Another author, another subject, turns of a conversation, and hits behind the compared ones."""
    old, new = "Our standup is at 9:15", "standup moved to 9:45"
    by_others = [hit(old, 1, 0.9, "Ann"), hit(new, 2, 0.8, "Bob")]
    assert by_others == [*newest_first(by_others)]
    turns = [hit(old, 1, 0.9, kind="turn"), hit(new, 2, 0.8, kind="turn")]
    assert turns == [*newest_first(turns)]
    fill = [hit(chr(97 + n) * 6, 10 + n, 0.9) for n in range(COMPARED)]
    far = [hit(old, 1, 1.0), *fill, hit(new, 99, 0.1)]
    assert ids(tuple(far)) == ids(newest_first(far))
    assert () == newest_first([])
