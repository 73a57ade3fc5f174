"""The journal in memory: a `JournalStore` without a disk, for actor tests and the simulation.

It shares admission, signed roots and verification with the journal on SQLite, and replaces SQLite
by lists and dictionaries.  The contract tests of `tests/store` run against both, and
`tests/store/test_contract_stateful.py` compares them call by call.  Committed data survives `close`
and `open`, and also an `open` without a `close`, as after a crash.
"""

import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, cast

import msgspec

from palyra.core.incident.incident import KEPT_RESOLVED
from palyra.core.journal.changes import (
    ChainedRow,
    Change,
    FilesLost,
    OpenReport,
    TapePage,
    VerifyReport,
)
from palyra.core.journal.records import (
    RECEIPT_TTL_MS,
    TASK_KEPT_MS,
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    CandidateRecord,
    ChannelRecord,
    DocumentRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    IncidentRemoval,
    MemoryUseRecord,
    PageRelease,
    PairingRecord,
    Record,
    ReflectionRecord,
    RunRecord,
    RunRemoval,
    ScheduleRecord,
    SessionCheckpointRecord,
    SessionRecord,
    SessionRemoval,
    TaskRecord,
    TaskRemoval,
    TokenRecord,
    UsageRecord,
    WorkRemoval,
)
from palyra.core.journal.tape_row import merkle_root
from palyra.core.ports import NowMs
from palyra.core.session.purge import SessionWork
from palyra.core.tape.outline import code_of
from palyra.core.tape.search import EventRow, TapeSearch
from palyra.errors import (
    Conflict,
    IdempotencyConflict,
    InvariantBroken,
    PalyraError,
    Rejected,
    Unavailable,
)
from palyra.store.journal.append_check import Admission
from palyra.store.journal.keys import KeyRing
from palyra.store.journal.signed_roots import SignedRootsFile
from palyra.store.journal.verification import verify_journal, verify_run
from palyra.store.sqlite.queries import TABLES, R
from palyra.store.sqlite.tapes import PAGE_BYTES
from tests.store.memory.items import StoredItems
from tests.store.memory.tapes import MemoryFile, MemoryTapes

Key = tuple[str | int, ...]
Tables = Mapping[type[msgspec.Struct], Mapping[Key, Record]]

_REMOVALS = (RunRemoval, SessionRemoval, WorkRemoval, IncidentRemoval, TaskRemoval, PageRelease)
PLACE = ("principal", "agent", "channel", "conversation_id")
MEMORY_SEED = bytes(32)  # signatures made with it prove nothing


