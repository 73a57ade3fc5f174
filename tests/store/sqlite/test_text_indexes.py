"""Text indexes that were damaged: found by their check, made anew, and proved by a search."""

from itertools import cycle
from pathlib import Path

import apsw
import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.records import (
    FROM_THE_START,
    MemoryReindex,
    MemoryRemoval,
    MemoryVector,
    MemoryVectors,
    TurnIndexing,
)
from palyra.core.memory.items import edit_item
from palyra.core.memory.vectors import VectorSpace
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import memory, sqlite_journal

pytestmark = pytest.mark.real

ITEMS = 400
HARMS = (
    "DELETE FROM memory_fts_data WHERE id > 10",
    "DELETE FROM memory_fts_data",
    "UPDATE memory_fts_data SET block = zeroblob(20) WHERE id > 10",
    "DELETE FROM memory_fts_idx",
    "DELETE FROM memory_fts_docsize WHERE id % 2",
    "DELETE FROM memory_fts WHERE rowid = 5",
    "DELETE FROM memory_fts",
)


@pytest.fixture
def filled(tmp_path: Path) -> SqliteJournal:
    """A closed journal with items."""
    store = sqlite_journal(tmp_path)
    store.open()
    items = [memory(f"mem_{n}", f"the deploy port of host{n} is {n}") for n in range(ITEMS)]
    store.commit([Change(records=(item,)) for item in items])
    assert not store.find_index_damage()
    store.close()
    return store


def harm(path: Path, statement: str) -> None:
    """Change the file as another program would."""
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def reindex(store: SqliteJournal) -> None:
    """Make the text index again."""
    part: MemoryReindex | None = MemoryReindex(after_row=FROM_THE_START)
    while part is not None:
        assert [None] == store.commit([Change(records=(part,))])
        part = store.plan_reindex()


def rows_with(store: SqliteJournal, word: str) -> list[int]:
    return sorted(map(int, filter(None, store.list_postings("text", [word], 1_000).split(","))))


def test_a_part_that_was_planned_before_a_change_does_not_undo_it(filled: SqliteJournal) -> None:
    """The entries of items that changed or went meanwhile are those of the items now."""
    filled.open()
    filled.commit([Change(records=(MemoryReindex(after_row=FROM_THE_START),))])
    assert not filled.find_index_damage(), "what is not written yet is no damage"
    part = filled.plan_reindex()
    assert part is not None
    item = filled.find_memory("mem_5")
    assert item is not None
    edited = edit_item(item, {"text": "a harbour"}, by="alice", now_ms=1)
    gone = MemoryRemoval(principal=item.principal, memory_ids=("mem_6",), at_ms=1, by="alice")
    outcomes = filled.commit([Change(records=(edited,)), Change(records=(gone,))])
    assert [None, None] == outcomes
    for _ in range(2):  # a repetition has no effect
        assert [None] == filled.commit([Change(records=(part,))])
    while (part := filled.plan_reindex()) is not None:
        filled.commit([Change(records=(part,))])
    assert ([6], []) == (rows_with(filled, "harbour"), rows_with(filled, "host5"))
    assert ITEMS - 2 == len(rows_with(filled, "port"))
    assert not filled.find_index_damage()
    filled.close()


def test_sound_vectors_outlive_a_new_text_index(filled: SqliteJournal) -> None:
    """Only a vector without its checksum goes, to be made again."""
    filled.open()
    assert [None] == filled.commit([Change(records=(vectors(filled),))])
    filled.close()
    harm(filled.path, "UPDATE memory_vectors SET scale = scale / 2 WHERE row = 7")
    filled.open()
    reindex(filled)
    kept = filled.list_vector_rows(VectorSpace("e", 16)).split(",")
    assert sorted({*map(str, range(1, ITEMS + 1))} - {"7"}) == sorted(kept)
    filled.close()


@pytest.mark.parametrize("statement", HARMS)
def test_a_damaged_text_index_is_found_and_made_anew(filled: SqliteJournal, statement: str) -> None:
    """Each damage is named; after reindexing the check and a search agree that it is mended."""
    harm(filled.path, statement)
    filled.open()
    assert filled.find_index_damage()
    reindex(filled)
    assert not filled.find_index_damage()
    assert ITEMS == len(filled.list_postings("text", ["port"], 1_000).split(","))
    filled.close()


def vectors(store: SqliteJournal) -> MemoryVectors:
    """A vector of each item, all of them of length 1."""
    items = store.get_unembedded([*range(1, ITEMS + 1)])
    return MemoryVectors(
        embedder="e",
        vectors=tuple(
            MemoryVector(
                each.row, each.text_hash, 1 / 127, bytes([0] * at + [127] + [0] * (15 - at))
            )
            for each, at in zip(items, cycle(range(16)), strict=False)
        ),
    )


OF_ANOTHER = """UPDATE memory_vectors SET (vector, crc) =
    (SELECT v.vector, v.crc FROM memory_vectors AS v WHERE v.row = 2) WHERE row = 1"""


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memory_vectors SET vector = randomblob(16)",
        "UPDATE memory_vectors SET vector = (SELECT vector FROM memory_vectors WHERE row = 2) WHERE row = 1",
        "UPDATE memory_vectors SET scale = scale / 2 WHERE row = 7",
        "UPDATE memory_vectors SET embedder = 'f' WHERE row = 7",
        OF_ANOTHER,
    ],
)
def test_each_vector_has_its_checksum(filled: SqliteJournal, statement: str) -> None:
    """Plausible values in the wrong place are found; vectors of an older version have no checksum."""
    filled.open()
    assert [None] == filled.commit([Change(records=(vectors(filled),))])
    assert not filled.find_index_damage()
    filled.close()
    harm(filled.path, statement)
    filled.open()
    assert filled.find_index_damage().startswith("its vectors are damaged: ")
    filled.close()
    harm(filled.path, "UPDATE memory_vectors SET crc = NULL")
    filled.open()
    assert not filled.find_index_damage()
    filled.close()


def test_a_damaged_index_of_conversations_is_made_anew(tmp_path: Path) -> None:
    """The turns are indexed from the tapes again, in an index without the damage."""
    store = sqlite_journal(tmp_path)
    store.open()
    store.close()
    harm(store.path, "DELETE FROM turn_fts_data")
    store.open()
    turns = store.turns()
    assert turns.find_index_damage()
    store.commit([
        Change(records=(TurnIndexing(after_position=FROM_THE_START, through_position=0),))
    ])  # fmt: skip
    assert not turns.find_index_damage()
    store.close()
