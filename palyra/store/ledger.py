"""The part of the journal on SQLite that answers `core.ports.Ledger`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import apsw

from palyra.core.journal import UsageBy, UsageFilter, UsageSum
from palyra.core.records import BudgetRecord, UsageRecord
from palyra.store.projections import Query

T = TypeVar("T")

COLUMNS: dict[UsageBy | None, str] = {
    None: "''",
    "principal": "principal",
    "agent": "agent",
    "session": "session_id",
    "run": "run_id",
    "model": "model",
}


class SqliteLedger(ABC):
    """Reads usage and budgets."""

    @abstractmethod
    def _read(self, query: Callable[[apsw.Connection], T]) -> T: ...

    def sum_usage(
        self,
        wanted: UsageFilter,
        by: UsageBy | None = None,
        *,
        grain_ms: int | None = None,
        limit: int = 1_000,
    ) -> list[UsageSum]:
        """See `Ledger.sum_usage`."""
        return self._read(lambda c: _sum(c, wanted, by, grain_ms, limit))

    def list_usage(self, wanted: UsageFilter, *, limit: int) -> list[UsageRecord]:
        """Newest first."""
        order = "at_ms DESC, run_id DESC, turn DESC, attempt DESC"
        return self._read(lambda c: _select(wanted).read(c, UsageRecord, order, limit))

    def find_budget(self, budget_id: str) -> BudgetRecord | None:
        """Deleted or not."""
        query = Query("budgets").where("budget_id = ?", budget_id)
        return self._read(lambda c: query.find(c, BudgetRecord))

    def list_budgets(self) -> list[BudgetRecord]:
        """By id; none that is deleted."""
        query = Query("budgets").where("NOT is_deleted")
        return self._read(lambda c: query.read(c, BudgetRecord, "budget_id"))


def _select(wanted: UsageFilter) -> Query:
    family = wanted.model_family
    return (
        Query("usage")
        .where("principal = ?", wanted.principal)
        .where("agent = ?", wanted.agent)
        .where("session_id = ?", wanted.session_id)
        .where("run_id = ?", wanted.run_id)
        .where("model = ?", wanted.model if family is None else None)
        .where("substr(model, 1, length(?)) = ?", family, family)
        .where("at_ms >= ?", wanted.since_ms)
        .where("at_ms < ?", wanted.until_ms)
    )


def _sum(
    connection: apsw.Connection,
    wanted: UsageFilter,
    by: UsageBy | None,
    grain_ms: int | None,
    limit: int,
) -> list[UsageSum]:
    key = COLUMNS[by]
    condition, values = _select(wanted).condition
    rows = connection.execute(
        f"SELECT {key} AS grp, CASE WHEN ?1 THEN at_ms - at_ms % ?1 ELSE 0 END AS begun,"  # noqa: S608 - only literals of this file
        " max(at_ms), count(*), sum(outcome <> 'completed'), sum(is_estimate),"
        " sum(cost_usd_micros IS NULL), sum(input_tokens), sum(cached_tokens),"
        " sum(output_tokens), coalesce(sum(cost_usd_micros), 0)"
        f" FROM usage WHERE {condition} GROUP BY grp, begun ORDER BY grp, begun LIMIT ?",
        (grain_ms or 0, *values, limit),  # a plain ? counts on from ?1
    )
    fields = UsageSum.__struct_fields__
    return [UsageSum(**dict(zip(fields, row, strict=True))) for row in rows]
