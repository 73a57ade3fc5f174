"""Items: places, drafts, revisions, packs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.changes import MemoryPlace
from palyra.core.journal.records import Lineage, MemoryRecord
from palyra.core.memory.items import (
    LAST_MS,
    MAX_LINEAGE,
    MAX_TAGS,
    MAX_TEXT_BYTES,
    MAX_TTL_MS,
    TRANSIENT_TTL_MS,
    MemoryDraft,
    MemoryHit,
    MemoryHits,
    check_draft,
    edit_item,
    hash_text,
    make_item,
    merge_item,
    restore,
    revise,
    supersede,
)
from palyra.core.memory.packing import pack_hits
from palyra.errors import IllegalState, InvalidParams, TooLarge
from tests.rows import every_row


def item(text: str = "the port is 8080", **fields: object) -> MemoryRecord:
    draft = MemoryDraft(**{"text": text, **fields})  # type: ignore[arg-type]  # plain fields
    return make_item(draft, memory_id="mem_1", principal="ann", by="ann", now_ms=100)


def test_a_place_sees_its_own_items() -> None:
    """A scope opens an item to its principal, its channel or its session."""
    here = MemoryPlace(principal="ann", channel="chat", session_id="ses_1")
    narrow = msgspec.structs.replace(here, only_session=True)
    cases = [
        (item(), True, False),
        (item(session_id="ses_1"), True, True),
        (item(scope="channel", channel="chat"), True, False),
        (item(scope="channel", channel="mail"), False, False),
        (item(scope="session", session_id="ses_1"), True, True),
        (item(scope="session", session_id="ses_2"), False, False),
        (msgspec.structs.replace(item(), principal="bob"), False, False),
    ]
    for each, seen, seen_narrow in cases:
        assert (seen, seen_narrow) == (here.sees(each), narrow.sees(each))
    nowhere = MemoryPlace(principal="ann")
    assert not nowhere.sees(msgspec.structs.replace(item(), scope="session"))
    assert not nowhere.sees(msgspec.structs.replace(item(), scope="channel"))


@given(st.text(max_size=60))
def test_the_hash_ignores_case_and_punctuation(text: str) -> None:
    """A text and its shouted, spaced form are the same text."""
    words = hash_text(text)
    assert words == hash_text(f"  {text} ")
    assert hash_text("a b") == hash_text("A, b!") != hash_text("a c")
    assert hash_text("!") != hash_text("?")


def test_limits_are_exact() -> None:
    """The greatest allowed value passes, one more is refused with its field."""
    check_draft(
        MemoryDraft(text="x" * MAX_TEXT_BYTES, lineage=(Lineage(run_id="r"),) * MAX_LINEAGE)
    )
    with pytest.raises(TooLarge, match="16385 bytes"):
        check_draft(MemoryDraft(text="x" * (MAX_TEXT_BYTES + 1)))
    with pytest.raises(InvalidParams, match="33 places of origin"):
        check_draft(MemoryDraft(text="x", lineage=(Lineage(run_id="r"),) * (MAX_LINEAGE + 1)))
    with pytest.raises(InvalidParams, match="surrogate"):
        check_draft(MemoryDraft(text="a\ud800"))
    with pytest.raises(InvalidParams) as caught:
        check_draft(MemoryDraft(text="x", tags=("a",) * (MAX_TAGS + 1)), "items[2].")
    assert "items[2].tags" == caught.value.field


def test_lives() -> None:
    """Without a ttl an item is kept, a transient one for a day, and a ttl wins over that."""
    assert item().expires_ms is None
    assert 100 + TRANSIENT_TTL_MS == item(is_transient=True).expires_ms
    assert 105 == item(is_transient=True, ttl_ms=5).expires_ms
    assert item(ttl_ms=5).is_live(104)
    assert not item(ttl_ms=5).is_live(105)
    assert not item(never_recall=True).is_live(0)


def test_merging_keeps_the_best_of_both() -> None:
    """Tags and origins add up, life and confidence are the greater, the label is the lower."""
    old = item(tags=("a",), ttl_ms=5, confidence_bps=5, lineage=(Lineage(run_id="r1"),))
    old = msgspec.structs.replace(old, trust="workspace")
    new = item(
        tags=("b", "a"), ttl_ms=9, confidence_bps=7, lineage=(Lineage(run_id="r2"),), pinned=True
    )
    merged = merge_item(old, new, text="both")
    assert ("both", ("a", "b"), 109, 7, "workspace", True, 2, "updated") == (
        merged.text, merged.tags, merged.expires_ms, merged.confidence_bps, merged.trust,
        merged.pinned, merged.revision, merged.action,
    )  # fmt: skip
    assert ["r2", "r1"] == [each.run_id for each in merged.lineage]
    assert merge_item(old, item(), text="x").expires_ms is None
    untouched = merge_item(item(), msgspec.structs.replace(new, trust="mixed"), text="x")
    assert ("the port is 8080", (), 2) == (untouched.text, untouched.tags, untouched.revision)


def test_revisions() -> None:
    """Each change has the next number; restoring brings content back, not the number."""
    first = item()
    edited = edit_item(first, {"text": "new", "tags": (" b ", "b")}, by="bob", now_ms=7)
    assert ("new", ("b",), 2, "edited", "bob", hash_text("new")) == (
        edited.text, edited.tags, edited.revision, edited.action, edited.changed_by,
        edited.text_hash,
    )  # fmt: skip
    back = restore(edited, first, by="ann", now_ms=8)
    assert (first.text, first.text_hash, 3, "undone") == (
        back.text, back.text_hash, back.revision, back.action,
    )  # fmt: skip
    ended = supersede(first, msgspec.structs.replace(item(), memory_id="mem_2", valid_from_ms=50))
    assert ("mem_2", 50, 2) == (ended.superseded_by, ended.superseded_ms, ended.revision)
    with pytest.raises(IllegalState, match="was superseded by mem_2"):
        edit_item(ended, {"text": "x"}, by="ann", now_ms=9)
    with pytest.raises(InvalidParams, match="at least one field"):
        edit_item(first, {}, by="ann", now_ms=9)
    assert 2 == revise(first, "pinned", by="ann", now_ms=9, pinned=True).revision


def test_a_pack_has_the_lowest_label_and_its_size() -> None:
    """What does not fit is left out; the label is that of all items."""
    hits = tuple(
        MemoryHit(
            item=msgspec.structs.replace(
                item(f"text {n}", kind=kind, at_ms=100 - n), memory_id=f"mem_{n}", trust=trust
            ),
            score=1.0,
            parts={},
        )
        for n, (kind, trust) in enumerate(
            [("note", "workspace"), ("fact", "trusted_local"), ("note", "trusted_local")]
        )
    )
    pack = pack_hits(MemoryHits(hits=hits))
    assert ["mem_0", "mem_1", "mem_2"] == [hit.item.memory_id for hit in pack.hits]
    assert "workspace" == pack.trust
    assert pack.tokens > 0
    assert () == pack_hits(MemoryHits(hits=hits), 1).hits
    assert "trusted_local" == pack_hits(MemoryHits()).trust


@every_row(
    ("fields", "field", "reason"),
    [
        ({"text": " \n"}, "text", "empty"),
        ({"text": "\u200b\u2063 \ufeff\u202e"}, "text", "empty"),
        ({"text": "a\0"}, "text", "U\\+0000"),
        ({"text": "a\x7f"}, "text", "U\\+007F"),
        ({"tags": (" ",)}, "tags", "one line of 1 to 64"),
        ({"tags": ("x" * 65,)}, "tags", "one line of 1 to 64"),
        ({"tags": ("a\nb",)}, "tags", "one line of 1 to 64"),
        ({"author": ""}, "author", "one line of 1 to 256"),
        ({"author": "x" * 257}, "author", "one line of 1 to 256"),
        ({"channel": "a\nb"}, "channel", "one line of 1 to 256"),
        ({"scope": "channel", "session_id": "s"}, "channel", "needs a channel"),
        ({"scope": "session", "channel": "c"}, "session_id", "needs a session_id"),
        ({"at_ms": -1}, "at_ms", "-1 is not from 0"),
        ({"valid_from_ms": LAST_MS + 1}, "valid_from_ms", "is not from 0"),
        ({"ttl_ms": 0}, "ttl_ms", "0 is not from 1"),
        ({"confidence_bps": 10_001}, "confidence_bps", "10001 is not from 0 to 10000"),
    ],
)
def test_a_draft_that_cannot_be_an_item_is_refused(
    fields: dict[str, Any], field: str, reason: str
) -> None:
    """The error names the field, its value and the limit."""
    with pytest.raises(InvalidParams, match=reason) as caught:
        check_draft(MemoryDraft(**{"text": "x", **fields}), "items[0].")
    assert f"items[0].{field}" == caught.value.field


def test_the_greatest_values_of_a_draft_pass() -> None:
    """Limits are inclusive; tab and line end are text."""
    check_draft(MemoryDraft(
        text="a\tb\r\n", tags=("x" * 64,), author="x" * 256, scope="channel", channel="c",
        at_ms=0, valid_from_ms=LAST_MS, ttl_ms=MAX_TTL_MS, confidence_bps=0,
    ))  # fmt: skip
    check_draft(MemoryDraft(text="x", scope="session", session_id="s", ttl_ms=1))


def test_an_utterance_has_a_place_and_a_time() -> None:
    """A turn is one; another item only with a session and a time."""
    assert MemoryDraft(text="x", kind="turn").is_utterance
    assert MemoryDraft(text="x", session_id="s", at_ms=0).is_utterance
    assert not MemoryDraft(text="x", session_id="s").is_utterance
    assert not MemoryDraft(text="x", at_ms=0).is_utterance


def test_an_edit_changes_only_what_it_names() -> None:
    """Text and tags keep their value if only another field is given; bad values are refused."""
    first = item(tags=("a",))
    edited = edit_item(first, {"author": "bob"}, by="ann", now_ms=7)
    assert (first.text, ("a",), "bob") == (edited.text, edited.tags, edited.author)
    assert first.tags == edit_item(first, {"text": "new"}, by="ann", now_ms=7).tags
    for bad in ({"text": ""}, {"tags": ("",)}, {"author": ""}, {"confidence_bps": -1}):
        with pytest.raises(InvalidParams):
            edit_item(first, bad, by="ann", now_ms=7)


def test_a_repetition_takes_nothing_away() -> None:
    """Pin, confidence, time, life and label of the old item survive a weaker repetition."""
    old = item(pinned=True, confidence_bps=9_000, at_ms=50, ttl_ms=900)
    new = item(confidence_bps=10, at_ms=40, ttl_ms=5)
    merged = merge_item(old, new, text="x")
    assert (True, 9_000, 50, 1_000) == (
        merged.pinned, merged.confidence_bps, merged.at_ms, merged.expires_ms,
    )  # fmt: skip
    many = tuple(Lineage(run_id=f"r{number}") for number in range(MAX_LINEAGE))
    tags = tuple(f"t{number}" for number in range(MAX_TAGS))
    full = merge_item(
        item(lineage=many, tags=tags), item(lineage=(Lineage(run_id="x"),), tags=("x",)), text="x"
    )
    assert (MAX_LINEAGE, "x", tags) == (len(full.lineage), full.lineage[0].run_id, full.tags)


def test_undo_brings_back_everything_that_a_change_can_change() -> None:
    """Label, pin, recall, succession and time of the earlier revision hold again."""
    first = item(pinned=True, never_recall=True, at_ms=1)
    later = revise(
        first, "edited", by="ann", now_ms=7, trust="mixed", pinned=False, never_recall=False,
        superseded_by="mem_2", superseded_ms=9, at_ms=8, text="new",
    )  # fmt: skip
    back = restore(later, first, by="ann", now_ms=9)
    fields = ("text", "trust", "pinned", "never_recall", "superseded_by", "superseded_ms", "at_ms")
    assert [getattr(first, name) for name in fields] == [getattr(back, name) for name in fields]


def test_an_item_counts_its_life_from_now_and_its_validity_from_its_statement() -> None:
    """An old statement that is imported today lives from today on; its source is its action."""
    made = item(at_ms=3, ttl_ms=5, source="import")
    assert (3, 3, 105, "imported") == (
        made.at_ms, made.valid_from_ms, made.expires_ms, made.action,
    )  # fmt: skip
    made = item(at_ms=3, valid_from_ms=2)
    assert (3, 2, "added") == (made.at_ms, made.valid_from_ms, made.action)
