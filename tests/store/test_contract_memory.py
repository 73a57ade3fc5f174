"""What both stores promise about items of memory: places, filters, revisions, removal."""

import itertools
from typing import Any

import pytest

from palyra.core.journal.changes import Change, MemoryFilter, MemoryPlace
from palyra.core.journal.records import (
    FROM_THE_START,
    ItemScope,
    Lineage,
    MemoryRecord,
    MemoryReindex,
    MemoryRemoval,
    MemoryUse,
    MemoryUseRecord,
    Record,
)
from palyra.core.memory.items import revise, supersede
from palyra.core.ports import JournalStore
from tests.store.kit import Clock, MakeStore, memory

NOW = 1_750_000_000_000


def put(store: JournalStore, *records: Record) -> list[str | None]:
    """Commit each record as a change of its own; the names of the refusals."""
    outcomes = store.commit([Change(records=(record,)) for record in records])
    return [None if outcome is None else type(outcome).__name__ for outcome in outcomes]


def forget(*memory_ids: str, principal: str = "alice") -> MemoryRemoval:
    return MemoryRemoval(principal=principal, memory_ids=memory_ids, at_ms=NOW, by="alice")


def wanted(**fields: Any) -> MemoryFilter:
    return MemoryFilter(**{"principal": "alice", "now_ms": NOW, **fields})


def found(store: JournalStore, *words: str, **fields: Any) -> list[str]:
    """Ids of the hits, sorted."""
    hits = store.search_memories(wanted(**fields), words)
    return sorted(hit.item.memory_id for hit in hits)


def test_an_item_comes_back_whole(store: JournalStore) -> None:
    """Every field of an item survives its columns, odd text and numbers included."""
    item = memory(
        "mem_1",
        'a "quoted" \\ line\nwith \u2028 and \U0001f4a5',
        scope="session",
        channel="chat",
        session_id="ses_1",
        author="Bob",
        tags=("a b", 'c"d'),
        confidence_bps=7_500,
        source="tool",
        lineage=(Lineage(run_id="run_1", first_seq=3, last_seq=9), Lineage(run_id="run_2")),
        trust="mixed",
        pinned=True,
        never_recall=True,
        expires_ms=NOW + 5,
        kind="preference",
    )
    assert [None] == put(store, item)
    assert item == store.find_memory("mem_1")
    assert store.find_memory("mem_2") is None


def test_search_finds_words_of_the_text(store: JournalStore) -> None:
    """A hit has one of the words; the one with more of them comes first."""
    put(
        store, memory("mem_1", "the build needs cmake"), memory("mem_2", "cmake and ninja build it")
    )
    assert ["mem_1", "mem_2"] == found(store, "cmake")
    assert [] == found(store, "gibberish", "xyzzy")
    best = store.search_memories(wanted(limit=1), ("ninja", "cmake"))
    assert ["mem_2"] == [hit.item.memory_id for hit in best]
    assert best[0].lexical > 0


@pytest.mark.parametrize(
    "word",
    ['"', '""', "*", "cmake*", "(", ")", "AND", "OR", "NOT", "NEAR(a b)", "text:x", "{text}:x",
     "^x", "-x", "+", "\\", "'", ";--", "a\x00b", "\U0001f4a5", "\ud7ff", "", " ", "%", "_"],
)  # fmt: skip
def test_words_are_never_operators(store: JournalStore, word: str) -> None:
    """Symbols and operators of the text index are plain words of a query."""
    put(store, memory("mem_1", "plain text"))
    assert [] == found(store, word)
    assert ["mem_1"] == found(store, word, "plain")


PLACES: tuple[dict[str, Any], ...] = (
    {},
    {"channel": "chat"},
    {"session_id": "ses_1"},
    {"channel": "chat", "session_id": "ses_1"},
    {"channel": "mail", "session_id": "ses_2"},
)
SCOPES: tuple[ItemScope, ...] = ("principal", "channel", "session")


