"""Reservations and costs of model calls: the ledger against tapes and budgets."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from palyra.config.sections import BudgetConfig, UsageConfig
from palyra.core.journal.records import BudgetAction, BudgetScope, UsageRecord
from palyra.core.run.state import Run
from palyra.core.tape import events as ev
from palyra.core.usage.dollars import to_micros

if TYPE_CHECKING:
    from palyra.daemon import Daemon

TIGHT, WIDE = 3_000, 300_000  # tokens; a story takes some tens of thousands
ANSWER_TOKENS = UsageConfig().reserve_tokens


def draw_budgets(rng: Random) -> tuple[BudgetConfig, ...]:
    """None, or one for everybody, or one for each session: from too tight to wide."""
    scopes: tuple[BudgetScope | None, ...] = (None, "global", "session")
    actions: tuple[BudgetAction, ...] = ("block", "ask", "warn")
    scope = rng.choice(scopes)
    if scope is None:
        return ()
    hard = round(TIGHT * (WIDE / TIGHT) ** rng.random())
    purse = BudgetConfig(
        id="purse", scope=scope, window="month", hard=hard, action=rng.choice(actions)
    )
    return (purse,)


class Purse:
    """Every line of the ledger, as it is committed."""

    def __init__(self, fail: Callable[[str, str], None], budgets: Iterable[BudgetConfig]) -> None:
        self._fail = fail
        self._budgets = tuple(budgets)
        self.lines: dict[tuple[str, int, int], UsageRecord] = {}
        self.refusals = 0
        self._largest = 0  # that a call was expected to take

    def note(self, event: ev.Event) -> None:
        """Record the call size or the refusal that an event reports."""
        if isinstance(event, ev.ContextAssembled):
            self._largest = max(self._largest, event.input_tokens + ANSWER_TOKENS)
        self.refusals += isinstance(event, ev.BudgetExceeded)

    def take(self, line: UsageRecord) -> None:
        """One line for each call, for good, and no budget is overrun by more than one call."""
        key = line.run_id, line.turn, line.attempt
        if self.lines.setdefault(key, line) != line:
            self._fail("a line of the ledger never changes", str(key))
        for budget in self._budgets:
            taken = self._taken(budget, line)
            if budget.action == "block" and taken > to_micros(budget.hard) + self._largest:
                self._fail("a budget holds", f"{taken} of {budget.hard} after {key}")

    def check_run(self, run: Run) -> None:
        """Check that a run's reported usage is the sum of its ledger lines."""
        lines = [line for line in self.lines.values() if line.run_id == run.run_id]
        if (
            sum(line.tokens for line in lines)
            != run.costs.usage.input_tokens + run.costs.usage.output_tokens
        ):
            self._fail(
                "the ledger says what a run took", f"{run.run_id}: {run.costs.usage}, {lines}"
            )

    def check_rest(self, daemon: "Daemon") -> None:
        """Check that nothing is reserved without a call and that accounts are sums of lines."""
        sums = defaultdict[str, int](int)
        for line in self.lines.values():
            sums[line.session_id] += line.tokens
            sums[""] += line.tokens
        for account in daemon.services.budgets.accounts:
            if account.reserved:
                self._fail("reservations are returned", f"{account.subject}: {account.reserved}")
            spent = account.spent(daemon.host.now_ms())
            if spent != sums[account.subject]:
                self._fail("accounts are sums of lines", f"{account.subject!r}: {spent}, {sums}")

    def _taken(self, budget: BudgetConfig, line: UsageRecord) -> int:
        """From the account that the line belongs to."""
        is_whole = budget.scope == "global"
        counted = (
            each for each in self.lines.values() if is_whole or each.session_id == line.session_id
        )
        return sum(each.tokens for each in counted)
