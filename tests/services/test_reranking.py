"""The re-ranker of searches: its order, its budget, its time; a search never fails because of it."""

from collections.abc import Sequence

import trio
from trio.testing import MockClock

from palyra.core.journal.records import Usage
from palyra.core.memory.items import MemoryHit, MemoryHits
from palyra.core.model.messages import ModelFailure
from palyra.core.model.reranking import Reranking
from palyra.services.memory.reranking import RERANK_S, SLOW_FOR_S, MeteredReranker
from palyra.wiring.host import new_id
from tests.actors.run.office_kit import Kit, running
from tests.actors.run.test_runs import store
from tests.services.test_budgets import budget, having, lines
from tests.store.kit import memory
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]  # a fixture


class Model:
    """A model that prefers long texts."""

    name, provider = "p/r", "p"

    def __init__(self) -> None:
        self.asked = 0
        self.takes_s = 0.5
        self.failure: ModelFailure | None = None

    async def rerank(self, question: str, texts: Sequence[str]) -> Reranking:
        del question
        self.asked += 1
        await trio.sleep_until(trio.current_time() + self.takes_s)
        if self.failure is not None:
            raise self.failure
        told = Usage(input_tokens=100, source="provider")
        return Reranking(scores=tuple(float(len(text)) for text in texts), usage=told)


def hits(*texts: str) -> MemoryHits:
    return MemoryHits(
        hits=tuple(
            MemoryHit(item=memory(f"m{n}", text), score=9.0 - n, parts={})
            for n, text in enumerate(texts)
        )
    )


FOUND = hits("short", "a long text", "mid one")


def texts_of(found: MemoryHits) -> list[str]:
    return [hit.item.text for hit in found.hits]


def having_reranker(kit: Kit, model: Model) -> MeteredReranker:
    return MeteredReranker(model, kit.services.budgets, kit.journal, new_id)


async def test_hits_are_in_the_order_of_the_model_and_paid_for(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """One call for a search with a line in the ledger; none for a single hit."""
    async with running(store, make_budgets=having(budget())) as kit:
        model = Model()
        found = await having_reranker(kit, model).rerank("ann", "what?", FOUND)
        assert (["a long text", "mid one", "short"], "") == (texts_of(found), found.degraded)
        (line,) = lines(kit, principal="ann")
        assert ("p/r", "completed", 100) == (line.model, line.outcome, line.tokens)
        single = hits("alone")
        assert single == await having_reranker(kit, model).rerank("ann", "what?", single)
        assert 1 == model.asked


async def test_a_failure_leaves_the_order_and_says_so(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Of the provider, of a budget; the reason of an earlier part of the search stays."""
    async with running(store, make_budgets=having(budget(scope="principal", hard=1))) as kit:
        model = Model()
        model.failure = ModelFailure("transient", "503")
        reranker = having_reranker(kit, model)
        found = await reranker.rerank("ann", "what?", FOUND)
        assert texts_of(FOUND) == texts_of(found)
        assert "not re-ranked: p/r: " in found.degraded
        model.failure = None
        await reranker.rerank("ann", "what?", FOUND)
        spent = await reranker.rerank("ann", "what?", FOUND)
        assert (texts_of(FOUND), True) == (texts_of(spent), "budget" in spent.degraded)


async def test_a_slow_model_is_not_waited_for(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A search waits a second or so, the next ones not at all, later ones again."""
    async with running(store, make_budgets=having(budget())) as kit:
        model = Model()
        model.takes_s = 60
        reranker = having_reranker(kit, model)
        began_s = trio.current_time()
        found = await reranker.rerank("ann", "what?", FOUND)
        assert RERANK_S <= trio.current_time() - began_s < RERANK_S + 0.5
        assert (texts_of(FOUND), True) == (texts_of(found), "no answer within" in found.degraded)
        again = await reranker.rerank("ann", "what?", FOUND)
        assert (1, True) == (model.asked, "a moment ago" in again.degraded)
        model.takes_s = 0
        await trio.sleep_until(trio.current_time() + SLOW_FOR_S)
        assert "a long text" == texts_of(await reranker.rerank("ann", "what?", FOUND))[0]