def test_no_place_sees_the_items_of_another(store: JournalStore) -> None:
    """Search and list agree with `MemoryPlace.sees` for each pair of places and items."""
    items: list[MemoryRecord] = []
    for principal, scope, place in itertools.product(("alice", "bob"), SCOPES, PLACES):
        memory_id = f"mem_{len(items):02}"
        items.append(memory(memory_id, "cmake", principal=principal, scope=scope, **place))
    put(store, *items)
    seen_by: dict[str, list[str]] = {}
    for principal, place, only in itertools.product(("alice", "bob"), PLACES, (False, True)):
        here = MemoryPlace(principal=principal, only_session=only, **place)
        expected = [item.memory_id for item in items if here.sees(item)]
        fields = {"principal": principal, "place": here}
        assert expected == found(store, "cmake", **fields)
        listed = store.list_memories(wanted(**fields))
        assert expected == sorted(item.memory_id for item in listed)
        seen_by[repr(here)] = expected
    assert any(seen_by.values())
    assert len({tuple(ids) for ids in seen_by.values()}) > len(PLACES)


def test_filters_narrow_search_and_list(store: JournalStore) -> None:
    """Kind, tags, author, channel, session and time are part of the query, before its limit."""
    put(
        store,
        memory("mem_1", "cmake", kind="fact", tags=("a", "b"), author="Bob", at_ms=10),
        memory("mem_2", "cmake", kind="note", tags=("a",), session_id="ses_1", at_ms=20),
        memory("mem_3", "cmake cmake", channel="chat", at_ms=30),
    )
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "123"),
        ({"kinds": ("fact", "decision")}, "1"),
        ({"tags": ("a",)}, "12"),
        ({"tags": ("a", "b")}, "1"),
        ({"author": "Bob"}, "1"),
        ({"channel": "chat"}, "3"),
        ({"session_id": "ses_1"}, "2"),
        ({"since_ms": 20}, "23"),
        ({"until_ms": 20}, "1"),
        ({"principal": "bob"}, ""),
    ]
    for fields, expected in cases:
        assert [f"mem_{n}" for n in expected] == found(store, "cmake", **fields), fields
        listed = store.list_memories(wanted(**fields))
        assert [f"mem_{n}" for n in expected[::-1]] == [item.memory_id for item in listed]
    assert ["mem_2"] == [
        item.memory_id for item in store.list_memories(wanted(before="mem_3", limit=1))
    ]


def test_hidden_superseded_and_expired_items_are_not_found(store: JournalStore) -> None:
    """Only a list that asks for them shows hidden and superseded items; expired ones are gone."""
    old = memory("mem_1", "cmake", valid_from_ms=NOW - 10)
    put(
        store,
        old,
        memory("mem_2", "cmake", valid_from_ms=NOW),
        memory("mem_3", "cmake", never_recall=True),
    )
    put(store, supersede(old, memory("mem_2", "cmake", valid_from_ms=NOW)))
    put(store, memory("mem_4", "cmake", expires_ms=NOW))
    assert ["mem_2"] == found(store, "cmake")
    assert ["mem_1", "mem_2"] == found(store, "cmake", with_superseded=True)
    assert ["mem_2", "mem_3"] == found(store, "cmake", with_hidden=True)
    assert ["mem_1"] == found(store, "cmake", as_of_ms=NOW - 1)
    assert ["mem_2"] == found(store, "cmake", as_of_ms=NOW)
    assert ["mem_4"] == found(store, "cmake", now_ms=NOW - 1, as_of_ms=NOW, since_ms=0)[-1:]
    put(store, memory("mem_5", "cmake", kind="preference"), memory("mem_6", "cmake", pinned=True))
    assert ["mem_5", "mem_6"] == found(store, "cmake", standing=True)


