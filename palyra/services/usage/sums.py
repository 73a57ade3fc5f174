"""Opening balances of budget accounts, from sums of the ledger, and the limits of single runs."""

from collections.abc import Iterable

import msgspec

from palyra.core.journal.changes import UsageBy, UsageFilter, UsageSum
from palyra.core.journal.records import BudgetMetric, BudgetRecord, BudgetScope
from palyra.core.ports import Ledger
from palyra.core.tape.events import RunAccepted
from palyra.core.usage.budgets import (
    GRAINS,
    RUN_BUDGET,
    BudgetAccount,
    Key,
    window_length,
    window_start,
)

MOST_GROUPS = 1_000_000  # groups of one sum: subjects times time slices of a window
_BY: dict[BudgetScope, UsageBy | None] = {
    "global": None,
    "principal": "principal",
    "agent": "agent",
    "session": "session",
    "run": "run",
}
_FIELD: dict[BudgetScope, str] = {
    "principal": "principal",
    "agent": "agent",
    "session": "session_id",
    "run": "run_id",
}


def run_budgets(accepted: RunAccepted, run_id: str) -> list[BudgetRecord]:
    """Return the limits given to `run.start` as budgets of the run."""
    limits = accepted.budget
    amounts: dict[BudgetMetric, int | None] = {
        "tokens": limits.tokens,
        "usd_micros": limits.usd_micros,
    }
    return [
        BudgetRecord(
            budget_id=f"{RUN_BUDGET}.{metric}",
            scope="run",
            subject=run_id,
            metric=metric,
            window="run",
            hard=amount,
        )
        for metric, amount in amounts.items()
        if amount is not None
    ]


def read_sums(
    store: Ledger, budget: BudgetRecord, now_ms: int, until_ms: int | None = None
) -> list[UsageSum]:
    """Return the usage in the budget's current window, summed by subject.  Blocks.

    Returns nothing for a per-run window: that usage is on the run's tape.  Lines after `until_ms`
    (default: one window after `now_ms`) come from a clock that was far ahead, and are left out.
    """
    if budget.window == "run":
        return []
    is_sliding = budget.window == "sliding"
    if until_ms is None:
        until_ms = now_ms + window_length(budget)
    wanted = UsageFilter(since_ms=window_start(budget, now_ms), until_ms=until_ms)
    if budget.subject != "*":
        wanted = msgspec.structs.replace(wanted, **{_FIELD[budget.scope]: budget.subject})
    grain_ms = max(1, (budget.window_ms or 0) // GRAINS) if is_sliding else None
    return store.sum_usage(wanted, _BY[budget.scope], grain_ms=grain_ms, limit=MOST_GROUPS)


def open_accounts(
    budget: BudgetRecord, sums: Iterable[UsageSum], now_ms: int
) -> dict[Key, BudgetAccount]:
    """Return the budget's accounts with their sums; limits passed already cause no further alert."""
    found: dict[Key, BudgetAccount] = {}
    for each in sorted(sums, key=lambda each: each.last_ms):
        if not each.key and budget.scope != "global":
            continue  # an embedding has no subject of this scope
        key = Key(budget.budget_id, "" if budget.scope == "global" else each.key)
        account = found.setdefault(key, BudgetAccount(budget, key.subject))
        account.add(amount_of_sum(budget, each), each.last_ms)
    for account in found.values():
        account.pass_mark(now_ms)
    return found


def amount_of_sum(budget: BudgetRecord, each: UsageSum) -> int:
    """Return the amount of a sum in the budget's metric."""
    is_tokens = budget.metric == "tokens"
    return each.input_tokens + each.output_tokens if is_tokens else each.cost_usd_micros
