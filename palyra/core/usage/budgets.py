"""Budgets: which of them a call counts against, what an account has spent in its window, verdicts.

A budget has an account for each subject it is about (`*`: one for each).  What a call may take is
reserved before it is made and settled with what it took.  A call is let through while something
is left that is neither spent nor reserved, so that however many runs share an account, it ends at
most one reservation above its limit.  Windows of the calendar begin in UTC; a sliding one looks
back from now.
"""

from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from palyra.core.journal.records import BudgetRecord, Charge, UsageRecord
from palyra.core.tape.events import BudgetExceeded
from palyra.core.usage.prices import DAY_MS
from palyra.errors import InvalidParams

HOUR_MS = 3_600_000
MIN_SLIDING_MS = 1_000
MAX_SLIDING_MS = 366 * DAY_MS
GRAINS = 1_000  # of a sliding window: calls closer together leave it together, the last one counts
RUN_BUDGET = "run.budget"  # the id of what `run.start` gave a run to spend

Mark = Literal["soft", "hard"]


class Payer(NamedTuple):
    """Whose call it is; an embedding has no agent, no session, and an id instead of a run's."""

    principal: str
    agent: str
    session_id: str
    run_id: str


class Key(NamedTuple):
    """An account."""

    budget_id: str
    subject: str  # "" for everybody
    run_id: str = ""  # when the window is the run


def subject_of(budget: BudgetRecord, payer: Payer) -> str:
    """Who of the payer the budget is about."""
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
    """The account that the payer's calls count against; None when the budget is for others."""
    subject = subject_of(budget, payer)
    if budget.subject not in {"*", subject} or not (subject or budget.scope == "global"):
        return None
    return Key(budget.budget_id, subject, payer.run_id if budget.window == "run" else "")


def check_budget(budget: BudgetRecord) -> None:
    """Raises InvalidParams for one that makes no sense, naming what to change."""
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
    """From when on spending counts: the first instant of the window."""
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
    """When a window of the calendar that began then is over."""
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
    """How long the window is at most; 0 for that of a run."""
    lengths = {"hour": HOUR_MS, "day": DAY_MS, "month": 31 * DAY_MS}
    return budget.window_ms or lengths.get(budget.window, 0)


def amount_of(budget: BudgetRecord, record: UsageRecord) -> int:
    """What the call adds to an account; a cost that nobody knows adds nothing to money."""
    return record.tokens if budget.metric == "tokens" else record.cost_usd_micros or 0


class BudgetAccount:
    """What one subject of a budget has spent in its window, and what is reserved."""

    __slots__ = ("_entries", "_mark", "_spent", "_start_ms", "budget", "reserved", "subject")

    def __init__(self, budget: BudgetRecord, subject: str) -> None:
        self.budget = budget
        self.subject = subject
        self.reserved = 0
        self._entries: deque[tuple[int, int]] = deque()  # of a sliding window: at_ms, amount
        self._spent = 0
        self._start_ms = 0
        self._mark: Mark | None = None  # somebody was told of

    def spent(self, now_ms: int) -> int:
        """In the window that holds now."""
        self._roll(now_ms)
        return self._spent

    def left(self, now_ms: int) -> int | None:
        """What is neither spent nor reserved, at least 0; None without a hard limit."""
        if self.budget.hard is None:
            return None
        return max(0, self.budget.hard - self.spent(now_ms) - self.reserved)

    def rolls_ms(self, now_ms: int) -> int | None:
        """When something of it is free again; None for never, or with nothing spent."""
        self._roll(now_ms)
        if self.budget.window == "sliding":
            return self._entries[0][0] + (self.budget.window_ms or 0) if self._entries else None
        return _window_end(self.budget, self._start_ms)

    def add(self, amount: int, at_ms: int) -> None:
        """So much was spent then, or as soon as a clock that was set back is there again."""
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
        """The limit that has been passed and that nobody was told of in this window."""
        spent, budget = self.spent(now_ms), self.budget
        mark: Mark | None = None
        if budget.hard is not None and spent >= budget.hard:
            mark = "hard"
        elif budget.soft is not None and spent >= budget.soft:
            mark = "soft"
        if mark is not None and mark in {self._mark, "soft"} and self._mark is not None:
            return None  # told already, in this window
        self._mark = mark
        return mark

    def _roll(self, now_ms: int) -> None:
        """Leave out what is not in the window any more."""
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
        """The clock was far ahead: what was spent counts now, and is not kept until then."""
        self._start_ms = start_ms
        if self._entries:
            self._entries = deque([(now_ms, self._spent)])


class Wait(NamedTuple):
    """The rest of an account is reserved by calls under way: one of them may leave some of it."""

    account: BudgetAccount


class BudgetRefusal(NamedTuple):
    """An account that allows no call."""

    account: BudgetAccount
    is_unpriced: bool = False

    def event(self, now_ms: int, *, turn: int, attempt: int, model: str) -> BudgetExceeded:
        """It, as the tape has it."""
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
        )


def judge(
    accounts: Iterable[BudgetAccount], cost_usd_micros: int | None, now_ms: int
) -> Wait | BudgetRefusal | None:
    """What keeps a call of that price from being made now; a refusal before a wait."""
    waits: Wait | None = None
    for account in accounts:
        budget = account.budget
        if budget.hard is None or budget.action == "warn":
            continue
        if budget.metric == "usd_micros" and cost_usd_micros is None:
            return BudgetRefusal(account, is_unpriced=True)
        spent = account.spent(now_ms)
        if spent >= budget.hard:
            return BudgetRefusal(account)
        if spent + account.reserved >= budget.hard:
            waits = waits or Wait(account)
    return waits


def find_end(accounts: Iterable[BudgetAccount], last: Charge | None, now_ms: int) -> str:
    """Why no further call of a run will be let through, in words; "" when one may be.

    `last` is its latest call, if that has ended and is in no account yet.  Where a person may lift
    the limit there is no end.
    """
    for account in accounts:
        budget = account.budget
        if budget.hard is None or budget.action != "block":
            continue
        spent = account.spent(now_ms) + (0 if last is None else _amount_in(budget, last))
        if spent >= budget.hard:
            unit = "tokens" if budget.metric == "tokens" else "micro-dollars"
            return f"the budget {budget.budget_id!r} is spent: {spent} of {budget.hard} {unit}"
    return ""


def _amount_in(budget: BudgetRecord, charge: Charge) -> int:
    if budget.metric == "tokens":
        return charge.usage.input_tokens + charge.usage.output_tokens
    return charge.cost_usd_micros or 0
