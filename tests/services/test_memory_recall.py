"""Recall for prompts: principals without items cost nothing, uses are on record."""

from pathlib import Path
from typing import Any

import pytest

from palyra.core.audience import Audience
from palyra.core.context.sources import render_gathered
from palyra.core.memory.packing import PACK_TOKENS
from palyra.core.model.sources import RecallScope
from palyra.core.tape.events import ContextGathered
from palyra.core.text.tokens import estimate_tokens
from palyra.errors import Unavailable
from palyra.services.memory_recall import MemoryRecall
from tests.services.memory_kit import ANN, MemoryKit

pytestmark = pytest.mark.real
SCOPE = RecallScope(
    audience=Audience(
        principal="ann", session_id="ses_1", memory_scope="principal", is_confined=False
    ),
    run_id="run_1",
)


class Kit(MemoryKit):
    """A memory whose reads are counted."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.recall = MemoryRecall(self.search)
        self.reads = 0
        self.journal.after_read = self.count_read

    def count_read(self) -> None:
        self.reads += 1


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


async def test_a_principal_without_items_is_looked_at_once(kit: Kit) -> None:
    """Its runs do not read the journal again until something is stored, by anyone's hand."""
    assert kit.recall.has_items("ann")  # nothing is known yet
    for _ in range(3):
        await kit.recall.prepare("ann")
        assert not kit.recall.has_items("ann")
        assert () == await kit.recall.recall("cmake", SCOPE)
    assert 1 == kit.reads
    await kit.add("cmake builds the project")
    assert kit.recall.has_items("ann")
    (found,) = await kit.recall.recall("cmake", SCOPE)
    assert "cmake builds the project" == found.text
    (use,) = kit.store.list_memory_uses(run_id="run_1")
    assert ("auto", "cmake", found.name) == (use.way, use.question, use.items[0].memory_id)


async def test_a_memory_that_was_emptied_costs_nothing_again(kit: Kit) -> None:
    """After the last item was forgotten one more recall finds that out."""
    own = await kit.add("cmake builds the project")
    await kit.recall.prepare("ann")
    await kit.memories.forget(ANN, [own])
    assert kit.recall.has_items("ann")
    assert () == await kit.recall.recall("cmake", SCOPE)
    assert not kit.recall.has_items("ann")


async def test_a_search_that_fails_is_no_empty_memory(kit: Kit) -> None:
    """The run learns of it, and its tape says why it went on without memory."""
    await kit.add("cmake builds the project")
    kit.store.close()
    with pytest.raises(Unavailable, match="the memory failed: journal: it is closed"):
        await kit.recall.recall("cmake", SCOPE)


async def test_no_hit_does_not_make_a_memory_empty(kit: Kit) -> None:
    """A question about something else leaves the items to the next one."""
    await kit.add("cmake builds the project")
    assert () == await kit.recall.recall("xyzzy", SCOPE)
    assert 1 == len(await kit.recall.recall("cmake", SCOPE))


async def test_a_failing_journal_leaves_it_open(kit: Kit) -> None:
    """The look is repeated with the next run."""

    def fail() -> Any:
        raise Unavailable("disk")

    kit.journal.after_read = fail
    await kit.recall.prepare("ann")
    assert kit.recall.has_items("ann")
    kit.journal.after_read = kit.count_read
    await kit.recall.prepare("ann")
    assert not kit.recall.has_items("ann")


async def test_a_prompt_shows_what_the_budget_of_a_recall_allows(kit: Kit) -> None:
    """The block in the prompt is hardly larger than the pack: items do not cost a fence each."""
    for number in range(60):
        text = f"the harbour of town {number} has {number} ships and a lighthouse " * 2
        await kit.add(text, kind="turn", session_id="ses_1", at_ms=number, author="Ann")
    sources = await kit.recall.recall("which town has a harbour with ships?", SCOPE)
    assert len(sources) > 20
    event = ContextGathered(layer="recalled", sources=tuple(sources))
    message = render_gathered(event, "place", b"key")
    assert message is not None
    assert PACK_TOKENS / 2 < estimate_tokens(message.text) < PACK_TOKENS + 100
