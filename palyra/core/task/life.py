"""The life of one background task: its states, the moves between them, the lease of its worker.

A task is work that the daemon owes a principal outside of a conversation.  It survives restarts, is
claimed by one worker at a time, and ends exactly once:

    queued -> running | paused | cancelled | expired
    running -> succeeded | failed | queued | cancelled | expired
    paused -> queued | cancelled | expired

- `queued`: it may be claimed from `not_before_ms` on.
- `running`: a worker holds the lease.  The lease names the owner epoch of the journal and ends at
  `lease_until_ms`; the worker renews it with its progress.  A process knows which of its own workers
  live, so a lease lapses only for a worker of another epoch; a worker that hangs is a symptom, which
  `core.healing` treats as the mode of its domain says.  A failed attempt puts the task back to
  queued, later by a random delay, until its attempts are used up.  So does a lapsed lease: a worker
  that ended with its process leaves no other trace.  The attempt of a lapsed lease counts, because a
  task that kills the daemon must not be tried without end.
- `paused`: it is not claimed until it is resumed.  A running task cannot be paused: its work has no
  state that could be kept.
- `succeeded`, `failed`, `cancelled`, `expired`: final.  A person may have a failed or expired task
  repeated, by another task that names it (`repeat`): an end is an end.

`TASK_MOVES` is the drawing as data.  The moves of a worker need the lease
(`WORKER_MOVES`): after a lapse the same task may run elsewhere, and the end that the first worker
reports is refused.  Two workers of one task may thus overlap for a moment, but never both end it.

Principals share the workers fairly (`core.task.fair_shares`).  The order of the tasks of one principal
is first in, first out within a priority, with linear ageing: each step of priority is
worth `STEP_MS` of waiting.  Since all tasks age at the same rate, the order of two tasks never
changes, and one number fixed at submission (`rank_ms`) is the order; a store can index it.

Sources: leases as in Gray and Cheriton, "Leases", SOSP 1989; ageing as in any text about scheduling.
Pure: the clock and chance are arguments.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from palyra.core.backoff import Backoff, compute_delay_s
from palyra.core.journal.records import AHEAD_MS, TaskKind, TaskLease, TaskRecord, TaskState
from palyra.errors import Conflict, IllegalState, InvalidParams

TaskMove = Literal[
    "claim", "renew", "succeed", "fail", "retry", "lapse", "pause", "resume", "cancel", "expire"
]

STEP_MS = 60_000  # waiting that is worth one step of priority
PRIORITIES = (0, 9)  # the lowest and the highest
LEASE_MS = 120_000  # from the last progress; the window of a stuck task is as long
MAX_ATTEMPTS = 20
RETRY = Backoff(base_s=2.0, cap_s=300.0)

# Kinds that the daemon submits for a principal.  They have a bound of their own, so that their backlog
# never takes the place of tasks that a client wants.
OWN_KINDS: frozenset[TaskKind] = frozenset({"reflection"})
MAX_OPEN = 20_000  # tasks of one principal that have not ended
MAX_OPEN_OWN = 1_000  # of these kinds, as many hours of reading at the slowest

FINAL: frozenset[TaskState] = frozenset({"succeeded", "failed", "cancelled", "expired"})


def _from(*states: TaskState) -> frozenset[TaskState]:
    return frozenset(states)


# move -> (states it is legal in, state after it)
TASK_MOVES: dict[TaskMove, tuple[frozenset[TaskState], TaskState]] = {
    "claim": (_from("queued"), "running"),
    "renew": (_from("running"), "running"),
    "succeed": (_from("running"), "succeeded"),
    "fail": (_from("running"), "failed"),
    "retry": (_from("running"), "queued"),
    "lapse": (_from("running"), "queued"),
    "pause": (_from("queued"), "paused"),
    "resume": (_from("paused"), "queued"),
    "cancel": (_from("queued", "running", "paused"), "cancelled"),
    "expire": (_from("queued", "running", "paused"), "expired"),
}
WORKER_MOVES: frozenset[TaskMove] = frozenset({"renew", "succeed", "fail", "retry"})


def find_bound(kind: TaskKind) -> int:
    """Return how many open tasks of the kind's group a principal may have."""
    return MAX_OPEN_OWN if kind in OWN_KINDS else MAX_OPEN