class MemoryJournal(StoredItems):  # noqa: PLR0904 - as many methods as the Protocol has
    """A `JournalStore` that lives as long as the object."""

    def __init__(self, keys: KeyRing | None = None, *, now_ms: NowMs = lambda: 0) -> None:
        super().__init__()
        self._roots = SignedRootsFile(MemoryFile(), keys or KeyRing(MEMORY_SEED), "memory")
        self._now_ms = now_ms
        self._tapes = MemoryTapes()
        self._records: dict[type[msgspec.Struct], dict[Key, Record]] = {kind: {} for kind in TABLES}
        self._epoch = 0
        self._signed_position = 0
        self._is_open = False
        self._is_clean = True

    # --- the write half --------------------------------------------------------------------------

    def open(self) -> OpenReport:
        """See `JournalStore.open`."""
        was_clean, self._is_clean, self._is_open = self._is_clean, False, True
        self._epoch += 1
        return OpenReport(
            schema_version=0,
            migrated_from=None,
            owner_epoch=self._epoch,
            was_clean=was_clean,
            head_position=len(self._tapes.links),
            verification=self.verify(),
            incidents=self.unresolved(),
        )

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        """See `JournalStore.commit`."""
        self._require_open()
        return [self._commit_one(change) for change in changes]

    def check_files(self) -> FilesLost | None:
        """See `JournalStore.check_files`: there are no files."""
        return None

    def checkpoint(self) -> None:
        """See `JournalStore.checkpoint`; memory has no log."""
        self._require_open()

    def seal(self) -> bool:
        """See `JournalStore.seal`."""
        self._require_open()
        self._delete_expired_pairings()
        self.delete_expired(self._now_ms())
        _delete_old_incidents(self._records[IncidentRecord])
        self._delete_ended_tasks()
        first, through = self._signed_position + 1, len(self._tapes.links)
        if through < first:
            return False
        hashes = self._tapes.read_hashes(first=first, through=through)
        self._roots.append(
            kind="root",
            first=first,
            through=through,
            merkle_root=merkle_root(hashes),
            at_ms=self._now_ms(),
        )
        self._signed_position = through
        return True

    @property
    def has_leftovers(self) -> bool:
        """See `JournalStore.has_leftovers`: there are no files."""
        return False

    def check_rows(self, limit: int) -> None:
        """See `JournalStore.check_rows`: there are no bytes."""

    def list_damaged(self) -> tuple[str, ...]:
        """See `JournalStore.list_damaged`: there are no bytes."""
        return ()

    def close(self) -> None:
        """See `JournalStore.close`."""
        self.seal()
        self._is_open, self._is_clean = False, True

    def _delete_expired_pairings(self) -> None:
        now_ms, pairings = self._now_ms(), self._records[PairingRecord]
        for record in self._list(PairingRecord):
            if record.state == "pending" and record.expires_ms <= now_ms:
                del pairings[record.pairing_id,]

    def _delete_ended_tasks(self) -> None:
        bound_ms, tasks = self._now_ms() - TASK_KEPT_MS, self._records[TaskRecord]
        for record in self._list(TaskRecord):
            if record.finished_ms is not None and record.finished_ms <= bound_ms:
                del tasks[record.task_id,]

    def _commit_one(self, change: Change) -> PalyraError | None:
        batch = Admission(len(self._tapes.links), {}, self._tapes)
        try:
            batch.admit(change)
            accepted = self._accept(each for each in batch.records if type(each) in TABLES)
            self.append_items(
                each for each in batch.records if type(each) not in {*TABLES, *_REMOVALS}
            )
        except (InvariantBroken, Rejected) as refusal:
            return refusal
        for kind, records in accepted.items():
            self._records[kind].update(records)
        self._tapes.append(batch.links)
        for record in batch.records:
            match record:
                case RunRemoval():
                    self._tapes.purge(record)
                    self._drop(ApprovalRecord, run_id=record.run_id)
                    self._drop(MemoryUseRecord, run_id=record.run_id)
                    self._drop_naming(CandidateRecord, record.run_id)
                case SessionRemoval():
                    for kind in (SessionCheckpointRecord, MemoryUseRecord, GrantRecord):
                        self._drop(kind, session_id=record.session_id)
                    self.trim(record.trims)
                    self._drop_naming(CandidateRecord, record.session_id)
                    self._drop_about(self._ids_of(record.session_id))
                case WorkRemoval():
                    self._remove_work(record)
                case IncidentRemoval():
                    self._remove_incidents(record)
                case TaskRemoval():
                    self._remove_tasks(record)
                case _:
                    pass
        return None

    def _drop_naming(self, kind: type[msgspec.Struct], text: str) -> None:
        """Delete the records that contain the text."""
        table = self._records[kind]
        for key, record in list(table.items()):
            if text.encode() in msgspec.json.encode(record):
                del table[key]

    def _ids_of(self, session_id: str) -> set[str]:
        """The ids of the session and of its runs."""
        runs = (run for run in self._list(RunRecord) if run.session_id == session_id)
        return {session_id, *(run.run_id for run in runs)}

    def _drop_about(self, ids: set[str]) -> None:
        """Delete the receipts and incidents with a value that is one of the ids."""
        receipts = self._records[IdempotencyRecord]
        for receipt in self._list(IdempotencyRecord):
            if not ids.isdisjoint(_list_texts(msgspec.json.decode(receipt.result))):
                del receipts[receipt.principal, receipt.key]
        for incident in self._list(IncidentRecord):
            if _is_about(incident, ids):
                del self._records[IncidentRecord][incident.incident_id,]

    def find_work(self, removal: WorkRemoval) -> SessionWork:
        """See `TaskStore.find_work`."""
        ids = set() if removal.session_id is None else self._ids_of(removal.session_id)

        def is_named(record: TaskRecord | ScheduleRecord) -> bool:
            key = removal.key
            return record.principal == removal.principal and (
                removal.session_id is None
                or (key is not None and record.payload.get("session_key") == key)
                or _is_about(record, ids)
            )

        schedules = [each.schedule_id for each in self._list(ScheduleRecord) if is_named(each)]
        tasks = [
            each
            for each in self._list(TaskRecord)
            if is_named(each)
            or (
                each.principal == removal.principal
                and (each.firing or "").partition("@")[0] in schedules
            )
        ]
        origins = {(each.firing or "").partition("@")[0] for each in tasks} - {*schedules}
        continuing = tuple(
            each.schedule_id
            for each in self._list(ScheduleRecord)
            if each.schedule_id in origins and each.removed_ms is None
        )
        return SessionWork([each.task_id for each in tasks], schedules, continuing)

    def _remove_work(self, removal: WorkRemoval) -> None:
        tasks, schedules, _ = self.find_work(removal)
        self._drop_about({*tasks, *schedules})
        for task_id in tasks:
            del self._records[TaskRecord][task_id,]
        for schedule_id in schedules:
            del self._records[ScheduleRecord][schedule_id,]

    def _check_not_removed(self, record: TaskRecord | ScheduleRecord) -> None:
        """Refuse what would return after its removal, and work for a purged session."""
        if record.revision > 1:
            what = "task" if isinstance(record, TaskRecord) else "schedule"
            raise Conflict(f"the {what} was removed meanwhile; its removal stands")
        session = self._records[SessionRecord].get((record.payload.get("session_id", ""),))
        if isinstance(session, SessionRecord) and session.purge is not None:
            raise Conflict("the session was purged; its purge stands")

    def _remove_incidents(self, removal: IncidentRemoval) -> None:
        old = [
            (each.resolved_ms, each.incident_id)
            for each in self._list(IncidentRecord)
            if each.resolved_ms is not None and each.resolved_ms <= removal.until_ms
        ]
        for _, incident_id in sorted(old)[: removal.limit]:
            del self._records[IncidentRecord][incident_id,]

    def _remove_tasks(self, removal: TaskRemoval) -> None:
        old = [
            (each.finished_ms, each.task_id)
            for each in self._list(TaskRecord)
            if each.finished_ms is not None and each.finished_ms <= removal.until_ms
        ]
        for _, task_id in sorted(old)[: removal.limit]:
            del self._records[TaskRecord][task_id,]

    def _drop(self, kind: type[msgspec.Struct], **where: str) -> None:
        """Delete the records with this field."""
        ((name, value),) = where.items()
        table = self._records[kind]
        for key in [key for key, record in table.items() if getattr(record, name) == value]:
            del table[key]

    def _accept(self, records: Iterable[Record]) -> Tables:
        """The records by table and key.  Raises Conflict for what SQLite's rules would refuse."""
        accepted: dict[type[msgspec.Struct], dict[Key, Record]] = {kind: {} for kind in TABLES}
        for record in records:
            kind = type(record)
            table = ChainMap(accepted[kind], self._records[kind])
            key = tuple(getattr(record, name) for name in TABLES[kind].key)
            before = table.get(key)
            if before is not None:
                _check_successor(before, record)
            elif isinstance(record, TaskRecord | ScheduleRecord):
                self._check_not_removed(record)
            if isinstance(record, SessionRecord | TokenRecord | PairingRecord | TaskRecord):
                for other in (other for place, other in table.items() if place != key):
                    _check_unique(other, record)
            accepted[kind][key] = record
        return accepted

    # --- the read half ---------------------------------------------------------------------------

    def read_tape(
        self, run_id: str, *, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> TapePage:
        """See `JournalStore.read_tape`."""
        self._require_open()
        links = self._tapes.read_page(run_id, after_seq, limit, max_bytes)
        head_seq = self._tapes.find_head(run_id).seq
        return TapePage(
            rows=[link.row for link in links],
            head_seq=head_seq,
            floor_seq=0,
            next_after_seq=links[-1].row.seq if links and links[-1].row.seq < head_seq else None,
            size_bytes=sum(len(link.row.data) for link in links),
        )

    def find_last_seq(self, run_id: str, kind: str) -> int | None:
        """See `JournalStore.find_last_seq`."""
        self._require_open()
        links = self._tapes.read_page(run_id, -1, sys.maxsize, sys.maxsize)
        return max((link.row.seq for link in links if link.row.kind == kind), default=None)

    def find_latest(self, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        """See `JournalStore.find_latest`."""
        self._require_open()
        pages = [self._tapes.read_page(each, -1, sys.maxsize, sys.maxsize) for each in run_ids]
        last = [page[-1].row for page in pages if page]
        return {row.run_id: (row.kind, row.at_ms) for row in last}

    def read_codes(self, run_id: str) -> str:
        """See `JournalStore.read_codes`."""
        self._require_open()
        links = self._tapes.read_page(run_id, -1, sys.maxsize, sys.maxsize)
        return "".join(code_of(link.row.kind, link.row.data) for link in links)

    def search_tape(self, run_id: str, wanted: TapeSearch) -> tuple[list[EventRow], int | None]:
        """See `JournalStore.search_tape`."""
        self._require_open()
        links = self._tapes.read_page(run_id, -1, sys.maxsize, sys.maxsize)
        rows = [
            EventRow(seq=row.seq, at_ms=row.at_ms, kind=row.kind, data=row.data)
            for row in (link.row for link in links)
        ]
        first, last = wanted.from_seq or 0, sys.maxsize
        if wanted.backwards:
            first, last = 0, sys.maxsize if wanted.from_seq is None else wanted.from_seq
        found = [row for row in rows if first <= row.seq <= last]
        return found[::-1] if wanted.backwards else found, None

    def read_chain(self, run_id: str, *, after_seq: int, limit: int) -> list[ChainedRow]:
        """See `JournalStore.read_chain`."""
        self._require_open()
        return [
            ChainedRow(position=position, hash=digest, row=row)
            for position, digest, row in self._tapes.read_page(run_id, after_seq, limit)
        ]

    def verify(
        self, run_id: str | None = None, *, note: Callable[[int], object] | None = None
    ) -> VerifyReport:
        """See `JournalStore.verify`."""
        self._require_open()
        entries = self._roots.entries()
        if run_id is None:
            return verify_journal(self._tapes, entries, self._roots.keys.trusted, note=note)
        found = self.find_run(run_id)
        claimed_seq = None if found is None else found.head_seq
        return verify_run(self._tapes, entries, self._roots.keys.trusted, run_id, claimed_seq)

    def check(self, is_stopped: Callable[[], bool]) -> str | None:
        """See `JournalStore.check`: there is no file."""
        del is_stopped
        self._require_open()
        return None

    # --- records ---------------------------------------------------------------------------------

    def _find(self, kind: type[R], *key: str | int) -> R | None:
        self._require_open()
        return cast("R | None", self._records[kind].get(key))

    def _list(self, kind: type[R]) -> list[R]:
        """All records of one table, by key."""
        self._require_open()
        return [cast("R", record) for _, record in sorted(self._records[kind].items())]

    def drop_traces(self, principal: str) -> None:
        for kind in (MemoryUseRecord, CandidateRecord, ReflectionRecord):
            self._drop(kind, principal=principal)

    def drop_learned(self, memory_id: str) -> None:
        self._drop(CandidateRecord, memory_id=memory_id)

    def _require_open(self) -> None:
        if not self._is_open:
            raise Unavailable("journal: it is closed")


_FIXED: dict[type[msgspec.Struct], str] = {
    AgentRecord: "the agent was changed meanwhile; the first change stands",
    UsageRecord: "the call is in the ledger; its first line stands",
    ReflectionRecord: "the run was read for learning; the first reading stands",
}
_REVISED: dict[type[msgspec.Struct], str] = {
    ChannelRecord: "channel",
    PairingRecord: "pairing",
    BudgetRecord: "budget",
    CandidateRecord: "candidate",
    TaskRecord: "task",
    ScheduleRecord: "schedule",
}


def _check_successor(before: Record, record: Record) -> None:
    """Check that a record may replace the one with the same key."""
    match before, record:
        case RunRecord(), RunRecord() if before.is_terminal and record.state != before.state:
            raise Conflict("the run has ended; a terminal state never changes")
        case ApprovalRecord(), ApprovalRecord() if not _may_follow(before, record):
            raise Conflict("the approval is answered; the first answer stands")
        case GrantRecord(), GrantRecord() if record != before and (
            before.ended_ms is not None or _unended(record) != _unended(before)
        ):
            raise Conflict("a grant can only end, and its end stands")
        case IdempotencyRecord(), IdempotencyRecord() if (
            record.created_ms - before.created_ms < RECEIPT_TTL_MS and record != before
        ):
            raise IdempotencyConflict("the idempotency key was used; its first receipt stands")
        case IncidentRecord(state="resolved"), _ if record != before:
            raise Conflict("the incident is resolved; its end stands")
        case DocumentRecord(is_pending=False), DocumentRecord() if (
            record != before and record.scrubs <= before.scrubs
        ):
            raise Conflict("the document was changed meanwhile; the first change stands")
        case AgentRecord() | UsageRecord() | ReflectionRecord(), _ if record != before:
            raise Conflict(_FIXED[type(before)])
        case TaskRecord(), TaskRecord() if before.is_final:
            raise Conflict("the task has ended; its end stands")
        case (
            (
                ChannelRecord()
                | PairingRecord()
                | BudgetRecord()
                | TaskRecord()
                | ScheduleRecord()
                | CandidateRecord()
            ),
            (
                ChannelRecord()
                | PairingRecord()
                | BudgetRecord()
                | TaskRecord()
                | ScheduleRecord()
                | CandidateRecord()
            ),
        ) if record.revision != before.revision + 1:
            what = _REVISED[type(before)]
            raise Conflict(f"the {what} was changed meanwhile; the first change stands")


def _may_follow(before: ApprovalRecord, record: ApprovalRecord) -> bool:
    """True for a use of an allowed approval, at most one for each call it covers."""
    if before.state == "pending" or record == before:
        return True
    unused = msgspec.structs.replace(record, uses=before.uses)
    is_use = before.uses < record.uses <= 1 + len(before.covers)
    return before.state == "allowed" and is_use and unused == before


def _unended(grant: GrantRecord) -> GrantRecord:
    return msgspec.structs.replace(grant, ended_ms=None, ended_by=None)


def _check_unique(other: Record, record: Record) -> None:
    """Check the fields that two records of different keys must not share."""
    match other, record:
        case SessionRecord(), SessionRecord() if (
            record.place is not None and record.place == other.place
        ):
            raise Conflict(f"sessions.{', sessions.'.join(PLACE)} is already in use")
        case SessionRecord(), SessionRecord() if record.key is not None and (
            other.principal,
            other.key,
        ) == (record.principal, record.key):
            raise Conflict("sessions.principal, sessions.key is already in use")
        case PairingRecord(), PairingRecord() if (
            other.principal,
            other.channel,
            other.sender,
        ) == (record.principal, record.channel, record.sender):
            raise Conflict(
                "pairings.principal, pairings.channel, pairings.sender is already in use"
            )
        case TaskRecord(), TaskRecord() if record.firing is not None and (
            record.firing == other.firing
        ):
            raise Conflict("tasks.firing is already in use")
        case TokenRecord(), TokenRecord() if other.sha256 == record.sha256:
            raise Conflict("tokens.sha256 is already in use")


def _delete_old_incidents(kept: MutableMapping[Any, Any]) -> None:
    """Keep the newest of those that are resolved; of equal age all go."""
    ends = {
        key: incident.resolved_ms for key, incident in kept.items() if incident.state == "resolved"
    }
    newest_first = sorted(ends.values(), reverse=True)
    for key, end_ms in ends.items():
        if len(newest_first) > KEPT_RESOLVED and end_ms <= newest_first[KEPT_RESOLVED]:
            del kept[key]


def _is_about(record: Record, ids: set[str]) -> bool:
    """True if a value in the record is one of the ids."""
    return not ids.isdisjoint(_list_texts(msgspec.to_builtins(record)))


def _list_texts(value: object) -> Iterator[str]:
    """List the strings in a JSON value, names of members aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(each)
