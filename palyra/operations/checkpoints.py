"""Session checkpoints: mark a point of a session, list the points, continue from one in a branch.

Owns: nothing.  Talks to: sessions, the journal, the gateway, file checkpoints, documents.
Never: changes the session that it restores from.

A compaction is a checkpoint of its own: `compaction.applied` is on the tape, the conversation before
it is a fold of the tape, so its id names the point without a second record that could be missing
after a crash.  A checkpoint on request is a record.

A restore first puts the files back, then the entries of documents, if that is wanted, then starts the
branch.  No step changes anything when it is repeated: files and entries that are as before stay, and
the branch has the receipt of the request in its own commit.  So a repeated request completes one that
a crash interrupted.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from palyra.actors.session.registry import SessionServices
from palyra.actors.session.sessions import Sessions
from palyra.core.access import Caller
from palyra.core.context.history import MAX_RUNS
from palyra.core.journal.changes import Change, RunFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import SessionCheckpointRecord, SessionRecord
from palyra.core.ports import FileHistory, JournalStore
from palyra.core.run.state import COMPACTION, RESTORE
from palyra.core.session.commands import RestoreSession, SessionCheckpoints, SessionRestored
from palyra.core.session.queue import BESIDE
from palyra.core.tape import events as ev
from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, Mark, Rewound
from palyra.errors import IllegalState, InvalidParams, NotFound
from palyra.operations.runs import Gateway, fork_command
from palyra.services.memory.documents import AllDocuments
from palyra.services.session.checkpoints import ForkMark, find_mark
from palyra.services.tape.pins import read_rows
from palyra.services.tape.run_loader import read_run

MAX_LISTED = 500
NAMED_FILES = 100  # file checkpoints that a record names
PAGE_FILES = 500


class _Applied(NamedTuple):
    """A compaction on a tape."""

    compaction_id: str
    run_id: str
    seq: int
    at_ms: int


class Checkpointer:
    """Checkpoints of sessions.  Every method takes the authenticated caller first."""

    def __init__(
        self,
        services: SessionServices,
        sessions: Sessions,
        gateway: Gateway,
        files: FileHistory,
        documents: AllDocuments,
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._gateway = gateway
        self._files = files
        self._documents = documents

    async def create(
        self, caller: Caller, session_id: str, run_id: str | None, seq: int | None, name: str
    ) -> SessionCheckpointRecord:
        """Mark a point of the caller's session, by default the newest one; return it committed.

        The point is the last event at or before `seq` where every call has its result.
        Raises NotFound, InvalidParams, IllegalState for a session without a message.
        Cancellation: the record may have been committed.
        """
        caller.require("sessions:write")
        services = self._services
        session = await self._get_own(caller, session_id)
        if (run_id is None) != (seq is None):
            raise InvalidParams("give run_id and seq, or neither of them", field="seq")
        mark, point, applied = await services.journal.read(
            lambda store: _find_point(store, session, run_id, seq)
        )
        before = await self._changes(session, point, is_after=False)
        record = SessionCheckpointRecord(
            checkpoint_id=services.new_id("scp"),
            principal=session.principal,
            session_id=session_id,
            run_id=mark.point.run.run_id,
            seq=mark.point.seq,
            created_ms=services.now_ms(),
            name=name,
            compaction_ids=tuple(each.compaction_id for each in applied),
            file_checkpoint_ids=tuple(each.checkpoint_id for each in before[:NAMED_FILES]),
        )
        await services.journal.commit(Change(records=(record,)))
        return record

    async def list_seen(self, caller: Caller, session_id: str, limit: int) -> SessionCheckpoints:
        """Return the checkpoints of a session, newest first, those of compactions included.

        Raises NotFound.  Cancellation: nothing happened.
        """
        caller.require("sessions:read")
        session = await self._sessions.get(caller, session_id)
        found = await self._services.journal.read(lambda store: _list(store, session, limit))
        return SessionCheckpoints(checkpoints=found)

    async def restore(
        self, caller: Caller, command: RestoreSession, receipt: IdempotencyKey | None = None
    ) -> SessionRestored:
        """Start a branch with the conversation of a checkpoint; without an id of the last compaction.

        With `files` the changes that calls of the session made since are undone; with `documents`
        workspace documents get the entries of that time, also if others changed them since, which only
        operators may ask for.  Raises NotFound, IllegalState for a session without a compaction,
        Conflict naming the files that another program changed since (`force` overwrites them), and
        the errors of `Documents.restore` and `Gateway.start_run`.
        Cancellation: files and documents may have been put back and the branch may exist; repeat
        with the idempotency key.
        """
        caller.require("runs:write")
        session = await self._get_own(caller, command.session_id)
        record, mark, point = await self._services.journal.read(
            lambda store: _get_marked(store, session, command.checkpoint_id)
        )
        branch = await self._gateway.branch(mark)
        if not branch.messages:
            raise IllegalState("the conversation is empty at that checkpoint")
        made = await self._changes(session, point, is_after=True) if command.files else []
        rewound = await self._rewind(made, force=command.force, dry_run=True)
        documents: dict[str, int] = {}
        if command.documents:
            documents = await self._restore_documents(caller, session, point, dry_run=True)
        summary = branch.summary
        restored = SessionRestored(
            parent_run_id=branch.run_id,
            at_seq=branch.at_seq,
            checkpoint_id=record.checkpoint_id,
            messages=len(branch.messages),
            summary_tokens=0 if summary is None else summary.after_tokens,
            files=rewound.files,
            conflicts=rewound.conflicts,
            documents=documents,
        )
        if command.dry_run:
            return restored
        rewound = await self._rewind(made, force=command.force, dry_run=False)
        if command.documents:
            await self._restore_documents(caller, session, point, dry_run=False)
        restored = msgspec.structs.replace(restored, file_checkpoint_id=rewound.checkpoint_id)
        start = msgspec.structs.replace(
            fork_command(mark.point, branch, None), origin=RESTORE, restored=restored
        )
        if start.model not in self._services.models:
            start = msgspec.structs.replace(start, model=None, model_choice=None)
        started = await self._gateway.start_run(caller, start, receipt)
        return msgspec.structs.replace(
            restored, session_id=started.session_id, run_id=started.run_id
        )

    async def _get_own(self, caller: Caller, session_id: str) -> SessionRecord:
        session = await self._sessions.get(caller, session_id)
        if session.principal != caller.principal:
            raise NotFound(f"no session {session_id!r}", field="session_id")
        return session

    async def _changes(
        self, session: SessionRecord, point: Mark, *, is_after: bool
    ) -> list[Checkpoint]:
        """Return the session's file checkpoints after the mark, or those before it; newest first."""
        return await self._services.run_blocking(
            partial(_list_changes, self._files, session, point, is_after=is_after)
        )

    async def _restore_documents(
        self, caller: Caller, session: SessionRecord, point: Mark, *, dry_run: bool
    ) -> dict[str, int]:
        documents = self._documents.of(session.workspace)
        return await documents.restore_all(caller, point.at_ms, dry_run=dry_run)

    async def _rewind(self, made: list[Checkpoint], *, force: bool, dry_run: bool) -> Rewound:
        """Undo the changes, given newest first."""
        if not made:
            return Rewound()
        return await self._services.run_blocking(
            partial(self._files.rewind, made[::-1], is_forced=force, is_dry=dry_run)
        )


