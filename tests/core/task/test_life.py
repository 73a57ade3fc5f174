"""The life of a background task."""

from collections.abc import Callable
from typing import Any, cast, get_args

import msgspec
import pytest

from palyra.core.journal.records import TaskLease, TaskRecord, TaskState
from palyra.core.task.life import (
    FINAL,
    LEASE_MS,
    STEP_MS,
    TASK_MOVES,
    Submission,
    TaskMove,
    cancel,
    claim,
    expire,
    fail,
    is_ahead,
    is_claimable,
    is_lapsed,
    lapse,
    order,
    pause,
    renew,
    resume,
    set_back,
    submit,
    succeed,
)
from palyra.errors import Conflict, IllegalState, InvalidParams
from tests.rows import every_row

NOW = 1_000_000
STATES: tuple[TaskState, ...] = get_args(TaskState)


def half() -> float:
    return 0.5


def queued(task_id: str = "tsk_1", now_ms: int = NOW, **wanted: Any) -> TaskRecord:
    request = msgspec.convert({"kind": "prompt", **wanted}, Submission)
    return submit(request, task_id, "ann", now_ms)


def running(**wanted: Any) -> tuple[TaskRecord, TaskLease]:
    task = claim(queued(**wanted), 3, NOW)
    assert task.lease is not None
    return task, task.lease


