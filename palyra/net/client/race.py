"""Waiting for whichever comes first."""

from collections.abc import Awaitable, Callable

import trio


async def wait_any(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when the first returns; the others are cancelled, so none may take anything."""
    async with trio.open_nursery() as nursery:

        async def end_with(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel("another wait is over")

        for wait in waits:
            nursery.start_soon(end_with, wait)
