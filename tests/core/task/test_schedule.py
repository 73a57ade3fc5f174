"""The instants of schedules, and the firings that are due."""

from datetime import UTC, datetime
from functools import partial
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.records import (
    At,
    Cron,
    Every,
    MissedPolicy,
    OverlapPolicy,
    ScheduleRecord,
    Timing,
)
from palyra.core.task.schedule import (
    MISSED_MS,
    check_timing,
    decide_due,
    decide_overlap,
    firing_key,
    is_ahead,
    set_back,
    upcoming,
)
from palyra.errors import InvalidParams
from tests.rows import every_row

BERLIN = ZoneInfo("Europe/Berlin")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
MINUTELY = Every(period_ms=60_000, anchor_ms=0)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 1_000


def nights(after: str, expression: str, count: int) -> list[str]:
    found = islice(upcoming(Cron(expression=expression), BERLIN, ms(after)), count)
    return [datetime.fromtimestamp(at_ms / 1_000, BERLIN).isoformat() for at_ms in found]


def test_a_fixed_hour_that_the_clocks_skip_fires_once_that_day() -> None:
    """At the first moment after the gap."""
    assert [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ] == nights("2026-03-28T00:00:00+01:00", "30 2 * * *", 3)


def test_a_fixed_hour_that_the_clocks_repeat_fires_once_that_day() -> None:
    """At its first occurrence."""
    assert [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ] == nights("2026-10-25T00:00:00+02:00", "30 2 * * *", 2)


def test_an_expression_with_a_star_follows_real_time() -> None:
    """Each hour of the repeated one counts."""
    assert [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ] == nights("2026-10-25T01:30:00+02:00", "0 * * * *", 3)


@pytest.mark.parametrize("zone", [BERLIN, LORD_HOWE])
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 2 * * *", "0 * * * *", "*/20 * * * *"])
@pytest.mark.parametrize(
    "start", ["2026-03-28T00:00:00+00:00", "2026-10-24T00:00:00+00:00", "2026-04-04T00:00:00+00:00"]
)
def test_firing_step_by_step_meets_each_instant_once(
    zone: ZoneInfo, expression: str, start: str
) -> None:
    """Over a change of the clocks, and with steps that have nothing to do with the expression."""
    timing, now_ms, handled_ms = Cron(expression=expression), ms(start), ms(start)
    fired: list[int] = []
    for _ in range(290):
        now_ms += 611_000
        due = decide_due(timing, zone, handled_ms=handled_ms, now_ms=now_ms, missed="all")
        fired += due.fire
        handled_ms = due.handled_ms
    expected = [at for at in islice(upcoming(timing, zone, ms(start)), 1_000) if at <= now_ms]
    assert expected == fired


@pytest.mark.parametrize(("missed", "fired"), [("skip", ()), ("once", (60,)), ("all", (60,))])
def test_a_missed_instant_of_one_is_decided_about(
    missed: MissedPolicy, fired: tuple[int, ...]
) -> None:
    """Fired or not, it does not come back."""
    now_ms = 61 + MISSED_MS
    due = decide_due(At(at_ms=60), UTC, handled_ms=0, now_ms=now_ms, missed=missed)
    again = decide_due(At(at_ms=60), UTC, handled_ms=60, now_ms=now_ms, missed=missed)
    assert ((fired, 60), ()) == ((due.fire, due.handled_ms), again.fire)


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 3)])
def test_a_long_pause_fires_at_most_three(missed: MissedPolicy, count: int) -> None:
    """The newest ones, oldest first."""
    timing = Every(period_ms=3_600_000, anchor_ms=0)
    now_ms = 1_000 * 3_600_000 + MISSED_MS + 1
    due = decide_due(timing, UTC, handled_ms=0, now_ms=now_ms, missed=missed)
    newest = tuple(n * 3_600_000 for n in (998, 999, 1_000))
    assert (newest[3 - count :], newest[-1]) == (due.fire, due.handled_ms)


def test_an_instant_that_is_not_missed_fires_under_every_policy() -> None:
    """Up to the limit of lateness."""
    due = decide_due(MINUTELY, UTC, handled_ms=0, now_ms=60_000 + MISSED_MS - 1, missed="skip")
    assert ((60_000,), 60_000) == (due.fire, due.handled_ms)


def test_a_clock_that_is_set_back_fires_nothing_again() -> None:
    """Until it has passed the newest handled instant."""
    again = [
        decide_due(MINUTELY, UTC, handled_ms=120_000, now_ms=now_ms, missed="all")
        for now_ms in (60_000, 120_000, 179_999)
    ]
    assert [((), 120_000)] * 3 == [(each.fire, each.handled_ms) for each in again]


@every_row(
    ("timing", "shown"),
    [
        (Every(period_ms=29_999, anchor_ms=0), "29999"),
        (At(at_ms=5), "no instant after 5"),
        (Cron(expression="* * * * * *"), "five fields"),
        (Cron(expression="61 * * * *"), "61"),
        (Cron(expression="0 0 31 2 *"), "0 0 31 2"),
    ],
)
def test_a_timing_that_cannot_fire_is_refused(timing: Timing, shown: str) -> None:
    """With the value in the message."""
    with pytest.raises(InvalidParams, match=shown.replace("*", r"\*")):
        check_timing(timing, UTC, 5)


