"""Lanes: several connections to one daemon, each with a request rate below the daemon's limit.

Theory: a daemon that is overloaded refuses a request and names a delay, after which the request is
repeated.  A request whose connection was lost, or that the daemon could not serve, is repeated with
exponential backoff once the connection is up.  Every request of a lane must therefore be
idempotent.  The rate limit works like the daemon's: a request costs 1, plus 1 for each COST_BYTES
of its size, and at most the cost of one second may be sent at once after a pause.
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

CASES_A_LANE = 8  # at three requests a case a connection serves about 30 cases a second
MOST_LANES = 64
SHARE = 0.9  # of the daemon's limit, as the clocks of the daemon and the harness differ
COST_BYTES = 16_384  # request size that adds 1 to the cost (docs/protocol.md)
BACKOFF = Backoff(base_s=0.2, cap_s=5.0)
PATIENCE_S = 120.0  # for repeated failures of one request


class PacedConnection:
    """One connection with a rate limit and retries."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._due_s = float("-inf")  # time at which the rate allows the next request

    async def ask(self, ask: Ask[T], size_bytes: int = 0) -> T:
        """Send a request until the daemon answers it, and return the answer.

        Raises the daemon's refusal, Unavailable if the client gives up reconnecting, and
        Unavailable or TooSlow if the failures of one request last for more than PATIENCE_S.
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
        """Wait until the rate allows a request of that cost.

        After a pause, the cost of at most one second may be sent at once.
        """
        per_s = SHARE * await self._read_rate()
        now_s = trio.current_time()
        self._due_s = max(self._due_s, now_s - 1.0) + cost / per_s
        await trio.sleep(max(0.0, self._due_s - now_s))

    async def _read_rate(self) -> int:
        await self.client.wait_connected()
        return self.client.hello.limits.requests_per_s


async def _pause(error: PalyraError, failures: int, since_s: float) -> None:
    """Wait before the next attempt.  Raises the error after PATIENCE_S of failures."""
    if trio.current_time() - since_s > PATIENCE_S:
        raise error
    await trio.sleep(compute_delay_s(BACKOFF, failures, random.random))  # noqa: S311 - jitter


def count_lanes(concurrency: int) -> int:
    """Return the number of connections for that many concurrent cases: 1 to MOST_LANES."""
    return max(1, min(MOST_LANES, -(-concurrency // CASES_A_LANE)))


@asynccontextmanager
async def open_lanes(connect: Connect, count: int) -> AsyncGenerator[Sequence[PacedConnection]]:
    """Open `count` lanes and close them at the end of the block.

    Raises the error of a failed connection.
    """
    async with AsyncExitStack() as stack:
        yield [PacedConnection(await stack.enter_async_context(connect())) for _ in range(count)]
