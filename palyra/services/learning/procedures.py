"""Procedures: find them in runs that ended, and keep the tools of those that a person accepted.

Owns: the accepted procedures of all principals, as the journal has them, and the calls of the last
runs that were read; a restart reads them again.
Talks to: the journal; `show`, which makes tools of them.
Never: offers a procedure that the tapes do not prove.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import structlog

from palyra.core.ids import NewId
from palyra.core.journal.changes import CandidateFilter, Change, RunFilter
from palyra.core.journal.procedure import Procedure, ProcedureProof
from palyra.core.journal.records import (
    CandidateChange,
    CandidateRecord,
    CandidateState,
    Evidence,
    RunRecord,
)
from palyra.core.journal.tape_row import TapeRow
from palyra.core.learning.candidates import LearningRules, is_reviewable, show_steps, step
from palyra.core.learning.procedures import (
    MIN_RUNS,
    MIN_STEPS,
    READ_KINDS,
    RecordedRun,
    add_steps,
    check_name,
    describe_procedure,
    find_procedure,
    fits,
    keeps_failing,
    note_use,
    procedure_key,
    read_calls,
    score_procedure,
    shape_of,
    suggest_name,
)
from palyra.core.ports import Journal, JournalStore, NowMs, RunBlocking
from palyra.core.tape.events import ToolProposed, decode_event
from palyra.core.tape.taint import read_taint
from palyra.core.task.run_end import read_end
from palyra.core.trust.labels import Trust
from palyra.errors import IllegalState, PalyraError, TooLarge, Unreadable
from palyra.services.tape.run_loader import read_rows

log = structlog.get_logger("palyra.learning")
MAX_ACCEPTED = 64  # of a principal: each is part of every prompt
MAX_READ = 24  # earlier runs of the principal, the newest
MAX_KEPT, MAX_KEPT_BYTES = 256, 32_768  # runs whose calls are kept, and arguments of one of them
PAGE_ROWS = 1_000
MAX_ROWS = 5_000  # of one run
WAITING: tuple[CandidateState, ...] = ("proposed", "suppressed")
LIVE = (*WAITING, "applied")

Shown = Sequence[tuple[str, Procedure]]  # principal and procedure


class ReadRun(NamedTuple):
    """The calls of an ended run, which never change."""

    calls: RecordedRun | None  # None: other people wrote its session
    size_bytes: int = 0  # of the arguments


class Procedures:
    """Procedures of all principals."""

    def __init__(
        self, journal: Journal, *, run_blocking: RunBlocking, now_ms: NowMs, new_id: NewId
    ) -> None:
        self._journal = journal
        self._run_blocking = run_blocking
        self._now_ms = now_ms
        self._new_id = new_id
        self.show: Callable[[Shown], None] = lambda _shown: None  # set by the wiring
        self._kept: dict[str, ReadRun] = {}  # by run, the last read at the end

    # --- the accepted ones

    @staticmethod
    def query(store: JournalStore) -> list[CandidateRecord]:
        """Read the accepted procedures.  Blocks."""
        return _list(store, None, ("applied",))

    def put(self, accepted: Sequence[CandidateRecord]) -> None:
        """Replace the tools by those of `accepted`; runs see them from their next start on."""
        self.show(
            [(each.principal, each.procedure) for each in accepted if each.procedure is not None]
        )

    async def reload(self) -> None:
        """Read the accepted procedures again, after a change or a purge; forget what was read."""
        self._kept.clear()
        self.put(await self._journal.read(self.query))

    async def note_use(
        self,
        principal: str,
        name: str,
        use_id: str,
        is_success: bool,  # noqa: FBT001 - of a port
        run_id: str,
    ) -> None:
        """Count a use; take a procedure that keeps failing back to review.

        A use whose run was refused a call says nothing about the procedure, so it is not counted.
        A failure to write is logged: the call has its result.  Cancellation: it may be counted.
        """
        try:
            end = await self._journal.read(lambda store: read_end(read_rows(store, run_id)))
            if not end.refused:
                await self._note_use(principal, name, use_id, is_success=is_success)
        except PalyraError as error:
            log.warning("procedure.use_not_counted", procedure=name, error=error.message)

    async def _note_use(self, principal: str, name: str, use_id: str, *, is_success: bool) -> None:
        for record in await self._journal.read(lambda s: _list(s, principal, ("applied",))):
            known = record.procedure
            if known is None or known.name != name:
                continue
            now_ms = self._now_ms()
            used = note_use(known, use_id, is_success=is_success, now_ms=now_ms)
            if used is None:
                return
            if not keeps_failing(used):
                after = show_steps(record, used, now_ms=now_ms)
                await self._journal.commit(Change(records=(after,)))
                return
            after = step(record, "withdrawn", by="", now_ms=now_ms, procedure=used)
            await self._journal.commit(Change(records=(after,)))
            log.warning("procedure.withdrawn", procedure=name, candidate=record.candidate_id)
            await self.reload()

    # --- review

    async def find_taken(self, candidate_id: str) -> frozenset[str]:
        """Return the names of all procedures but this one; a tool has one owner."""
        known = await self._journal.read(lambda s: _list(s, None, LIVE))
        return frozenset(
            each.procedure.name
            for each in known
            if each.procedure is not None and each.candidate_id != candidate_id
        )

    async def accept(self, candidate: CandidateRecord, *, by: str) -> CandidateRecord:
        """Make the procedure a tool, committed; an accepted one of the same shape is superseded.

        Raises IllegalState, TooLarge.  Cancellation: it may be accepted, and the tool follows with
        the next change or start.
        """
        found = candidate.procedure
        if found is None:
            raise IllegalState(f"{candidate.candidate_id} has no steps")
        principal = candidate.principal
        accepted = await self._journal.read(lambda s: _list(s, principal, ("applied",)))
        older = [
            each
            for each in accepted
            if each.procedure is not None and shape_of(each.procedure) == shape_of(found)
        ]
        if len(accepted) - len(older) >= MAX_ACCEPTED:
            raise TooLarge(
                f"{len(accepted)} procedures are accepted, which is the limit: undo one first"
            )
        now_ms = self._now_ms()
        name = older[0].procedure.name if older and older[0].procedure else found.name
        after = step(
            candidate,
            "applied",
            by=by,
            now_ms=now_ms,
            procedure=msgspec.structs.replace(found, name=name, uses=()),
            superseded_id=older[0].candidate_id if older else None,
        )
        replaced = [step(each, "superseded", by=by, now_ms=now_ms) for each in older]
        await self._journal.commit(Change(records=(after, *replaced)))
        await self.reload()
        return after

    async def undo(self, candidate: CandidateRecord, *, by: str) -> CandidateRecord:
        """Take back an acceptance or a rejection, committed; what it superseded is a tool again.

        Raises IllegalState.  Cancellation: as `accept`.
        """
        now_ms = self._now_ms()
        after = step(candidate, "undone", by=by, now_ms=now_ms, superseded_id=None)
        records = [after]
        older_id = candidate.superseded_id
        if older_id is not None:
            older = await self._journal.find(lambda s: s.find_candidate(older_id))
            if older is not None and older.state == "superseded":
                records.append(step(older, "restored", by=by, now_ms=now_ms))
        await self._journal.commit(Change(records=tuple(records)))
        await self.reload()
        return after

    async def rename(self, candidate: CandidateRecord, name: str, *, by: str) -> CandidateRecord:
        """Give a procedure that waits for review another name, committed.

        Raises IllegalState, InvalidParams.
        """
        if candidate.procedure is None:
            raise IllegalState(f"{candidate.candidate_id} has no steps")
        check_name(name, await self.find_taken(candidate.candidate_id))
        renamed = msgspec.structs.replace(candidate.procedure, name=name)
        after = step(candidate, "edited", by=by, now_ms=self._now_ms(), procedure=renamed)
        await self._journal.commit(Change(records=(after,)))
        return after

    # --- finding

    async def propose(
        self, run: RunRecord, *, trust: Trust, rules: LearningRules
    ) -> list[CandidateRecord]:
        """Return the new or changed candidate that the run and those before it prove, to commit.

        Raises Purged if the run's tape is.
        """
        read = await self._journal.read(partial(_read_runs, run=run, kept=dict(self._kept)))
        self._keep(read)
        runs = [each.calls for each in read.values() if each.calls is not None]
        if len(runs) == 1:
            return []
        found = await self._run_blocking(find_procedure, runs[0], runs[1:])
        if found is None:
            return []
        alike = [
            each
            for each in await self._journal.read(lambda s: _list(s, run.principal))
            if each.procedure is not None and shape_of(each.procedure) == shape_of(found)
        ]
        known = {call.place: call for each in runs for call in each.calls}
        proofs = [[known[place] for place in each.calls] for each in found.proofs]
        waiting = next((each for each in alike if each.state in WAITING), None)
        for each in alike:
            if each is waiting or each.procedure is None:
                continue
            others = [calls for calls in proofs if not fits(each.procedure, calls)]
            if len(others) < MIN_RUNS:  # it is a tool already, or was refused, or replaced
                return []
        if waiting is not None and waiting.procedure is not None:
            named = msgspec.structs.replace(found, name=waiting.procedure.name)
            seen = show_steps(waiting, named, now_ms=self._now_ms(), **_fields(found, rules))
            return [seen]
        return [await self._make(run, found, trust=trust, rules=rules)]

    def _keep(self, read: Mapping[str, ReadRun]) -> None:
        """Keep the calls for the next run of the principal, in place of those that were read longest ago."""
        for run_id, each in read.items():
            self._kept.pop(run_id, None)
            if each.size_bytes <= MAX_KEPT_BYTES:
                self._kept[run_id] = each
        for run_id in list(self._kept)[: max(0, len(self._kept) - MAX_KEPT)]:
            del self._kept[run_id]

    async def _make(
        self, run: RunRecord, found: Procedure, *, trust: Trust, rules: LearningRules
    ) -> CandidateRecord:
        candidate_id, now_ms = self._new_id("can"), self._now_ms()
        name = suggest_name(found, await self.find_taken(candidate_id))
        fields = _fields(found, rules)
        state = fields["state"]
        made = {
            "candidate_id": candidate_id,
            "principal": run.principal,
            "session_id": run.session_id,
            "kind": "procedure",
            "trust": trust,
            "created_ms": now_ms,
            "changed_ms": now_ms,
            "changes": (CandidateChange(action=state, state=state, by="", at_ms=now_ms),),
            "procedure": msgspec.structs.replace(found, name=name),
            **fields,
        }
        return CandidateRecord(**made)


def _list(
    store: JournalStore, principal: str | None, states: tuple[CandidateState, ...] = ()
) -> list[CandidateRecord]:
    """Return the procedures in these states; no state: in any; principal None: of all.  Blocks."""
    return store.list_learned(
        CandidateFilter(principal=principal, kinds=("procedure",), states=states, limit=-1)
    )


def _fields(found: Procedure, rules: LearningRules) -> dict[str, Any]:
    """Return the fields of a candidate that follow from the procedure."""
    score_bps, signals = score_procedure(found)
    tools = ", ".join(each.tool for each in found.steps)
    return {
        "text": describe_procedure(found),
        "key": procedure_key(found),
        "score_bps": score_bps,
        "signals": signals,
        "state": "proposed" if is_reviewable(rules, "procedure", score_bps) else "suppressed",
        "evidence": tuple(
            Evidence(run_id=run_id, seq=seq, quote=tools)
            for each in found.proofs
            for run_id, seq in _first_calls(each).items()
        ),
    }


def _first_calls(proof: ProcedureProof) -> dict[str, int]:
    """Return the first call of each run that the proof names: a purge of one of them ends it."""
    first: dict[str, int] = {}
    for place in proof.calls:
        first.setdefault(place.run_id, place.seq)
    return first


def _read_runs(
    store: JournalStore, *, run: RunRecord, kept: Mapping[str, ReadRun]
) -> dict[str, ReadRun]:
    """Return the calls of the run and of earlier ones of its principal, the newest first.  Blocks.

    Only the run itself if it has too few calls.  Raises Purged for the run; a purged or unreadable
    one of the others is left out.
    """
    own = _read_run(store, run.run_id)
    found = {run.run_id: own}
    if (
        own.calls is None
        or sum(each.outcome == "succeeded" for each in own.calls.calls) < MIN_STEPS
    ):
        return found
    wanted = RunFilter(principal=run.principal, states=("done",), before=run.run_id, limit=MAX_READ)
    for other in store.list_runs(wanted):
        is_left_out = other.parent_run_id is not None or other.tool_calls < MIN_STEPS
        if is_left_out or other.purged_ms is not None:
            continue
        try:
            found[other.run_id] = kept.get(other.run_id) or _read_other(store, other)
        except Unreadable:
            continue
    return found


def _read_other(store: JournalStore, run: RunRecord) -> ReadRun:
    session = store.find_session(run.session_id)
    is_of_others = session is not None and session.channel is not None  # its senders
    return ReadRun(None) if is_of_others else _read_run(store, run.run_id)


def _read_run(store: JournalStore, run_id: str) -> ReadRun:
    """Return the calls of a run, with the steps of the procedures that failed in it."""
    run, size_bytes = _read_calls(store, run_id)
    made = {each: _read_calls(store, each)[0] for each in run.failed_procedures}
    return ReadRun(add_steps(run, made), size_bytes)


def _read_calls(store: JournalStore, run_id: str) -> tuple[RecordedRun, int]:
    """Return the calls, and the size of their proposals in bytes."""
    rows: list[TapeRow] = []
    after_seq: int | None = -1
    while after_seq is not None and len(rows) < MAX_ROWS:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        rows += page.rows
        after_seq = page.next_after_seq
    events = ((row.seq, decode_event(row.kind, row.data)) for row in rows if row.kind in READ_KINDS)
    size_bytes = sum(len(row.data) for row in rows if row.kind == ToolProposed.KIND)
    return read_calls(run_id, events, is_tainted=bool(read_taint(rows))), size_bytes
