"""The queue of background tasks and the schedules, on a virtual clock over a store in memory."""

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo, reset_tzpath

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.housekeeping import keep_house
from palyra.actors.task_queue import requeue_task
from palyra.core.journal.changes import Change, TaskFilter
from palyra.core.journal.records import At, Cron, TaskKind, TaskRecord, TaskState
from palyra.core.task import life
from palyra.core.task.life import LEASE_MS, Submission, claim
from palyra.errors import (
    ActorGone,
    Conflict,
    DiskFull,
    Forbidden,
    IllegalState,
    InvalidParams,
    NotFound,
    Overloaded,
    PalyraError,
    Unavailable,
)
from palyra.services.task.schedules import find_due, find_problem, find_zone
from tests.actors.run.office_kit import SECRET, InlineTicket
from tests.actors.task_kit import ANN, Office, caller, settle

DAY_MS = 86_400_000


async def test_tasks_run_by_rank_within_the_slots(autojump_clock: MockClock) -> None:
    """A task of a higher priority first; no more at once than there are slots."""
    office = Office(slots=1)
    low, high = await office.submit(priority=1), await office.submit(priority=9)
    async with office.live():
        await settle()
    assert [high.task_id, low.task_id] == office.work.begun
    assert (["succeeded", "succeeded"], {"attempt": 1}) == (
        office.states(),
        office.task(low.task_id).result,
    )


async def test_a_task_waits_for_its_time(autojump_clock: MockClock) -> None:
    """And starts at it, not at the next sweep."""
    office = Office()
    later = await office.submit(not_before_ms=office.now_ms() + 100_500)
    async with office.live():
        await settle(100.4)
        assert [] == office.work.begun
        await settle(0.2)
    assert [later.task_id] == office.work.begun


async def test_a_failed_attempt_is_repeated_later(autojump_clock: MockClock) -> None:
    """Only if a later one may succeed, with a delay, and until the attempts are used up."""
    office = Office()
    office.work.errors = [
        Unavailable("busy"),
        ValueError("odd"),
        Unavailable(SECRET),
        NotFound("no"),
    ]
    task = await office.submit(max_attempts=3)
    async with office.live():
        await settle(1.9)
        assert (1, "queued", "busy") == read(office.task(task.task_id))
        await settle(600.0)
        attempts, state, error = read(office.task(task.task_id))
        assert (3, "failed") == (attempts, state)
        assert SECRET not in error
        other = await office.submit()
        await settle(600.0)
        assert (1, "failed", "no") == read(office.task(other.task_id))


def read(task: TaskRecord) -> tuple[int, TaskState, str]:
    return task.attempts, task.state, task.error


async def test_cancelled_work_stops_at_once(autojump_clock: MockClock) -> None:
    """The end is committed, a run of the task is stopped, and the slot is free."""
    office = Office(slots=1)
    office.work.gate = trio.Event()
    async with office.live():
        task = await office.submit(kind="prompt")
        await settle()
        run_id = office.task(task.task_id).run_id
        assert run_id is not None
        ended = await office.tasks.cancel(ANN, task.task_id, "enough")
        assert ("cancelled", "enough") == (ended.state, ended.error)
        await settle()
        assert f"task:{task.task_id}" not in office.parts.workers
        next_one = await office.submit()
        await settle(0.1)
        assert [task.task_id, next_one.task_id] == office.work.begun
        with pytest.raises(IllegalState):
            await office.tasks.cancel(ANN, task.task_id, "again")
    assert [task.task_id] == office.work.abandoned


async def test_a_task_expires_before_and_during_its_run(autojump_clock: MockClock) -> None:
    """Work that goes on is stopped."""
    office = Office(slots=1)
    office.work.gate = trio.Event()
    end_ms = office.now_ms() + 5_000
    await office.submit(expires_ms=end_ms, kind="prompt")
    await office.submit(expires_ms=end_ms)
    async with office.live():
        await settle(4.9)
        assert ["running", "queued"] == office.states()
        await settle(4.0)
        assert ["expired", "expired"] == office.states()
        assert (1, 1, 0) == (
            len(office.work.begun),
            len(office.work.abandoned),
            office.queue.count_busy,
        )


