"""Usage for clients: sums of the ledger, budgets, accounts, and changes of budgets.

Owns: nothing.  Talks to: the journal (ledger, stored budgets), `services.usage.budgets`.
Never: shows a client the usage of another principal, or puts a budget in force before its commit.
"""

from collections.abc import Sequence

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.journal.changes import Change, UsageBy, UsageFilter, UsageSum
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import BudgetRecord, Record
from palyra.core.ports import Journal, NowMs
from palyra.core.usage.budgets import HOUR_MS, BudgetAccount, check_budget
from palyra.core.usage.prices import DAY_MS, Prices
from palyra.core.usage.views import AccountsView, AccountView, UsageView, UsageWanted
from palyra.errors import IllegalState, NotFound, TooLarge
from palyra.services.usage.budgets import Budgets
from palyra.services.usage.sums import open_accounts, read_sums

MAX_BUDGETS = 1_000
GRAINS_MS = {"hour": HOUR_MS, "day": DAY_MS}
MAX_FRESH = 100_000  # ledger lines read again after a budget is set
FRESH_MS = 3_600_000  # period of these lines; later ones were written by a clock far ahead


class UsageService:
    """Usage and budgets for clients.  Methods of the API take the authenticated caller first."""

    def __init__(self, journal: Journal, budgets: Budgets, now_ms: NowMs) -> None:
        self._journal = journal
        self._budgets = budgets
        self._now_ms = now_ms
        self._turn = trio.Lock()  # one change at a time: each reads the ledger

    # --- queries

    async def sum_usage(self, caller: Caller, wanted: UsageWanted) -> UsageView:
        """Return sums of the ledger lines that the caller sees."""
        caller.require("usage:read")
        lines = wanted.lines
        if caller.principal_filter is not None:
            lines = msgspec.structs.replace(lines, principal=caller.principal_filter)
        by: UsageBy | None = wanted.split
        grain_ms: int | None = None
        match wanted.by:
            case "hour" | "day":
                grain_ms = GRAINS_MS[wanted.by]
            case plain:
                by = plain
        most = 0 if wanted.by is None else wanted.limit + 1
        total, groups = await self._journal.read(
            lambda store: (
                store.sum_usage(lines),
                store.sum_usage(lines, by, grain_ms=grain_ms, limit=most),
            )
        )
        return UsageView(
            total=total[0] if total else UsageSum(),
            groups=groups[: wanted.limit],
            is_cut=len(groups) > wanted.limit,
        )

    async def list_all(self, caller: Caller) -> list[BudgetRecord]:
        """Return the budgets in force that the caller sees, by id."""
        caller.require("usage:read")
        found = self._budgets.in_force
        return [budget for _, budget in sorted(found.items()) if _sees(caller, budget)]

    async def status(self, caller: Caller, budget_id: str | None, limit: int = 100) -> AccountsView:
        """Return the accounts that the caller sees, by budget, the most spent first.

        At most `limit` accounts of each budget are returned.  An unused account is included only if
        its budget can have no other.  Raises NotFound for an unknown budget.
        """
        budgets = await self.list_all(caller)
        if budget_id is not None:
            budgets = [budget for budget in budgets if budget.budget_id == budget_id]
            if not budgets:
                raise NotFound(f"no budget {budget_id!r}", field="budget_id")
        shown: list[AccountView] = []
        left_out = 0
        for budget in budgets:
            own = sorted(self._views(caller, budget), key=lambda each: (-each.spent, each.subject))
            shown += own[:limit]
            left_out += len(own[limit:])
        return AccountsView(accounts=shown, left_out=left_out)

    def _views(self, caller: Caller, budget: BudgetRecord) -> list[AccountView]:
        """Return the accounts of a budget that the caller sees."""
        own = [each for each in self._budgets.accounts if each.budget.budget_id == budget.budget_id]
        if not own and (budget.scope == "global" or budget.subject != "*"):
            own = [BudgetAccount(budget, "" if budget.scope == "global" else budget.subject)]
        principal = caller.principal_filter
        return [self._view(each) for each in own if principal in {None, each.subject}]

    def _view(self, account: BudgetAccount) -> AccountView:
        budget, now_ms = account.budget, self._now_ms()
        return AccountView(
            budget_id=budget.budget_id,
            scope=budget.scope,
            subject=account.subject,
            metric=budget.metric,
            window=budget.window,
            spent=account.spent(now_ms),
            reserved=account.reserved,
            soft=budget.soft,
            hard=budget.hard,
            left=account.left(now_ms),
            rolls_ms=account.rolls_ms(now_ms),
        )

    # --- changes

    async def set(
        self, caller: Caller, wanted: BudgetRecord, receipt: IdempotencyKey | None = None
    ) -> BudgetRecord:
        """Commit a budget and put it in force; usage already in its window counts.

        Raises InvalidParams, IllegalState for a configured budget, TooLarge, Conflict.
        Cancellation: the budget may have been set.
        """
        caller.require("usage:write")
        check_budget(wanted)
        async with self._turn:
            self._check_changeable(wanted.budget_id)
            before = await self._find(wanted.budget_id)
            if len(self._budgets.in_force) >= MAX_BUDGETS and before is None:
                raise TooLarge(f"{MAX_BUDGETS} budgets are in force, which is the limit")
            now_ms = self._now_ms()
            is_new = before is None or before.deleted_ms is not None
            budget = msgspec.structs.replace(
                wanted,
                revision=1 if before is None else before.revision + 1,
                created_ms=now_ms if is_new or before is None else before.created_ms,
                updated_ms=now_ms,
                by=caller.principal,
            )
            with trio.CancelScope(shield=True):  # committed and in force, or neither
                await self.enforce(budget, self._records(budget, receipt))
        return budget

    async def delete(
        self, caller: Caller, budget_id: str, receipt: IdempotencyKey | None = None
    ) -> BudgetRecord:
        """Delete a budget and put it out of force.  Raises NotFound, IllegalState, Conflict."""
        caller.require("usage:write")
        async with self._turn:
            self._check_changeable(budget_id)
            before = await self._find(budget_id)
            if before is None or before.deleted_ms is not None:
                raise NotFound(f"no budget {budget_id!r}", field="budget_id")
            now_ms = self._now_ms()
            gone = msgspec.structs.replace(
                before,
                is_damaged=False,
                revision=before.revision + 1,
                updated_ms=now_ms,
                deleted_ms=now_ms,
                by=caller.principal,
            )
            with trio.CancelScope(shield=True):
                await self._journal.commit(Change(records=self._records(gone, receipt)))
                self._budgets.lift(budget_id)
        return gone

    async def enforce(self, budget: BudgetRecord, records: tuple[Record, ...] = ()) -> None:
        """Commit the records and put the budget in force, with exact accounts from the ledger.

        Calls may end during the commit and the read.  Lines charged before this call precede the
        commit in the journal, so the read finds them.  Lines charged after it are collected
        (`Budgets.noting`).  Lines of this period found by both are merged by run, turn and attempt,
        so none is counted twice.
        """
        now_ms = self._now_ms()
        with self._budgets.noting() as noted:
            await self._journal.commit(Change(records=records))
            accounts, fresh = await self._journal.read(
                lambda store: (
                    open_accounts(
                        budget, read_sums(store, budget, now_ms, until_ms=now_ms), now_ms
                    ),
                    store.list_usage(
                        UsageFilter(since_ms=now_ms, until_ms=now_ms + FRESH_MS), limit=MAX_FRESH
                    ),
                )
            )
            lines = {(each.run_id, each.turn, each.attempt): each for each in (*fresh, *noted)}
            self._budgets.enforce(budget, accounts, lines.values())

    async def reconfigure(self, prices: Prices, budgets: Sequence[BudgetRecord]) -> None:
        """Apply the prices and budgets of a changed configuration.

        When a configured budget is removed, the stored budget with the same id applies again.
        Raises Unavailable.  Cancellation: as after an error, some changes may be in force; retry.
        """
        async with self._turn:
            self._budgets.prices = prices
            configured = self._budgets.configured
            wanted = {budget.budget_id: budget for budget in budgets}
            for budget in wanted.values():
                if configured.get(budget.budget_id) != budget:
                    await self.enforce(budget)
                    configured[budget.budget_id] = budget
            for budget_id in configured.keys() - wanted.keys():
                stored = await self._find(budget_id)
                if stored is None or stored.deleted_ms is not None:
                    self._budgets.lift(budget_id)
                else:
                    await self.enforce(stored)
                del configured[budget_id]

    def _check_changeable(self, budget_id: str) -> None:
        if budget_id in self._budgets.configured:
            raise IllegalState(
                f"the budget {budget_id!r} is in the configuration: change it there (usage.budgets)"
            )

    async def _find(self, budget_id: str) -> BudgetRecord | None:
        return await self._journal.find(lambda store: store.find_budget(budget_id))

    def _records(self, budget: BudgetRecord, receipt: IdempotencyKey | None) -> tuple[Record, ...]:
        if receipt is None:
            return (budget,)
        return budget, receipt_for(receipt, budget, self._now_ms())


def _sees(caller: Caller, budget: BudgetRecord) -> bool:
    """True if the caller sees all principals, or the budget may apply to the caller alone."""
    principal = caller.principal_filter
    if principal is None:
        return True
    return budget.scope == "principal" and budget.subject in {"*", principal}
