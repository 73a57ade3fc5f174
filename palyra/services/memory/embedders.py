"""Embedders of the memory: one on this machine, or a provider's model, paid for by the principal.

Owns: the time until which a provider that was slow is not asked for questions.  Talks to: the
embedder, in threads, or `services.memory.embeddings`, which knows the budgets and the ledger.
Never: makes a search wait longer than `QUESTION_S` for a provider.
"""

import math
from collections.abc import Sequence

import trio

from palyra.core.memory.vectors import StoredVector, quantise
from palyra.core.model.embeddings import Embeddings
from palyra.core.model.messages import ModelFailure
from palyra.core.ports import Embedder, EmbeddingService, RunBlocking
from palyra.errors import Forbidden, InvalidParams, Rejected, Unavailable

LOCAL_BATCH, HASHED_BATCH, PROVIDER_BATCH = 32, 256, 64  # texts: 0.4 s, 0.1 s, one request
QUESTION_S = 1.5  # a search without an answer by then uses words alone
SLOW_FOR_S = 30.0  # after a question without an answer in time, the next ones do not wait
REFUSED = frozenset({"invalid_request", "context_overflow", "content_policy"})  # for their texts


class LocalEmbedder:
    """`core.ports.MemoryEmbedder` on this machine, without cost."""

    is_local = True

    def __init__(self, embedder: Embedder, run_blocking: RunBlocking, *, failure: str = "") -> None:
        """`failure` is a known reason why it will fail; "" for none."""
        self.failure = failure  # of the last call
        self.name = embedder.name
        self.dimensions: int | None = embedder.dimensions
        self.is_semantic = embedder.is_semantic
        self.batch = LOCAL_BATCH if embedder.is_semantic else HASHED_BATCH
        self._embedder = embedder
        self._run_blocking = run_blocking

    async def embed_items(self, principal: str, texts: Sequence[str]) -> list[StoredVector]:
        """See `MemoryEmbedder.embed_items`.  Cancellation: nothing happened."""
        del principal
        try:
            made = await self._run_blocking(self._embedder.embed, texts)
        except Unavailable as error:
            self.failure = error.message
            raise
        self.failure = ""
        return made

    async def embed_question(self, principal: str, texts: Sequence[str]) -> list[StoredVector]:
        """See `MemoryEmbedder.embed_question`.  Cancellation: nothing happened."""
        return await self.embed_items(principal, texts)


class ProviderEmbedder:
    """`core.ports.MemoryEmbedder` of a provider's model; the size of its vectors is theirs."""

    is_semantic, is_local = True, False
    batch = PROVIDER_BATCH
    dimensions: int | None = None

    def __init__(self, service: EmbeddingService, run_blocking: RunBlocking) -> None:
        self.name = service.name
        self._service = service
        self._run_blocking = run_blocking
        self._slow_until_s = 0.0
        self.failure = ""  # of the last call, unless it was about its texts or a budget

    async def embed_items(self, principal: str, texts: Sequence[str]) -> list[StoredVector]:
        """See `MemoryEmbedder.embed_items`.  Cancellation: the call is charged as an estimate."""
        try:
            made = await self._service.embed(principal, texts)
        except ModelFailure as failure:
            reason = f"{self.name}: {failure.message}"
            if failure.failure_class in REFUSED:
                raise InvalidParams(reason) from failure
            self.failure = reason
            raise Unavailable(reason) from failure
        except InvalidParams:
            raise
        except Rejected as error:  # a budget of the principal
            raise Forbidden(error.message) from error
        self.failure = ""
        return await self._run_blocking(_quantise_all, made)

    async def embed_question(self, principal: str, texts: Sequence[str]) -> list[StoredVector]:
        """See `MemoryEmbedder.embed_question`.  Cancellation: as of `embed_items`."""
        if trio.current_time() < self._slow_until_s:
            raise Unavailable(f"{self.name} did not answer in time a moment ago")
        try:
            with trio.fail_after(QUESTION_S):
                return await self.embed_items(principal, texts)
        except trio.TooSlowError:
            self._slow_until_s = trio.current_time() + SLOW_FOR_S
            self.failure = f"{self.name} did not answer within {QUESTION_S} s"
            raise Unavailable(self.failure) from None
        except Rejected as error:
            raise Unavailable(error.message) from error


def _quantise_all(made: Embeddings) -> list[StoredVector]:
    """Return the directions of the vectors as they are stored.  Blocks: 0.2 ms for 1 536 numbers."""
    stored = []
    for vector in made.vectors:
        length = math.hypot(*vector) or 1.0
        stored.append(quantise([value / length for value in vector]))
    return stored
