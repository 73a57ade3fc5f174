"""Requests of clients about usage: sums, accounts, and budgets set at run time."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.core.access import Caller
from palyra.core.journal.changes import Change, UsageFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import BudgetRecord
from palyra.core.ports import JournalStore
from palyra.core.usage.budgets import BudgetAccount
from palyra.core.usage.views import UsageWanted
from palyra.errors import Forbidden, IllegalState, InvalidParams, NotFound
from palyra.services.usage.reports import UsageService
from palyra.services.usage.sums import read_sums
from tests.actors.run.office_kit import (
    OPERATOR,
    OTHER,
    STRANGER,
    InlineJournal,
    Kit,
    now_ms,
    running,
)
from tests.actors.run.test_runs import settle, store
from tests.services.test_budgets import MINUTE_S, answering, budget, having, lines, reserved
from tests.store.kit import usage
from tests.store.memory.journal import MemoryJournal

__all__ = ["store"]  # a fixture

OBSERVER = Caller(principal="oscar", role="observer", token_id="tok_oscar")


def desk(kit: Kit) -> UsageService:
    return UsageService(kit.journal, kit.services.budgets, now_ms)


async def accounts(kit: Kit, caller: Caller = OPERATOR) -> list[tuple[str, str, int]]:
    found = await desk(kit).status(caller, None)
    return [(each.budget_id, each.subject, each.spent) for each in found.accounts]


async def test_sums_of_what_the_caller_sees(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A client adds up its own calls, whatever it asks for; others all of them."""
    async with running(store) as kit:
        answering(kit)
        for caller in (OPERATOR, OTHER, STRANGER):
            await kit.end(await kit.start(caller=caller))
        for caller, principals in ((OBSERVER, ["ann", "bob", "eve"]), (STRANGER, ["eve"])):
            view = await desk(kit).sum_usage(caller, UsageWanted(by="principal"))
            assert principals == [each.key for each in view.groups]
            assert len(principals) == view.total.calls
        other = UsageWanted(lines=UsageFilter(principal="ann"))
        assert 1 == (await desk(kit).sum_usage(STRANGER, other)).total.calls
        by_day = await desk(kit).sum_usage(OPERATOR, UsageWanted(by="day", limit=1))
        assert ([3], False) == ([each.calls for each in by_day.groups], by_day.is_cut)
        by_hour = await desk(kit).sum_usage(OPERATOR, UsageWanted(by="hour", split="principal"))
        assert [("ann", 1), ("bob", 1), ("eve", 1)] == [(g.key, g.calls) for g in by_hour.groups]
        assert all(not each.from_ms % 3_600_000 for each in by_hour.groups)
        few = await desk(kit).sum_usage(OPERATOR, UsageWanted(by="run", limit=2))
        assert (2, True) == (len(few.groups), few.is_cut)


