"""The queue of background tasks: claims, leases, outcomes; the part that decides and commits.

Owns: the running tasks of this process and their outcomes that are not committed yet.
Talks to: the journal, the tasks.  Called by: the actor `background`, and workers through `progress`
and `finish`, which never wait.
Never: starts or stops a worker; the actor does.

Claiming is optimistic: the queue reads the tasks that are due and commits each with its lease, and
the store refuses a task whose revision has changed.  A store for several processes does both in one
statement (`FOR UPDATE SKIP LOCKED`), behind the same `claim`.

A cycle of the actor is one look at the journal and one batch of changes: the outcomes of finished
work, renewed leases, and the claims for the slots that are free.  An outcome stays here until its
commit is known, so a full disk delays the end of a task but loses nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from palyra.core.ids import NewId
from palyra.core.journal.changes import Change, TaskFilter
from palyra.core.journal.records import TaskLease, TaskRecord
from palyra.core.ports import Journal, JournalStore, NowMs, PendingWrite
from palyra.core.redaction.redactor import Redactor
from palyra.core.task.life import (
    LEASE_MS,
    MAX_OPEN,
    cancel,
    claim,
    expire,
    fail,
    is_ahead,
    is_claimable,
    is_lapsed,
    lapse,
    renew,
    requeue,
    set_back,
    succeed,
)
from palyra.errors import Conflict
from palyra.services.task.schedules import DueSchedule, find_due
from palyra.services.task.tasks import Tasks

RUN_KINDS = frozenset({"prompt", "compaction"})  # a run does the work, and survives a restart
EXPIRED_BATCH = 500
ABANDONED_BATCH = 500


class Succeeded(NamedTuple):
    """The work is done."""

    result: dict[str, Any]


class AttemptFailed(NamedTuple):
    """The attempt failed."""

    error: str
    may_retry: bool
    needs_run: bool = False  # the run has ended: the next attempt begins another one


Outcome = Succeeded | AttemptFailed


@dataclass(slots=True)
class Running:
    """One attempt of a task in this process."""

    task: TaskRecord  # as committed
    held: TaskLease
    progress_ms: int
    outcome: Outcome | None = None
    has_progressed: bool = False
    silent_since_s: float | None = None  # set by the watchdog, erased by progress
    given_up: str = ""  # why the task goes back to the queue
    is_hung: bool = False  # it was given up because it made no progress


class Look(NamedTuple):
    """The state of the journal that one cycle decides about."""

    claimable: list[TaskRecord]
    running: list[TaskRecord]
    expired: list[TaskRecord]
    schedules: list[DueSchedule]
    next_due_ms: int | None
    own: dict[str, int]  # open tasks of `OWN_KINDS` by principal; empty without `note_own`


class TaskClaims(Protocol):
    """Port by which a process takes tasks: for a fleet `SELECT … FOR UPDATE SKIP LOCKED` in one statement."""

    async def claim(self, found: Sequence[TaskRecord]) -> list[TaskRecord]:
        """Return the tasks that this process now holds, each with its lease, committed."""


@dataclass(slots=True)
class TaskQueue:
    """See the module.  It outlives an incarnation of the actor, as workers do."""

    journal: Journal
    tasks: Tasks
    redactor: Redactor
    epoch: Callable[[], int]
    now_ms: NowMs
    random: Callable[[], float]
    new_id: NewId
    note_own: Callable[[Mapping[str, int]], None] | None = (
        None  # gets the open tasks of `OWN_KINDS`
    )
    running: dict[str, Running] = field(default_factory=dict)

    # --- called by workers

    def progress(self, task_id: str) -> None:
        """Note real progress of the work; the next cycle renews the lease if it is time."""
        entry = self.running.get(task_id)
        if entry is not None:
            entry.progress_ms = self.now_ms()
            entry.has_progressed, entry.silent_since_s = True, None

    def finish(self, task: TaskRecord, outcome: Outcome) -> None:
        """Note the outcome of an attempt; the first one counts."""
        entry = self.running.get(task.task_id)
        if entry is not None and entry.held == task.lease and entry.outcome is None:
            entry.outcome = outcome
            self.tasks.notify()

    def give_up(self, task_id: str, reason: str, *, is_hung: bool = False) -> bool:
        """Have the next cycle put a running task back; False if its attempt has ended.

        A task that hangs fails after its last attempt, even if its run goes on.
        """
        entry = self.running.get(task_id)
        if entry is None or entry.outcome is not None:
            return False
        entry.given_up, entry.is_hung = reason, is_hung
        self.tasks.notify()
        return True

    def forget(self, task_id: str) -> None:
        """Give up a task that was ended elsewhere."""
        self.running.pop(task_id, None)
        self.tasks.notify()

    # --- one cycle

    @property
    def count_busy(self) -> int:
        """Number of tasks whose work goes on."""
        return sum(entry.outcome is None for entry in self.running.values())

    async def look(self, slots: int) -> Look:
        """Read what there is to do, at most `slots` tasks to claim.  Raises Unavailable."""
        now_ms = self.now_ms()
        busy = Counter(
            entry.task.principal for entry in self.running.values() if entry.outcome is None
        )

        def read(store: JournalStore) -> Look:
            claimable = (
                store.list_claimable(now_ms=now_ms, limit=slots, running=busy) if slots > 0 else []
            )
            return Look(
                claimable,
                store.list_running(),
                store.list_expired_tasks(now_ms=now_ms, limit=EXPIRED_BATCH),
                find_due(store, now_ms),
                store.find_next_due(after_ms=now_ms),
                {} if self.note_own is None else store.count_own_tasks(),
            )

        return await self.journal.read(read)

    async def settle(self) -> None:
        """Commit the outcomes of finished work, and the leases of work that has progressed.

        Raises Unavailable; the outcomes are kept.
        Cancellation: an outcome may have been committed; a second commit of it is refused.
        """
        now_ms = self.now_ms()
        changed = []
        for entry in list(self.running.values()):
            if entry.outcome is not None:
                changed.append((entry, self._end(entry, entry.outcome, now_ms)))
            elif _wants_renewal(entry):
                changed.append((entry, renew(entry.task, entry.held, entry.progress_ms)))
        writes = [(entry, task, self._append(task)) for entry, task in changed]
        for entry, task, write in writes:
            try:
                await write.wait()
            except Conflict:
                await self._read_again(entry)
                continue
            entry.task = task
            if task.state != "running":
                self._drop(entry)
                self.tasks.publish(task)

    def _end(self, entry: Running, outcome: Outcome, now_ms: int) -> TaskRecord:
        match outcome:
            case Succeeded():
                return succeed(entry.task, entry.held, self._redact(outcome.result), now_ms)
            case AttemptFailed():
                error = self.redactor.redact_text(outcome.error)[0]
                failed = fail(
                    entry.task,
                    entry.held,
                    error,
                    now_ms,
                    self.random,
                    may_retry=outcome.may_retry,
                )
                if outcome.needs_run and not failed.is_final:
                    return msgspec.structs.replace(failed, run_id=None)
                return failed

    def _redact(self, result: dict[str, Any]) -> dict[str, Any]:
        text = self.redactor.redact_bytes(msgspec.json.encode(result))[0]
        return msgspec.json.decode(text, type=dict[str, Any])

    async def _read_again(self, entry: Running) -> None:
        """Take the newest revision of a task; give it up if this attempt does not hold it."""
        task_id = entry.task.task_id
        found = await self.journal.find(lambda store: store.find_task(task_id))
        lease = None if found is None else found.lease
        if (
            found is None
            or lease is None
            or (lease.epoch, lease.attempt)
            != (
                entry.held.epoch,
                entry.held.attempt,
            )
        ):
            self._drop(entry)
            return
        entry.task = found
        self.tasks.notify()

    def _drop(self, entry: Running) -> None:
        """Forget this attempt; a later one of the same task stays."""
        if self.running.get(entry.task.task_id) is entry:
            del self.running[entry.task.task_id]

    async def claim(self, found: Sequence[TaskRecord]) -> list[TaskRecord]:
        """See `TaskClaims`.  Raises Unavailable; then a lease that was committed lapses."""
        now_ms, epoch = self.now_ms(), self.epoch()
        writes = []
        for task in found:
            if task.task_id in self.running or not is_claimable(task, now_ms):
                continue  # it has expired since the look
            claimed = claim(task, epoch, now_ms)
            if task.kind in RUN_KINDS and task.run_id is None:
                claimed = msgspec.structs.replace(claimed, run_id=self.new_id("run"))
            writes.append((claimed, self._append(claimed)))
        held = []
        for task, write in writes:
            try:
                await write.wait()
            except Conflict:  # cancelled or paused meanwhile
                continue
            assert task.lease is not None  # noqa: S101 - `claim` gives one
            self.running[task.task_id] = Running(task, task.lease, now_ms)
            held.append(task)
        return held

    async def reclaim(self, look: Look) -> list[TaskRecord]:
        """Expire tasks and queue those whose worker is lost; return those whose work must stop.

        Among them are those that this process takes for running and the journal does not: a change of
        them was committed and its reply lost with a crash of the journal.  Raises Unavailable.
        """
        now_ms, epoch = self.now_ms(), self.epoch()
        changed = {task.task_id: expire(task, now_ms) for task in look.expired}
        for task in look.running:
            entry = self.running.get(task.task_id)
            if task.task_id in changed:
                continue
            if entry is None and is_lapsed(task, epoch, now_ms):
                changed[task.task_id] = lapse(task, epoch, now_ms, self.random)
            elif entry is not None and entry.given_up and entry.outcome is None:
                changed[task.task_id] = requeue(
                    task, entry.given_up, now_ms, self.random, is_hung=entry.is_hung
                )
        stopped = await self._find_ended({task.task_id for task in look.running})
        for task, write in [(task, self._append(task)) for task in changed.values()]:
            try:
                await write.wait()
            except Conflict:  # it changed meanwhile; the next cycle looks again
                continue
            self.running.pop(task.task_id, None)
            self.tasks.publish(task)
            stopped.append(task)
        return stopped

    async def _find_ended(self, running: set[str]) -> list[TaskRecord]:
        """Return the tasks of live workers that are not among those."""
        ended = [
            task_id
            for task_id, entry in self.running.items()
            if entry.outcome is None and task_id not in running
        ]
        if not ended:
            return []
        found = await self.journal.read(lambda store: [store.find_task(each) for each in ended])
        return [
            task or cancel(self.running[task_id].task, "it was purged", self.now_ms())
            for task_id, task in zip(ended, found, strict=True)
            if task is not None or task_id in self.running
        ]

    async def set_back(self) -> tuple[int, int]:
        """Give up times of open tasks that a clock wrote that was ahead; return their number, and the latest.

        Raises Unavailable.  Cancellation: some were set back.
        """
        now_ms = self.now_ms()
        wanted = TaskFilter(states=("queued", "paused"), limit=MAX_OPEN)
        found = await self.journal.read(
            lambda store: [each for each in store.list_tasks(wanted) if is_ahead(each, now_ms)]
        )
        count = 0
        for task, write in [(task, self._append(set_back(task, now_ms))) for task in found]:
            try:
                await write.wait()
            except Conflict:  # changed meanwhile, by the same clock
                continue
            count += 1
            self.tasks.publish(set_back(task, now_ms))
        return count, max(
            (max(each.created_ms, each.progress_ms or 0) for each in found), default=0
        )

    async def list_ended(self, task_ids: Sequence[str]) -> list[str]:
        """Return those of the tasks that are final, paused or unknown.  Raises Unavailable."""

        def read(store: JournalStore) -> list[str]:
            found = ((each, store.find_task(each)) for each in task_ids)
            return [
                task_id
                for task_id, task in found
                if task is None or task.is_final or task.state == "paused"
            ]

        return await self.journal.read(read)

    async def list_abandoned(self) -> list[TaskRecord]:
        """Return ended tasks whose run may go on because the last process ended in between."""
        wanted = TaskFilter(states=("cancelled", "expired"), limit=ABANDONED_BATCH)
        found = await self.journal.read(lambda store: store.list_tasks(wanted))
        return [task for task in found if task.run_id is not None]

    def _append(self, task: TaskRecord) -> PendingWrite:
        return self.journal.append(Change(records=(task,)))


def _wants_renewal(entry: Running) -> bool:
    """True if the work has progressed since a quarter of the lease."""
    lease = entry.task.lease
    return lease is not None and entry.progress_ms - lease.until_ms + LEASE_MS > LEASE_MS // 4
