"""Budgets, pure: windows, accounts, verdicts, and the promise of at most one reservation."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.records import BudgetRecord, Usage
from palyra.core.tape.events import Budget, DelegationEnded
from palyra.core.usage.budgets import (
    HOUR_MS,
    BudgetAccount,
    BudgetRefusal,
    Key,
    Payer,
    Wait,
    check_budget,
    find_key,
    find_left,
    judge,
    settle_delegated,
    window_start,
)
from palyra.core.usage.prices import DAY_MS
from palyra.errors import InvalidParams
from tests.rows import every_row

PAYER = Payer("ann", "default", "ses_1", "run_1")
NOON = 1_763_812_800_000  # 2025-11-22T12:00:00Z


def budget(**fields: Any) -> BudgetRecord:
    plain = BudgetRecord(budget_id="b", scope="global", metric="tokens", window="day", hard=10)
    return msgspec.structs.replace(plain, **fields)


def account(**fields: Any) -> BudgetAccount:
    return BudgetAccount(budget(**fields), "")


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# --- whose account -------------------------------------------------------------------------------


@every_row(
    ("scope", "subject"),
    [("principal", "ann"), ("agent", "default"), ("session", "ses_1"), ("run", "run_1")],
)
def test_a_budget_is_for_one_or_for_each(scope: Any, subject: str) -> None:
    """A named subject, or * with an account for each; nobody else's calls count."""
    assert Key("b", subject) == find_key(budget(scope=scope, subject=subject), PAYER)
    assert Key("b", subject) == find_key(budget(scope=scope), PAYER)
    assert None is find_key(budget(scope=scope, subject="other"), PAYER)


def test_a_global_budget_is_one_account() -> None:
    """Whoever calls."""
    other = Payer("bob", "other", "ses_2", "run_2")
    assert find_key(budget(), PAYER) == find_key(budget(), other)


def test_the_window_of_a_run_is_an_account_of_its_own() -> None:
    """Also of a budget for everybody."""
    assert Key("b", "", "run_1") == find_key(budget(window="run"), PAYER)


# --- windows -------------------------------------------------------------------------------------