async def test_a_client_sees_its_own_accounts(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Of budgets for principals; what is shared with others says nothing to it."""
    budgets = (
        budget(budget_id="all"),
        budget(budget_id="each", scope="principal"),
        budget(budget_id="bob", scope="principal", subject="bob"),
    )
    async with running(store, make_budgets=having(*budgets)) as kit:
        answering(kit)
        for caller in (OTHER, STRANGER):
            await kit.end(await kit.start(caller=caller))
        assert [("each", "eve", 1_000)] == await accounts(kit, STRANGER)
        assert ["each"] == [each.budget_id for each in await desk(kit).list_all(STRANGER)]
        assert [
            ("all", "", 2_000),
            ("bob", "bob", 1_000),
            ("each", "bob", 1_000),
            ("each", "eve", 1_000),
        ] == await accounts(kit)
        with pytest.raises(NotFound):
            await desk(kit).status(STRANGER, "bob")


async def test_the_most_spent_come_first_and_the_rest_is_counted(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Of each budget, so that none hides another one."""
    budgets = (
        budget(budget_id="all"),
        budget(budget_id="each", scope="principal", hard=None, soft=1),
    )
    async with running(store, make_budgets=having(*budgets)) as kit:
        answering(kit)
        for caller in (OTHER, STRANGER, STRANGER, OPERATOR):
            await kit.end(await kit.start(caller=caller))
        found = await desk(kit).status(OPERATOR, None, 1)
        shown = [(each.budget_id, each.subject, each.spent) for each in found.accounts]
        assert ([("all", "", 4_000), ("each", "eve", 2_000)], 2) == (shown, found.left_out)


async def test_a_budget_that_is_set_counts_what_was_spent_before(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It holds at once, for the next call already, and after a restart; deleted it does not."""
    async with running(store) as kit:
        answering(kit)
        await kit.end(await kit.start())
        made = await desk(kit).set(OPERATOR, budget(hard=1_000))
        assert (1, "ann", [("b", "", 1_000)]) == (made.revision, made.by, await accounts(kit))
        assert "failed" == await kit.end(await kit.start())
    async with running(store) as kit:
        answering(kit)
        assert "failed" == await kit.end(await kit.start())
        gone = await desk(kit).delete(OPERATOR, "b")
        assert (2, True, []) == (gone.revision, gone.deleted_ms is not None, await accounts(kit))
        assert "done" == await kit.end(await kit.start())
    async with running(store) as kit:
        answering(kit)
        assert "done" == await kit.end(await kit.start())
        again = await desk(kit).set(OPERATOR, budget(hard=9))
        assert (3, None) == (again.revision, again.deleted_ms)


@pytest.mark.parametrize("waits_s", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("slow", ["commit", "read"])
async def test_a_budget_set_while_calls_end_counts_each_of_them_once(
    store: MemoryJournal, autojump_clock: MockClock, waits_s: float, slow: str
) -> None:
    """Whatever is committed before, while or after the ledger is read for it."""
    async with running(store) as kit:
        answering(kit, takes_s=float)
        run_ids = [await kit.start() for _ in range(3)]  # they end after 1, 2 and 3 seconds
        kit.journal.hold = slow == "commit"  # what ends now is charged, and not committed yet
        await trio.sleep(waits_s)

        async def read(query: Callable[[JournalStore], Any]) -> Any:
            found = query(store)
            await trio.sleep(waits_s if slow == "read" else 0)
            return found

        kit.journal.read = read  # type: ignore[method-assign]  # what it finds is old by then
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk(kit).set, OPERATOR, budget(hard=None, soft=10**9))
            await trio.sleep(waits_s)
            kit.journal.release()
        for run_id in run_ids:
            await kit.end(run_id)
        assert ([("b", "", 3_000)], 3) == (await accounts(kit), len(lines(kit)))


async def test_the_ledger_is_added_up_where_it_is_read(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the reader's thread, at the start and for a new budget: there may be many subjects."""
    async with running(store) as kit:
        answering(kit)
        await kit.end(await kit.start())
    looks: list[bool] = [False]
    added: list[bool] = []
    add, read = BudgetAccount.add, InlineJournal.read

    def noted(account: BudgetAccount, amount: int, at_ms: int) -> None:
        added.append(looks[-1])
        add(account, amount, at_ms)

    async def looking(journal: InlineJournal, query: Callable[[JournalStore], Any]) -> Any:
        def look(given: JournalStore) -> Any:
            looks.append(True)
            found = query(given)
            looks.append(False)
            return found

        return await read(journal, look)

    monkeypatch.setattr(BudgetAccount, "add", noted)
    monkeypatch.setattr(InlineJournal, "read", looking)
    async with running(store, make_budgets=having(budget())) as kit:
        await trio.sleep(MINUTE_S)  # a line of this very millisecond is added here
        await desk(kit).set(OPERATOR, budget(budget_id="c"))
        assert [("b", "", 1_000), ("c", "", 1_000)] == await accounts(kit)
        assert [True, True] == added


async def test_a_changed_limit_keeps_reservations(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A call in progress still counts after the limit was raised."""
    async with running(store) as kit:
        answering(kit, takes_s=lambda _: 10)
        await desk(kit).set(OPERATOR, budget())
        run_id = await kit.start()
        await settle()
        before = reserved(kit)
        changed = await desk(kit).set(OPERATOR, budget(hard=20_000, action="warn"))
        assert (2, before, True) == (changed.revision, reserved(kit), before > 2_000)
        await kit.end(run_id)
        assert ([("b", "", 1_000)], 0) == (await accounts(kit), reserved(kit))


async def test_a_waiting_run_continues_when_the_limit_is_raised(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It does not wait for the call that holds the rest."""
    async with running(store, make_budgets=having(reserve=100_000)) as kit:
        answering(kit, takes_s=lambda _: 10)
        await desk(kit).set(OPERATOR, budget())
        run_ids = [await kit.start() for _ in range(2)]
        await settle()
        assert 1 == len(kit.model.requests)
        await desk(kit).set(OPERATOR, budget(hard=10**9))
        await settle()
        assert 2 == len(kit.model.requests)
        assert ["done", "done"] == [await kit.end(run_id) for run_id in run_ids]


async def test_only_operators_change_budgets(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Budgets of the configuration cannot be changed; invalid ones are refused."""
    async with running(store, make_budgets=having(budget(budget_id="fixed"))) as kit:
        for caller in (STRANGER, OBSERVER):
            with pytest.raises(Forbidden):
                await desk(kit).set(caller, budget())
            with pytest.raises(Forbidden):
                await desk(kit).delete(caller, "b")
        with pytest.raises(IllegalState, match="configuration"):
            await desk(kit).set(OPERATOR, budget(budget_id="fixed"))
        with pytest.raises(IllegalState, match="configuration"):
            await desk(kit).delete(OPERATOR, "fixed")
        with pytest.raises(InvalidParams, match="limits nothing"):
            await desk(kit).set(OPERATOR, budget(hard=None))
        with pytest.raises(NotFound):
            await desk(kit).delete(OPERATOR, "b")


async def test_a_receipt_comes_with_the_change(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In one transaction: the same key finds the same answer after a crash."""
    key = IdempotencyKey(principal="ann", key="k", body_sha256="00")
    async with running(store) as kit:
        made = await desk(kit).set(OPERATOR, budget(), key)
        found: Any = store.find_receipt("ann", "k", now_ms=now_ms())
        assert made == msgspec.json.decode(found.result, type=BudgetRecord)


def test_a_budget_of_runs_has_no_sum(store: MemoryJournal) -> None:
    """The usage of a run is on its tape, whatever the ledger holds."""
    store.commit([Change(records=(usage("run_a", 1),))])
    of_days, of_runs = budget(scope="run"), budget(scope="run", window="run")
    at_ms = usage("run_a", 1).at_ms
    assert ["run_a"] == [each.key for each in read_sums(store, of_days, at_ms)]
    assert [] == read_sums(store, of_runs, at_ms)