HELD = TaskLease(epoch=3, attempt=1, until_ms=NOW)
# Each at a time at which only the state and the lease can forbid the move.
MOVES: dict[TaskMove, Callable[[TaskRecord], TaskRecord]] = {
    "claim": lambda task: claim(task, 3, NOW),
    "renew": lambda task: renew(task, HELD, NOW),
    "succeed": lambda task: succeed(task, HELD, {}, NOW),
    "fail": lambda task: fail(task, HELD, "no", NOW, half, may_retry=False),
    "retry": lambda task: fail(task, HELD, "no", NOW, half, may_retry=True),
    "lapse": lambda task: lapse(task, 4, NOW, half),
    "pause": pause,
    "resume": resume,
    "cancel": lambda task: cancel(task, "no", NOW),
    "expire": lambda task: expire(msgspec.structs.replace(task, expires_ms=NOW), NOW),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("move", TASK_MOVES)
def test_a_move_is_made_in_the_states_of_its_row_only(move: TaskMove, state: TaskState) -> None:
    """It leads to the state of its row, as the next revision; elsewhere nothing changes."""
    task = running()[0] if state == "running" else msgspec.structs.replace(queued(), state=state)
    legal, after = TASK_MOVES[move]
    if state in legal:
        moved = MOVES[move](task)
        assert (after, task.revision + 1) == (moved.state, moved.revision)
        assert (after == "running") == (moved.lease is not None)
    else:
        with pytest.raises(IllegalState, match=state):
            MOVES[move](task)


def test_no_move_leaves_a_final_state() -> None:
    """An end is an end."""
    assert not any(legal & FINAL for legal, _ in TASK_MOVES.values())


@every_row("move", ["renew", "succeed", "fail", "retry"])
def test_a_worker_without_the_lease_is_refused(move: TaskMove) -> None:
    """After a lapse the task runs again elsewhere: the first worker can neither end nor keep it."""
    task, held = running()
    later = lapse(task, 3, held.until_ms, half)
    again = claim(later, 3, later.not_before_ms)
    with pytest.raises(Conflict, match="lease"):
        MOVES[move](again)


def test_a_task_waits_for_its_time() -> None:
    """It is claimable from not_before on and until it expires."""
    task = queued(not_before_ms=NOW + 10, expires_ms=NOW + 20)
    assert [False, True, True, False] == [is_claimable(task, NOW + at) for at in (9, 10, 19, 20)]
    with pytest.raises(IllegalState, match="not before"):
        claim(task, 3, NOW + 9)
    with pytest.raises(IllegalState, match="expired"):
        claim(task, 3, NOW + 20)


def test_a_running_task_without_a_lease_takes_no_result() -> None:
    """A record that lost its lease is finished by the lapse of it, not by a worker."""
    task, held = running()
    with pytest.raises(Conflict, match="another attempt"):
        succeed(msgspec.structs.replace(task, lease=None), held, {}, NOW)
    assert "succeeded" == succeed(task, held, {}, NOW).state


def test_first_in_first_out_within_a_priority() -> None:
    """Of equal priority the older is first; of equal age the higher priority."""
    tasks = [
        queued("tsk_1", NOW, priority=5),
        queued("tsk_2", NOW + 1, priority=5),
        queued("tsk_3", NOW + 2, priority=6),
    ]
    assert ["tsk_3", "tsk_1", "tsk_2"] == [each.task_id for each in sorted(tasks, key=order)]


def test_the_lowest_priority_starves_for_no_longer_than_its_steps() -> None:
    """A task of the highest priority overtakes it only if it is submitted within nine steps."""
    old = queued("tsk_1", NOW, priority=0)
    overtaken = queued("tsk_2", NOW + 9 * STEP_MS - 1, priority=9)
    later = queued("tsk_3", NOW + 9 * STEP_MS, priority=9)
    assert [overtaken, old, later] == sorted([old, overtaken, later], key=order)


def test_a_retry_waits_longer_each_time_and_keeps_its_place() -> None:
    """The ceiling doubles from 2 s to 5 min; the rank stays that of the submission."""
    task, waits = queued(max_attempts=12), list[int]()
    for _ in range(11):
        claimed = claim(task, 3, task.not_before_ms)
        at_ms = task.not_before_ms
        task = fail(
            claimed,
            claimed.lease or TaskLease(epoch=0, attempt=0, until_ms=0),
            "no",
            at_ms,
            lambda: 1.0,
            may_retry=True,
        )
        waits.append(task.not_before_ms - at_ms)
    assert [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000] == waits[:8]
    assert [300_000] * 3 == waits[8:]
    assert queued().rank_ms == task.rank_ms


def test_the_last_attempt_fails_the_task() -> None:
    """With its error, and also if its worker was lost."""
    task, held = running(max_attempts=1)
    failed = fail(task, held, "no", NOW, half, may_retry=True)
    lost = lapse(task, 4, NOW, half)
    assert [("failed", "no"), ("failed", "the worker of attempt 1 was lost")] == [
        (each.state, each.error) for each in (failed, lost)
    ]


def test_a_lease_lapses_with_its_process_or_without_progress() -> None:
    """Never before; progress makes it longer."""
    task, held = running()
    renewed = renew(task, held, NOW + 5)
    assert [False, True, True] == [
        is_lapsed(task, 3, held.until_ms - 1),
        is_lapsed(task, 3, held.until_ms),
        is_lapsed(task, 4, NOW),
    ]
    assert not is_lapsed(renewed, 3, NOW + LEASE_MS)
    with pytest.raises(IllegalState, match="holds"):
        lapse(task, 3, NOW, half)


def test_a_clock_that_is_set_back_shortens_no_lease() -> None:
    """A renewal leads to no earlier end."""
    task, held = running()
    renewed = renew(task, held, NOW - 3_600_000)
    assert renewed.lease == held


def test_nothing_expires_before_its_time() -> None:
    """Neither does a task without a time."""
    for task in (queued(), queued(expires_ms=NOW + 1)):
        with pytest.raises(IllegalState, match="expires"):
            expire(task, NOW)


@every_row(
    ("field", "value"),
    [
        ("priority", -1),
        ("priority", 10),
        ("max_attempts", 0),
        ("max_attempts", 21),
        ("expires_ms", NOW),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: int) -> None:
    """With the value in the message."""
    with pytest.raises(InvalidParams, match=str(value)) as refused:
        queued(**cast("dict[str, Any]", {field: value}))
    assert field == refused.value.field


def test_a_paused_task_is_not_claimed_until_it_is_resumed() -> None:
    """It keeps its place meanwhile."""
    task = queued()
    paused = pause(task)
    assert not is_claimable(paused, NOW)
    with pytest.raises(IllegalState, match="paused"):
        claim(paused, 3, NOW)
    assert (order(task), "running") == (order(resume(paused)), claim(resume(paused), 3, NOW).state)


def test_a_running_task_is_not_paused() -> None:
    """It is cancelled or left to its end."""
    with pytest.raises(IllegalState, match="pause needs a task that is queued"):
        pause(running()[0])


def test_a_running_task_expires_and_is_cancelled() -> None:
    """Both take its lease, so its worker can end it no more."""
    task, held = running(expires_ms=NOW + 1)
    for ended in (expire(task, NOW + 1), cancel(task, "no", NOW)):
        with pytest.raises(IllegalState, match=ended.state):
            succeed(ended, held, {}, NOW + 2)


@pytest.mark.parametrize("kind", ["queued", "paused", "retried"])
def test_times_of_a_clock_that_was_ahead_are_set_back(kind: str) -> None:
    """The task begins, ranks and expires as if it had been written now; others are left alone."""
    ahead_ms = NOW + 3_600_000
    wanted: dict[str, Any] = {"not_before_ms": ahead_ms + 60_000, "expires_ms": ahead_ms + 90_000}
    task = queued(now_ms=ahead_ms, **wanted)
    if kind == "paused":
        task = pause(task)
    if kind == "retried":
        held = claim(queued(now_ms=NOW), 3, ahead_ms)
        assert held.lease is not None
        task = fail(held, held.lease, "no", ahead_ms, half, may_retry=True)
    assert is_ahead(task, NOW)
    after = set_back(task, NOW)
    assert not is_ahead(after, NOW)
    assert task.revision + 1 == after.revision
    shift_ms = ahead_ms - NOW
    assert (task.not_before_ms - shift_ms, task.rank_ms - shift_ms) == (
        after.not_before_ms,
        after.rank_ms,
    )
    if task.expires_ms is not None:
        assert NOW + 90_000 == after.expires_ms
    assert not is_ahead(queued(now_ms=NOW + 1_000), NOW)
    assert not is_ahead(cancel(task, "no", NOW), NOW)
