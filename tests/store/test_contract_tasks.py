"""The contract of both stores about tasks and schedules."""

from itertools import product
from typing import Any

import msgspec

from palyra.core.journal.changes import Change, TaskFilter
from palyra.core.journal.records import (
    TASK_KEPT_MS,
    Every,
    ScheduleRecord,
    TaskKind,
    TaskRecord,
    TaskState,
)
from palyra.core.ports import JournalStore
from palyra.core.task.life import cancel, claim, fail, pause
from tests.store.kit import Clock
from tests.store.test_contract_records import put


def task(task_id: str = "tsk_1", **fields: Any) -> TaskRecord:
    wanted = {"rank_ms": 0, "created_ms": 0, "not_before_ms": 0, "principal": "ann", **fields}
    return TaskRecord(task_id=task_id, kind="prompt", **wanted)


def schedule(schedule_id: str = "sch_1", **fields: Any) -> ScheduleRecord:
    wanted = {"principal": "ann", "handled_ms": 0, "next_ms": 60_000, "created_ms": 0, **fields}
    return ScheduleRecord(
        schedule_id=schedule_id,
        name="n",
        kind="prompt",
        timing=Every(period_ms=60_000, anchor_ms=0),
        **wanted,
    )


def ids(found: list[TaskRecord]) -> list[str]:
    return [each.task_id for each in found]


def test_a_task_comes_back_and_changes_in_turn(store: JournalStore) -> None:
    """One of two changes of the same revision is refused, and so is a change of an ended task."""
    first = task()
    claimed = claim(first, 1, 5)
    ended = cancel(claimed, "enough", 6)
    outcomes = put(store, first, claimed, pause(first), ended, cancel(ended_again(ended), "no", 7))
    assert [None, None, "Conflict", None, "Conflict"] == outcomes
    assert (ended, None) == (store.find_task("tsk_1"), store.find_task("tsk_2"))


def ended_again(ended: TaskRecord) -> TaskRecord:
    """The task as a writer with a stale view of it would have it."""
    return msgspec.structs.replace(ended, state="queued")


def test_a_firing_has_one_task(store: JournalStore) -> None:
    """Also after the first one ended; the change of a refused task leaves nothing."""
    fired = task(firing="sch_1@60000")
    again = task("tsk_2", firing="sch_1@60000")
    assert [None, None] == put(store, fired, cancel(fired, "enough", 6))
    assert ["Conflict"] == [
        type(each).__name__ for each in store.commit([Change(records=(again, schedule()))])
    ]
    assert (None, None) == (store.find_task("tsk_2"), store.find_schedule("sch_1"))


def test_claims_are_in_order_of_rank(store: JournalStore) -> None:
    """Only what is queued, due and not expired."""
    paused = pause(task("tsk_5"))
    put(
        store,
        task("tsk_1", rank_ms=9),
        task("tsk_2", rank_ms=3),
        task("tsk_3", rank_ms=3),
        task("tsk_4", not_before_ms=11),
        msgspec.structs.replace(paused, revision=1),
        task("tsk_6", expires_ms=10),
        task("tsk_7"),
        claim(task("tsk_7"), 1, 5),
    )
    assert ["tsk_2", "tsk_3", "tsk_1"] == ids(store.list_claimable(now_ms=10, limit=9, running={}))
    assert ["tsk_2"] == ids(store.list_claimable(now_ms=10, limit=1, running={}))
    assert (["tsk_7"], ["tsk_6"]) == (
        ids(store.list_running()),
        ids(store.list_expired_tasks(now_ms=10, limit=9)),
    )
    assert [7, 0] == [store.count_open_tasks(each, own=False) for each in ("ann", "bob")]


def test_failed_tasks_of_a_day_and_running_ones_are_counted(store: JournalStore) -> None:
    """Later failures, other ends and tasks whose time has not come are no part of the numbers."""
    day_ms = 86_400_000
    running = claim(task("tsk_1"), 1, 5)
    lease = running.lease
    assert lease is not None
    put(store, task("tsk_1"), task("tsk_2"), task("tsk_3", not_before_ms=2 * day_ms))
    put(store, running)
    put(store, fail(running, lease, "broken", 10, lambda: 0.0, may_retry=False))
    put(store, claim(task("tsk_2"), 1, 5))
    for now_ms, failed in ((day_ms, 1), (day_ms + 10, 0)):
        counts = store.count_tasks(None, now_ms=now_ms)
        assert (0, 1, failed) == (counts.due, counts.running, counts.failed)


def test_tasks_of_the_daemon_are_counted_apart(store: JournalStore) -> None:
    """By principal, those that have not ended, and not among the tasks of clients."""
    own = [msgspec.structs.replace(task(f"tsk_{n}"), kind="reflection") for n in range(3)]
    other = msgspec.structs.replace(own[0], task_id="tsk_8", principal="bob")
    put(store, *own, other, task("tsk_9"), task("tsk_a"))
    put(store, cancel(own[2], "enough", 9))
    assert {"ann": 2, "bob": 1} == store.count_own_tasks()
    counts = store.count_tasks("ann", now_ms=5)
    assert (4, 0, 0, 2, 1_000) == (
        counts.due,
        counts.oldest_due_ms,
        counts.running,
        counts.own,
        counts.own_limit,
    )
    assert 5 == store.count_tasks(None, now_ms=5).due
    assert (0, None) == (
        store.count_tasks("eve", now_ms=5).due,
        store.count_tasks("eve", now_ms=5).oldest_due_ms,
    )
    assert (2, 2) == tuple(store.count_open_tasks("ann", own=each) for each in (True, False))


