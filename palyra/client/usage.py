"""Typed methods about what model calls took and what may be spent, and what they answer."""

from typing import Literal, TypedDict, Unpack

import msgspec

from palyra.client.incidents import IncidentMethods
from palyra.core.journal.changes import UsageBy, UsageSum
from palyra.core.journal.records import (
    BudgetAction,
    BudgetMetric,
    BudgetRecord,
    BudgetScope,
    BudgetWindow,
)
from palyra.core.model.views import ModelList
from palyra.core.usage.views import AccountView


class UsageShown(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `usage.summary`."""

    total: UsageSum
    groups: list[UsageSum] = []
    is_cut: bool = False


class BudgetList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `budget.list`."""

    budgets: list[BudgetRecord]


class AccountList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `budget.status`: by budget, of each the most spent first."""

    accounts: list[AccountView]
    left_out: int = 0  # how many there are beside


class UsageOptions(TypedDict, total=False):
    """Which lines of the ledger to add up, and how to divide them."""

    by: UsageBy | Literal["day"] | None
    principal: str | None
    agent: str | None
    session_id: str | None
    run_id: str | None
    model: str | None
    since_ms: int
    until_ms: int | None
    limit: int


class BudgetOptions(TypedDict, total=False):
    """What a budget is besides its id; the daemon has a default for each."""

    scope: BudgetScope
    subject: str
    metric: BudgetMetric
    window: BudgetWindow
    window_ms: int | None
    soft: int | None
    hard: int | None
    action: BudgetAction
    idempotency_key: str


class UsageMethods(IncidentMethods):
    """Which models there are, what calls of them took, and what may be spent."""

    async def list_models(self) -> ModelList:
        return await self._ask("model.list", {}, ModelList)

    async def sum_usage(self, **wanted: Unpack[UsageOptions]) -> UsageShown:
        """The ledger's sums; `until_ms` is not in the range."""
        return await self._ask("usage.summary", {**wanted}, UsageShown)

    async def list_budgets(self) -> list[BudgetRecord]:
        return (await self._ask("budget.list", {}, BudgetList)).budgets

    async def budget_status(self, budget_id: str | None = None, *, limit: int = 100) -> AccountList:
        """How the accounts stand, of one budget or of all; `limit` of each budget."""
        params = {"budget_id": budget_id, "limit": limit}
        return await self._ask("budget.status", params, AccountList)

    async def set_budget(self, budget_id: str, **given: Unpack[BudgetOptions]) -> BudgetRecord:
        """The budget, in force; one of that id is replaced."""
        return await self._mutate("budget.set", {"budget_id": budget_id, **given}, BudgetRecord)

    async def delete_budget(self, budget_id: str) -> BudgetRecord:
        """The budget, which holds no more."""
        return await self._mutate("budget.delete", {"budget_id": budget_id}, BudgetRecord)
