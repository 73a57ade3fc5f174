"""Embeddings of the memory by a provider: sizes, budgets, refusals, outages, deadlines."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from palyra.core.journal.changes import MemoryFilter
from palyra.core.memory.items import MemoryDraft, MemoryHits
from palyra.core.model.embeddings import Embeddings, Vector
from palyra.core.model.messages import FailureClass, ModelFailure
from palyra.errors import PalyraError, Unavailable
from palyra.services.memory.embedders import (
    PROVIDER_BATCH,
    QUESTION_S,
    SLOW_FOR_S,
    LocalEmbedder,
    ProviderEmbedder,
)
from palyra.services.memory.embeddings import EmbeddingsOverBudget
from palyra.services.memory.index import FIRST_REFUSED
from tests.services.memory_kit import ANN, BOB, MemoryKit, run_inline

WORDS = ("boat ship sail", "tea coffee drink", "code program test")


def by_subject(size: int) -> Callable[[str], Vector]:
    """Vectors along one axis a subject, so that a boat is near a ship."""

    def vector(text: str) -> Vector:
        found = [float(any(word in text for word in words.split())) for words in WORDS]
        return (*found, 0.01, *([0.0] * (size - len(found) - 1)))

    return vector


class Provider:
    """`core.ports.EmbeddingService` of a script."""

    name = "p/e"

    def __init__(self) -> None:
        self.size = 8
        self.calls: list[tuple[str, int]] = []
        self.failure: PalyraError | None = None
        self.refused: tuple[str, ...] = ()  # texts with these words
        self.spent: set[str] = set()
        self.took_s = 0.0

    async def embed(
        self, principal: str, texts: Sequence[str], *, dimensions: int | None = None
    ) -> Embeddings:
        assert dimensions is None
        await trio.sleep(self.took_s)
        if principal in self.spent:
            raise EmbeddingsOverBudget("the budget 'b' is spent")
        self.calls.append((principal, len(texts)))
        if self.failure is not None:
            raise self.failure
        if any(word in text for text in texts for word in self.refused):
            raise ModelFailure("invalid_request", "cannot be embedded")
        return Embeddings(vectors=tuple(map(by_subject(self.size), texts)))


class Kit(MemoryKit):
    """A memory that a provider embeds."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, is_indexed=True)
        self.provider = Provider()
        self.begin()

    def begin(self) -> None:
        """Start the service again."""
        self.embedder = ProviderEmbedder(self.provider, run_inline)
        self.index = self.build_index()
        self.search._index = self.index

    async def ask(self, query: str) -> MemoryHits:
        self.search.invalidate(None)
        return await self.search.search(ANN, query, MemoryFilter(principal="", now_ms=0))

    def sizes(self) -> list[int]:
        found = self.store._read(
            lambda c: c.execute("SELECT length(vector) FROM memory_vectors").fetchall()
        )
        return [int(str(size)) for (size,) in found]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def texts(found: MemoryHits) -> list[str]:
    return [hit.item.text for hit in found.hits]


@pytest.mark.real
async def test_a_provider_finds_by_meaning(kit: Kit) -> None:
    """Without a common word; the size of the vectors is the provider's, also after a restart."""
    await kit.add("Ann has a boat")
    await kit.add("Ann likes tea")
    assert [] == texts(await kit.ask("ship"))
    assert [] == kit.provider.calls  # nothing to compare yet, nothing to pay for
    await kit.keep_up()
    found = await kit.ask("ship")
    assert (["Ann has a boat"], "hybrid", "") == (texts(found)[:1], found.mode, found.degraded)
    assert [("ann", 2), ("ann", 1)] == kit.provider.calls
    kit.begin()
    assert ["Ann has a boat"] == texts(await kit.ask("ship"))[:1]


@pytest.mark.real
async def test_items_are_sent_in_batches_of_one_principal(kit: Kit) -> None:
    """Each batch is paid for by the principal of its items; hidden items are not sent."""
    for who, count in ((ANN, PROVIDER_BATCH + 1), (BOB, 2)):
        drafts = [MemoryDraft(text=f"tea number {n}") for n in range(count)]
        await kit.memories.import_items(who, drafts)
    hidden = await kit.add("a secret boat")
    await kit.memories.never_recall(ANN, hidden, hidden=True)
    await kit.keep_up()
    assert [("bob", 2), ("ann", PROVIDER_BATCH), ("ann", 1)] == kit.provider.calls


@pytest.mark.real
async def test_another_size_is_embedded_again(kit: Kit) -> None:
    """A model that changes behind its name replaces all vectors; words answer meanwhile."""
    for number in range(3):
        await kit.add(f"boat number {number} of Ann")
    await kit.keep_up()
    assert [8, 8, 8] == kit.sizes()
    kit.provider.size = 16
    assert ("lexical", 3) == ((found := await kit.ask("boat")).mode, len(found.hits))
    await kit.add("Ann drinks tea")
    await kit.keep_up()
    assert [16] * 4 == kit.sizes()
    assert "hybrid" == (await kit.ask("ship")).mode


@pytest.mark.real
async def test_another_embedder_is_embedded_again(kit: Kit) -> None:
    """After a change of the configuration the vectors of the former embedder are not compared."""
    await kit.add("Ann has a boat")
    await kit.keep_up()
    kit.provider.name = "p/f"
    kit.begin()
    found = await kit.ask("boat")
    assert (["Ann has a boat"], "lexical") == (texts(found), found.mode)
    assert found.degraded
    await kit.keep_up()
    assert "hybrid" == (await kit.ask("ship")).mode
    assert kit.store.find_dimensions("p/e") is None


