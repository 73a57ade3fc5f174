"""Embedding services: a provider's model under budgets and the ledger, and the free embedded one.

Owns: nothing.  Talks to: the model, `services.usage.budgets`, the journal (ledger lines).
Never: sends a request that the budgets of its principal refuse.

An embedding has a principal and no run, session or agent, so only budgets with the scopes `global`
and `principal` apply to it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from palyra.core.ids import NewId
from palyra.core.journal.changes import Change
from palyra.core.journal.records import CallOutcome, Usage, UsageRecord
from palyra.core.model.embeddings import Embeddings, check_texts
from palyra.core.model.messages import ModelFailure
from palyra.core.ports import EmbeddingModel, Journal
from palyra.core.text.tokens import estimate_tokens
from palyra.core.usage.budgets import BudgetRefusal, Payer
from palyra.errors import Rejected
from palyra.services.usage.budgets import Budgets, Reservation


class EmbeddingsOverBudget(Rejected):
    """A budget of the principal, or a global budget, is spent."""

    code = "budget_exceeded"


class BudgetUnpriced(EmbeddingsOverBudget):
    """A budget in money refuses a model without a known price."""

    code = "budget_unpriced"


class _Model(Protocol):
    name: str
    provider: str


class _Answer(Protocol):
    @property
    def usage(self) -> Usage: ...


A = TypeVar("A", bound=_Answer)


class MeteredCalls:
    """Calls of one model for a principal, under the budgets and with a ledger line for each."""

    def __init__(self, model: _Model, budgets: Budgets, journal: Journal, new_id: NewId) -> None:
        self.name = model.name
        self._provider = model.provider
        self._budgets = budgets
        self._journal = journal
        self._new_id = new_id

    async def call(self, principal: str, tokens: int, ask: Callable[[], Awaitable[A]]) -> A:
        """Return the model's answer to a request of that size, after its ledger line is committed.

        A failure before the request was sent has no ledger line.  Waits while concurrent calls
        reserve the rest of a budget.  Raises EmbeddingsOverBudget, Unavailable and what `ask` raises.
        Cancellation: a request that was sent is charged as an estimate.
        """
        meter = Reservation(self.name, tokens)
        payer = Payer(principal, "", "", self._new_id("emb"))
        refusal = await self._budgets.admit_payer(payer, meter)
        if refusal is not None:
            raise _explain(refusal, self.name)
        outcome: CallOutcome = "abandoned"
        was_asked, used = True, meter.measure()
        try:
            made = await ask()
            outcome, used = "completed", made.usage
        except ModelFailure as failure:
            outcome, used, was_asked = "failed", failure.usage, failure.was_asked
            raise
        finally:
            line = self._line(payer, outcome, used) if was_asked else None
            self._budgets.settle_payer(payer, meter, line)
            if line is not None:
                ticket = self._journal.append(Change(records=(line,)))
        await ticket.wait()
        return made

    def _line(self, payer: Payer, outcome: CallOutcome, used: Usage) -> UsageRecord:
        return UsageRecord(
            run_id=payer.run_id,
            turn=0,
            attempt=1,
            session_id=payer.session_id,
            principal=payer.principal,
            agent=payer.agent,
            provider=self._provider,
            model=self.name,
            outcome=outcome,
            input_tokens=used.input_tokens,
            output_tokens=0,
            cached_tokens=used.cached_tokens,
            is_estimate=used.source != "provider",
            cost_usd_micros=self._budgets.charge(self.name, used).cost_usd_micros,
            at_ms=self._budgets.now_ms(),
        )


class MeteredEmbeddings:
    """`core.ports.EmbeddingService` of a model whose calls may cost money."""

    def __init__(
        self, model: EmbeddingModel, budgets: Budgets, journal: Journal, new_id: NewId
    ) -> None:
        self.name = model.name
        self._model = model
        self._calls = MeteredCalls(model, budgets, journal, new_id)

    async def embed(
        self, principal: str, texts: Sequence[str], *, dimensions: int | None = None
    ) -> Embeddings:
        """Return one vector for each text; see `MeteredCalls.call`.  Raises InvalidParams, too."""
        check_texts(texts, dimensions)
        tokens = sum(map(estimate_tokens, texts))
        return await self._calls.call(
            principal, tokens, lambda: self._model.embed(texts, dimensions=dimensions)
        )


class UnmeteredEmbeddings:
    """`core.ports.EmbeddingService` of a local model, without cost or ledger lines."""

    def __init__(self, model: EmbeddingModel) -> None:
        self.name = model.name
        self._model = model

    async def embed(
        self, principal: str, texts: Sequence[str], *, dimensions: int | None = None
    ) -> Embeddings:
        """See `EmbeddingModel.embed`."""
        del principal
        return await self._model.embed(texts, dimensions=dimensions)


def _explain(refusal: BudgetRefusal, model: str) -> EmbeddingsOverBudget:
    budget = refusal.account.budget
    if refusal.is_unpriced:
        return BudgetUnpriced(
            f"the budget {budget.budget_id!r} counts money and {model} has no price: "
            "give it one (usage.prices)"
        )
    return EmbeddingsOverBudget(
        f"the budget {budget.budget_id!r} is spent: {budget.hard} {budget.metric} in its window "
        f"({budget.window}); wait, or raise it"
    )