def test_revisions_follow_one_another(store: JournalStore) -> None:
    """A change needs the revision before it; earlier revisions are kept in order."""
    first = memory("mem_1", "cmake")
    second = revise(first, "edited", by="alice", now_ms=NOW + 1, text="ninja")
    third = revise(second, "pinned", by="bob", now_ms=NOW + 2, pinned=True)
    assert [None, None, "Conflict"] == put(store, first, second, second)
    assert ["Conflict"] == put(store, first)
    assert [None] == put(store, third)
    assert third == store.find_memory("mem_1")
    assert [first, second] == store.list_versions("mem_1")
    assert ([], ["mem_1"]) == (found(store, "cmake"), found(store, "ninja"))


def test_a_batch_may_hold_several_revisions(store: JournalStore) -> None:
    """One change with an item, its revision and a removal is written in that order."""
    first = memory("mem_1", "cmake")
    second = revise(first, "edited", by="alice", now_ms=NOW + 1, text="ninja")
    change = Change(records=(first, second, memory("mem_2", "cmake"), forget("mem_2")))
    assert [None] == store.commit([change])
    assert second == store.find_memory("mem_1")
    assert store.find_memory("mem_2") is None


def test_forgetting_leaves_no_text(store: JournalStore) -> None:
    """A forgotten item is gone with its revisions and what it superseded; others stay."""
    first = memory("mem_1", "cmake")
    old = memory("mem_0", "make")
    put(store, old, first, memory("mem_2", "cmake"))
    put(store, supersede(old, first), revise(first, "edited", by="a", now_ms=NOW, text="cmake 3"))
    assert [None] == put(store, forget("mem_1"))
    assert [None, None] == [store.find_memory(key) for key in ("mem_0", "mem_1")]
    assert [[], []] == [store.list_versions(key) for key in ("mem_0", "mem_1")]
    assert ["mem_2"] == found(store, "cmake", "make", with_superseded=True)
    lines = store.list_memory_log(principal="alice", limit=9)
    assert {("mem_0", "forgotten"), ("mem_1", "forgotten")} == {
        (line.memory_id, line.action) for line in lines[:2]
    }
    assert lines[2:3] == store.list_memory_log(principal="alice", before=lines[1].entry, limit=1)


def test_only_its_principal_can_remove_an_item(store: JournalStore) -> None:
    """A removal in the name of another principal changes nothing."""
    item = memory("mem_1")
    put(store, item, forget("mem_1", principal="bob"))
    assert item == store.find_memory("mem_1")
    assert [] == store.list_memory_log(principal="bob", limit=9)


def test_purge_removes_a_principal(store: JournalStore) -> None:
    """A purge leaves one line about one principal, and the others as they were."""
    mine, theirs = memory("mem_1"), memory("mem_2", principal="bob")
    use = MemoryUseRecord(
        use_id="use_1", run_id="run_1", session_id="ses_1", principal="alice", way="auto",
        question="which port?", at_ms=NOW, items=(MemoryUse(memory_id="mem_1", score=0.5),),
    )  # fmt: skip
    put(store, mine, theirs, use)
    assert [use] == store.list_memory_uses(run_id="run_1")
    assert [use] == store.list_memory_uses(principal="alice")
    assert [] == store.list_memory_uses(principal="bob")
    gone = MemoryRemoval(principal="alice", memory_ids=None, at_ms=NOW, by="op", action="purged")
    put(store, gone)
    assert [[], [theirs]] == [
        store.list_memories(wanted(principal=principal)) for principal in ("alice", "bob")
    ]
    assert [] == store.list_memory_uses(run_id="run_1")
    assert [("*", "purged", "op")] == [
        (line.memory_id, line.action, line.by)
        for line in store.list_memory_log(principal="alice", limit=9)
    ]


