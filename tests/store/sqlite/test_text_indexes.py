"""Text indexes that were damaged: found by their check, made anew, and proved by a search."""

from pathlib import Path

import apsw
import pytest

from palyra.core.journal.changes import Change
from palyra.core.journal.records import FROM_THE_START, MemoryReindex, TurnIndexing
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
    assert not store.find_text_damage()
    store.close()
    return store


def harm(path: Path, statement: str) -> None:
    """Change the file as another program would."""
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("statement", HARMS)
def test_a_damaged_text_index_is_found_and_made_anew(filled: SqliteJournal, statement: str) -> None:
    """Each damage is named; after reindexing the check and a search agree that it is mended."""
    harm(filled.path, statement)
    filled.open()
    assert filled.find_text_damage()
    assert [None] == filled.commit([
        Change(records=(MemoryReindex(after_row=0, through_row=1_000),))
    ])  # fmt: skip
    assert not filled.find_text_damage()
    assert ITEMS == len(filled.list_postings("text", ["port"], 1_000).split(","))
    filled.close()


def test_a_damaged_index_of_conversations_is_made_anew(tmp_path: Path) -> None:
    """The turns are indexed from the tapes again, in an index without the damage."""
    store = sqlite_journal(tmp_path)
    store.open()
    store.close()
    harm(store.path, "DELETE FROM turn_fts_data")
    store.open()
    turns = store.turns()
    assert turns.find_text_damage()
    store.commit([
        Change(records=(TurnIndexing(after_position=FROM_THE_START, through_position=0),))
    ])  # fmt: skip
    assert not turns.find_text_damage()
    store.close()