@pytest.mark.real
@pytest.mark.parametrize("failure_class", ["unavailable", "auth", "transient", "malformed"])
async def test_an_outage_leaves_the_words(kit: Kit, failure_class: FailureClass) -> None:
    """Search goes on by words and says why; items wait for the provider."""
    await kit.add("Ann has a boat")
    await kit.keep_up()
    kit.provider.failure = ModelFailure(failure_class, "the provider is down")
    await kit.add("Ann likes tea")
    with pytest.raises(Unavailable, match="the provider is down"):
        await kit.keep_up()
    found = await kit.ask("tea")
    assert (["Ann likes tea"], "lexical") == (texts(found), found.mode)
    assert "p/e: the provider is down" == found.degraded
    assert "p/e: the provider is down" == kit.search.degraded
    kit.provider.failure = None
    await kit.keep_up()
    found = await kit.ask("coffee")
    assert (["Ann likes tea"], "") == (texts(found)[:1], found.degraded)


@pytest.mark.real
async def test_a_degraded_result_is_not_kept(kit: Kit) -> None:
    """The same question is searched with its vector once the provider answers again."""
    await kit.add("Ann has a boat")
    await kit.keep_up()
    wanted = MemoryFilter(principal="", now_ms=0)
    kit.provider.failure = ModelFailure("unavailable", "the provider is down")
    assert "lexical" == (await kit.search.search(ANN, "a boat", wanted)).mode
    kit.provider.failure = None
    assert "hybrid" == (await kit.search.search(ANN, "a boat", wanted)).mode


@pytest.mark.real
async def test_a_spent_budget_stops_one_principal(kit: Kit) -> None:
    """Items of others are embedded; the search of all says that some are not."""
    await kit.add("Ann has a boat")
    await kit.add("Bob has a ship", who=BOB)
    kit.provider.spent = {"bob"}
    with pytest.raises(Unavailable, match="budget"):
        await kit.keep_up()
    assert [("ann", 1)] == kit.provider.calls
    found = await kit.ask("ship")
    assert (["Ann has a boat"], "hybrid") == (texts(found), found.mode)
    assert "p/e: a budget is spent" == found.degraded
    kit.provider.spent = {"ann"}
    assert "the budget 'b' is spent" == (await kit.ask("ship")).degraded
    await kit.keep_up()
    assert [8, 8] == kit.sizes()


@pytest.mark.real
async def test_a_refused_text_does_not_stop_the_others(kit: Kit) -> None:
    """It is found by its words and sent once more by itself, not for ever."""
    kit.provider.refused = ("poison",)
    for text in ("Ann has a boat", "sails are white", "rats die of poison", "tea is green"):
        await kit.add(text)
    await kit.keep_up()
    assert 3 == len(kit.sizes())
    before = len(kit.provider.calls)
    await kit.keep_up()
    assert before == len(kit.provider.calls)
    found = await kit.ask("rats")
    assert (["rats die of poison"], "hybrid", "") == (
        texts(found)[:1],
        found.mode,
        found.degraded,
    )


@pytest.mark.real
async def test_a_model_that_refuses_everything_is_down(kit: Kit) -> None:
    """A wrong model is not asked for each item of the memory."""
    kit.provider.refused = ("boat",)
    drafts = [MemoryDraft(text=f"boat number {n}") for n in range(40)]
    await kit.memories.import_items(ANN, drafts)
    with pytest.raises(Unavailable, match="cannot be embedded"):
        await kit.keep_up()
    assert FIRST_REFUSED + 2 == len(kit.provider.calls)


async def test_a_slow_provider_is_not_waited_for(autojump_clock: MockClock) -> None:
    """A question has a deadline; after a missed one the next questions do not wait at all."""
    provider = Provider()
    embedder = ProviderEmbedder(provider, run_inline)
    provider.took_s = QUESTION_S - 0.1
    assert 1 == len(await embedder.embed_question("ann", ["boat"]))
    provider.took_s = 60
    for expected_s in (QUESTION_S, 0.0):
        began_s = trio.current_time()
        with pytest.raises(Unavailable, match=r"in time|within"):
            await embedder.embed_question("ann", ["boat"])
        assert pytest.approx(expected_s) == trio.current_time() - began_s
    assert 1 == len(await embedder.embed_items("ann", ["boat"]))  # items may take longer
    await trio.sleep(SLOW_FOR_S)
    provider.took_s = 0
    assert 1 == len(await embedder.embed_question("ann", ["boat"]))


async def test_a_search_does_not_hold_up_another(autojump_clock: MockClock, tmp_path: Path) -> None:
    """While one question waits for its vectors, another one is answered."""
    kit = Kit(tmp_path)
    await kit.add("Ann has a boat")
    await kit.keep_up()
    kit.provider.took_s = 1.0
    ended: list[float] = []
    began_s = trio.current_time()

    async def search(query: str) -> None:
        assert "hybrid" == (await kit.ask(query)).mode
        ended.append(trio.current_time() - began_s)

    async with trio.open_nursery() as nursery:
        for query in ("ship", "sail", "boat"):
            nursery.start_soon(search, query)
    assert [pytest.approx(1.0)] * 3 == ended


async def test_an_embedder_of_this_machine_has_a_size() -> None:
    """It is known without a vector, so that an index file can be opened."""
    from palyra.models.memory_embedders import HashedEmbedder  # noqa: PLC0415

    embedder = LocalEmbedder(HashedEmbedder(), run_inline)
    (vector,) = await embedder.embed_question("ann", ["boat"])
    assert embedder.dimensions == vector.dimensions