@every_row(
    ("window", "now", "start", "end"),
    [
        ("hour", "2026-01-31T23:59:59", "2026-01-31T23:00", "2026-02-01T00:00"),
        ("day", "2026-02-28T00:00", "2026-02-28T00:00", "2026-03-01T00:00"),
        ("month", "2026-01-31T12:00", "2026-01-01T00:00", "2026-02-01T00:00"),
        ("month", "2024-02-29T23:59", "2024-02-01T00:00", "2024-03-01T00:00"),
        ("month", "2026-12-01T00:00", "2026-12-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_windows_of_the_calendar(window: Any, now: str, start: str, end: str) -> None:
    """They begin and end in UTC, and what was spent before does not count."""
    kept = account(window=window)
    kept.add(7, at(start) - 1)
    assert (at(start), 0) == (window_start(kept.budget, at(now)), kept.spent(at(now)))
    kept.add(3, at(now))
    assert (3, at(end)) == (kept.spent(at(end) - 1), kept.rolls_ms(at(now)))
    assert 0 == kept.spent(at(end))


def test_a_sliding_window_rolls_call_by_call() -> None:
    """A call counts for exactly the length of the window; the oldest says when it rolls."""
    kept = account(window="sliding", window_ms=60_000)
    kept.add(4, 1_000)
    kept.add(5, 31_000)
    assert (9, 61_000) == (kept.spent(60_999), kept.rolls_ms(60_999))
    assert (5, 91_000) == (kept.spent(61_000), kept.rolls_ms(61_000))
    assert (0, None) == (kept.spent(91_000), kept.rolls_ms(91_000))


def test_calls_close_together_leave_a_sliding_window_together() -> None:
    """With the last of them: a memory of bounded size that frees nothing too early."""
    kept = account(window="sliding", window_ms=HOUR_MS)
    for at_ms in range(0, 3_600, 100):
        kept.add(1, at_ms)
    assert 36 == kept.spent(HOUR_MS + 3_400)
    assert 0 == kept.spent(HOUR_MS + 3_600)


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 9)), max_size=30))
def test_a_sliding_window_never_forgets_too_early(steps: list[tuple[int, int]]) -> None:
    """At least what was spent within its length, at most a thousandth of it longer."""
    kept, length, now_ms = account(window="sliding", window_ms=10_000), 10_000, 0
    calls: list[tuple[int, int]] = []
    for pause_ms, amount in steps:
        now_ms += pause_ms
        kept.add(amount, now_ms)
        calls.append((now_ms, amount))
        exact = sum(each for then, each in calls if then > now_ms - length)
        within = sum(each for then, each in calls if then > now_ms - length - length // 1_000 * 30)
        assert exact <= kept.spent(now_ms) <= within


def test_a_clock_that_is_set_back_frees_nothing() -> None:
    """What is spent meanwhile counts in the window that was reached already."""
    kept = account()
    kept.add(6, NOON)
    kept.add(3, NOON - DAY_MS)
    assert (9, 9) == (kept.spent(NOON - DAY_MS), kept.spent(NOON))


@every_row(
    ("window", "length"), [("hour", HOUR_MS), ("day", DAY_MS), ("month", 31 * DAY_MS),
                           ("sliding", 60_000)],
)  # fmt: skip
def test_a_clock_that_was_far_ahead_holds_nothing_for_years(window: Any, length: int) -> None:
    """What was spent then counts when the clock is right again, and rolls with that window."""
    kept = account(window=window, window_ms=length if window == "sliding" else None)
    kept.add(3, NOON)
    assert 0 == kept.spent(NOON + 5_000 * DAY_MS)
    kept.add(6, NOON + 5_000 * DAY_MS)
    assert 6 == kept.spent(NOON + 1_000)
    kept.add(1, NOON + 2_000)
    rolls_ms = kept.rolls_ms(NOON + 2_000)
    assert rolls_ms is not None
    assert NOON < rolls_ms <= NOON + 1_000 + length
    assert (7, True) == (kept.spent(rolls_ms - 1), kept.spent(rolls_ms) < 7)


# --- who is told ---------------------------------------------------------------------------------


def test_each_limit_is_told_once_in_a_window() -> None:
    """Soft, then hard; in the next window again."""
    kept = account(soft=5, hard=8)
    told = []
    for at_ms in (NOON, NOON + 1, NOON + 2, NOON + 3, NOON + DAY_MS, NOON + DAY_MS + 1):
        kept.add(4 if at_ms < NOON + DAY_MS else 5, at_ms)
        told.append(kept.pass_mark(at_ms))
    assert [None, "hard", None, None, "soft", "hard"] == told


def test_soft_before_hard() -> None:
    """Each on its own when they are passed one by one."""
    kept = account(soft=2, hard=4)
    told = []
    for n in range(5):
        kept.add(1, NOON + n)
        told.append(kept.pass_mark(NOON + n))
    assert [None, "soft", None, "hard", None] == told


# --- verdicts ------------------------------------------------------------------------------------


def test_a_call_is_let_through_while_something_is_left() -> None:
    """Then the rest is waited for while it is only reserved, and refused once it is spent."""
    kept = account()
    assert None is judge([kept], 0, None, NOON)
    kept.reserved = 10
    assert Wait(kept) == judge([kept], 0, None, NOON)
    kept.reserved = 0
    kept.add(10, NOON)
    assert BudgetRefusal(kept, needs=1) == judge([kept], 0, None, NOON)


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_call_whose_least_cost_does_not_fit_is_not_made(
    hard: int, spent: int, reserved: int, least: int
) -> None:
    """In tokens and in money: it waits for what others have reserved, and for nothing else."""
    for metric in ("tokens", "usd_micros"):
        kept = account(metric=metric, hard=hard)
        kept.add(spent, NOON)
        kept.reserved = reserved
        tokens, usd_micros = (least, 10**9)[:: 1 if metric == "tokens" else -1]
        verdict, needs = judge([kept], tokens, usd_micros, NOON), max(1, least)
        if spent + needs > hard:
            assert BudgetRefusal(kept, needs=needs) == verdict
        else:
            assert (None if spent + reserved + needs <= hard else Wait(kept)) == verdict


def test_a_refusal_counts_before_a_wait() -> None:
    """Whichever account comes first."""
    waiting, spent = account(), account()
    waiting.reserved = 10
    spent.add(10, NOON)
    assert BudgetRefusal(spent, needs=1) == judge([waiting, spent], 0, None, NOON)


def test_money_without_a_price_is_refused() -> None:
    """An unknown cost is not nothing; tokens do not mind, and warnings stop nobody."""
    money = account(metric="usd_micros")
    assert BudgetRefusal(money, is_unpriced=True) == judge([money], 0, None, NOON)
    assert None is judge([money], 10**9, 0, NOON)
    assert None is judge([account()], 0, None, NOON)
    assert None is judge([account(metric="usd_micros", action="warn")], 0, None, NOON)


def test_warnings_and_soft_limits_stop_nobody() -> None:
    """However much is spent."""
    for fields in ({"action": "warn"}, {"hard": None, "soft": 1}):
        kept = account(**fields)
        kept.add(10**9, NOON)
        assert None is judge([kept], 10**9, None, NOON)


@given(
    st.integers(1, 1_000),
    st.lists(st.tuples(st.integers(1, 300), st.floats(0, 1)), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
)
def test_never_more_than_one_reservation_above_the_limit(
    hard: int, calls: list[tuple[int, float]], chance: Any
) -> None:
    """Any number of calls at once, ending in any order, each within what was reserved for it."""
    kept = account(hard=hard)
    under_way: list[tuple[int, int]] = []
    largest = max(reserved for reserved, _ in calls)
    for reserved, share in calls:
        while judge([kept], 0, None, NOON) is not None and under_way:
            _settle(kept, under_way.pop(chance.randrange(len(under_way))))
        if judge([kept], 0, None, NOON) is None:
            kept.reserved += reserved
            under_way.append((reserved, round(reserved * share)))
        assert kept.spent(NOON) + kept.reserved < hard + largest
    for call in under_way:
        _settle(kept, call)
    assert (True, 0) == (kept.spent(NOON) < hard + largest, kept.reserved)


def _settle(kept: BudgetAccount, call: tuple[int, int]) -> None:
    reserved, taken = call
    kept.reserved -= reserved
    kept.add(taken, NOON)


# --- what makes no sense -------------------------------------------------------------------------


@every_row(
    ("fields", "field"),
    [
        ({"hard": None}, "soft"),
        ({"soft": 11}, "soft"),
        ({"window": "sliding"}, "window_ms"),
        ({"window_ms": 60_000}, "window_ms"),
        ({"window": "sliding", "window_ms": 999}, "window_ms"),
        ({"window": "sliding", "window_ms": 367 * DAY_MS}, "window_ms"),
        ({"subject": "ann"}, "subject"),
        ({"scope": "agent", "subject": ""}, "subject"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], field: str) -> None:
    """With the field to change."""
    with pytest.raises(InvalidParams) as refused:
        check_budget(budget(**fields))
    assert field == refused.value.field


def test_what_makes_sense_is_not() -> None:
    """The negative control."""
    check_budget(budget(soft=10, scope="agent", subject="default"))
    check_budget(budget(window="sliding", window_ms=1_000, hard=None, soft=1))


# --- delegated runs ------------------------------------------------------------------------------


def test_the_least_that_an_account_of_the_run_admits_is_left() -> None:
    """Accounts of longer windows, warnings and accounts without a hard limit hold no share back."""
    spent = account(window="run", scope="run", hard=10)
    spent.add(4, NOON)
    others = [
        account(window="run", scope="run", hard=8),
        account(window="run", scope="run", hard=9, metric="usd_micros"),
        account(hard=1),
        account(window="run", scope="run", hard=1, action="warn"),
        account(window="run", scope="run", hard=None, soft=1),
    ]
    assert Budget(tokens=6, usd_micros=9) == find_left([spent, *others], NOON)
    spent.add(20, NOON)
    assert Budget(tokens=0) == find_left([spent], NOON)
    assert Budget() == find_left((), NOON)


def test_a_delegated_run_is_charged_to_accounts_of_its_parent_only() -> None:
    """Tokens or money by the metric; an account of a longer window was charged by each call."""
    tokens = account(window="run", scope="run", soft=6)
    money = account(window="run", scope="run", metric="usd_micros")
    day = account()
    ended = DelegationEnded(
        call_id="c1", run_id="run_2", state="done", reason="answered",
        usage=Usage(input_tokens=3, output_tokens=4), cost_usd_micros=5,
    )  # fmt: skip
    settle_delegated((tokens, money, day), ended, NOON)
    assert (7, 5, 0) == (tokens.spent(NOON), money.spent(NOON), day.spent(NOON))
    assert None is tokens.pass_mark(NOON)  # the soft limit was passed by the charge
