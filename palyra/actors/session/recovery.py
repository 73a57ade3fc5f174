"""Recovery at start: hand every open run to its session, and abandon runs that cannot be recovered.

Talks to: the journal, then the session of each open run.
Never: decides how a run resumes; `core.run` does, from the tape.
Restart: transient; recovery ends when every open run has a session.

A run is stranded if its tape cannot be folded.  Its tape stays as it is, and a client may abandon
the run: `run.cancelled` is appended to a tape that cannot be replayed.  A call that was executing
gets no outcome, because none is known, and the reason says so.  Open questions are settled with it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec
import structlog
import trio

from palyra.actors.session.registry import ORPHANED, ActorRegistry, SessionServices
from palyra.core.incident.kinds import run_stranded, stranded_key
from palyra.core.journal.changes import Change
from palyra.core.journal.records import ApprovalRecord, RunRecord, SessionRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.ports import JournalStore
from palyra.core.run.inputs import Cancel
from palyra.core.tape.events import RunCancelled, encode_event
from palyra.errors import ActorGone, Damaged, Unavailable, Unreadable
from palyra.services.tape.run_loader import LoadedRun, read_run

log = structlog.get_logger("palyra.recovery")

RUNS_A_READ = 16  # read and folded in one thread call; their first steps run during the next


class _Found(msgspec.Struct, frozen=True):
    """The open runs of one session, oldest first, and its stranded ones."""

    session: SessionRecord | None
    runs: tuple[LoadedRun, ...]
    stranded: tuple[tuple[str, str], ...]  # run_id, why


async def recovery(
    services: SessionServices,
    adopt: Callable[[SessionRecord, tuple[LoadedRun, ...]], None],
    on_done: Callable[[int], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hand every open run to its session, oldest session first, once grants, budgets and procedures are loaded.

    A run whose tape cannot be folded is recorded as stranded; a delegated one whose parent has ended
    is abandoned, because no run above it will give it up.
    Cancellation: nothing is lost; the next start finds the same tapes.
    """
    task_status.started()
    grants, budgets = services.grants, services.budgets
    procedures = services.procedures
    open_runs, granted, spendings, accepted = await services.journal.read(
        lambda store: (
            store.list_open_runs(),
            grants.query(store),
            budgets.query(store),
            procedures.query(store),
        )
    )
    procedures.put(accepted)
    grants.put(granted)
    budgets.put(spendings)
    _note_children(services.registry, open_runs)
    for sessions in _in_batches(_by_session(open_runs)):
        for found in await services.journal.read(lambda store: _read_all(store, sessions)):  # noqa: B023 - called before the next round
            if found.session is not None:
                adopt(found.session, found.runs)
            for run_id, reason in found.stranded:
                services.registry.stranded[run_id] = reason
                services.incidents.report(run_stranded(run_id, reason))
    services.registry.is_complete = True
    await _abandon_orphans(services, open_runs)
    services.incidents.end_start()
    on_done(len(open_runs))


def _note_children(registry: ActorRegistry, open_runs: list[RunRecord]) -> None:
    """Register open delegated runs; those above which no run is open are cancelled when adopted."""
    for record in open_runs:
        registry.add_child(record)
    for run_id in registry.children.keys() - {record.run_id for record in open_runs}:
        registry.end_children(run_id)


async def _abandon_orphans(services: SessionServices, open_runs: list[RunRecord]) -> None:
    """Abandon stranded runs without a parent.  Cancellation: the next start finds the rest."""
    registry = services.registry
    for record in open_runs:
        if record.run_id in registry.orphans and record.run_id in registry.stranded:
            try:
                await abandon_run(services, record, ORPHANED)
            except (Unavailable, ActorGone) as error:  # a full disk: the next start tries again
                log.warning("a run was not given up", run_id=record.run_id, error=error.message)
                continue
            registry.orphans.discard(record.run_id)
            registry.end_children(record.run_id)


def _by_session(open_runs: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """Group the runs by session; sessions and runs oldest first."""
    by_session: dict[str, list[RunRecord]] = defaultdict(list)
    for record in sorted(open_runs, key=lambda record: (record.created_ms, record.run_id)):
        by_session[record.session_id].append(record)
    return list(by_session.values())


def _in_batches(sessions: list[list[RunRecord]]) -> Iterator[list[list[RunRecord]]]:
    """Yield whole sessions in batches of about `RUNS_A_READ` runs."""
    batch: list[list[RunRecord]] = []
    for records in sessions:
        batch.append(records)
        if sum(map(len, batch)) >= RUNS_A_READ:
            yield batch
            batch = []
    if batch:
        yield batch


def _read_all(store: JournalStore, sessions: list[list[RunRecord]]) -> list[_Found]:
    return [_read(store, records) for records in sessions]


def _read(store: JournalStore, records: list[RunRecord]) -> _Found:
    """Read one session with its open runs."""
    session = store.find_session(records[0].session_id)
    runs: list[LoadedRun] = []
    stranded: list[tuple[str, str]] = []
    for record in records:
        try:
            runs.append(_follow(store, record, session))
        except Unreadable as broken:
            stranded.append((record.run_id, broken.message))
    return _Found(session, tuple(runs), tuple(stranded))


def _follow(store: JournalStore, record: RunRecord, session: SessionRecord | None) -> LoadedRun:
    """Load a run from its tape.  Raises Unreadable, also if tape or session is missing."""
    if session is None:
        raise Damaged(f"its session {record.session_id} is not there")
    found = read_run(store, record.run_id)
    if found is None:
        raise Damaged("its tape is not there")
    return found


MOST_QUESTIONS = 1_000  # read for one run, which has at most one open question


async def abandon_run(services: SessionServices, record: RunRecord, cancel: Cancel) -> None:
    """Abort a stranded run: append `run.cancelled`, committed on return.

    Raises Unavailable, and the run stays stranded.  Cancellation: the run may have ended.
    """
    stranded = services.registry.stranded
    why = stranded.pop(record.run_id)  # so that a second caller waits for the end instead
    has_ended = False
    try:
        asked = await services.journal.read(
            lambda store: store.list_approvals(
                principal=None, run_id=record.run_id, pending_only=True, limit=MOST_QUESTIONS
            )
        )
        await services.journal.append(_ending(services, record, cancel, why, asked)).wait()
        has_ended = True
        services.incidents.clear(stranded_key(record.run_id), f"given up by {cancel.by}")
    finally:
        if not has_ended:
            stranded[record.run_id] = why


def _ending(
    services: SessionServices,
    record: RunRecord,
    cancel: Cancel,
    why: str,
    asked: list[ApprovalRecord],
) -> Change:
    """Return the terminal event with the run's record and its settled questions."""
    now_ms = services.now_ms()
    reason = f"{cancel.reason} (given up: {why}; calls under way have no known outcome)"
    data, is_redacted = services.redact(encode_event(RunCancelled(reason=reason, by=cancel.by)))
    row = TapeRow(
        record.run_id,
        record.session_id,
        record.head_seq + 1,
        now_ms,
        RunCancelled.KIND,
        record.principal,
        is_redacted,
        data,
    )
    ended = msgspec.structs.replace(
        record,
        state="cancelled",
        finished_ms=now_ms,
        head_seq=row.seq,
        pending_approvals=0,
        reason=msgspec.json.decode(data, type=RunCancelled).reason,
    )
    settled = (
        msgspec.structs.replace(
            question, state="aborted", by=cancel.by, reason="run_cancelled", resolved_ms=now_ms
        )
        for question in asked
    )
    return Change(rows=(row,), records=(ended, *settled))
