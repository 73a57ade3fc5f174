"""Wall clocks that are wrong for a while, and what the background believes afterwards."""

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from palyra.core.journal.changes import TaskFilter
from palyra.core.journal.records import Cron, Every, ScheduleRecord, Timing
from palyra.errors import DiskFull
from tests.actors.task_kit import ANN, Office, settle

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SKEWS = [3 * HOUR_MS, 400 * DAY_MS, 3_650 * DAY_MS]


def successor(office: Office, skew_ms: int = 0) -> Office:
    """The next process on the same journal, with a clock that is that far ahead."""
    following = Office(office.store)
    following.skew_ms = skew_ms
    return following


async def live(office: Office, seconds: float) -> None:
    async with office.live():
        await settle(seconds)


def fired(office: Office) -> list[str]:
    found = office.store.list_tasks(TaskFilter(limit=500))
    return [each.firing or "" for each in found]


def instant(firing: str) -> int:
    return int(firing.partition("@")[2])


def schedule(office: Office) -> ScheduleRecord:
    (found,) = office.store.list_schedules(None)
    return found


@pytest.mark.parametrize("skew_ms", SKEWS)
@pytest.mark.parametrize(
    "timing", [Cron(expression="* * * * *"), Every(period_ms=60_000, anchor_ms=0)]
)
async def test_one_start_ahead_stops_no_schedule(
    autojump_clock: MockClock, skew_ms: int, timing: Timing
) -> None:
    """The next start with the right clock fires within a period, and says what it found."""
    office = Office()
    await office.add(timing=timing)
    await live(office, 100)
    ahead = successor(office, skew_ms)
    await live(ahead, 100)
    assert schedule(office).handled_ms > office.now_ms() + skew_ms - 200_000
    right = successor(office)
    before = len(fired(office))
    await live(right, 130)
    assert len(fired(office)) >= before + 2
    assert len(fired(office)) == len(set(fired(office)))
    (alarm,) = right.alarms.reported
    assert ("clock_was_ahead", 1) == (alarm.key, alarm.evidence["schedules"])
    assert right.now_ms() - 130_000 < (schedule(office).next_ms or 0) <= right.now_ms() + 60_000
    await live(successor(office), 10)


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_a_clock_that_is_set_back_stops_no_schedule(
    autojump_clock: MockClock, skew_ms: int
) -> None:
    """While the daemon runs: a machine gets its time after the start."""
    office = Office()
    office.skew_ms = skew_ms
    await office.add(timing=Every(period_ms=60_000, anchor_ms=office.now_ms()))
    task = await office.submit(not_before_ms=office.now_ms() + 200_000)
    async with office.live():
        await settle(90)
        office.skew_ms = 0
        before = len(fired(office))
        await settle(130)
        assert len(fired(office)) >= before + 2
        await settle(100)
        assert "succeeded" == office.task(task.task_id).state
    assert ["clock_was_ahead"] == [each.key for each in office.alarms.reported]


async def test_resuming_believes_no_later_time(autojump_clock: MockClock) -> None:
    """Nor does a look at the next instants."""
    office = Office()
    schedule_id = await office.add()
    office.skew_ms = 3 * HOUR_MS
    await live(office, 100)
    office.skew_ms = 0
    (first, *_) = await office.schedules.next(ANN, schedule_id)
    assert first <= office.now_ms() + 60_000
    await office.schedules.pause(ANN, schedule_id)
    resumed = await office.schedules.resume(ANN, schedule_id)
    assert office.now_ms() < (resumed.next_ms or 0) <= office.now_ms() + 60_000


async def test_a_clock_that_is_behind_for_a_while_fires_nothing_twice(
    autojump_clock: MockClock,
) -> None:
    """Not even instants whose tasks are deleted by now."""
    for missed in ("once", "all", "skip"):
        office = Office()
        await office.add(timing=Cron(expression="*/10 * * * *"), missed=missed)
        await live(office, 3_000)
        before = fired(office)
        behind = successor(office, -400 * DAY_MS)
        await live(behind, 100)
        again = successor(office)
        await live(again, 100)
        now = fired(office)
        assert set(before) <= set(now)
        newest_ms = max(map(instant, before))
        late = [each for each in set(now) - set(before) if instant(each) <= newest_ms]
        late = [each for each in late if instant(each) > newest_ms - 10 * DAY_MS]
        assert [] == late


@pytest.mark.parametrize("skew_ms", SKEWS)
async def test_tasks_of_a_clock_that_was_ahead_are_done(
    autojump_clock: MockClock, skew_ms: int
) -> None:
    """Those that waited for a moment, and those that waited for another attempt."""
    office = Office()
    ahead = successor(office, skew_ms)
    later = await ahead.submit(not_before_ms=ahead.now_ms() + 60_000)
    ahead.work.errors = [DiskFull("full")]
    failed = await ahead.submit()
    await live(ahead, 1)
    assert ["queued", "queued"] == office.states()
    right = successor(office)
    await live(right, 400)
    assert ["succeeded", "succeeded"] == [
        right.task(each.task_id).state for each in (later, failed)
    ]
    assert 2 == right.alarms.reported[0].evidence["tasks"]


@given(
    skews=st.lists(st.integers(-500 * DAY_MS, 4_000 * DAY_MS), max_size=4),
    missed=st.sampled_from(["skip", "once", "all"]),
    period_min=st.sampled_from([1, 7]),
)
def test_any_clocks_before_the_right_one_leave_a_schedule_that_fires(
    skews: list[int], missed: Any, period_min: int
) -> None:
    """At each of its instants, once, however wrong the clocks before were."""

    async def main() -> None:
        office = Office()
        period_ms = period_min * 60_000
        await office.add(timing=Every(period_ms=period_ms, anchor_ms=0), missed=missed)
        for skew_ms in skews:
            await live(successor(office, skew_ms), 5)
        right = successor(office)
        begun_ms = right.now_ms()
        await live(right, 2.5 * period_min * 60)
        times = [instant(each) for each in fired(office)]
        assert len(times) == len(set(times))
        due = range(
            begun_ms // period_ms * period_ms + period_ms, right.now_ms() - 5_000, period_ms
        )
        assert set(due) <= set(times)

    trio.run(main, clock=MockClock(autojump_threshold=0))
