"""The usage watch: changed prices and budgets hold without a restart, broken ones never."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Never

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.config_watch import POLL_S, UsageConfiguration, usage_watch
from palyra.core.incident.kinds import USAGE
from palyra.core.journal.changes import Change
from palyra.core.usage.prices import Price, Prices
from palyra.errors import DiskFull
from tests.actors.fake_alarms import FakeAlarms
from tests.actors.run.office_kit import OPERATOR, Kit, inline_blocking, running
from tests.actors.run.test_runs import store
from tests.services.test_budgets import answering, budget, having, lines
from tests.services.test_usage import accounts, desk
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]  # a fixture


class FakeFile:
    """A file whose next look a test decides."""

    def __init__(self) -> None:
        self.problems: tuple[str, ...] = ()
        self.finds: tuple[str, ...] = ()
        self.next: UsageConfiguration | None = None
        self.alarms = FakeAlarms()

    def refresh(self) -> UsageConfiguration | None:
        self.problems = self.finds
        return self.next

    def confirm(self) -> None:
        self.next = None


@asynccontextmanager
async def watching(kit: Kit) -> AsyncGenerator[FakeFile]:
    """A watch that lives inside the block."""
    file = FakeFile()
    async with trio.open_nursery() as nursery:
        watch = partial(usage_watch, file, desk(kit), inline_blocking, file.alarms)
        await nursery.start(watch)
        try:
            yield file
        finally:
            nursery.cancel_scope.cancel()


async def wait_look() -> None:
    """Until the watch has looked once more."""
    await trio.sleep(POLL_S * 1.5)


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
            file.next = UsageConfiguration(paid, (budget(budget_id="both", hard=1_000),))
            await wait_look()
            assert [("both", "", 1_000)] == await accounts(kit)
            assert "failed" == await kit.end(await kit.start())
            file.next = UsageConfiguration(paid, ())
            await wait_look()
            assert [("both", "", 1_000)] == await accounts(kit)
            assert "done" == await kit.end(await kit.start())
            assert [0, 1_000] == [line.cost_usd_micros for line in lines(kit)]


async def test_a_change_that_cannot_be_applied_is_retried(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A full disk delays the new limit only while it is full."""
    async with running(store, make_budgets=having(budget())) as kit:
        answering(kit)
        await kit.end(await kit.start())
        commit = kit.journal.commit

        async def refuse(_change: Change) -> None:
            await trio.lowlevel.checkpoint()
            raise DiskFull("there is no room")

        with capture_logs() as logged:
            async with watching(kit) as file:
                kit.journal.commit = refuse  # type: ignore[assignment,method-assign]  # a full disk
                file.next = UsageConfiguration(
                    Prices(), (budget(hard=1_000), budget(budget_id="c"))
                )
                await wait_look()
                await wait_look()
                assert 10_000 == kit.services.budgets.in_force["b"].hard
                kit.journal.commit = commit  # type: ignore[method-assign]  # there is room again
                await wait_look()
        assert [("b", "", 1_000), ("c", "", 1_000)] == await accounts(kit)
        assert "failed" == await kit.end(await kit.start())
        assert 1 == sum(entry["log_level"] == "critical" for entry in logged)


async def test_a_removed_budget_is_dropped_once_possible(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Until then it stays in force as one of the configuration."""
    async with running(store, make_budgets=having(budget())) as kit:
        find = kit.journal.find

        async def refuse(_query: object) -> Never:
            await trio.lowlevel.checkpoint()
            raise DiskFull("there is no room")

        kit.journal.find = refuse  # type: ignore[assignment,method-assign]  # a broken disk
        with pytest.raises(DiskFull):
            await desk(kit).reconfigure(Prices(), ())
        kit.journal.find = find  # type: ignore[method-assign]  # it works again
        assert ["b"] == list(kit.services.budgets.in_force)
        await desk(kit).reconfigure(Prices(), ())
        assert [] == list(kit.services.budgets.in_force)


async def test_an_invalid_file_changes_nothing_and_is_reported_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Its repair is reported as well."""
    async with running(store, make_budgets=having(budget())) as kit, watching(kit) as file:
        file.finds = ("configuration: what is this?",)
        await wait_look()
        await wait_look()
        assert ["b"] == [each.budget_id for each in await desk(kit).list_all(OPERATOR)]
        assert [USAGE] == file.alarms.told
        file.finds = ()
        await wait_look()
        assert [USAGE, f"-{USAGE}"] == file.alarms.told


async def test_a_resolved_incident_of_a_still_invalid_file_is_opened_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """At the next check, once."""
    async with running(store, make_budgets=having()) as kit, watching(kit) as file:
        file.finds = ("configuration: what is this?",)
        await wait_look()
        file.alarms.standing.clear()
        await wait_look()
        await wait_look()
        assert [USAGE, USAGE] == file.alarms.told