async def test_slow_work_with_progress_keeps_its_lease(autojump_clock: MockClock) -> None:
    """However long it takes; work that hangs keeps it, too, until it is given up."""
    office = Office()
    office.work.gate, office.work.progress_s = trio.Event(), 60.0
    task = await office.submit()
    async with office.live():
        await settle(20 * LEASE_MS / 1_000)
        assert (["running"], 1, []) == (
            office.states(),
            len(office.work.begun),
            office.alarms.reported,
        )
        office.work.progress_s = None
        await settle(20 * LEASE_MS / 1_000)
        assert (["running"], 1) == (office.states(), len(office.work.begun))
        assert "the attempt has ended" == requeue_task(office.queue, "task_stuck:tsk_other")
        requeue_task(office.queue, f"task_stuck:{task.task_id}")
        await settle(60.0)
        assert (["running"], 2) == (office.states(), len(office.work.begun))


async def test_the_task_of_a_worker_that_was_stopped_is_queued_at_once(
    autojump_clock: MockClock,
) -> None:
    """Its supervisor stopped it without an outcome; the attempt counts."""
    office = Office()
    office.work.gate = trio.Event()
    task = await office.submit()
    async with office.live():
        await settle()
        office.parts.workers.cancel_child(f"task:{task.task_id}", "a restart")
        await settle(3.0)
        assert (1, "the worker of attempt 1 was lost") == (
            office.task(task.task_id).attempts,
            office.task(task.task_id).error,
        )
        await settle(60.0)
        assert (["running"], 2) == (office.states(), len(office.work.begun))


async def test_an_outcome_wins_over_a_remedy(autojump_clock: MockClock) -> None:
    """Work that ends while it is given up is done, and not repeated."""
    office = Office()
    office.work.gate = trio.Event()
    task = await office.submit()
    async with office.live():
        await settle()
        office.work.gate.set()
        office.queue.give_up(task.task_id, "hung")
        await settle(60.0)
    assert (["succeeded"], 1) == (office.states(), len(office.work.begun))


async def test_a_change_whose_reply_is_lost_is_noticed(autojump_clock: MockClock) -> None:
    """The task is queued again, and the journal crashed before it said so: it begins again later."""
    office = Office()
    office.work.gate = trio.Event()
    task = await office.submit()
    append = office.journal.append

    def lose_reply(change: Change) -> InlineTicket:
        office.journal.append = append  # type: ignore[method-assign]
        ticket = append(change)
        ticket.error = ActorGone("the journal crashed")
        return ticket

    async with office.live():
        await settle()
        office.journal.append = lose_reply  # type: ignore[method-assign]
        office.parts.workers.cancel_child(f"task:{task.task_id}", "a restart")
        await settle(60.0)
        assert (["running"], 2) == (office.states(), len(office.work.begun))


async def test_a_task_may_expire_between_the_look_and_the_claim(autojump_clock: MockClock) -> None:
    """The commits in between take time; it is left to the next look."""
    office = Office()
    task = await office.submit(expires_ms=office.now_ms() + 1_000)
    await settle(2.0)
    assert [] == await office.queue.claim([task])


async def test_crashes_of_workers_are_noticed_by_kind(autojump_clock: MockClock) -> None:
    """Each task of a kind has another id, and a bug of the kind crashes them all."""
    office = Office()
    office.work.errors = [ValueError("a bug"), NotFound("no bug"), ValueError("a bug")]
    for _ in range(3):
        await office.submit(max_attempts=1)
    async with office.live():
        await settle(60.0)
    assert ["task:embed"] * 2 == [each.id for each in office.crashes]


