"""Data rights: remove the content of a session, or everything of a principal, for good.

Owns: a lock for each session with a purge in progress.
Never: removes a record of what was removed, by whom and when.

A purge of a session, step by step; each step is committed before the next, and repeating it changes
nothing.

1. The request.  Open tasks of the session are cancelled.  The session's record gets the request, with
   the id of the purge, in the session's own actor: no run of the session is open then and none starts
   later.  The same change deletes its tasks and schedules, and the journal refuses others from then on
   (the triggers in `store.sqlite.schema`).  After a crash or an error from here on, the next start or
   the same request completes the purge (`resume`).
2. Each run.  One change appends `run.purged`, which is signed, replaces all earlier payloads and
   deletes the run's approvals and uses of memory.
3. The memory.  Items that came from this session alone go, with their entries in workspace
   documents; others lose its runs as lineage.  Marks, uses and grants of the session go with it.
4. The files: artifacts and file checkpoints of the session.
5. The end.  The record gets its time.

The journal overwrites what the database freed within seconds (`JournalStore.has_leftovers`).
"""

from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

import msgspec
import structlog
import trio

from palyra.actors.session.registry import SessionServices
from palyra.actors.session.sessions import Sessions
from palyra.core.access import Caller
from palyra.core.journal.changes import Change, RunFilter
from palyra.core.journal.records import (
    RunRecord,
    RunRemoval,
    SessionPurge,
    SessionRecord,
    WorkRemoval,
)
from palyra.core.journal.retention import PRUNES
from palyra.core.memory.items import MemoryPurged
from palyra.core.ports import FileHistory, JournalStore
from palyra.core.session.purge import (
    PurgeSession,
    SessionPurged,
    SessionWork,
    purge_row,
    purge_run,
    run_is_open,
    work_of,
)
from palyra.core.tape.events import RunPurged
from palyra.core.tape.purge import RowsDigest, claim
from palyra.core.tool.checkpoints import CheckpointFilter
from palyra.errors import Conflict, PalyraError
from palyra.operations.runs import Gateway
from palyra.services.memory.documents import AllDocuments
from palyra.services.memory.items import Memories
from palyra.services.memory.search import WRITE, whose_memory
from palyra.services.task.tasks import Tasks

log = structlog.get_logger("palyra.purge")
CANCEL_REASON = "session.purge"
PAGE_ROWS = 1_000
_ALL = 1_000_000_000


