"""Background tasks as clients use them: submit, list, pause, resume, cancel.

Owns: the event that wakes the queue; tasks are records of the journal.
Talks to: the journal, the hub, the handlers of the kinds.
Never: accepts a kind that has no handler, or a payload that contains a secret.

A change is a compare-and-set of the task's revision.  The queue changes running tasks at the same
time, so a refused change is decided again on the newest revision.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.changes import Change, TaskFilter
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import Record, TaskKind, TaskRecord, WorkRemoval
from palyra.core.ports import Journal, JournalStore, Notifier, NowMs, TaskHandler
from palyra.core.redaction.redactor import Redactor
from palyra.core.session.purge import SessionWork
from palyra.core.task.life import (
    OWN_KINDS,
    Submission,
    cancel,
    find_bound,
    pause,
    repeat,
    resume,
    submit,
)
from palyra.core.task.schedule import firing_key
from palyra.core.task.views import TaskCounts, TaskView
from palyra.errors import Conflict, Forbidden, InvalidParams, NotFound, Overloaded

READ, WRITE = "tasks:read", "tasks:write"
MAX_PAYLOAD_BYTES = 65_536
DAEMON = "palyra"  # principal of the tasks that the daemon submits itself
DAY_MS = 86_400_000
TRIES = 5  # of a change; a running task changes a few times a minute


class Tasks:
    """Tasks for clients, and the table of the kinds' handlers."""

    def __init__(
        self,
        *,
        journal: Journal,
        hub: Notifier,
        redactor: Redactor,
        now_ms: NowMs,
        new_id: NewId,
        handlers: Mapping[TaskKind, TaskHandler],
    ) -> None:
        self.handlers = handlers
        self._journal = journal
        self._hub = hub
        self._redactor = redactor
        self._now_ms = now_ms
        self._new_id = new_id
        self._woken = trio.Event()
        self.stopped: Callable[[TaskRecord], None] = lambda _task: None  # set by the queue

    # --- the queue's side

    def notify(self) -> None:
        """Wake the queue."""
        self._woken.set()

    async def wait_woken(self) -> None:
        """Wait for the next `notify`, or return at once if there was one since the last wait."""
        await self._woken.wait()
        self._woken = trio.Event()

    def publish(self, task: TaskRecord) -> None:
        """Notify clients that the committed task has changed."""
        self._hub.notify("task.updated", TaskView.of(task), principal=task.principal, scope=READ)

    def get_handler(self, kind: TaskKind) -> TaskHandler:
        """Return the handler.  Raises InvalidParams for a kind without one."""
        handler = self.handlers.get(kind)
        if handler is None:
            known = ", ".join(sorted(self.handlers))
            raise InvalidParams(
                f"this daemon does no tasks of the kind {kind!r}: choose {known}", field="kind"
            )
        return handler

    async def check_work(self, caller: Caller, kind: TaskKind, payload: dict[str, Any]) -> None:
        """Check the work now, not when its time comes.  Raises InvalidParams, Forbidden."""
        handler = self.get_handler(kind)
        if handler.is_for_all and caller.role != "operator":
            raise Forbidden(f"only operators submit {kind}, because it is work for all principals")
        await handler.check(payload)
        text = msgspec.json.encode(payload)
        if len(text) > MAX_PAYLOAD_BYTES:
            raise InvalidParams(
                f"the payload has {len(text)} bytes, the limit is {MAX_PAYLOAD_BYTES}",
                field="payload",
            )
        if self._redactor.redact_bytes(text)[1]:
            raise InvalidParams(
                "the payload contains a secret, and payloads are stored: leave it out",
                field="payload",
            )

    # --- for clients

    async def submit(
        self, caller: Caller, wanted: Submission, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        """Return the committed task.

        Raises InvalidParams, Overloaded at `find_bound`, Unavailable.
        Cancellation: the task may have been committed; repeat with the idempotency key.
        """
        caller.require(WRITE)
        await self.check_work(caller, wanted.kind, wanted.payload)
        return await self._submit(caller.principal, wanted, receipt)

    async def submit_daily(self, kind: TaskKind) -> bool:
        """Submit a task of the daemon's own, once a day (UTC); False if this day has one.

        The day is in the unique key of its firing, so neither a crash nor a clock repeats it.
        Raises Overloaded, Unavailable.  Cancellation: the task may have been committed.
        """
        day = self._now_ms() // DAY_MS
        wanted = Submission(kind=kind, firing=firing_key(kind, day * DAY_MS))
        try:
            await self._submit(DAEMON, wanted, None)
        except Conflict:
            return False
        return True

    async def _submit(
        self, principal: str, wanted: Submission, receipt: IdempotencyKey | None
    ) -> TaskRecord:
        task = submit(wanted, self._new_id("tsk"), principal, self._now_ms())
        own, most = wanted.kind in OWN_KINDS, find_bound(wanted.kind)
        count = await self._journal.find(lambda store: store.count_open_tasks(principal, own=own))
        if count >= most:
            what = wanted.kind if own else "tasks"
            raise Overloaded(
                f"{count} {what} have not ended, which is the limit: `palyra tasks list --state queued` names them",
                retry_after_ms=1_000,
            )
        await self._commit(task, receipt)
        return task

    async def list_all(self, caller: Caller, wanted: TaskFilter) -> list[TaskRecord]:
        """Return the tasks that the caller sees, newest first."""
        caller.require(READ)
        if caller.principal_filter is not None:
            wanted = msgspec.structs.replace(wanted, principal=caller.principal_filter)
        return await self._journal.read(lambda store: store.list_tasks(wanted))

    async def count(self, caller: Caller) -> TaskCounts:
        """Return numbers of the tasks that the caller sees."""
        caller.require(READ)
        whose, now_ms = caller.principal_filter, self._now_ms()
        return await self._journal.read(lambda store: store.count_tasks(whose, now_ms=now_ms))

    async def get(self, caller: Caller, task_id: str) -> TaskRecord:
        """Return the task.  Raises NotFound, also for a task of another principal."""
        caller.require(READ)
        found = await self._journal.find(lambda store: store.find_task(task_id))
        if found is None or not caller.sees(found.principal):
            raise NotFound(f"no task {task_id!r}", field="task_id")
        return found

    async def cancel(
        self, caller: Caller, task_id: str, reason: str, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        """Cancel the task and stop its work; return it committed.  Raises NotFound, IllegalState."""
        text = self._redactor.redact_text(reason or f"cancelled by {caller.principal}")[0]
        return await self._change(
            caller, task_id, lambda task: cancel(task, text, self._now_ms()), receipt
        )

    async def pause(
        self, caller: Caller, task_id: str, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        """Keep a queued task from being claimed.  Raises NotFound, IllegalState."""
        return await self._change(caller, task_id, pause, receipt)

    async def resume(
        self, caller: Caller, task_id: str, receipt: IdempotencyKey | None = None
    ) -> TaskRecord:
        """Queue a paused task again, in its old place.  Raises NotFound, IllegalState."""
        return await self._change(caller, task_id, resume, receipt)

    async def retry(
        self,
        caller: Caller,
        task_id: str,
        expires_ms: int | None = None,
        receipt: IdempotencyKey | None = None,
    ) -> TaskRecord:
        """Return a committed task that repeats a failed or expired one, for the same principal.

        Raises NotFound, IllegalState, and as `submit` does.  Cancellation: as of `submit`.
        """
        caller.require(WRITE)
        found = await self.get(caller, task_id)
        wanted = repeat(found, expires_ms)
        await self.check_work(caller, wanted.kind, wanted.payload)
        return await self._submit(found.principal, wanted, receipt)

    # --- for purges

    async def end_work(self, removal: WorkRemoval) -> SessionWork:
        """Cancel the open tasks that the removal will delete; return all that it will delete.

        Raises Unavailable.  Cancellation: some may have been cancelled.
        """

        def read(store: JournalStore) -> tuple[SessionWork, list[TaskRecord | None]]:
            work = store.find_work(removal)
            return work, [store.find_task(each) for each in work.tasks]

        work, found = await self._journal.read(read)
        now_ms = self._now_ms()
        open_ones = [each for each in found if each is not None and not each.is_final]
        cancelled = [cancel(each, "its session is purged", now_ms) for each in open_ones]
        writes = [self._journal.append(Change(records=(each,))) for each in cancelled]
        for task, write in zip(cancelled, writes, strict=True):
            try:
                await write.wait()
            except Conflict:  # it changed meanwhile: its worker ends when it finds the task removed
                continue
            self.publish(task)
            self.stopped(task)
        return work

    async def _change(
        self,
        caller: Caller,
        task_id: str,
        move: Callable[[TaskRecord], TaskRecord],
        receipt: IdempotencyKey | None,
    ) -> TaskRecord:
        """Apply the move to the newest revision.  Raises Conflict after `TRIES` refusals.

        Cancellation: the change may have been committed.
        """
        caller.require(WRITE)
        for _ in range(TRIES):
            task = await self.get(caller, task_id)
            changed = move(task)
            try:
                await self._commit(changed, receipt)
            except Conflict:
                continue
            if changed.is_final:
                self.stopped(changed)
            return changed
        raise Conflict(f"{task_id} changes all the time: try again")

    async def _commit(self, task: TaskRecord, receipt: IdempotencyKey | None) -> None:
        records: list[Record] = [task]
        if receipt is not None:
            records.append(receipt_for(receipt, task, self._now_ms()))
        with trio.CancelScope(shield=True):  # committed or refused; bounded by the disk
            await self._journal.commit(Change(records=tuple(records)))
        self.publish(task)
        self.notify()
