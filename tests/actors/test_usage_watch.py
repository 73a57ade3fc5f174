"""The usage watch: changed prices and budgets hold without a restart, broken ones never."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.usage_watch import LOOK_S, Configured, usage_watch
from palyra.core.prices import Price, Prices
from palyra.store.memory_journal import MemoryJournal
from tests.actors.office_kit import OPERATOR, Kit, inline_blocking, running
from tests.actors.test_budget_desk import accounts, desk
from tests.actors.test_budgets import answering, budget, having, lines, store

__all__ = ["store"]  # a fixture


class FakeFile:
    """A file whose next look a test decides."""

    def __init__(self) -> None:
        self.problems: tuple[str, ...] = ()
        self.finds: tuple[str, ...] = ()
        self.next: Configured | None = None

    def refresh(self) -> Configured | None:
        self.problems = self.finds
        found, self.next = self.next, None
        return found


@asynccontextmanager
async def watching(kit: Kit) -> AsyncGenerator[FakeFile]:
    """A watch that lives inside the block."""
    file = FakeFile()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(usage_watch, file, desk(kit), inline_blocking))
        try:
            yield file
        finally:
            nursery.cancel_scope.cancel()


async def wait_look() -> None:
    """Until the watch has looked once more."""
    await trio.sleep(LOOK_S * 1.5)


async def test_other_prices_and_budgets_hold_at_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """With what was spent before; a budget that was set comes back from behind one of its name."""
    async with running(store, make_budgets=having(budget(budget_id="old"))) as kit:
        answering(kit)
        await kit.end(await kit.start())
        await desk(kit).set(OPERATOR, budget(budget_id="both", soft=1, hard=None))
        async with watching(kit) as file:
            paid = Prices([Price(model="scripted", input=1_000_000, output=1_000_000)])
            file.next = Configured(paid, (budget(budget_id="both", hard=1_000),))
            await wait_look()
            assert [("both", "", 1_000)] == await accounts(kit)
            assert "failed" == await kit.end(await kit.start())
            file.next = Configured(paid, ())
            await wait_look()
            assert [("both", "", 1_000)] == await accounts(kit)
            assert "done" == await kit.end(await kit.start())
            assert [0, 1_000] == [line.cost_usd_micros for line in lines(kit)]


async def test_a_broken_file_changes_nothing_and_is_said_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Until it is mended."""
    async with running(store, make_budgets=having(budget())) as kit:
        with capture_logs() as logged:
            async with watching(kit) as file:
                file.finds = ("configuration: what is this?",)
                await wait_look()
                await wait_look()
        assert ["b"] == [each.budget_id for each in await desk(kit).list_all(OPERATOR)]
        assert 1 == sum(entry["log_level"] == "critical" for entry in logged)