def test_a_timing_that_fires_is_taken() -> None:
    """The shortest period, a later instant, an expression."""
    for timing in (Every(period_ms=30_000, anchor_ms=0), At(at_ms=6), Cron(expression="0 0 * * 1")):
        check_timing(timing, UTC, 5)


@every_row(
    ("policy", "decided"), [("forbid", "leave_out"), ("queue", "submit"), ("replace", "replace")]
)
def test_the_policy_decides_about_an_overlap(policy: OverlapPolicy, decided: str) -> None:
    """Only while the earlier task has not ended."""
    assert (decided, "submit") == (
        decide_overlap(policy, is_active=True),
        decide_overlap(policy, is_active=False),
    )


def test_a_firing_is_named_by_schedule_and_instant() -> None:
    """So the same firing has the same name after a crash."""
    assert firing_key("sch_1", 60_000) == "sch_1@60000"


@pytest.mark.parametrize("timing", [MINUTELY, Cron(expression="* * * * *"), At(at_ms=60_000)])
def test_an_instant_fires_at_its_own_millisecond(timing: Timing) -> None:
    """And not one millisecond before."""
    fired = [
        decide_due(timing, UTC, handled_ms=0, now_ms=now_ms, missed="skip").fire
        for now_ms in (59_999, 60_000)
    ]
    assert [(), (60_000,)] == fired


@pytest.mark.parametrize("zone", [BERLIN, LORD_HOWE])
@pytest.mark.parametrize(
    "expression", ["* * * 1 *", "*/20 2 * * *", "30 2 * * *", "0 * * * *", "0 0 29 2 *"]
)
def test_after_a_long_pause_the_newest_instants_are_found(zone: ZoneInfo, expression: str) -> None:
    """The same as if all were counted."""
    start_ms, now_ms = ms("2027-03-01T00:00:00+00:00"), ms("2028-04-03T12:00:00+00:00")
    timing = Cron(expression=expression)
    due = decide_due(timing, zone, handled_ms=start_ms, now_ms=now_ms, missed="all")
    counted = takewhile(lambda at_ms: at_ms <= now_ms, upcoming(timing, zone, start_ms))
    assert tuple(counted)[-3:] == due.fire


@every_row(
    ("expression", "days"),
    [
        ("0 0 L * *", ["2028-01-31", "2028-02-29", "2028-03-31"]),
        ("0 0 LW * *", ["2028-01-31", "2028-02-29", "2028-03-31"]),
        ("0 0 LW 4 *", ["2028-04-28", "2029-04-30", "2030-04-30"]),
        ("0 0 L,15 * *", ["2028-01-15", "2028-01-31", "2028-02-15"]),
        ("0 0 * * 5L", ["2028-01-28", "2028-02-25", "2028-03-31"]),
        ("0 0 * * 5#2", ["2028-01-14", "2028-02-11", "2028-03-10"]),
    ],
)
def test_last_days_and_numbered_weekdays_are_understood(expression: str, days: list[str]) -> None:
    """As the page about tasks says: the last day, working day or weekday of a month, and the n-th."""
    assert days == [each[:10] for each in nights("2028-01-01T00:00:00+01:00", expression, 3)]


@every_row("expression", ["0 0 15W * *", "0 0 L-2 * *", "0 0 * * L", "@daily"])
def test_other_extensions_of_cron_are_refused(expression: str) -> None:
    """The error shows the expression."""
    with pytest.raises(InvalidParams, match=f"cron '{expression}'".replace("*", r"\*")):
        check_timing(Cron(expression=expression), BERLIN, 0)


def test_instants_that_were_handled_before_the_clock_was_set_back_are_not_missed() -> None:
    """Once that time has come; before, and on time, every instant fires."""
    due = partial(decide_due, MINUTELY, UTC, handled_ms=0, now_ms=610_000, missed="all")
    assert (480_000, 540_000, 600_000) == due().fire
    assert (600_000,) == due(believed_ms=570_000).fire
    assert (480_000, 540_000, 600_000) == due(believed_ms=900_000).fire


@given(
    handled_ms=st.integers(0, 10**14), now_ms=st.integers(0, 10**13),
    anchor_ms=st.integers(0, 10**14), is_paused=st.booleans(),
)  # fmt: skip
def test_a_schedule_that_is_set_back_fires_within_a_period(
    handled_ms: int, now_ms: int, anchor_ms: int, *, is_paused: bool
) -> None:
    """On the same instants, and what was believed is kept."""
    before = ScheduleRecord(
        schedule_id="sch_1", principal="ann", name="n", kind="prompt",
        timing=Every(period_ms=60_000, anchor_ms=anchor_ms), is_paused=is_paused,
        handled_ms=handled_ms, created_ms=anchor_ms,
    )  # fmt: skip
    after = set_back(before, UTC, now_ms)
    assert not is_ahead(after, now_ms)
    assert (now_ms, handled_ms, 2) == (after.handled_ms, after.believed_ms, after.revision)
    if is_paused:
        assert after.next_ms is None
    else:
        assert after.next_ms is not None
        assert now_ms < after.next_ms <= now_ms + 60_000
        assert 0 == (after.next_ms - anchor_ms) % 60_000