async def test_a_paused_task_is_not_claimed(autojump_clock: MockClock) -> None:
    """Until it is resumed; a running one cannot be paused."""
    office = Office()
    task = await office.submit()
    await office.tasks.pause(ANN, task.task_id)
    async with office.live():
        await settle(60.0)
        assert ([], ["paused"]) == (office.work.begun, office.states())
        office.work.gate = trio.Event()
        await office.tasks.resume(ANN, task.task_id)
        await settle()
        with pytest.raises(IllegalState):
            await office.tasks.pause(ANN, task.task_id)


async def test_a_task_of_an_ended_process_is_done_by_the_next(autojump_clock: MockClock) -> None:
    """Its attempt counts, and a run that it had started is continued."""
    before = Office()
    task = await before.submit(kind="prompt")
    [held] = await before.queue.claim([task])
    after = Office(before.store)
    async with after.live():
        await settle(600.0)
    done = after.task(task.task_id)
    assert ("succeeded", 2, held.run_id) == (done.state, done.attempts, done.run_id)


async def test_the_run_of_a_task_that_was_cancelled_at_the_end_is_stopped(
    autojump_clock: MockClock,
) -> None:
    """The process ended between the commit and the cancel of the run."""
    before = Office()
    task = await before.submit(kind="prompt")
    await before.queue.claim([task])
    await before.tasks.cancel(ANN, task.task_id, "enough")
    after = Office(before.store)
    async with after.live():
        await settle()
    assert [task.task_id] == after.work.abandoned


async def test_an_outcome_survives_a_full_disk(autojump_clock: MockClock) -> None:
    """The work is not repeated; its end is committed once there is room."""
    office = Office()
    office.work.gate = trio.Event()
    await office.submit()
    with capture_logs() as logs:
        async with office.live():
            await settle()
            office.journal.fail_with = DiskFull("full")
            office.work.gate.set()
            await settle(10.0)
            assert ["running"] == office.states()
            office.journal.fail_with = None
            await settle(10.0)
    assert (["succeeded"], 1) == (office.states(), len(office.work.begun))
    assert ["the queue of tasks waits", "the queue of tasks works again"] == [
        line["event"] for line in logs
    ], "one line for the outage, not one for each attempt"


async def test_nothing_is_claimed_in_a_drain_or_suspension(autojump_clock: MockClock) -> None:
    """Nor fired; it waits for the next start, or for the end of the suspension."""
    office = Office()
    office.is_idle = True
    await office.submit()
    await office.add()
    async with office.live():
        await settle(180.0)
        assert ([], ["queued"]) == (office.work.begun, office.states())
        office.is_idle = False  # the end of a suspension: missed instants follow the policy
        office.tasks.notify()
        await settle(10.0)
    assert ["succeeded", "succeeded"] == office.states()


async def test_a_failed_or_expired_task_is_repeated_by_another(autojump_clock: MockClock) -> None:
    """For its own principal, with new attempts; its end stays, and other ends are not repeated."""
    office, root = Office(), caller("root", "operator")
    office.work.errors = [NotFound("no")]
    task = await office.submit(priority=7, max_attempts=2)
    late = await office.submit(not_before_ms=office.now_ms() + 50, expires_ms=office.now_ms() + 100)
    await office.tasks.pause(ANN, late.task_id)
    async with office.live():
        await settle(10.0)
        assert ["failed", "expired"] == office.states()
        again = await office.tasks.retry(root, task.task_id)
        await office.tasks.retry(ANN, late.task_id, office.now_ms() + 60_000)
        await settle(10.0)
        assert ["failed", "expired", "succeeded", "succeeded"] == office.states()
        done = office.task(again.task_id)
        assert ("ann", 7, 2, 1, task.task_id) == (
            done.principal,
            done.priority,
            done.max_attempts,
            done.attempts,
            done.retry_of,
        )
        with pytest.raises(IllegalState, match="succeeded"):
            await office.tasks.retry(ANN, again.task_id)
        with pytest.raises(NotFound):
            await office.tasks.retry(caller("bob"), task.task_id)
        with pytest.raises(InvalidParams, match="expires_ms"):
            await office.tasks.retry(ANN, task.task_id, 5)


