"""Typed methods about models, the ledger of their calls, and budgets."""

from typing import TypedDict, Unpack

from palyra.client.requests import RequestMethods
from palyra.core.journal.changes import UsageBy, UsageInterval
from palyra.core.journal.records import (
    BudgetAction,
    BudgetMetric,
    BudgetScope,
    BudgetWindow,
)
from palyra.core.model.views import ModelList
from palyra.core.usage.views import AccountsView, UsageView
from palyra.net.protocol.results import BudgetList, BudgetView


class UsageOptions(TypedDict, total=False):
    """Filter and grouping of the ledger."""

    by: UsageBy | UsageInterval | None
    split: UsageBy | None
    principal: str | None
    agent: str | None
    session_id: str | None
    run_id: str | None
    model: str | None
    since_ms: int
    until_ms: int | None
    limit: int


class BudgetOptions(TypedDict, total=False):
    """Params of a budget besides its id; the daemon has a default for each."""

    scope: BudgetScope
    subject: str
    metric: BudgetMetric
    window: BudgetWindow
    window_ms: int | None
    soft: int | None
    hard: int | None
    action: BudgetAction
    idempotency_key: str


class UsageMethods(RequestMethods):
    """List models, sum up usage, change budgets."""

    async def list_models(self) -> ModelList:
        """List the models with their providers, what they support, and the state of their breakers."""
        return await self._ask("model.list", {}, ModelList)

    async def sum_usage(self, **wanted: Unpack[UsageOptions]) -> UsageView:
        """Sum up the ledger; `until_ms` is exclusive."""
        return await self._ask("usage.summary", {**wanted}, UsageView)

    async def list_budgets(self) -> list[BudgetView]:
        """List the budgets, by id."""
        return (await self._ask("budget.list", {}, BudgetList)).budgets

    async def budget_status(
        self, budget_id: str | None = None, *, limit: int = 100
    ) -> AccountsView:
        """List the accounts of one budget or of all, at most `limit` of each budget."""
        params = {"budget_id": budget_id, "limit": limit}
        return await self._ask("budget.status", params, AccountsView)

    async def set_budget(self, budget_id: str, **given: Unpack[BudgetOptions]) -> BudgetView:
        """Create a budget, or replace the one of that id; it applies on return."""
        return await self._mutate("budget.set", {"budget_id": budget_id, **given}, BudgetView)

    async def delete_budget(self, budget_id: str) -> BudgetView:
        """Delete a budget."""
        return await self._mutate("budget.delete", {"budget_id": budget_id}, BudgetView)
