"""Leases: how many calls of one provider, and with one of its keys, are under way at once.

First come, first served, foreground before background.  A waiter that is cancelled leaves no trace.
"""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

PER_PROVIDER = 4
PER_CREDENTIAL = 2


class _Waiter:
    __slots__ = ("credential", "granted")

    def __init__(self, credential: str) -> None:
        self.credential = credential
        self.granted = trio.Event()


class Leases:
    """The leases of one provider."""

    def __init__(
        self, per_provider: int = PER_PROVIDER, per_credential: int = PER_CREDENTIAL
    ) -> None:
        self.per_provider = per_provider
        self._per_credential = per_credential
        self._held: dict[str, int] = {}  # by credential
        self._queues: tuple[deque[_Waiter], deque[_Waiter]] = (deque(), deque())

    @property
    def held(self) -> int:
        """How many calls are under way."""
        return sum(self._held.values())

    @property
    def waiting(self) -> int:
        """How many calls wait for one."""
        return sum(map(len, self._queues))

    @asynccontextmanager
    async def lease(self, credential: str, *, is_background: bool = False) -> AsyncGenerator[None]:
        """Hold a lease inside the block.  Cancellation: the place in the queue is given up."""
        queue = self._queues[is_background]
        waiter = _Waiter(credential)
        queue.append(waiter)
        self._grant()
        try:
            await waiter.granted.wait()
            yield
        finally:
            if waiter.granted.is_set():
                self._release(credential)
            else:
                queue.remove(waiter)

    def _release(self, credential: str) -> None:
        self._held[credential] -= 1
        if not self._held[credential]:
            del self._held[credential]
        self._grant()

    def _grant(self) -> None:
        """Give what is free to whoever waited longest and may have it."""
        for queue in self._queues:
            for waiter in tuple(queue):
                if self.held >= self.per_provider:
                    return
                used = self._held.get(waiter.credential, 0)
                if used < self._per_credential:
                    queue.remove(waiter)
                    self._held[waiter.credential] = used + 1
                    waiter.granted.set()
