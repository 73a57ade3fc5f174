"""Wrap a model in its provider's limits: a lease per call and a circuit breaker.

Each provider has one `ProviderLimits`, shared by all its models.  The leases are the provider's; each
model has a breaker of its own, because a model that is overloaded or was withdrawn says nothing of
the others.

A lease bounds the concurrent calls of a provider and of each of its credentials.  Foreground calls are
granted a lease before background calls, and among them the principal that holds the fewest: its calls
first come, first served.  So a client with a thousand runs delays another one by the calls in
progress.  A cancelled waiter leaves the queue without a trace.

A call passes both guards in this order: it waits for a lease, then the breaker admits or refuses
it, then the request runs, then its result updates the breaker, then the lease is released.
"""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count

import trio

from palyra.core.incident.kinds import provider_key, provider_left_alone
from palyra.core.model.circuit_breaker import (
    CircuitBreaker,
    State,
    abandon_call,
    begin_call,
    end_call,
    trip,
)
from palyra.core.model.embeddings import Embeddings, check_texts
from palyra.core.model.messages import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.core.model.reranking import Reranking
from palyra.core.model.routing import ProviderHealth
from palyra.core.ports import EmbeddingModel, IncidentReporter, LanguageModel, NowMs, RerankModel

PER_PROVIDER = 4
PER_CREDENTIAL = 2
MAX_BREAKERS = 256  # of a provider: clients may name any model
AT_REST = CircuitBreaker()
_BADNESS: dict[State, int] = {"closed": 0, "half_open": 1, "open": 2}


_Who = tuple[str, str]  # principal and credential
_Queue = dict[_Who, deque["_Waiter"]]