class Submission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request for a task; times are absolute."""

    kind: TaskKind
    payload: dict[str, Any] = {}
    priority: int = 5
    not_before_ms: int | None = None  # None: at once
    expires_ms: int | None = None
    max_attempts: int = 3
    firing: str | None = None
    retry_of: str | None = None


def repeat(task: TaskRecord, expires_ms: int | None) -> Submission:
    """Return a request for the same work with new attempts.

    Raises IllegalState unless the task failed or expired.
    """
    if task.state not in {"failed", "expired"}:
        raise IllegalState(
            f"{task.task_id} is {task.state}: only a failed or expired task is retried"
        )
    return Submission(
        kind=task.kind,
        payload=task.payload,
        priority=task.priority,
        max_attempts=task.max_attempts,
        expires_ms=expires_ms,
        retry_of=task.task_id,
    )


def submit(wanted: Submission, task_id: str, principal: str, now_ms: int) -> TaskRecord:
    """Return the queued task.  Raises InvalidParams for a value out of range."""
    lowest, highest = PRIORITIES
    if not lowest <= wanted.priority <= highest:
        raise InvalidParams(
            f"priority {wanted.priority}: choose {lowest} to {highest}", field="priority"
        )
    if not 1 <= wanted.max_attempts <= MAX_ATTEMPTS:
        raise InvalidParams(
            f"max_attempts {wanted.max_attempts}: choose 1 to {MAX_ATTEMPTS}", field="max_attempts"
        )
    due_ms = max(now_ms, wanted.not_before_ms or 0)
    if wanted.expires_ms is not None and wanted.expires_ms <= due_ms:
        raise InvalidParams(
            f"expires_ms {wanted.expires_ms} is not after {due_ms}, when the task may begin: "
            "choose a later time",
            field="expires_ms",
        )
    return TaskRecord(
        task_id=task_id,
        kind=wanted.kind,
        principal=principal,
        payload=wanted.payload,
        priority=wanted.priority,
        rank_ms=due_ms - wanted.priority * STEP_MS,
        created_ms=now_ms,
        not_before_ms=due_ms,
        expires_ms=wanted.expires_ms,
        max_attempts=wanted.max_attempts,
        firing=wanted.firing,
        retry_of=wanted.retry_of,
    )


# --- due times ---------------------------------------------------------------------------------


def is_claimable(task: TaskRecord, now_ms: int) -> bool:
    """True if a worker may claim the task now."""
    return task.state == "queued" and task.not_before_ms <= now_ms and not is_expired(task, now_ms)


def is_expired(task: TaskRecord, now_ms: int) -> bool:
    """True if the task has not ended and its time is over, queued, paused or running."""
    return not task.is_final and task.expires_ms is not None and task.expires_ms <= now_ms


def is_lapsed(task: TaskRecord, epoch: int, now_ms: int) -> bool:
    """True if the worker of a running task is lost: its process ended, or its lease was not renewed.

    `epoch` is the owner epoch of this process.  A lease of an earlier epoch has no worker, because
    one process at a time owns the journal.
    """
    lease = task.lease
    return lease is not None and (lease.epoch < epoch or lease.until_ms <= now_ms)


def order(task: TaskRecord) -> tuple[int, str]:
    """Return the sort key of a principal's tasks; the ids of tasks sort by creation."""
    return task.rank_ms, task.task_id


# --- moves ---------------------------------------------------------------------------------------


def claim(task: TaskRecord, epoch: int, now_ms: int) -> TaskRecord:
    """Return the task running, with a lease.  Raises IllegalState unless it is claimable."""
    if task.state == "queued" and not is_claimable(task, now_ms):
        when = "it has expired" if is_expired(task, now_ms) else f"not before {task.not_before_ms}"
        raise IllegalState(f"{task.task_id} cannot be claimed at {now_ms}: {when}")
    attempt = task.attempts + 1
    lease = TaskLease(epoch=epoch, attempt=attempt, until_ms=now_ms + LEASE_MS)
    return _move(task, "claim", attempts=attempt, lease=lease, progress_ms=now_ms)


def renew(task: TaskRecord, held: TaskLease, now_ms: int) -> TaskRecord:
    """Return the task with a lease that is longer, because its work has progressed."""
    lease = msgspec.structs.replace(held, until_ms=max(held.until_ms, now_ms + LEASE_MS))
    return _move(task, "renew", held, lease=lease, progress_ms=now_ms)


def succeed(task: TaskRecord, held: TaskLease, result: dict[str, Any], now_ms: int) -> TaskRecord:
    """Return the task with its result."""
    return _move(task, "succeed", held, result=result, error="", finished_ms=now_ms, lease=None)


def fail(
    task: TaskRecord,
    held: TaskLease,
    error: str,
    now_ms: int,
    rng: Callable[[], float],
    *,
    may_retry: bool,
) -> TaskRecord:
    """Return the task after a failed attempt: queued for a later one, or failed."""
    _check(task, "fail", held)
    if not may_retry or task.attempts >= task.max_attempts:
        return _move(task, "fail", held, error=error, finished_ms=now_ms, lease=None)
    return _move(
        task, "retry", held, error=error, lease=None, not_before_ms=_later_ms(task, now_ms, rng)
    )


