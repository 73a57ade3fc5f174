"""The page check: it looks once, lets itself be stopped, and falls for what it finds."""

from collections.abc import Callable
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.journal.integrity_check import RETRY_S, page_check
from palyra.errors import Unavailable
from tests.store.memory.journal import MemoryJournal

T = TypeVar("T")


class Damaged(MemoryJournal):
    """Something is wrong with it."""

    def check(self, is_stopped: Callable[[], bool]) -> str | None:
        assert not is_stopped()
        return "journal: the database is damaged"


class Closed(MemoryJournal):
    """It is closed for the first checks."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def check(self, is_stopped: Callable[[], bool]) -> str | None:
        if self.left:
            self.left -= 1
            raise Unavailable("journal: it is closed")
        return super().check(is_stopped)


class Endless(MemoryJournal):
    """A check without an end of its own, which signals its start."""

    def __init__(self, begun: trio.Event) -> None:
        super().__init__()
        self.begun = begun
        self.token = trio.lowlevel.current_trio_token()
        self.was_stopped = False

    def check(self, is_stopped: Callable[[], bool]) -> str | None:
        self.token.run_sync_soon(self.begun.set)
        while not is_stopped():
            pass
        self.was_stopped = True
        return None


async def _run_here(fn: Callable[..., T], *args: object) -> T:
    """Call without a thread, which virtual time would not wait for."""
    await trio.lowlevel.checkpoint()
    return fn(*args)


async def test_nothing_found_is_the_end_of_it() -> None:
    """It returns, and the supervisor leaves it at that."""
    store = MemoryJournal()
    store.open()
    with trio.fail_after(5):
        await page_check(JournalHandle(store))


async def test_damage_is_a_crash() -> None:
    """Damage ends the daemon, so that it stops writing."""
    with pytest.raises(Unavailable, match="damaged"):
        await page_check(JournalHandle(Damaged()))


@pytest.mark.parametrize("failures", [1, 5])
async def test_a_closed_journal_is_waited_for(autojump_clock: MockClock, failures: int) -> None:
    """While the journal is closed, as between a crash and its restart, the check waits."""
    store = Closed(failures)
    store.open()
    with trio.fail_after(3_600):
        await page_check(JournalHandle(store, run_blocking=_run_here))
    assert store.left == 0
    assert autojump_clock.current_time() == failures * RETRY_S


async def test_a_stop_ends_the_walk() -> None:
    """A walk of minutes does not hold up a stop."""
    begun = trio.Event()
    store = Endless(begun)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(page_check, JournalHandle(store))
            await begun.wait()
            nursery.cancel_scope.cancel()
    assert store.was_stopped