class _Waiter:
    __slots__ = ("granted", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.granted = trio.Event()


class CallSlots:
    """Leases of one provider."""

    def __init__(
        self, per_provider: int = PER_PROVIDER, per_credential: int = PER_CREDENTIAL
    ) -> None:
        self.per_provider = per_provider
        self._per_credential = per_credential
        self._held = Counter[str]()  # number of leases by credential
        self._shares = Counter[str]()  # number of leases by principal
        self._queues: tuple[_Queue, _Queue] = ({}, {})  # without empty ones
        self._numbers = count()

    @property
    def held(self) -> int:
        """Number of calls that hold a lease."""
        return self._held.total()

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a lease."""
        return sum(len(waiters) for queue in self._queues for waiters in queue.values())

    @asynccontextmanager
    async def lease(
        self, credential: str, principal: str = "", *, is_background: bool = False
    ) -> AsyncGenerator[None]:
        """Hold a lease inside the block.  Cancellation: the call leaves the queue."""
        queue, who = self._queues[is_background], (principal, credential)
        waiter = _Waiter(next(self._numbers))
        queue.setdefault(who, deque()).append(waiter)
        self._grant()
        try:
            await waiter.granted.wait()
            yield
        finally:
            if waiter.granted.is_set():
                self._count(who, -1)
                self._grant()
            else:
                self._leave(queue, who, waiter)

    def _count(self, who: _Who, change: int) -> None:
        for held, key in ((self._shares, who[0]), (self._held, who[1])):
            held[key] += change
            if not held[key]:
                del held[key]

    @staticmethod
    def _leave(queue: _Queue, who: _Who, waiter: _Waiter) -> None:
        queue[who].remove(waiter)
        if not queue[who]:
            del queue[who]

    def _grant(self) -> None:
        """Grant the free leases."""
        for queue in self._queues:
            while self.held < self.per_provider and (who := self._find_next(queue)) is not None:
                waiter = queue[who][0]
                self._leave(queue, who, waiter)
                self._count(who, 1)
                waiter.granted.set()

    def _find_next(self, queue: _Queue) -> _Who | None:
        """Return who is next: of those whose credential has room the one that holds the fewest."""
        return min(
            (who for who in queue if self._held[who[1]] < self._per_credential),
            key=lambda who: (self._shares[who[0]], queue[who][0].number),
            default=None,
        )


class ProviderLimits:
    """Lease pool of one provider, and a circuit breaker for each of its models."""

    def __init__(
        self,
        provider: str,
        credential: str,
        leases: CallSlots,
        now_ms: NowMs,
        *,
        api: str = "",
        alarms: IncidentReporter | None = None,
    ) -> None:
        """Create the limits; `alarms` is notified when a breaker opens and when it closes."""
        self.provider = provider
        self.api = api
        self.credential = credential  # the secret's reference, never the key itself
        self.leases = leases
        self._breakers: dict[str, CircuitBreaker] = {}  # by model; without those at rest
        self._now_ms = now_ms
        self._alarms = alarms

    def breaker(self, model: str) -> CircuitBreaker:
        """Return the breaker of the model."""
        return self._breakers.get(model, AT_REST)

    def health(self, model: str) -> ProviderHealth:
        """Snapshot of the provider's load and the model's breaker."""
        return self._health(self.breaker(model))

    @property
    def standing(self) -> ProviderHealth:
        """Snapshot of the provider's load and of the breaker that is worst."""
        now_ms = self._now_ms()
        worst = max(
            self._breakers.values(),
            key=lambda each: (_BADNESS[each.state(now_ms)], each.open_until_ms or 0),
            default=AT_REST,
        )
        return self._health(worst)

    def _health(self, breaker: CircuitBreaker) -> ProviderHealth:
        now_ms, leases = self._now_ms(), self.leases
        return ProviderHealth(
            provider=self.provider,
            api=self.api,
            breaker=breaker.state(now_ms),
            admits=breaker.admits(now_ms),
            opens_in_ms=max(0, (breaker.open_until_ms or now_ms) - now_ms),
            under_way=leases.held,
            waiting=leases.waiting,
            parallel=leases.per_provider,
        )

    def begin(self, model: str) -> None:
        """Record a call's start.  Raises ModelFailure (unavailable) while the breaker is open."""
        now_ms, breaker = self._now_ms(), self.breaker(model)
        if not breaker.admits(now_ms):
            left_ms = max(0, (breaker.open_until_ms or now_ms) - now_ms)
            raise ModelFailure(
                "unavailable",
                f"{model} failed {breaker.failures} times in a row and is left alone "
                f"for another {left_ms / 1000:.0f} s",
                left_ms,
                was_asked=False,
            )
        self._keep(model, begin_call(breaker, now_ms))

    def end(self, model: str, failure: ModelFailure | None) -> None:
        """Record the end of a call: its failure, or None for a success."""
        failure_class = None if failure is None else failure.failure_class
        before = self.breaker(model)
        after = end_call(before, failure_class, self._now_ms())
        self._keep(model, after)
        if after.open_until_ms == before.open_until_ms or self._alarms is None:
            return
        if failure is None:
            self._alarms.clear(provider_key(model), "a call of it succeeded")
        else:
            last = f"{failure.failure_class}: {failure}"
            self._alarms.report(provider_left_alone(model, after.failures, last))

    def trip(self, model: str) -> None:
        """Refuse calls of the model from now on, as after repeated failures."""
        self._keep(model, trip(self.breaker(model), self._now_ms()))

    def abandon(self, model: str) -> None:
        """Record that the call was cancelled."""
        self._keep(model, abandon_call(self.breaker(model)))

    def _keep(self, model: str, breaker: CircuitBreaker) -> None:
        """Keep a breaker that is not at rest; of too many the oldest is forgotten, and closed."""
        self._breakers.pop(model, None)
        if breaker == AT_REST:
            return
        self._breakers[model] = breaker
        if len(self._breakers) > MAX_BREAKERS:
            oldest = next(iter(self._breakers))
            del self._breakers[oldest]
            if self._alarms is not None:
                self._alarms.clear(provider_key(oldest), "too many models fail to watch them all")

    @asynccontextmanager
    async def call(
        self, model: str, principal: str = "", *, is_background: bool
    ) -> AsyncGenerator[None]:
        """Wait for a lease, then hold it for the one call of the model made inside the block.

        Raises ModelFailure.  Cancellation: the lease, or the place in the queue, is released.
        """
        async with self.leases.lease(self.credential, principal, is_background=is_background):
            self.begin(model)
            has_ended = False
            try:
                yield
                self.end(model, None)
                has_ended = True
            except ModelFailure as failure:
                self.end(model, failure)
                has_ended = True
                raise
            finally:
                if not has_ended:
                    self.abandon(model)


class GuardedModel:
    """`core.ports.LanguageModel` that applies the provider's limits to another model."""

    def __init__(self, inner: LanguageModel, guard: ProviderLimits) -> None:
        self.name = inner.name
        self.provider = inner.provider
        self._inner = inner
        self._guard = guard

    def most_output(self, request: ModelRequest) -> int:
        """Return the output limit of the inner model."""
        return self._inner.most_output(request)

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Wait for a lease, then stream the inner model's turn.

        Raises ModelFailure.  Cancellation: the lease, or the place in the queue, is released.
        """
        async with self._guard.call(
            self.name, request.principal, is_background=request.is_background
        ):
            return await self._inner.stream(request, on_delta)


class GuardedReranker:
    """`core.ports.RerankModel` that applies the provider's limits to another model."""

    def __init__(self, inner: RerankModel, guard: ProviderLimits) -> None:
        self.name = inner.name
        self.provider = inner.provider
        self._inner = inner
        self._guard = guard

    async def rerank(self, question: str, texts: Sequence[str]) -> Reranking:
        """Wait for a lease, then judge with the inner model.

        Raises ModelFailure.  Cancellation: the lease, or the place in the queue, is released.
        """
        async with self._guard.call(self.name, is_background=True):
            return await self._inner.rerank(question, texts)


class GuardedEmbeddings:
    """`core.ports.EmbeddingModel` that applies the provider's limits to another model."""

    def __init__(self, inner: EmbeddingModel, guard: ProviderLimits) -> None:
        self.name = inner.name
        self.provider = inner.provider
        self._inner = inner
        self._guard = guard

    async def embed(self, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Wait for a background lease (turns have priority), then embed with the inner model.

        Raises InvalidParams, ModelFailure.  Cancellation: the lease, or the place in the queue, is
        released.
        """
        check_texts(texts, dimensions)
        async with self._guard.call(self.name, is_background=True):
            return await self._inner.embed(texts, dimensions=dimensions)