def lapse(task: TaskRecord, epoch: int, now_ms: int, rng: Callable[[], float]) -> TaskRecord:
    """Return the task whose worker is lost: queued for a later attempt, or failed.

    Raises IllegalState if the lease holds.
    """
    _check(task, "lapse")
    if not is_lapsed(task, epoch, now_ms):
        raise IllegalState(f"{task.task_id}: its lease holds")
    return requeue(task, f"the worker of attempt {task.attempts} was lost", now_ms, rng)


def requeue(
    task: TaskRecord, error: str, now_ms: int, rng: Callable[[], float], *, is_hung: bool = False
) -> TaskRecord:
    """Return the task whose worker this process gave up: queued for a later attempt, or failed.

    The work of a run continues without the worker, so the next attempt only waits for its end, and
    the last one is no end.  It is for a task that hangs, since each attempt would wait in vain.
    Raises IllegalState unless it is running.
    """
    _check(task, "lapse")
    if task.attempts >= task.max_attempts and (is_hung or task.run_id is None):
        return _move(task, "fail", task.lease, error=error, finished_ms=now_ms, lease=None)
    return _move(task, "lapse", error=error, lease=None, not_before_ms=_later_ms(task, now_ms, rng))


def pause(task: TaskRecord) -> TaskRecord:
    """Return the task paused."""
    return _move(task, "pause")


def resume(task: TaskRecord) -> TaskRecord:
    """Return the task queued again, in its old place."""
    return _move(task, "resume")


def cancel(task: TaskRecord, reason: str, now_ms: int) -> TaskRecord:
    """Return the task cancelled, whatever it was doing."""
    return _move(task, "cancel", error=reason, finished_ms=now_ms, lease=None)


def expire(task: TaskRecord, now_ms: int) -> TaskRecord:
    """Return the task expired.  Raises IllegalState before its time."""
    if not task.is_final and not is_expired(task, now_ms):
        raise IllegalState(f"{task.task_id} expires at {task.expires_ms}, not at {now_ms}")
    error = f"it expired while it was {task.state}"
    return _move(task, "expire", error=error, finished_ms=now_ms, lease=None)


def is_ahead(task: TaskRecord, now_ms: int) -> bool:
    """True if the clock was ahead when an open task was submitted, or attempted last."""
    return not task.is_final and _written_ms(task) > now_ms + AHEAD_MS


def set_back(task: TaskRecord, now_ms: int) -> TaskRecord:
    """Return a queued or paused task with its times moved back by the lead of the clock."""
    shift_ms = _written_ms(task) - now_ms
    return msgspec.structs.replace(
        task,
        created_ms=min(task.created_ms, now_ms),
        progress_ms=None if task.progress_ms is None else min(task.progress_ms, now_ms),
        not_before_ms=task.not_before_ms - shift_ms,
        rank_ms=task.rank_ms - shift_ms,
        expires_ms=None if task.expires_ms is None else task.expires_ms - shift_ms,
        revision=task.revision + 1,
    )


def _written_ms(task: TaskRecord) -> int:
    return max(task.created_ms, task.progress_ms or 0)


def _later_ms(task: TaskRecord, now_ms: int, rng: Callable[[], float]) -> int:
    return now_ms + round(1_000 * compute_delay_s(RETRY, task.attempts, rng))


def _move(
    task: TaskRecord,
    move: TaskMove,
    held: TaskLease | None = None,
    **changes: Any,  # noqa: ANN401 - fields of a task
) -> TaskRecord:
    """Return the next revision.  Raises as `_check`."""
    _check(task, move, held)
    state = TASK_MOVES[move][1]
    return msgspec.structs.replace(task, state=state, revision=task.revision + 1, **changes)


def _check(task: TaskRecord, move: TaskMove, held: TaskLease | None = None) -> None:
    """Raise IllegalState if the state does not allow the move, Conflict for a worker without lease."""
    legal = TASK_MOVES[move][0]
    if task.state not in legal:
        allowed = " or ".join(sorted(legal))
        raise IllegalState(f"{task.task_id} is {task.state}: {move} needs a task that is {allowed}")
    if move in WORKER_MOVES and not _holds(task.lease, held):
        raise Conflict(f"{task.task_id}: another attempt holds the lease")


def _holds(lease: TaskLease | None, held: TaskLease | None) -> bool:
    """True if both are the same lease; its end moves when it is renewed."""
    return (
        lease is not None
        and held is not None
        and (lease.epoch, lease.attempt) == (held.epoch, held.attempt)
    )
