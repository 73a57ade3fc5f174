"""Free memory of malloc is given back while the daemon is idle."""

from collections.abc import Callable
from typing import Any

import trio
from trio.testing import MockClock

from palyra.actors.kernel.native_memory import TRIM_S, child_spec


async def test_memory_is_trimmed_only_while_idle(autojump_clock: MockClock) -> None:
    """Once a minute, in a thread."""
    trims, is_idle = list[Callable[..., Any]](), False

    async def note(function: Callable[..., Any], *_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        trims.append(function)
        return function()

    async with trio.open_nursery() as nursery:
        await nursery.start(child_spec(lambda: is_idle, note).start)  # type: ignore[arg-type]
        await trio.sleep_until(trio.current_time() + 3 * TRIM_S + 1)
        assert [] == trims
        is_idle = True
        await trio.sleep_until(trio.current_time() + 2 * TRIM_S)
        assert 2 == len(trims)
        nursery.cancel_scope.cancel()
