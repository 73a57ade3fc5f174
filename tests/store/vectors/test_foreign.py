"""Questions that a memory knows nothing about, with the embedder that is built in."""

from pathlib import Path

import pytest

from palyra.core.journal.changes import MemoryFilter
from palyra.core.memory.items import MemoryHits
from palyra.core.memory.vectors import StoredVector
from palyra.models.memory_embedders import HashedEmbedder
from palyra.services.memory.embedders import LocalEmbedder
from palyra.store.sqlite.connection import transaction
from palyra.store.sqlite.memory_search import append_vectors
from palyra.store.vectors.search import IndexedMemory
from tests.services.memory_kit import run_inline
from tests.store.vectors.kit import NOW_MS, Memory

pytestmark = pytest.mark.real

TEXTS = (
    "What is the name of the boat that you sail on?",
    "It is called Albatross, and the point of sailing is the quiet.",
    "I will have to go to the dentist on the day of the race.",
    "How was the music of the festival in the old harbour?",
    "The band played for two hours and I met a friend from school.",
    "Der Rollout des Dienstes billing ist auf Montag verschoben.",
)


@pytest.fixture
def memory(tmp_path: Path) -> IndexedMemory:
    kept, embedder = Memory(tmp_path), HashedEmbedder()
    kept.say(*TEXTS, session_id="s", author="Ann")
    with transaction(kept.file.connection):
        append_vectors(
            kept.file.connection, embedder.name, list(enumerate(embedder.embed(TEXTS), 1))
        )
    index = IndexedMemory(kept.file, tmp_path / "hashed.index", LocalEmbedder(embedder, run_inline))
    job = index.plan_build()
    assert job is not None
    index.adopt(job())
    return index


def search(memory: IndexedMemory, question: str) -> MemoryHits:
    wanted = MemoryFilter(principal="alice", now_ms=NOW_MS, limit=5)
    asked, texts = memory.ask(question, wanted)
    found = memory.find(asked, wanted, HashedEmbedder().embed(texts))
    assert "hybrid" == found.mode
    return found


def find(memory: IndexedMemory, question: str) -> list[str]:
    return [hit.item.text for hit in search(memory, question).hits]


@pytest.mark.parametrize("vector", [StoredVector(0.1, b"\1" * 8), StoredVector(0.0, bytes(384))])
def test_a_question_that_cannot_be_compared_says_so(
    memory: IndexedMemory, vector: StoredVector
) -> None:
    """A vector of another size, or of zeros: the words answer, and the result is no whole one."""
    wanted = MemoryFilter(principal="alice", now_ms=NOW_MS, limit=5)
    asked, texts = memory.ask("When is the dentist?", wanted)
    found = memory.find(asked, wanted, [vector] * len(texts))
    assert (TEXTS[2], "lexical") == (found.hits[0].item.text, found.mode)
    assert "cannot be compared" in found.degraded


@pytest.mark.parametrize(
    "question",
    [
        "What is the chemical formula of sulfuric acid?",
        "quarterly revenue of the automotive division",
        "Which tax applies to corporations in Delaware?",
        "Welche Schraube passt in das Gewinde M8?",
        "asdfgh qwertz",
        "xyzzy plugh frobnicate",
    ],
)
def test_a_foreign_question_finds_nothing(memory: IndexedMemory, question: str) -> None:
    """Common function words and parts of words are no relation."""
    assert [] == find(memory, question)


@pytest.mark.parametrize(
    ("question", "is_related"),
    [
        ("Is there a point in learning the tables of boiling temperatures of all gases?", False),
        ("Which metals and alloys does a blacksmith in a village need for the boat?", False),
        ("What is the point of sailing?", True),
        ("the boat in the shed", True),
    ],
)
def test_a_word_in_common_is_found_but_not_recalled(
    memory: IndexedMemory, question: str, *, is_related: bool
) -> None:
    """A search shows the best it has, whatever else it names; a prompt is about most of its words."""
    found = search(memory, question)
    assert found.hits
    assert is_related == found.is_related


@pytest.mark.parametrize(
    ("question", "at"),
    [
        ("What is Ann's boat called?", 1),
        ("When is the dentist?", 2),
        ("Wann ist der Rollout von billing?", 5),
        ("sailing", 1),
        ("Dentists", 2),
    ],
)
def test_a_related_question_finds_its_answer(memory: IndexedMemory, question: str, at: int) -> None:
    """Questions about the same subjects find the items with the answers."""
    assert TEXTS[at] in find(memory, question)[:2]
