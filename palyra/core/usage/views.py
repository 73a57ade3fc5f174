"""Usage and budgets as clients see them."""

import msgspec

from palyra.core.journal.changes import UsageBy, UsageFilter, UsageInterval, UsageSum
from palyra.core.journal.records import BudgetMetric, BudgetScope, BudgetWindow
from palyra.core.usage.budgets import Mark


class UsageWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the ledger: lines to sum up, and their grouping."""

    lines: UsageFilter = UsageFilter()
    by: UsageBy | UsageInterval | None = None
    split: UsageBy | None = None  # of each interval
    limit: int = 100  # groups


class UsageView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums per group; `is_cut` if there are more groups."""

    total: UsageSum
    groups: list[UsageSum]
    is_cut: bool = False


class AccountView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one account of a budget."""

    budget_id: str
    scope: BudgetScope
    subject: str  # "": shared by all subjects
    metric: BudgetMetric
    window: BudgetWindow
    spent: int
    reserved: int  # by running calls
    soft: int | None = None
    hard: int | None = None
    left: int | None = None  # of the hard limit, neither spent nor reserved
    rolls_ms: int | None = None  # when a spent amount expires next


class AccountsView(msgspec.Struct, frozen=True, kw_only=True):
    """State of the accounts by budget, each with the most spent first."""

    accounts: list[AccountView]
    left_out: int  # number of omitted accounts


class BudgetWarned(msgspec.Struct, frozen=True, kw_only=True):
    """Notification that a limit was passed, sent once per window of an account."""

    budget_id: str
    scope: BudgetScope
    subject: str  # "": shared by all subjects
    metric: BudgetMetric
    window: BudgetWindow
    level: Mark
    spent: int
    limit: int
    rolls_ms: int | None = None
