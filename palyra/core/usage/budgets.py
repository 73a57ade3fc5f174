"""Budgets: accounts of a call, spending in their windows, and the verdict on a call.

A budget has an account for each of its subjects (`*`: one account per subject).  The expected
amount of a call is reserved before the call and replaced by the actual amount after it.  A call is
admitted while the account has an amount, neither spent nor reserved, that the least the call can cost
fits in.  So an account ends at most one reservation above its limit, however many runs share it, and
a call that must exceed it is not made.  Calendar windows start in UTC; a sliding window ends now.
"""

from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from palyra.core.journal.records import (
    DAMAGED_BUDGET,
    BudgetRecord,
    Charge,
    Usage,
    UsageRecord,
)
from palyra.core.tape.events import Budget, BudgetExceeded, DelegationEnded
from palyra.core.usage.prices import DAY_MS
from palyra.errors import InvalidParams

HOUR_MS = 3_600_000
MIN_SLIDING_MS = 1_000
MAX_SLIDING_MS = 366 * DAY_MS
GRAINS = 1_000  # of a sliding window: calls within one grain expire together, with the last
RUN_BUDGET = "run.budget"  # id of the budget that `run.start` gave the run

Mark = Literal["soft", "hard"]


class Payer(NamedTuple):
    """Identity that a call is charged to.

    An embedding call has no agent and no session, and an id of its own instead of a run's.
    """

    principal: str
    agent: str
    session_id: str
    run_id: str


class Key(NamedTuple):
    """Key of an account."""

    budget_id: str
    subject: str  # "": shared by all subjects
    run_id: str = ""  # if the window is the run


def subject_of(budget: BudgetRecord, payer: Payer) -> str:
    """Return the payer's identity in the scope of the budget."""
    match budget.scope:
        case "principal":
            return payer.principal
        case "agent":
            return payer.agent
        case "session":
            return payer.session_id
        case "run":
            return payer.run_id
        case _:
            return ""


def find_key(budget: BudgetRecord, payer: Payer) -> Key | None:
    """Return the account charged for the payer's calls; None if the budget does not apply."""
    subject = subject_of(budget, payer)
    if budget.subject not in {"*", subject} or not (subject or budget.scope == "global"):
        return None
    return Key(budget.budget_id, subject, payer.run_id if budget.window == "run" else "")


def check_budget(budget: BudgetRecord) -> None:
    """Raise InvalidParams for an inconsistent budget, naming the field to change."""
    if budget.soft is None and budget.hard is None:
        raise _refused("soft", f"the budget {budget.budget_id!r} limits nothing: give soft or hard")
    if budget.soft is not None and budget.hard is not None and budget.soft > budget.hard:
        raise _refused(
            "soft", f"soft = {budget.soft} is above hard = {budget.hard}: nobody is told"
        )
    if (budget.window == "sliding") != (budget.window_ms is not None):
        raise _refused(
            "window_ms",
            "a sliding window needs its length (window_ms; --length), and no other takes it",
        )
    if budget.window_ms is not None and not MIN_SLIDING_MS <= budget.window_ms <= MAX_SLIDING_MS:
        raise _refused(
            "window_ms",
            f"window_ms = {budget.window_ms}: from {MIN_SLIDING_MS} to {MAX_SLIDING_MS}, 366 days",
        )
    if budget.scope == "global" and budget.subject != "*":
        raise _refused("subject", f"subject = {budget.subject!r}: a global budget is for everybody")
    if not budget.subject:
        raise _refused("subject", "subject is empty: * is for each of them")


def _refused(field: str, message: str) -> InvalidParams:
    return InvalidParams(message, field=field)


def window_start(budget: BudgetRecord, now_ms: int) -> int:
    """Return the start of the current window, in Unix milliseconds."""
    match budget.window:
        case "hour":
            return now_ms - now_ms % HOUR_MS
        case "day":
            return now_ms - now_ms % DAY_MS
        case "month":
            return _month_start(now_ms)
        case "sliding":
            return now_ms - (budget.window_ms or 0) + 1
        case _:
            return 0


