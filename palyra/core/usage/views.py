from typing import Literal

import msgspec

from palyra.core.journal.changes import UsageBy, UsageFilter, UsageSum
from palyra.core.journal.records import BudgetMetric, BudgetScope, BudgetWindow
from palyra.core.usage.budgets import Mark


class UsageWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of the ledger to add up, and how to divide them."""

    lines: UsageFilter = UsageFilter()
    by: UsageBy | Literal["day"] | None = None
    limit: int = 100  # groups


class UsageView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sums; `is_cut` when there are more groups."""

    total: UsageSum
    groups: list[UsageSum]
    is_cut: bool = False


class AccountView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one account of a budget stands."""

    budget_id: str
    scope: BudgetScope
    subject: str  # "" for everybody
    metric: BudgetMetric
    window: BudgetWindow
    spent: int
    reserved: int  # by calls under way
    soft: int | None = None
    hard: int | None = None
    left: int | None = None  # of the hard limit, neither spent nor reserved
    rolls_ms: int | None = None  # when something of it is free again


class AccountsView(msgspec.Struct, frozen=True, kw_only=True):
    """How the accounts stand, by budget; of each the most spent first."""

    accounts: list[AccountView]
    left_out: int  # how many there are beside


class BudgetWarned(msgspec.Struct, frozen=True, kw_only=True):
    """The news that a limit was passed, once in each window of an account."""

    budget_id: str
    scope: BudgetScope
    subject: str  # "" for everybody
    metric: BudgetMetric
    window: BudgetWindow
    level: Mark
    spent: int
    limit: int
    rolls_ms: int | None = None
