"""The contract of both stores about versions of workspace documents."""

import pytest

from palyra.core.journal.records import DocumentEntry
from palyra.core.ports import JournalStore
from tests.store.kit import document
from tests.store.test_contract_records import put


def test_versions_are_newest_first(store: JournalStore) -> None:
    """Those of one document of one workspace, page by page."""
    records = [document(1), document(2), document(3)]
    others = [document(9, workspace="/other"), document(8, document="USER.md")]
    put(store, *records, *others)
    found = store.list_document_versions("/w", "MEMORY.md")
    assert found == records[::-1]
    assert store.list_document_versions("/w", "MEMORY.md", limit=2) == records[:0:-1]
    assert store.list_document_versions("/w", "MEMORY.md", before=3, limit=1) == [records[1]]
    assert store.list_document_versions("/w", "PALYRA.md") == []


def test_a_pending_version_is_completed_once(store: JournalStore) -> None:
    """Then it changes only by forgetting."""
    entry = DocumentEntry(entry_id="mem_1", text="hush")
    done = document(1, blocks={"facts": (entry,)})
    assert put(store, document(1, is_pending=True), done) == [None, None]
    (refusal,) = put(store, document(1, size_bytes=9))
    assert refusal == "Conflict"
    blank = DocumentEntry(entry_id="mem_1", text="")
    scrubbed = document(1, blocks={"facts": (blank,)}, scrubs=1)
    assert put(store, scrubbed) == [None]
    assert store.list_document_versions("/w", "MEMORY.md") == [scrubbed]


@pytest.mark.parametrize("others", [0, 3])
def test_old_versions_are_deleted(store: JournalStore, others: int) -> None:
    """The newest 100 of each document are kept."""
    put(store, *(document(number, document="USER.md") for number in range(1, others + 1)))
    put(store, *(document(number) for number in range(1, 104)))
    found = store.list_document_versions("/w", "MEMORY.md")
    assert [each.version for each in found] == list(range(103, 3, -1))
    assert len(store.list_document_versions("/w", "USER.md")) == others