def _list_changes(
    files: FileHistory, session: SessionRecord, point: Mark, *, is_after: bool
) -> list[Checkpoint]:
    found: list[Checkpoint] = []
    wanted = CheckpointFilter(
        principal=session.principal, session_id=session.session_id, limit=PAGE_FILES
    )
    while True:
        page = files.list(wanted)
        found += (each for each in page if point.precedes(each) == is_after)
        if len(page) < PAGE_FILES or (not is_after and len(found) >= NAMED_FILES):
            return found
        wanted = msgspec.structs.replace(wanted, before=page[-1].checkpoint_id)


# --- points; these functions block ---------------------------------------------------------------


def _run_ids(store: JournalStore, session_id: str) -> list[str]:
    """Return ids of the session's runs that have started, latest start first."""
    return store.list_started_ids(RunFilter(session_id=session_id, limit=MAX_RUNS))


def _compactions(store: JournalStore, session_id: str) -> Iterator[_Applied]:
    """Yield the compactions of a session, newest first."""
    for run_id in _run_ids(store, session_id):
        head = store.find_run(run_id)
        rows = read_rows(store, run_id, -1 if head is None else head.head_seq)
        applied = [row for row in rows if row.kind == ev.CompactionApplied.KIND]
        for row, event in ev.read_events(reversed(applied)):
            if isinstance(event, ev.CompactionApplied):
                yield _Applied(event.compaction_id, run_id, row.seq, row.at_ms)


