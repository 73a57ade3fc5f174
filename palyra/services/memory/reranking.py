"""The re-ranker of the memory's searches: a provider's model, paid for by the principal, in bounded time.

Owns: the time until which a provider that was slow is not asked.  Talks to: the model, under the budgets and
with a ledger line for each call.  Never: makes a search wait longer than `RERANK_S`, or fail: a search
without an answer keeps its own order and says why.
"""

from collections.abc import Sequence

import msgspec
import trio

from palyra.core.ids import NewId
from palyra.core.memory.items import MemoryHits
from palyra.core.memory.reranking import RERANKED, reorder, texts_to_judge
from palyra.core.model.messages import ModelFailure
from palyra.core.ports import Journal, RerankModel
from palyra.core.text.tokens import estimate_tokens
from palyra.errors import Rejected, Unavailable
from palyra.services.memory.embeddings import MeteredCalls
from palyra.services.usage.budgets import Budgets

RERANK_S = 1.5
SLOW_FOR_S = 30.0  # after a call without an answer in time, the next searches do not wait


class MeteredReranker:
    """`core.ports.Reranker` of a provider's model."""

    limit = RERANKED

    def __init__(
        self, model: RerankModel, budgets: Budgets, journal: Journal, new_id: NewId
    ) -> None:
        self._model = model
        self._calls = MeteredCalls(model, budgets, journal, new_id)
        self._slow_until_s = 0.0

    async def rerank(self, principal: str, question: str, found: MemoryHits) -> MemoryHits:
        """See `Reranker.rerank`.  Cancellation: a request that was sent is charged as an estimate."""
        hits = found.hits[: self.limit]
        if len(hits) < 2:  # noqa: PLR2004 - one hit has no order
            return found
        try:
            scores = await self._score(principal, question, texts_to_judge(hits))
        except (ModelFailure, Rejected, Unavailable) as error:
            reason = f"not re-ranked: {self._model.name}: {error.message}"
            return msgspec.structs.replace(
                found, degraded="; ".join(filter(None, (found.degraded, reason)))
            )
        return msgspec.structs.replace(found, hits=reorder(found.hits, scores))

    async def _score(self, principal: str, question: str, texts: Sequence[str]) -> Sequence[float]:
        if trio.current_time() < self._slow_until_s:
            raise Unavailable("it did not answer in time a moment ago")
        tokens = len(texts) * estimate_tokens(question) + sum(map(estimate_tokens, texts))
        try:
            with trio.fail_after(RERANK_S):
                made = await self._calls.call(
                    principal, tokens, lambda: self._model.rerank(question, texts)
                )
        except trio.TooSlowError:
            self._slow_until_s = trio.current_time() + SLOW_FOR_S
            raise Unavailable(f"no answer within {RERANK_S} s") from None
        return made.scores