@pytest.mark.parametrize(("full", "free"), [("reflection", "embed"), ("embed", "reflection")])
async def test_a_backlog_of_one_group_refuses_nothing_of_the_other(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, full: TaskKind, free: TaskKind
) -> None:
    """Tasks that the daemon submits for a principal have a bound of their own."""
    monkeypatch.setattr(life, "MAX_OPEN", 20)
    monkeypatch.setattr(life, "MAX_OPEN_OWN", 20)
    office = Office()
    for _ in range(20):
        await office.submit(kind=full)
    with pytest.raises(Overloaded, match=r"20 .*palyra tasks list"):
        await office.submit(kind=full)
    await office.submit(kind=free)
    await office.tasks.submit(caller("bob"), Submission(kind=full))


async def test_the_queue_counts_the_tasks_of_the_daemon(autojump_clock: MockClock) -> None:
    """In each cycle, without the tasks of clients; and not at all if no run submits one."""
    office, counts = Office(slots=1), list[dict[str, int]]()
    office.queue.note_own = lambda own: counts.append(dict(own))
    office.work.gate = trio.Event()
    await office.submit()
    for _ in range(3):
        await office.submit(kind="reflection", priority=0)
    async with office.live():
        await settle()
        assert {"ann": 3} == counts[-1]
        office.work.gate.set()
        await settle(5.0)
    assert {} == counts[-1]


async def test_the_daily_cleanup_is_submitted_once_a_day(autojump_clock: MockClock) -> None:
    """Also over a restart, a clock that is set back, and a journal that refuses for a while."""
    office = Office()
    office.tasks.handlers = {**office.tasks.handlers, "cleanup": office.work}
    office.skew_ms = -office.now_ms() % DAY_MS  # midnight
    office.journal.fail_with = DiskFull("full")
    for _ in range(2):
        with trio.move_on_after(2.2 * 86_400):
            async with office.live(), trio.open_nursery() as nursery:
                nursery.start_soon(keep_house, office.tasks)
                await settle(1_000.0)
                office.journal.fail_with = None
                await trio.sleep_forever()
        office.skew_ms -= DAY_MS
    tasks = office.store.list_tasks(TaskFilter(limit=500))[::-1]
    days = [(each.created_ms // DAY_MS) for each in tasks]
    assert days == sorted(set(days))
    assert 4 == len(days)
    assert [f"cleanup@{day * DAY_MS}" for day in days] == [each.firing for each in tasks]


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"kind": "compaction"}, InvalidParams),
        ({"payload": {"bad": 1}}, InvalidParams),
        ({"payload": {"text": SECRET}}, InvalidParams),
        ({"payload": {"text": "x" * 70_000}}, InvalidParams),
        ({"priority": 10}, InvalidParams),
        ({"expires_ms": 5}, InvalidParams),
    ],
)
async def test_unfit_work_is_refused(
    wanted: dict[str, Any], error: type[PalyraError], autojump_clock: MockClock
) -> None:
    """At submission, and by a schedule when it is added."""
    office = Office()
    with pytest.raises(error):
        await office.submit(**wanted)
    if "expires_ms" not in wanted:
        with pytest.raises(error):
            await office.add(**wanted)
    assert ([], []) == (office.states(), office.store.list_schedules(None))


