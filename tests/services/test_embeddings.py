"""Embeddings of a provider on virtual time: budgets let them through, and the ledger has them."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from palyra.core.journal.changes import UsageFilter
from palyra.core.journal.records import BudgetScope, Usage
from palyra.core.model.embeddings import Embeddings
from palyra.core.model.messages import ModelFailure
from palyra.core.usage.prices import Price, Prices
from palyra.errors import InvalidParams
from palyra.services.memory.embeddings import (
    BudgetUnpriced,
    EmbeddingsOverBudget,
    MeteredEmbeddings,
)
from palyra.wiring.host import new_id
from tests.actors.run.office_kit import Kit, now_ms, running
from tests.actors.run.test_runs import store
from tests.services.test_budgets import answering, budget, having, lines, reserved
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]  # a fixture

TOLD = Usage(input_tokens=1_000, cached_tokens=7, source="provider")


class Embedder:
    """A provider's model that takes a second."""

    name, provider = "p/e", "p"

    def __init__(self) -> None:
        self.asked = 0
        self.failure: ModelFailure | None = None

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        self.asked += 1
        await trio.sleep_until(trio.current_time() + 1)
        if self.failure is not None:
            raise self.failure
        return Embeddings(vectors=tuple((1.0,) * (dimensions or 2) for _ in texts), usage=TOLD)


def paid(kit: Kit, model: Embedder) -> MeteredEmbeddings:
    return MeteredEmbeddings(model, kit.services.budgets, kit.journal, new_id)


def spent(kit: Kit) -> list[tuple[str, str, int]]:
    return [
        (each.budget.budget_id, each.subject, each.spent(now_ms()))
        for each in kit.services.budgets.accounts
    ]


async def test_embeddings_are_charged_to_their_principal(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In the budgets of everybody and of principals alone; the ledger says so after a restart."""
    scopes: list[BudgetScope] = ["global", "principal", "agent", "session", "run"]
    made = having(
        *(budget(budget_id=scope, scope=scope) for scope in scopes),
        budget(budget_id="money", metric="usd_micros"),
        prices=Prices([Price(model="p/*", input=2_000_000, output=0)]),
    )
    async with running(store, make_budgets=made) as kit:
        await paid(kit, Embedder()).embed("ann", ["hello"])
        wanted = [("global", "", 1_000), ("money", "", 2_000), ("principal", "ann", 1_000)]
        assert (wanted, 0) == (spent(kit), reserved(kit))
        (line,) = lines(kit, principal="ann")
        assert ("p/e", "p", "completed", 1_000, 2_000, False) == (
            line.model,
            line.provider,
            line.outcome,
            line.tokens,
            line.cost_usd_micros,
            line.is_estimate,
        )
    async with running(store, make_budgets=made) as kit:
        assert wanted == [each for each in spent(kit) if each[0] != "run"]


async def test_a_principal_whose_budget_is_spent_embeds_no_more(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The provider is not called; other principals are served, and runs count the spending."""
    made = having(budget(scope="principal", hard=1_000, action="ask"))
    async with running(store, make_budgets=made) as kit:
        answering(kit)
        model = Embedder()
        await paid(kit, model).embed("ann", ["hello"])
        with pytest.raises(EmbeddingsOverBudget, match="'b' is spent: 1000 tokens") as refused:
            await paid(kit, model).embed("ann", ["hello"])
        assert ("budget_exceeded", 1) == (refused.value.code, model.asked)
        await paid(kit, model).embed("bob", ["hello"])
        assert "failed" == await kit.end(await kit.start())


async def test_a_budget_of_money_refuses_what_has_no_price(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Not knowing is no permission."""
    async with running(store, make_budgets=having(budget(metric="usd_micros"))) as kit:
        model = Embedder()
        with pytest.raises(BudgetUnpriced, match=r"p/e has no price.*usage\.prices"):
            await paid(kit, model).embed("ann", ["hello"])
        assert (0, []) == (model.asked, lines(kit))


async def test_an_embedding_refused_by_the_breaker_is_no_call(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """There is no line in the ledger and no reservation."""
    async with running(store, make_budgets=having(budget())) as kit:
        model = Embedder()
        model.failure = ModelFailure("unavailable", "left alone", was_asked=False)
        with pytest.raises(ModelFailure):
            await paid(kit, model).embed("ann", ["hello"])
        assert ([], 0, 0) == (lines(kit), reserved(kit), sum(each[2] for each in spent(kit)))


@pytest.mark.parametrize("delivered", [0, 640])
async def test_a_failed_embedding_is_charged_for_what_was_delivered(
    store: MemoryJournal, autojump_clock: MockClock, delivered: int
) -> None:
    """Of several requests the first ones may have been paid."""
    async with running(store, make_budgets=having(budget())) as kit:
        model = Embedder()
        model.failure = ModelFailure("transient", "503")
        model.failure.usage = Usage(input_tokens=delivered, source="provider")
        with pytest.raises(ModelFailure):
            await paid(kit, model).embed("ann", ["hello"])
        assert [("failed", delivered)] == [(line.outcome, line.tokens) for line in lines(kit)]
        assert ([("b", "", delivered)], 0) == (spent(kit), reserved(kit))


async def test_a_client_that_leaves_pays_an_estimate(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The provider may have done it all; nothing stays reserved."""
    async with running(store, make_budgets=having(budget())) as kit:
        with trio.move_on_after(0.5):
            await paid(kit, Embedder()).embed("ann", ["hello, what is this?"])
        (line,) = kit.journal.store.list_usage(UsageFilter(), limit=2)
        assert ("abandoned", True) == (line.outcome, line.is_estimate)
        assert ([("b", "", line.tokens)], 0) == (spent(kit), reserved(kit))
        assert line.tokens > 0


async def test_an_embedding_is_there_once_it_is_paid_for(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Its line is committed by then, with what came from the provider's cache."""
    async with running(store, make_budgets=having(budget())) as kit:
        made = list[Embeddings]()

        async def embed() -> None:
            made.append(await paid(kit, Embedder()).embed("ann", ["hello"]))

        kit.journal.hold = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(embed)
            await trio.sleep_until(trio.current_time() + 5)
            assert [] == made
            kit.journal.release()
        assert ([TOLD], [TOLD.cached_tokens]) == (
            [each.usage for each in made],
            [line.cached_tokens for line in kit.journal.store.list_usage(UsageFilter(), limit=2)],
        )


async def test_an_invalid_embedding_request_is_not_sent(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Nothing is reserved for it."""
    async with running(store, make_budgets=having(budget())) as kit:
        model = Embedder()
        with pytest.raises(InvalidParams):
            await paid(kit, model).embed("ann", [])
        assert (0, [], 0) == (model.asked, lines(kit), reserved(kit))


async def test_many_embeddings_at_once_stay_within_one_reservation(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """They wait for one another where the rest is reserved."""
    async with running(store, make_budgets=having(budget(hard=40))) as kit:
        model = Embedder()
        refused = 0

        async def ask() -> None:
            nonlocal refused
            try:
                await paid(kit, model).embed("ann", ["x" * 100])
            except EmbeddingsOverBudget:
                refused += 1

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert (1, 4) == (model.asked, refused)
