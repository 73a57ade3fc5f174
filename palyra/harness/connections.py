"""Lanes: a few connections to one daemon, each paced below the daemon's limit.

A request that the daemon cannot take now is asked again when it says so, and one whose connection
was lost is asked again on the next: everything that goes through a lane must be safe to repeat.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

import trio

from palyra.client import Client
from palyra.core.backoff import Backoff, compute_delay_s
from palyra.errors import Overloaded, PalyraError, TooSlow, Unavailable

T = TypeVar("T")
Ask = Callable[[Client], Awaitable[T]]
Connect = Callable[[], AbstractAsyncContextManager[Client]]

CASES_A_LANE = 8  # at three requests a case a connection carries about 30 cases a second
MOST_LANES = 64
SHARE = 0.9  # of what the daemon allows: its clock and ours are not one
COST_BYTES = 16_384  # a request costs one more for each of these (docs/protocol.md)
BACKOFF = Backoff(base_s=0.2, cap_s=5.0)
PATIENCE_S = 120.0  # with refusals for want of a dependency, while the connection is up


class PacedConnection:
    """One connection and its pace."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._due_s = float("-inf")  # when the pace would have sent everything so far

    async def ask(self, ask: Ask[T], size_bytes: int = 0) -> T:
        """What the daemon answers, however often it has to be asked.

        Raises the daemon's refusal, and Unavailable when it stays away or out of order.
        Cancellation: the request may have taken effect.
        """
        failures, since_s = 0, trio.current_time()
        while True:
            await self._keep_pace(1 + size_bytes // COST_BYTES)
            try:
                return await ask(self.client)
            except Overloaded as error:
                await trio.sleep(error.retry_after_ms / 1000)
                since_s = trio.current_time()
            except (Unavailable, TooSlow) as error:
                await self.client.wait_connected()
                failures += 1
                await _pause(error, failures, since_s)

    async def _keep_pace(self, cost: int) -> None:
        """Wait for this request's turn; a second's worth may go at once after a pause."""
        per_s = SHARE * await self._read_rate()
        now_s = trio.current_time()
        self._due_s = max(self._due_s, now_s - 1.0) + cost / per_s
        await trio.sleep(max(0.0, self._due_s - now_s))

    async def _read_rate(self) -> int:
        await self.client.wait_connected()
        return self.client.hello.limits.requests_per_s


async def _pause(error: PalyraError, failures: int, since_s: float) -> None:
    """Wait before the next attempt.  Raises the error when it has lasted too long."""
    if trio.current_time() - since_s > PATIENCE_S:
        raise error
    await trio.sleep(compute_delay_s(BACKOFF, failures, random.random))  # noqa: S311 - jitter


def count_lanes(concurrency: int) -> int:
    """How many connections carry so many cases at once."""
    return max(1, min(MOST_LANES, -(-concurrency // CASES_A_LANE)))


@asynccontextmanager
async def open_lanes(connect: Connect, count: int) -> AsyncGenerator[Sequence[PacedConnection]]:
    """So many lanes, closed at the end of the block.  Raises why there is no connection."""
    async with AsyncExitStack() as stack:
        yield [PacedConnection(await stack.enter_async_context(connect())) for _ in range(count)]