class DataRights:
    """Purges.  Methods for clients take the authenticated caller first."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        services: SessionServices,
        sessions: Sessions,
        gateway: Gateway,
        memories: Memories,
        *,
        documents: AllDocuments,
        files: FileHistory,
        tasks: Tasks,
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._gateway = gateway
        self._memories = memories
        self._documents = documents
        self._files = files
        self._tasks = tasks
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    # --- for clients

    async def purge_session(self, caller: Caller, command: PurgeSession) -> SessionPurged:
        """Remove the content of a session that the caller sees; see the module.

        Raises NotFound, and IllegalState that names a run while one is open, unless the command says
        that open runs are cancelled.  Cancellation: once the request is on record, the next start
        completes it; so does the same request.
        """
        caller.require("sessions:write")
        record = await self._sessions.get(caller, command.session_id)
        if command.dry_run:
            return await self._preview(record)
        await self._end_runs(caller, record, cancel=command.cancel)
        work = await self._end_work(work_of(record))
        purge = SessionPurge(
            purge_id=self._services.new_id("pur"),
            by=caller.principal,
            requested_ms=self._services.now_ms(),
        )
        marked = await self._sessions.mark_purged(record, purge)
        self._tasks.notify()  # the queue ends the worker of a task that was claimed meanwhile
        done = await self._complete(marked)
        return msgspec.structs.replace(
            done,
            tasks=len(work.tasks),
            schedules=len(work.schedules),
            continuing=work.continuing,
        )

    async def purge_principal(
        self, caller: Caller, principal: str, *, sessions: bool, cancel: bool, dry_run: bool
    ) -> MemoryPurged:
        """Delete a principal's memory, and with `sessions` the content of all its sessions first.

        Raises as `purge_session` and `Memories.purge` do.  Cancellation: some sessions may have been
        purged; the same request completes the others.
        """
        caller.require(WRITE)
        whose = whose_memory(caller, principal)
        if sessions:
            caller.require("sessions:write")
        found = await self._list_sessions(whose) if sessions else []
        if not dry_run:
            for record in found:
                await self._end_runs(caller, record, cancel=cancel)
        removed = 0
        for record in found:
            command = PurgeSession(session_id=record.session_id, cancel=cancel, dry_run=dry_run)
            done = await self.purge_session(caller, command)
            removed += 0 if dry_run else done.items
        if sessions and not dry_run:
            everything = WorkRemoval(principal=whose, session_id=None)
            await self._end_work(everything)
            await self._services.journal.commit(Change(records=(everything,)))
            self._tasks.notify()
        result = await self._memories.purge(caller, whose, dry_run=dry_run)
        await self._services.procedures.reload()
        return msgspec.structs.replace(result, items=result.items + removed, sessions=len(found))

    async def resume(self) -> None:
        """Complete the purges that a crash or an error cut short; a failure is logged."""
        found = await self._services.journal.read(lambda store: store.list_purging())
        for record in found:
            try:
                await self._complete(record)
            except PalyraError as error:
                log.warning(
                    "purge.not_completed", session_id=record.session_id, error=error.message
                )

    # --- steps

    async def _list_sessions(self, principal: str) -> list[SessionRecord]:
        found = await self._services.journal.read(
            lambda store: store.list_sessions(principal, before=None, limit=_ALL)
        )
        return [record for record in found if record.purge is None or record.is_purging]

    async def _list_runs(self, session_id: str) -> list[RunRecord]:
        return await self._services.journal.read(
            lambda store: store.list_runs(RunFilter(session_id=session_id, limit=_ALL))
        )

    async def _end_work(self, removal: WorkRemoval) -> SessionWork:
        """Cancel the open tasks that the removal deletes; return all that it deletes."""
        work = await self._tasks.end_work(removal)
        self._services.incidents.forget({*work.tasks, *work.schedules})
        return work

    async def _end_runs(self, caller: Caller, record: SessionRecord, *, cancel: bool) -> None:
        """Cancel the open runs of a session, or raise IllegalState if there is one."""
        for run in await self._list_runs(record.session_id):
            if run.is_terminal:
                continue
            if not cancel:
                raise run_is_open(run.run_id)
            await self._gateway.cancel_run(caller, run.run_id, CANCEL_REASON)

    async def _preview(self, record: SessionRecord) -> SessionPurged:
        runs = await self._list_runs(record.session_id)
        run_ids = [run.run_id for run in runs]
        plan = await self._memories.plan_session(record.principal, record.session_id, run_ids)
        work = await self._services.journal.read(lambda store: store.find_work(work_of(record)))
        run_blocking = self._services.run_blocking
        checkpoints = await run_blocking(
            self._files.list, CheckpointFilter(session_id=record.session_id, limit=_ALL)
        )
        return SessionPurged(
            session_id=record.session_id,
            dry_run=True,
            runs=sum(run.purged_ms is None for run in runs),
            events=sum(run.head_seq + 1 for run in runs if run.purged_ms is None),
            items=len(plan.gone),
            tasks=len(work.tasks),
            schedules=len(work.schedules),
            continuing=work.continuing,
            artifacts=await run_blocking(self._services.artifacts.count_session, record.session_id),
            file_checkpoints=len(checkpoints),
            document_entries=len(await self._documents.list_shown(plan.gone)),
            branches=await self._list_branches(record.session_id, run_ids),
        )

    async def _complete(self, record: SessionRecord) -> SessionPurged:
        """Take the steps after the request, one request of a session at a time."""
        session_id = record.session_id
        async with self._locks.setdefault(session_id, trio.Lock()):
            latest = await self._services.journal.find(lambda s: s.find_session(session_id))
            return await self._take_steps(latest or record)

    async def _take_steps(self, record: SessionRecord) -> SessionPurged:
        session_id, purge = record.session_id, record.purge
        assert purge is not None  # noqa: S101 - the caller has marked it
        runs = await self._list_runs(session_id)
        run_ids = [run.run_id for run in runs]
        done = SessionPurged(
            session_id=session_id,
            purge_id=purge.purge_id,
            by=purge.by,
            requested_ms=purge.requested_ms,
            done_ms=purge.done_ms,
            branches=await self._list_branches(session_id, run_ids),
        )
        if purge.done_ms is not None:
            return done
        kept = [run for run in runs if run.purged_ms is None]
        events = 0
        for run in kept:
            if not run.is_terminal:
                raise run_is_open(run.run_id)
            events += await self.purge_unpurged(run, purge)
        self.forget_runs(run_ids)
        self._services.incidents.forget({session_id, *run_ids})
        self._services.grants.forget_session(session_id)
        plan = await self._memories.plan_session(record.principal, session_id, run_ids)
        shown = await self._documents.list_shown(plan.gone)
        items = await self._memories.purge_session(
            record.principal, session_id, run_ids, by=purge.by
        )
        await self._services.procedures.reload()
        run_blocking = self._services.run_blocking
        artifacts = await run_blocking(self._services.artifacts.drop_session, session_id)
        checkpoints = await run_blocking(self._files.drop_session, session_id)
        after = await self._sessions.mark_purge_done(record)
        log.info("purge.done", session_id=session_id, purge_id=purge.purge_id, runs=len(kept))
        return msgspec.structs.replace(
            done,
            done_ms=None if after.purge is None else after.purge.done_ms,
            runs=len(kept),
            events=events,
            items=items,
            artifacts=artifacts,
            file_checkpoints=checkpoints,
            document_entries=len(shown),
        )

    async def purge_unpurged(self, run: RunRecord, purge: SessionPurge) -> int:
        """Purge a run, as `purge_run` does; return 0 if another purge has purged it.

        Raises Unavailable and Conflict.  Cancellation: as of `purge_run`.
        """
        try:
            return await self.purge_run(run, purge)
        except Conflict as conflict:
            refused = conflict
        if not await self._is_purged(run.run_id):
            raise refused
        return 0

    async def _is_purged(self, run_id: str) -> bool:
        """True if the payloads of the run are gone."""
        found = await self._services.journal.find(lambda store: store.find_run(run_id))
        return found is None or found.purged_ms is not None

    async def purge_run(self, run: RunRecord, purge: SessionPurge) -> int:
        """Replace the payloads of one ended run, with the event that proves it.

        Return their number.  Raises Unavailable and Conflict, and then nothing was changed.
        Cancellation: the change may be committed.
        """
        digest = await self._services.journal.read(partial(_digest, run_id=run.run_id))
        at_ms = self._services.now_ms()
        event = RunPurged(
            purge_id=purge.purge_id,
            by=purge.by,
            events=digest.rows,
            digest=digest.hexdigest(),
            signature="",
        )
        signature = self._services.sign(claim(run.run_id, event, at_ms)).hex()
        row = purge_row(run, msgspec.structs.replace(event, signature=signature), at_ms)
        removal = RunRemoval(
            run_id=run.run_id,
            events=digest.rows,
            at_ms=at_ms,
            keeps_accepted=purge.purge_id.startswith(PRUNES),
        )
        await self._services.journal.commit(
            Change(rows=(row,), records=(purge_run(run, row), removal))
        )
        return digest.rows

    def forget_runs(self, run_ids: Sequence[str]) -> None:
        """Drop purged runs from the memory of the daemon."""
        self._services.histories.forget(run_ids)
        self._memories.search.note_purged_turns()

    async def _list_branches(self, session_id: str, run_ids: Sequence[str]) -> tuple[str, ...]:
        """Return the other sessions with a run that was forked from one of these."""
        found = await self._services.journal.read(lambda store: store.list_branches(run_ids))
        return tuple(sorted({run.session_id for run in found} - {session_id}))


def _digest(store: JournalStore, *, run_id: str) -> RowsDigest:
    """Return the digest over all rows of a run.  Blocks."""
    digest, after_seq = RowsDigest(), -1
    while page := store.read_chain(run_id, after_seq=after_seq, limit=PAGE_ROWS):
        for each in page:
            digest.add((each.position, each.hash, each.row))
        after_seq = page[-1].row.seq
    return digest