async def test_tasks_belong_to_their_principal(autojump_clock: MockClock) -> None:
    """Another client finds none; work for all needs an operator."""
    office, bob = Office(), caller("bob")
    task, schedule_id = await office.submit(), await office.add()
    with pytest.raises(NotFound):
        await office.tasks.cancel(bob, task.task_id, "")
    with pytest.raises(NotFound):
        await office.schedules.remove(bob, schedule_id)
    with pytest.raises(Forbidden):
        await office.tasks.pause(caller(role="observer"), task.task_id)
    assert ([], []) == (
        await office.tasks.list_all(bob, TaskFilter(principal="ann")),
        await office.schedules.list_all(bob),
    )
    office.work.is_for_all = True
    with pytest.raises(Forbidden):
        await office.submit()
    root = caller("root", "operator")
    done = await office.tasks.submit(root, Submission(kind="embed"))
    assert "queued" == done.state


# --- schedules -------------------------------------------------------------------------------------


async def test_a_schedule_fires_each_instant_once_and_on_time(autojump_clock: MockClock) -> None:
    """Within the same second."""
    office = Office()
    begin_ms = office.now_ms()
    schedule_id = await office.add()
    async with office.live():
        await settle(300.5)
    fired = office.store.list_tasks(TaskFilter())[::-1]
    assert [f"{schedule_id}@{begin_ms + n * 60_000}" for n in range(1, 6)] == [
        each.firing for each in fired
    ]
    assert [0] * 5 == [(each.created_ms - begin_ms) % 60_000 // 1_000 for each in fired]


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 3)])
async def test_missed_instants_follow_the_policy(
    missed: Any, count: int, autojump_clock: MockClock
) -> None:
    """After a restart, a day late; none is decided about twice."""
    before = Office()
    await before.add(missed=missed, overlap="queue", timing=Cron(expression="0 * * * *"))
    after = Office(before.store)
    after.skew_ms = DAY_MS + 1_900_000 - before.now_ms() % 3_600_000
    async with after.live():
        await settle()
        assert count == len(after.states())
        await settle(600.0)
    assert count == len(after.states())


async def test_a_clock_that_is_set_back_fires_nothing_twice(autojump_clock: MockClock) -> None:
    """The instants up to the newest that was decided about are over."""
    office = Office()
    await office.add(overlap="queue")
    async with office.live():
        await settle(125.0)
        assert 2 == len(office.states())
        office.skew_ms = -100_000
        await settle(100.0)
        assert 2 == len(office.states())
        await settle(60.0)
        assert 3 == len(office.states())


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        ("forbid", ["running"]),
        ("queue", ["running", "running", "queued"]),
        ("replace", ["cancelled", "cancelled", "running"]),
    ],
)
async def test_overlap_follows_the_policy(
    overlap: Any, states: list[TaskState], autojump_clock: MockClock
) -> None:
    """While the task of an earlier firing has not ended."""
    office = Office(slots=2)
    office.work.gate, office.work.progress_s = trio.Event(), 10.0
    schedule_id = await office.add(overlap=overlap)
    async with office.live():
        await settle(181.0)
        assert states == office.states()
        record = office.store.find_schedule(schedule_id)
        assert record is not None
        assert 3 == record.fired + record.left_out


async def test_a_paused_schedule_leaves_out_its_pause(autojump_clock: MockClock) -> None:
    """A removed one never fires again, and one moment fires once."""
    office = Office()
    schedule_id = await office.add()
    once = await office.add(timing=At(at_ms=office.now_ms() + 1_000))
    async with office.live():
        await settle(5.0)
        assert (1, None) == (len(office.states()), find_next(office, once))
        await office.schedules.pause(ANN, schedule_id)
        with pytest.raises(IllegalState):
            await office.schedules.pause(ANN, schedule_id)
        await settle(600.0)
        assert 1 == len(office.states())
        await office.schedules.resume(ANN, schedule_id)
        assert 10 == len(await office.schedules.next(ANN, schedule_id))
        await settle(58.0)
        assert 2 == len(office.states())
        await office.schedules.remove(ANN, schedule_id)
        await settle(600.0)
        assert 2 == len(office.states())
    with pytest.raises(NotFound):
        await office.schedules.get(ANN, schedule_id)


