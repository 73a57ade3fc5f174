"""The upkeep of an index, while what it needs is down."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from palyra.actors.memory import RETRY_S, keep_memory_index
from palyra.errors import ActorGone, PalyraError, Unavailable


class Index:
    """An index whose first step of upkeep fails."""

    def __init__(self, failure: PalyraError) -> None:
        self.failures = [failure]
        self.steps_s: list[float] = []

    async def wait_needed(self) -> None:
        if self.steps_s:
            await trio.sleep_forever()

    def at_home(self, _nursery: trio.Nursery) -> AbstractContextManager[None]:
        return nullcontext()

    async def upkeep(self) -> bool:
        self.steps_s.append(trio.current_time())
        if self.failures:
            raise self.failures.pop()
        return False


@pytest.mark.parametrize("failure", [Unavailable("the disk is full"), ActorGone("it crashed")])
async def test_a_journal_that_is_down_is_tried_again(
    failure: PalyraError, autojump_clock: MockClock
) -> None:
    """A refused commit and a crashed journal alike: another crash would count against the daemon."""
    index: Any = Index(failure)
    begun_s = trio.current_time()
    with trio.move_on_after(2 * RETRY_S):
        await keep_memory_index(index)
    assert [0.0, RETRY_S] == [at_s - begun_s for at_s in index.steps_s]