def _find_newest(store: JournalStore, session: SessionRecord) -> tuple[str, int]:
    """Return the newest foreground run with a conversation, and its last event."""
    for run_id in _run_ids(store, session.session_id):
        loaded = read_run(store, run_id)
        accepted = None if loaded is None else loaded.run.accepted
        if loaded is None or accepted is None or accepted.origin in BESIDE | {COMPACTION}:
            continue
        if accepted.epoch == session.epoch:
            return run_id, loaded.run.next_seq - 1
    raise IllegalState(f"{session.session_id} has no message yet: there is nothing to mark")


def _find_point(
    store: JournalStore, session: SessionRecord, run_id: str | None, seq: int | None
) -> tuple[ForkMark, Mark, list[_Applied]]:
    """Return the mark, and the compactions before it."""
    if run_id is None or seq is None:
        run_id, seq = _find_newest(store, session)
    record = store.find_run(run_id)
    if record is None or record.session_id != session.session_id:
        raise NotFound(f"the session has no run {run_id!r}", field="run_id")
    mark = find_mark(store, run_id, seq)
    earlier = _run_ids(store, session.session_id)
    earlier = earlier[earlier.index(run_id) :] if run_id in earlier else []
    applied = [
        each
        for each in _compactions(store, session.session_id)
        if each.run_id in earlier and (each.run_id != run_id or each.seq <= mark.point.seq)
    ]
    return mark, _mark(store, mark), applied


def _mark(store: JournalStore, mark: ForkMark) -> Mark:
    """Return the place of the mark among the changes of files."""
    run = mark.point.run
    head = store.find_run(run.run_id)
    started: dict[str, int] = {}
    at_ms = run.clock.created_ms
    for row in read_rows(store, run.run_id, mark.point.seq if head is None else head.head_seq):
        if row.seq <= mark.point.seq:
            at_ms = row.at_ms
        event = ev.decode_event(row.kind, row.data) if row.kind == ev.ToolStarted.KIND else None
        if isinstance(event, ev.ToolStarted):
            started[event.call_id] = row.seq
    return Mark(run_id=run.run_id, seq=mark.point.seq, at_ms=at_ms, started=started)


def _list(store: JournalStore, session: SessionRecord, limit: int) -> list[SessionCheckpointRecord]:
    kept = store.list_session_checkpoints(session.session_id, limit=limit)
    applied = list(_compactions(store, session.session_id))
    made = [_of_compaction(session, applied, place) for place in range(len(applied))]
    found = sorted([*kept, *made], key=lambda each: each.created_ms, reverse=True)
    return found[:limit]


def _of_compaction(
    session: SessionRecord, applied: list[_Applied], place: int
) -> SessionCheckpointRecord:
    """Return the checkpoint just before a compaction."""
    each = applied[place]
    return SessionCheckpointRecord(
        checkpoint_id=each.compaction_id,
        principal=session.principal,
        session_id=session.session_id,
        run_id=each.run_id,
        seq=each.seq - 1,
        created_ms=each.at_ms,
        cause="compaction",
        compaction_ids=tuple(earlier.compaction_id for earlier in applied[place + 1 :]),
    )


def _get_marked(
    store: JournalStore, session: SessionRecord, checkpoint_id: str | None
) -> tuple[SessionCheckpointRecord, ForkMark, Mark]:
    """Return a checkpoint of the session and its mark; without an id that of the last compaction."""
    for record in _list(store, session, MAX_LISTED):
        is_wanted = record.checkpoint_id == checkpoint_id
        if is_wanted or (checkpoint_id is None and record.cause == "compaction"):
            break
    else:
        if checkpoint_id is None:
            raise IllegalState(f"{session.session_id} was never compacted")
        raise NotFound(
            f"the session has no checkpoint {checkpoint_id!r}: `palyra sessions checkpoints "
            f"{session.session_id}` lists them",
            field="checkpoint_id",
        )
    mark = find_mark(store, record.run_id, record.seq)
    return record, mark, _mark(store, mark)