def find_next(office: Office, schedule_id: str) -> int | None:
    found = office.store.find_schedule(schedule_id)
    assert found is not None
    return found.next_ms


@pytest.mark.parametrize("change", ["remove", "pause"])
async def test_a_schedule_is_changed_while_it_fires(autojump_clock: MockClock, change: str) -> None:
    """The change is made on what the firing left: the instant fires once, and no other does."""
    office = Office()
    schedule_id = await office.add()
    await settle(61.0)
    journal = cast("Any", office.journal)
    commit, fired = journal.commit, list[int]()

    async def fire_first(change: Change) -> None:
        if not fired:
            due = find_due(office.store, office.now_ms())
            fired.append(await office.schedules.fire(due))
        await commit(change)

    journal.commit = fire_first
    done = await getattr(office.schedules, change)(ANN, schedule_id)
    assert ([1], 1, None) == (fired, done.fired, done.next_ms)
    assert 1 == len(office.states())
    async with office.live():
        await settle(600.0)
    assert ["succeeded"] == office.states()


async def test_a_schedule_that_always_changes_is_a_conflict(autojump_clock: MockClock) -> None:
    """After a few tries, with the schedule in the error."""
    office = Office()
    schedule_id = await office.add()

    async def refuse(_change: Change) -> None:
        await trio.lowlevel.checkpoint()
        raise Conflict("the schedule was changed meanwhile")

    cast("Any", office.journal).commit = refuse
    with pytest.raises(Conflict, match=schedule_id):
        await office.schedules.remove(ANN, schedule_id)


async def test_a_second_process_cannot_fire_or_claim_the_same(autojump_clock: MockClock) -> None:
    """The revision refuses the one that comes second."""
    office = Office()
    await office.add()
    task = await office.submit()
    [due] = office.store.list_due_schedules(now_ms=office.now_ms() + 60_000, limit=9)
    office.skew_ms = 60_000
    stale = [cast("Any", (due, []))]
    await office.schedules.fire(stale)
    await office.schedules.fire(stale)
    other = claim(task, 99, office.now_ms())
    office.store.commit([Change(records=(other,))])
    assert [] == await office.queue.claim([task])
    assert (2, other) == (len(office.states()), office.task(task.task_id))


def test_a_zone_without_rules_is_a_problem_of_its_schedule() -> None:
    """A listing names it before the schedule is due; other timings have no zone."""
    gone = Cron(expression="0 0 * * *", zone="Mars/Olympus")
    assert "'Mars/Olympus'" in find_problem(gone)
    known = Cron(expression="0 0 * * *", zone="Europe/Berlin")
    assert ["", ""] == [find_problem(each) for each in (known, At(at_ms=5))]


async def test_an_unknown_zone_is_refused(autojump_clock: MockClock) -> None:
    """By name, with a remedy."""
    office = Office()
    for zone in ("Nowhere/Land", "../etc/passwd", "Europe"):
        with pytest.raises(InvalidParams, match="IANA"):
            await office.add(timing=Cron(expression="0 0 * * *", zone=zone))


def test_zones_come_from_the_package(tmp_path: Path) -> None:
    """A machine with other rules, or none, knows the same zones."""
    rules = files("tzdata").joinpath("zoneinfo", "UTC").read_bytes()
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(rules)
    summer = datetime(2026, 7, 1, tzinfo=UTC)
    find_zone.cache_clear()
    reset_tzpath([str(tmp_path)])
    try:
        found, other = find_zone("Europe/Berlin"), ZoneInfo.no_cache("Europe/Berlin")
    finally:
        reset_tzpath()
    offsets = [summer.astimezone(zone).utcoffset() for zone in (found, other)]
    assert [timedelta(hours=2), timedelta(0)] == offsets