def _month_start(now_ms: int) -> int:
    day = datetime.fromtimestamp(now_ms // 1000, UTC)
    return round(datetime(day.year, day.month, 1, tzinfo=UTC).timestamp() * 1000)


def _window_end(budget: BudgetRecord, start_ms: int) -> int | None:
    """Return the end of a calendar window that starts at `start_ms`; None for other windows."""
    match budget.window:
        case "hour":
            return start_ms + HOUR_MS
        case "day":
            return start_ms + DAY_MS
        case "month":
            return _month_start(start_ms + 32 * DAY_MS)
        case _:
            return None


def window_length(budget: BudgetRecord) -> int:
    """Return the maximal length of the window in milliseconds; 0 for a run's."""
    lengths = {"hour": HOUR_MS, "day": DAY_MS, "month": 31 * DAY_MS}
    return budget.window_ms or lengths.get(budget.window, 0)


def amount_of(budget: BudgetRecord, record: UsageRecord) -> int:
    """Return the amount charged for the call; an unknown cost adds nothing to a money account."""
    return record.tokens if budget.metric == "tokens" else record.cost_usd_micros or 0


def amount_of_usage(budget: BudgetRecord, usage: Usage, cost_usd_micros: int) -> int:
    """Return the amount charged for a run with that usage."""
    is_tokens = budget.metric == "tokens"
    return usage.input_tokens + usage.output_tokens if is_tokens else cost_usd_micros


class BudgetAccount:
    """Spending of one subject of a budget in its window, and the reserved amount."""

    __slots__ = ("_entries", "_mark", "_spent", "_start_ms", "budget", "reserved", "subject")

    def __init__(self, budget: BudgetRecord, subject: str) -> None:
        self.budget = budget
        self.subject = subject
        self.reserved = 0
        self._entries: deque[tuple[int, int]] = deque()  # of a sliding window: at_ms, amount
        self._spent = 0
        self._start_ms = 0
        self._mark: Mark | None = None  # the limit reported in this window

    def spent(self, now_ms: int) -> int:
        """Return the amount spent in the current window."""
        self._roll(now_ms)
        return self._spent

    def left(self, now_ms: int) -> int | None:
        """Return the amount neither spent nor reserved, at least 0; None without a hard limit."""
        if self.budget.hard is None:
            return None
        return max(0, self.budget.hard - self.spent(now_ms) - self.reserved)

    def rolls_ms(self, now_ms: int) -> int | None:
        """Return when a spent amount expires next; None for never, or if nothing was spent."""
        self._roll(now_ms)
        if self.budget.window == "sliding":
            return self._entries[0][0] + (self.budget.window_ms or 0) if self._entries else None
        return _window_end(self.budget, self._start_ms)

    def add(self, amount: int, at_ms: int) -> None:
        """Charge an amount at `at_ms`; after a clock was set back, at the start of the window."""
        self._roll(at_ms)
        at_ms = max(at_ms, self._start_ms)
        self._spent += amount
        if self.budget.window != "sliding" or not amount:
            return
        grain = (self.budget.window_ms or 0) // GRAINS
        if self._entries and at_ms - self._entries[-1][0] < grain:
            _, before = self._entries.pop()
            amount += before
        self._entries.append((at_ms, amount))

    def pass_mark(self, now_ms: int) -> Mark | None:
        """Return the passed limit not yet reported in this window, and mark it as reported."""
        spent, budget = self.spent(now_ms), self.budget
        mark: Mark | None = None
        if budget.hard is not None and spent >= budget.hard:
            mark = "hard"
        elif budget.soft is not None and spent >= budget.soft:
            mark = "soft"
        if mark is not None and mark in {self._mark, "soft"} and self._mark is not None:
            return None  # reported already in this window
        self._mark = mark
        return mark

    def _roll(self, now_ms: int) -> None:
        """Remove amounts that have left the window."""
        start_ms = window_start(self.budget, now_ms)
        if start_ms <= self._start_ms:  # a clock that was set back frees nothing
            if self._start_ms - start_ms > window_length(self.budget):
                self._come_back(start_ms, now_ms)
            return
        self._start_ms = start_ms
        if self.budget.window == "sliding":
            while self._entries and self._entries[0][0] < start_ms:
                self._spent -= self._entries.popleft()[1]
        else:
            self._spent = 0
        if self._spent < (self.budget.soft or self.budget.hard or 0):
            self._mark = None

    def _come_back(self, start_ms: int, now_ms: int) -> None:
        """Move spending to the current window after a clock that was far ahead was set back.

        The spending counts now instead of lasting until the wrong time.
        """
        self._start_ms = start_ms
        if self._entries:
            self._entries = deque([(now_ms, self._spent)])


def find_left(accounts: Iterable[BudgetAccount], now_ms: int) -> Budget:
    """Return what the accounts of a single run still admit; None in a metric without a limit."""
    left: dict[str, int] = {}
    for account in accounts:
        budget = account.budget
        if budget.window == "run" and budget.hard is not None and budget.action != "warn":
            free = max(0, budget.hard - account.spent(now_ms))
            left[budget.metric] = min(free, left.get(budget.metric, free))
    return Budget(tokens=left.get("tokens"), usd_micros=left.get("usd_micros"))


def settle_delegated(
    accounts: Iterable[BudgetAccount], ended: DelegationEnded, now_ms: int
) -> None:
    """Charge the accounts of a single run for a run that it delegated to.

    All other accounts were charged for the model calls of that run.
    """
    for account in accounts:
        if account.budget.window == "run":
            used = amount_of_usage(account.budget, ended.usage, ended.cost_usd_micros)
            account.add(used, now_ms)
            account.pass_mark(now_ms)


class Wait(NamedTuple):
    """Verdict: the rest of an account is reserved by running calls and may be released by one."""

    account: BudgetAccount


class BudgetRefusal(NamedTuple):
    """Verdict: an account that refuses the call."""

    account: BudgetAccount
    is_unpriced: bool = False
    needs: int = 0  # the least that the call takes

    def event(self, now_ms: int, *, turn: int, attempt: int, model: str) -> BudgetExceeded:
        """Return the event that records the refusal."""
        account, budget = self.account, self.account.budget
        return BudgetExceeded(
            turn=turn,
            attempt=attempt,
            budget_id=budget.budget_id,
            scope=budget.scope,
            subject=account.subject,
            metric=budget.metric,
            window=budget.window,
            window_ms=budget.window_ms,
            spent=account.spent(now_ms),
            limit=budget.hard or 0,
            rolls_ms=account.rolls_ms(now_ms),
            action=budget.action,
            model=model,
            is_unpriced=self.is_unpriced,
            needs=self.needs,
            is_damaged=budget.is_damaged,
        )


def judge(
    accounts: Iterable[BudgetAccount], tokens: int, usd_micros: int | None, now_ms: int
) -> Wait | BudgetRefusal | None:
    """Return the verdict on a call that takes at least that much: a refusal, else a wait, else None."""
    waits: Wait | None = None
    for account in accounts:
        budget = account.budget
        if budget.hard is None or budget.action == "warn":
            continue
        if budget.metric == "usd_micros" and usd_micros is None:
            return BudgetRefusal(account, is_unpriced=True)
        needs = max(1, tokens if budget.metric == "tokens" else usd_micros or 0)
        spent = account.spent(now_ms)
        if spent + needs > budget.hard:
            return BudgetRefusal(account, needs=needs)
        if spent + account.reserved + needs > budget.hard:
            waits = waits or Wait(account)
    return waits


def find_end(accounts: Iterable[BudgetAccount], last: Charge | None, now_ms: int) -> str:
    """Explain why the budgets admit no further call of a run; "" if they may admit one.

    `last` is the run's latest call, if that has ended and is not charged yet.  A limit that a
    person may lift does not count.
    """
    for account in accounts:
        budget = account.budget
        if budget.hard is None or budget.action != "block":
            continue
        if budget.is_damaged:
            return f"the budget {budget.budget_id!r} is refused: {DAMAGED_BUDGET}"
        spent = account.spent(now_ms) + (0 if last is None else _amount_in(budget, last))
        if spent >= budget.hard:
            unit = "tokens" if budget.metric == "tokens" else "micro-dollars"
            return f"the budget {budget.budget_id!r} is spent: {spent} of {budget.hard} {unit}"
    return ""


def _amount_in(budget: BudgetRecord, charge: Charge) -> int:
    if budget.metric == "tokens":
        return charge.usage.input_tokens + charge.usage.output_tokens
    return charge.cost_usd_micros or 0
