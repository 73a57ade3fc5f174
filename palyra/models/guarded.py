"""A model with its provider's guards: a lease for each call, and a breaker that leaves it alone.

One `Guard` a provider, shared by all its models.
"""

from collections.abc import Callable

from palyra.core.breaker import Breaker, abandon_call, begin_call, end_call
from palyra.core.ports import LanguageModel, NowMs
from palyra.core.prompt import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.models.leases import Leases


class Guard:
    """What all calls of one provider share."""

    def __init__(self, provider: str, credential: str, leases: Leases, now_ms: NowMs) -> None:
        self.provider = provider
        self.credential = credential  # the reference, never the key
        self.leases = leases
        self.breaker = Breaker()
        self._now_ms = now_ms

    def begin(self) -> None:
        """A call begins.  Raises ModelFailure (unavailable) while the provider is left alone."""
        now_ms = self._now_ms()
        if not self.breaker.admits(now_ms):
            left_ms = max(0, (self.breaker.open_until_ms or now_ms) - now_ms)
            raise ModelFailure(
                "unavailable",
                f"{self.provider} failed {self.breaker.failures} times in a row and is left alone "
                f"for another {left_ms / 1000:.0f} s",
                left_ms,
            )
        self.breaker = begin_call(self.breaker, now_ms)

    def end(self, failure: ModelFailure | None) -> None:
        """It ended."""
        failure_class = None if failure is None else failure.failure_class
        self.breaker = end_call(self.breaker, failure_class, self._now_ms())

    def abandon(self) -> None:
        """It was cancelled."""
        self.breaker = abandon_call(self.breaker)


class GuardedModel:
    """`core.ports.LanguageModel` round another one."""

    def __init__(self, inner: LanguageModel, guard: Guard) -> None:
        self.name = inner.name
        self.provider = inner.provider
        self._inner = inner
        self._guard = guard

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """The inner model's turn, once there is a lease.

        Raises ModelFailure.  Cancellation: lease and place are given back.
        """
        guard = self._guard
        async with guard.leases.lease(guard.credential, is_background=request.is_background):
            guard.begin()
            has_ended = False
            try:
                turn = await self._inner.stream(request, on_delta)
                guard.end(None)
                has_ended = True
            except ModelFailure as failure:
                guard.end(failure)
                has_ended = True
                raise
            finally:
                if not has_ended:
                    guard.abandon()
            return turn
