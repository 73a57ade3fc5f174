"""The text index and the neighbours of items, as they are in the file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.journal.changes import Change
from palyra.core.journal.records import MemoryRemoval, Record
from palyra.core.memory.items import revise
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import memory, sqlite_journal

pytestmark = pytest.mark.real
NOW = 1_750_000_000_000
WORDS = ("alpha", "bravo", "charlie", "delta", "echo")


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    opened = sqlite_journal(tmp_path)
    opened.open()
    return opened


def put(journal: SqliteJournal, *records: Record) -> None:
    assert [None] == journal.commit([Change(records=records)])


def match(journal: SqliteJournal, column: str, word: str) -> list[str]:
    """Ids of the items whose column of the index has the word."""
    found = journal._read(
        lambda c: (
            c.execute(
                "SELECT group_concat(memory_id, ' ' ORDER BY memory_id) FROM memory_fts"
                " JOIN memories ON row = memory_fts.rowid WHERE memory_fts MATCH ?",
                (f'"{column}" : "{word}"',),
            ).get
        )
    )
    return (found or "").split()


def links(journal: SqliteJournal) -> list[Any]:
    """Each item with its neighbours, in the order of the conversation."""
    statement = (
        "SELECT m.memory_id, p.memory_id, n.memory_id FROM memories AS m"
        " LEFT JOIN memories AS p ON p.row = m.previous_row"
        " LEFT JOIN memories AS n ON n.row = m.next_row ORDER BY m.at_ms, m.row"
    )
    return journal._read(lambda c: c.execute(statement).fetchall())


def talk(count: int) -> list[Record]:
    """A conversation of so many items, one word each."""
    return [memory(f"mem_{n}", WORDS[n], session_id="ses_1", at_ms=10 * n) for n in range(count)]


def chain(ids: Sequence[str]) -> list[tuple[str, str | None, str | None]]:
    return [
        (key, ids[at - 1] if at else None, ids[at + 1] if at + 1 < len(ids) else None)
        for at, key in enumerate(ids)
    ]


def test_neighbours_are_linked_in_the_order_of_time(journal: SqliteJournal) -> None:
    """Items of one conversation are neighbours by their time, however they arrive."""
    items = talk(4)
    put(journal, items[3], items[0])
    put(journal, items[2])
    put(journal, items[1])
    assert chain(["mem_0", "mem_1", "mem_2", "mem_3"]) == links(journal)
    assert ["mem_1"] == match(journal, "text", "bravo")


def test_items_of_different_places_are_not_neighbours(journal: SqliteJournal) -> None:
    """Principal, session and channel must be equal; items without a session have no neighbours."""
    put(
        journal,
        memory("mem_0", "alpha", session_id="ses_1"),
        memory("mem_1", "bravo", session_id="ses_1", principal="bob"),
        memory("mem_2", "charlie", session_id="ses_2"),
        memory("mem_3", "delta", session_id="ses_1", channel="chat"),
        memory("mem_4", "echo"),
        memory("mem_5", "alpha"),
    )
    assert [(None, None)] * 6 == [link[1:] for link in links(journal)]


def test_an_edit_rewrites_the_entry(journal: SqliteJournal) -> None:
    """The index entry follows the text of an edited item; its neighbours stay linked."""
    items = talk(3)
    put(journal, *items)
    edited = revise(memory("mem_1", "bravo", session_id="ses_1", at_ms=10), "edited", by="a",
                    now_ms=NOW, text="foxtrot")  # fmt: skip
    put(journal, edited)
    assert ([], ["mem_1"]) == (match(journal, "text", "bravo"), match(journal, "text", "foxtrot"))
    assert chain(["mem_0", "mem_1", "mem_2"]) == links(journal)


def test_a_forgotten_item_leaves_no_entry(journal: SqliteJournal) -> None:
    """The row, its entry and its vector go in one transaction, and its neighbours are linked."""
    put(journal, *talk(4))
    journal._get_opened().writer._connection.execute(
        "INSERT INTO memory_vectors SELECT row, 'e', 1.0, x'00', NULL FROM memories"
    )
    gone = MemoryRemoval(principal="alice", memory_ids=("mem_1", "mem_2"), at_ms=NOW, by="a")
    put(journal, gone)
    assert chain(["mem_0", "mem_3"]) == links(journal)
    assert [[], []] == [match(journal, "text", word) for word in ("bravo", "charlie")]
    assert ["mem_0"] == match(journal, "text", "alpha")
    assert 2 == journal._read(lambda c: c.execute("SELECT count(*) FROM memory_vectors").get)


def test_a_forgotten_item_leaves_no_bytes(tmp_path: Path) -> None:
    """After a removal, a few seals and a close no file holds a word of the item."""
    journal = sqlite_journal(tmp_path)
    journal.open()
    items = [memory(f"mem_{n:03}", f"common words {n}") for n in range(300)]
    put(journal, *items, memory("mem_x", "ostrichlike"))
    put(journal, *(memory(f"mem_y{n}", f"further words {n}") for n in range(300)))
    journal.seal()
    assert any(b"ostrichlik" in file.read_bytes() for file in tmp_path.iterdir())
    put(journal, MemoryRemoval(principal="alice", memory_ids=("mem_x",), at_ms=NOW, by="a"))
    for _ in range(9):
        journal.seal()
    journal.close()
    assert [] == [file.name for file in tmp_path.iterdir() if b"ostrichlik" in file.read_bytes()]


def test_a_new_text_drops_the_vector(journal: SqliteJournal) -> None:
    """A vector of an earlier text is deleted; one of an unchanged text stays."""
    first, second = memory("mem_0", "alpha"), memory("mem_1", "bravo")
    put(journal, first, second)
    journal._get_opened().writer._connection.execute(
        "INSERT INTO memory_vectors SELECT row, 'e', 1.0, x'00', NULL FROM memories"
    )
    put(
        journal,
        revise(first, "edited", by="a", now_ms=NOW, text="charlie"),
        revise(second, "pinned", by="a", now_ms=NOW, pinned=True),
    )
    assert [(2,)] == journal._read(lambda c: c.execute("SELECT row FROM memory_vectors").fetchall())


def test_a_row_is_never_given_again(journal: SqliteJournal) -> None:
    """The row of a deleted item stays unused, because a vector index may still name it."""
    put(journal, memory("mem_0"))
    put(journal, MemoryRemoval(principal="alice", memory_ids=None, at_ms=NOW, by="a"))
    put(journal, memory("mem_1"))
    assert [(2,)] == journal._read(lambda c: c.execute("SELECT row FROM memories").fetchall())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_index_and_links_follow_any_changes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """After any adds, edits and removals the list and the index are those of the rows."""
    journal = sqlite_journal(tmp_path_factory.mktemp("j"), synchronous="normal")
    journal.open()
    items: dict[str, tuple[int, str]] = {}
    revisions: dict[str, int] = {}
    for step in range(data.draw(st.integers(1, 12))):
        act = data.draw(st.sampled_from(["add", "add", "edit", "remove"]))
        if act == "add" or not items:
            key, at, word = (
                f"mem_{step:02}",
                data.draw(st.integers(0, 5)),
                data.draw(st.sampled_from(WORDS)),
            )
            revisions[key] = 1
        else:
            key = data.draw(st.sampled_from(sorted(items)))
            if act == "remove":
                del items[key]
                put(journal, MemoryRemoval(principal="alice", memory_ids=(key,), at_ms=NOW, by="a"))
                continue
            revisions[key] += 1
            at, word = data.draw(st.integers(0, 5)), data.draw(st.sampled_from(WORDS))
        items[key] = at, word
        put(journal, memory(key, word, session_id="s", at_ms=at, revision=revisions[key]))
    order = sorted(items, key=lambda key: (items[key][0], key))
    assert chain(order) == links(journal)
    for word in WORDS:
        own = [key for key in order if items[key][1] == word]
        assert sorted(own) == match(journal, "text", word)
    journal.close()
