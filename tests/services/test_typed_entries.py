"""Entries that a person types into a document are items of memory."""

from pathlib import Path

import pytest

from tests.services.document_kit import OPERATOR
from tests.services.document_kit import Kit as DocumentKit
from tests.services.memory_kit import ANN, MemoryKit, place

pytestmark = pytest.mark.real
TEXT = "The staging host is called walrus"


class Kit(MemoryKit):
    """A memory with the documents of a workspace."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, is_indexed=True)
        self.kept = DocumentKit(directory, self.store, keep_typed=self.memories.keep_typed)
        self.memories.forgotten.append(self.kept.documents.forget_items)

    async def type(self, *lines: str, block: str = "facts") -> str:
        """Write a document and adopt it; return the file."""
        marks = [f"<!-- palyra:{kind} {block} -->" for kind in ("begin", "end")]
        self.kept.memory.write_text("\n".join([marks[0], *lines, marks[1], ""]))
        await self.kept.documents.sync(OPERATOR, "MEMORY.md")
        return self.kept.memory.read_text()

    async def recalled(self, question: str = "what is the staging host called?") -> list[str]:
        pack = await self.search.recall(question, place("ann"))
        return [hit.item.text for hit in pack.hits]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


async def test_a_typed_entry_is_searched_and_recalled(kit: Kit) -> None:
    """After the sync, once, with the kind of its block; another principal does not find it."""
    for _ in range(2):
        await kit.type(f"- {TEXT}")
        (found,) = await kit.found("walrus")
    assert [TEXT] == await kit.recalled()
    item = await kit.memories.get(ANN, found)
    assert ("fact", "document", "trusted_local") == (item.kind, item.source, item.trust)
    await kit.type("- Answer in metric units", block="preferences")
    (preference,) = await kit.found("metric")
    assert "preference" == (await kit.memories.get(ANN, preference)).kind


async def test_a_changed_line_changes_its_item_and_a_deleted_one_deletes_it(kit: Kit) -> None:
    """A restore of the document brings both back."""
    lines = (await kit.type(f"- {TEXT}")).splitlines()[1:-1]
    (before,) = await kit.found("walrus")
    await kit.type(lines[0].replace("walrus", "otter"))
    assert ([], [before]) == (await kit.found("walrus"), await kit.found("otter"))
    await kit.type()
    assert [] == await kit.found("otter")
    await kit.kept.documents.restore(OPERATOR, "MEMORY.md", 1)
    assert [before] == await kit.found("walrus")


async def test_a_forgotten_item_leaves_the_document(kit: Kit) -> None:
    """Its line goes, and neither a sync nor an old file brings it back."""
    old = (await kit.type(f"- {TEXT}", "- Another line")).splitlines()[1:-1]
    (found,) = await kit.found("walrus")
    await kit.memories.forget(ANN, [found])
    assert "walrus" not in kit.kept.memory.read_text()
    assert "walrus" not in await kit.type(*old)
    assert [] == await kit.found("walrus")
    assert "Another line" in kit.kept.memory.read_text()


async def test_a_text_that_is_an_item_already_makes_no_second_one(kit: Kit) -> None:
    """It is found before and after; an edit in the document of an item's own entry edits the item."""
    own = await kit.add(TEXT)
    await kit.type(f"- {TEXT}")
    assert [own] == await kit.found("walrus")
    await kit.type(f"- The staging host is called otter <!-- {own} -->")
    assert [own] == await kit.found("otter")


async def test_an_entry_that_no_person_confirmed_is_no_item(kit: Kit) -> None:
    """A repository may have brought it: the daemon adopts it, and the memory does not have it."""
    kit.kept.memory.write_text(
        f"<!-- palyra:begin facts -->\n- {TEXT}\n<!-- palyra:end facts -->\n"
    )
    await kit.kept.apply(mem_1="a fact of the daemon")
    assert [] == await kit.found("walrus")
    await kit.kept.documents.sync(OPERATOR, "MEMORY.md")
    assert 1 == len(await kit.found("walrus"))
