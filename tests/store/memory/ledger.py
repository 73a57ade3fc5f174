"""The part of the journal in memory that answers `core.ports.Ledger`."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable

from palyra.core.journal.changes import UsageBy, UsageFilter, UsageSum
from palyra.core.journal.records import BudgetRecord, UsageRecord
from tests.store.memory.registry import R

KEYS: dict[UsageBy | None, Callable[[UsageRecord], str]] = {
    None: lambda _: "",
    "principal": lambda line: line.principal,
    "agent": lambda line: line.agent,
    "session": lambda line: line.session_id,
    "run": lambda line: line.run_id,
    "model": lambda line: line.model,
}


class MemoryLedger(ABC):
    """Reads usage and budgets."""

    @abstractmethod
    def _find(self, kind: type[R], *key: str | int) -> R | None: ...

    @abstractmethod
    def _list(self, kind: type[R]) -> list[R]: ...

    def sum_usage(
        self,
        wanted: UsageFilter,
        by: UsageBy | None = None,
        *,
        grain_ms: int | None = None,
        limit: int = 1_000,
    ) -> list[UsageSum]:
        """See `Ledger.sum_usage`."""
        groups: dict[tuple[str, int], list[UsageRecord]] = defaultdict(list)
        for line in self._list(UsageRecord):
            if _is_wanted(line, wanted):
                begun = line.at_ms - line.at_ms % grain_ms if grain_ms else 0
                groups[KEYS[by](line), begun].append(line)
        return [_add_up(*place, lines) for place, lines in sorted(groups.items())][:limit]

    def list_usage(self, wanted: UsageFilter, *, limit: int) -> list[UsageRecord]:
        """Newest first."""
        found = [line for line in self._list(UsageRecord) if _is_wanted(line, wanted)]
        found.sort(key=lambda line: (line.at_ms, line.run_id, line.turn, line.attempt))
        return found[::-1][:limit]

    def find_budget(self, budget_id: str) -> BudgetRecord | None:
        """Deleted or not."""
        return self._find(BudgetRecord, budget_id)

    def list_budgets(self) -> list[BudgetRecord]:
        """By id; none that is deleted."""
        return [found for found in self._list(BudgetRecord) if found.deleted_ms is None]


def _is_wanted(line: UsageRecord, wanted: UsageFilter) -> bool:
    return (
        wanted.principal in {None, line.principal}
        and wanted.agent in {None, line.agent}
        and wanted.session_id in {None, line.session_id}
        and wanted.run_id in {None, line.run_id}
        and _is_model(line.model, wanted)
        and line.at_ms >= wanted.since_ms
        and (wanted.until_ms is None or line.at_ms < wanted.until_ms)
    )


def _is_model(model: str, wanted: UsageFilter) -> bool:
    family = wanted.model_family
    return wanted.model in {None, model} if family is None else model.startswith(family)


def _add_up(key: str, begun: int, lines: Iterable[UsageRecord]) -> UsageSum:
    lines = tuple(lines)
    return UsageSum(
        key=key,
        from_ms=begun,
        last_ms=max(line.at_ms for line in lines),
        calls=len(lines),
        broken_calls=sum(line.outcome != "completed" for line in lines),
        estimated_calls=sum(line.is_estimate for line in lines),
        unpriced_calls=sum(line.cost_usd_micros is None for line in lines),
        input_tokens=sum(line.input_tokens for line in lines),
        cached_tokens=sum(line.cached_tokens for line in lines),
        output_tokens=sum(line.output_tokens for line in lines),
        cost_usd_micros=sum(line.cost_usd_micros or 0 for line in lines),
    )