def test_alike_items_share_place_kind_and_author(store: JournalStore) -> None:
    """Equal texts come first; another place, kind, author or a superseded item never comes."""
    put(
        store,
        memory("mem_1", "the deploy port is open", kind="fact"),
        memory("mem_2", "The deploy port is 8080.", kind="fact"),
        memory("mem_3", "the deploy port is 8080", kind="note"),
        memory("mem_4", "the deploy port is 8080", kind="fact", author="Bob"),
        memory("mem_5", "the deploy port is 8080", kind="fact", principal="bob"),
        memory("mem_6", "the deploy port is 8080", kind="fact", scope="session", session_id="s"),
        memory("mem_7", "the deploy port is 8080", kind="fact", superseded_by="mem_2"),
        memory("mem_8", "something else", kind="fact"),
    )
    new = memory("mem_9", "the deploy port is 8080", kind="fact")
    alike = store.find_alike(new, now_ms=NOW, limit=9)
    assert ["mem_2", "mem_1"] == [item.memory_id for item in alike]


def test_alike_items_are_found_among_many_of_others_and_many_like_them(store: JournalStore) -> None:
    """Newer items with common words, own ones or another principal's, hide none with a rare word."""
    old = memory("mem_old", "the deploy port of zanzibar is open", kind="fact")
    put(store, old)
    for principal in ("bob", "alice"):
        texts = [f"the deploy port of host{number} is open" for number in range(300)]
        if principal == "bob":
            texts = ["the deploy port of zanzibar is open now"] * 300
        put(store, *(memory(f"mem_{principal}{at}", text, kind="fact", principal=principal)
                     for at, text in enumerate(texts)))  # fmt: skip
    new = memory("mem_new", "the deploy port of zanzibar is closed", kind="fact")
    assert old in store.find_alike(new, now_ms=NOW, limit=1_000)


def test_equal_texts_are_found_by_their_hash(store: JournalStore) -> None:
    """Lookups by text leave out superseded items and those of other principals."""
    item = memory("mem_1", "cmake")
    put(
        store,
        item,
        memory("mem_2", "ninja"),
        memory("mem_3", "cmake", principal="bob"),
        memory("mem_4", "cmake", superseded_by="mem_1"),
    )
    assert [item] == store.find_by_text("alice", (item.text_hash, "none"))
    assert [] == store.find_by_text("alice", ())


def test_counts_leave_out_what_is_not_recalled(store: JournalStore) -> None:
    """Counts are by principal; superseded, hidden and expired items do not count as items."""
    put(
        store,
        memory("mem_1", "ä", kind="fact"),
        memory("mem_2", "bc", pinned=True, expires_ms=NOW + 1),
        memory("mem_3", "d", never_recall=True),
        memory("mem_4", "e", superseded_by="mem_1"),
        memory("mem_5", "f", expires_ms=NOW),
        memory("mem_6", "g", principal="bob"),
    )
    counts = store.count_memories("alice", now_ms=NOW)
    assert (2, {"fact": 1, "note": 1}) == (counts.items, counts.by_kind)
    assert (1, 1, 1, 1) == (
        counts.superseded, counts.never_recall, counts.pinned, counts.expiring,
    )  # fmt: skip
    assert (4, 6) == (counts.without_vector, counts.text_bytes)
    assert 3 == store.count_memories(None, now_ms=NOW).items


def test_expired_items_are_deleted(store: JournalStore, clock: Clock) -> None:
    """Sealing deletes items whose time to live has ended, and logs each."""
    put(
        store,
        memory("mem_1", expires_ms=clock.now_ms),
        memory("mem_2", expires_ms=clock.now_ms + 1),
    )
    store.seal()
    assert store.find_memory("mem_1") is None
    assert store.find_memory("mem_2") is not None
    lines = store.list_memory_log(principal="alice", memory_id="mem_1", limit=9)
    assert ["expired", "added"] == [line.action for line in lines]


def test_items_survive_a_restart(make_store: MakeStore) -> None:
    """Items, index and log are there after closing and opening, and after reindexing."""
    store = make_store()
    store.open()
    item = memory("mem_1", "cmake")
    put(store, item)
    store.close()
    again = make_store()
    again.open()
    assert ["mem_1"] == found(again, "cmake")
    put(again, MemoryReindex(after_row=FROM_THE_START))
    while (part := again.plan_reindex()) is not None:
        put(again, part)
    assert ["mem_1"] == found(again, "cmake")
    assert item == again.find_memory("mem_1")