def test_lists_are_newest_first_and_filtered(store: JournalStore) -> None:
    """By principal, kind, state, schedule and page."""
    put(
        store,
        task("tsk_1"),
        task("tsk_2", principal="bob"),
        task("tsk_3", firing="sch_1@5"),
        msgspec.structs.replace(task("tsk_4", firing="sch_10@5"), kind="embed"),
    )
    wanted = [
        TaskFilter(),
        TaskFilter(principal="bob"),
        TaskFilter(schedule_id="sch_1"),
        TaskFilter(kind="embed"),
        TaskFilter(states=("paused",)),
        TaskFilter(before="tsk_3", limit=1),
    ]
    assert [
        ["tsk_4", "tsk_3", "tsk_2", "tsk_1"],
        ["tsk_2"],
        ["tsk_3"],
        ["tsk_4"],
        [],
        ["tsk_2"],
    ] == [ids(store.list_tasks(each)) for each in wanted]
    assert ["tsk_3"] == ids(store.list_fired("sch_1"))


def test_claims_and_firings_are_shared_fairly(store: JournalStore) -> None:
    """A principal that runs fewer tasks is next; more of one principal than fit a page are read."""
    crowd = [task(f"tsk_{each:03}", rank_ms=each) for each in range(40)]
    late = [task(f"tsk_{each}", rank_ms=9_000, principal="bob") for each in (900, 901)]
    put(store, *crowd, *late)
    found = ids(store.list_claimable(now_ms=9_000, limit=5, running={}))
    assert ["tsk_000", "tsk_900", "tsk_001", "tsk_901", "tsk_002"] == found
    found = ids(store.list_claimable(now_ms=9_000, limit=3, running={"ann": 2}))
    assert ["tsk_900", "tsk_901", "tsk_000"] == found
    found = ids(store.list_claimable(now_ms=9_000, limit=99, running={"bob": 99}))
    assert [*(each.task_id for each in crowd), "tsk_900", "tsk_901"] == found
    many = [schedule(f"sch_{each:03}", next_ms=each) for each in range(40)]
    put(store, *many, schedule("sch_9", next_ms=8_000, principal="bob"))
    due = store.list_due_schedules(now_ms=9_000, limit=3)
    assert ["sch_000", "sch_9", "sch_001"] == [each.schedule_id for each in due]


def test_tasks_are_listed_by_state_and_kind(store: JournalStore) -> None:
    """Each filter and page gives what a look at all tasks gives."""
    kinds: list[TaskKind] = ["prompt", "embed"]
    for each in range(60):
        made = msgspec.structs.replace(
            task(f"tsk_{each:03}", principal="ab"[each % 3 == 0]), kind=kinds[each % 2]
        )
        put(store, made)
        if each % 5 == 0:
            put(store, cancel(made, "enough", 6))
        elif each % 7 == 0:
            put(store, pause(made))
    everything = store.list_tasks(TaskFilter(limit=500))
    states: list[tuple[TaskState, ...]] = [(), ("paused",), ("paused", "cancelled"), ("failed",)]
    for principal, kind, wanted, before in product(
        (None, "a", "b"), (None, *kinds), states, (None, "tsk_030")
    ):
        chosen = TaskFilter(principal=principal, kind=kind, states=wanted, before=before, limit=7)
        assert [
            each.task_id
            for each in everything
            if principal in {None, each.principal}
            and kind in {None, each.kind}
            and (not wanted or each.state in wanted)
            and (before is None or each.task_id < before)
        ][:7] == ids(store.list_tasks(chosen))


def test_schedules_are_found_by_their_next_instant(store: JournalStore) -> None:
    """Neither paused nor removed ones; a change of an old revision is refused."""
    first, later = schedule(), schedule("sch_2", next_ms=90_000)
    removed = msgspec.structs.replace(first, removed_ms=5, next_ms=None, revision=2)
    paused = schedule("sch_3", next_ms=None, is_paused=True, principal="bob")
    assert [None, None, None] == put(store, first, later, paused)
    assert 60_000 == store.find_next_due(after_ms=0)
    assert [first] == store.list_due_schedules(now_ms=60_000, limit=9)
    assert [None, "Conflict"] == put(store, removed, removed)
    assert [later] == store.list_schedules("ann")
    assert [later, paused] == store.list_schedules(None)
    assert [later] == store.list_due_schedules(now_ms=90_000, limit=9)
    assert removed == store.find_schedule("sch_1")


def test_the_next_due_time_is_that_of_a_start_or_an_end(store: JournalStore) -> None:
    """None for a journal without open tasks and schedules."""
    assert store.find_next_due(after_ms=0) is None
    put(store, task("tsk_1", not_before_ms=70), task("tsk_2", expires_ms=50))
    assert [50, 50] == [store.find_next_due(after_ms=each) for each in (0, 60)]


def test_ended_tasks_are_kept_a_week(store: JournalStore, clock: Clock) -> None:
    """The seal deletes older ones; an open task stays whatever its age."""
    old, new = task("tsk_1"), task("tsk_2")
    put(store, old, cancel(old, "enough", 0), new, cancel(new, "enough", 5), task("tsk_3"))
    clock.now_ms = TASK_KEPT_MS
    store.seal()
    assert ["tsk_3", "tsk_2"] == ids(store.list_tasks(TaskFilter()))
