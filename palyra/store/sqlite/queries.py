"""The record tables: how a record becomes a row, and every query that reads one.

Items of memory have a text index and neighbours besides, and are in `memories`.

Each table holds one row per record: the record as JSON in the column `record`, and copies of the
fields that queries search by.  `TABLES` lists the tables and `Queries` is the query half of
`core.ports.JournalStore`, so the SQL of a record is found in this file and, for its columns,
indexes and triggers, in `schema`.

Writing is an upsert: the last writer wins.  A row that must not be overwritten is protected by a
trigger or a unique index of `schema`; `describe_refusal` translates their errors.

Reading and decoding is `decoding`: a record that does not decode costs itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Generic, TypeVar, get_args

import apsw
import msgspec

from palyra.core.incident.incident import KEPT_RESOLVED
from palyra.core.journal.changes import (
    CandidateFilter,
    IncidentFilter,
    PairingFilter,
    RunFilter,
    TaskFilter,
    UsageBy,
    UsageFilter,
    UsageSum,
)
from palyra.core.journal.records import (
    RECEIPT_TTL_MS,
    TASK_KEPT_MS,
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    BudgetScope,
    CandidateRecord,
    ChannelRecord,
    DocumentRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    MemoryUseRecord,
    PairingRecord,
    Record,
    ReflectionRecord,
    RunRecord,
    ScheduleRecord,
    SessionCheckpointRecord,
    SessionRecord,
    TaskKind,
    TaskRecord,
    TaskState,
    TokenRecord,
    UsageRecord,
    WorkRemoval,
)
from palyra.core.preview.blocks import EarlierAnswers
from palyra.core.session.purge import SessionWork
from palyra.core.task.fair_shares import pick_fairly
from palyra.core.task.life import MAX_OPEN_OWN, OWN_KINDS
from palyra.core.task.life import order as claim_order
from palyra.core.task.schedule import firing_order
from palyra.core.task.views import TaskCounts
from palyra.errors import Conflict, IdempotencyConflict, InvalidParams, PalyraError
from palyra.store.sqlite.connection import BulkInsert, Row, SQLValue
from palyra.store.sqlite.decoding import (
    NO_LIMIT,
    UNDECODED,
    ColumnsDiffer,
    DamageNotes,
    RecordRows,
    decode_record,
    decode_row,
    read_found,
    read_records,
)
from palyra.store.sqlite.purges import find_work

T = TypeVar("T")
R = TypeVar("R", bound=Record)

_PAGE = 16  # records of one principal in a queue, after the first
_ENCODER = msgspec.json.Encoder()
_PARENT = (
    "CASE WHEN json_valid(record) THEN record ->> '$.parent_run_id' END"  # as its index has it
)
_DAY_MS = 86_400_000
_OWN_KINDS = _ENCODER.encode(sorted(OWN_KINDS)).decode()


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordTable:
    """The table of one record type; the columns of `key` are fields that identify a record."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]  # those of the key first, without `record`
    insert: BulkInsert
    row: Callable[[Any, str], Row]  # from a record and its JSON


def _table(name: str, key: str, columns: str, row: Callable[[Any, str], Row]) -> RecordTable:
    """Define a table with the columns of `key`, then `columns`, then `record`."""
    keys, rest = tuple(key.split()), (*columns.split(), "record")
    changes = ", ".join(f"{column} = excluded.{column}" for column in rest)
    suffix = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
    return RecordTable(
        name, keys, (*keys, *rest[:-1]), BulkInsert(name, (*keys, *rest), suffix), row
    )


_NO_PLACE = (None,) * 4  # of a session without a channel

TABLES: dict[type[msgspec.Struct], RecordTable] = {
    RunRecord: _table(
        "runs",
        "run_id",
        "session_id principal state",
        lambda r, text: (r.run_id, r.session_id, r.principal, r.state, text),
    ),
    SessionRecord: _table(
        "sessions",
        "session_id",
        "principal key agent channel conversation_id is_purging",
        lambda r, text: (
            r.session_id, r.principal, r.key, *(r.place or _NO_PLACE)[1:], r.is_purging, text,
        ),
    ),
    SessionCheckpointRecord: _table(
        "session_checkpoints",
        "checkpoint_id",
        "session_id",
        lambda r, text: (r.checkpoint_id, r.session_id, text),
    ),
    ApprovalRecord: _table(
        "approvals",
        "approval_id",
        "run_id principal state covers uses",
        lambda r, text: (
            r.approval_id, r.run_id, r.principal, r.state, 1 + len(r.covers), r.uses, text,
        ),
    ),
    IdempotencyRecord: _table(
        "receipts",
        "principal key",
        "created_ms",
        lambda r, text: (r.principal, r.key, r.created_ms, text),
    ),
    TokenRecord: _table(
        "tokens", "token_id", "sha256", lambda r, text: (r.token_id, r.sha256, text)
    ),
    AgentRecord: _table(
        "agents",
        "name version",
        "is_deleted",
        lambda r, text: (r.name, r.version, r.deleted_ms is not None, text),
    ),
    ChannelRecord: _table(
        "channels",
        "principal channel conversation_id",
        "revision is_deleted",
        lambda r, text: (
            r.principal, r.channel, r.conversation_id, r.revision, r.deleted_ms is not None, text,
        ),
    ),
    PairingRecord: _table(
        "pairings",
        "pairing_id",
        "principal channel sender state expires_ms revision",
        lambda r, text: (
            r.pairing_id, r.principal, r.channel, r.sender, r.state, r.expires_ms, r.revision, text,
        ),
    ),
    GrantRecord: _table(
        "grants",
        "grant_id",
        "principal session_id expires_ms ended_ms",
        lambda r, text: (
            r.grant_id, r.principal, r.session_id, r.expires_ms, r.ended_ms, text,
        ),
    ),
    UsageRecord: _table(
        "usage",
        "run_id turn attempt",
        "at_ms principal agent session_id model outcome"
        " input_tokens output_tokens cached_tokens is_estimate cost_usd_micros",
        lambda r, text: (
            r.run_id, r.turn, r.attempt, r.at_ms, r.principal, r.agent, r.session_id, r.model,
            r.outcome, r.input_tokens, r.output_tokens, r.cached_tokens, r.is_estimate,
            r.cost_usd_micros, text,
        ),
    ),
    BudgetRecord: _table(
        "budgets",
        "budget_id",
        "revision is_deleted",
        lambda r, text: (r.budget_id, r.revision, r.deleted_ms is not None, text),
    ),
    IncidentRecord: _table(
        "incidents",
        "incident_id",
        "domain state resolved_ms",
        lambda r, text: (r.incident_id, r.domain, r.state, r.resolved_ms, text),
    ),
    MemoryUseRecord: _table(
        "memory_uses",
        "use_id",
        "run_id session_id principal",
        lambda r, text: (r.use_id, r.run_id, r.session_id, r.principal, text),
    ),
    DocumentRecord: _table(
        "documents",
        "workspace document version",
        "is_pending scrubs",
        lambda r, text: (r.workspace, r.document, r.version, r.is_pending, r.scrubs, text),
    ),
    CandidateRecord: _table(
        "candidates",
        "candidate_id",
        "principal kind state key memory_id revision",
        lambda r, text: (
            r.candidate_id, r.principal, r.kind, r.state, r.key, r.memory_id, r.revision, text,
        ),
    ),
    ReflectionRecord: _table(
        "reflections",
        "run_id",
        "principal",
        lambda r, text: (r.run_id, r.principal, text),
    ),
    TaskRecord: _table(
        "tasks",
        "task_id",
        "principal kind state rank_ms not_before_ms expires_ms finished_ms firing revision",
        lambda r, text: (
            r.task_id, r.principal, r.kind, r.state, r.rank_ms, r.not_before_ms, r.expires_ms,
            r.finished_ms, r.firing, r.revision, text,
        ),
    ),
    ScheduleRecord: _table(
        "schedules",
        "schedule_id",
        "principal next_ms is_removed revision",
        lambda r, text: (
            r.schedule_id, r.principal, r.next_ms, r.removed_ms is not None, r.revision, text,
        ),
    ),
}  # fmt: skip


# Records that give authority: one that its columns do not match gives none.
AUTHORITY: frozenset[type[Any]] = frozenset(
    {TokenRecord, GrantRecord, PairingRecord, ApprovalRecord}
)


def append(connection: apsw.Connection, records: Iterable[Record]) -> list[Record]:
    """Write the records, each table in the given order; return those of no table of this file.

    Raises apsw.ConstraintError.
    """
    rows: dict[type[Record], list[Row]] = {}
    others: list[Record] = []
    for record in records:
        kind = type(record)
        if kind not in TABLES:
            others.append(record)
            continue
        text = _ENCODER.encode(record).decode()
        rows.setdefault(kind, []).append(TABLES[kind].row(record, text))
    for kind, batch in rows.items():
        try:
            TABLES[kind].insert.append(connection, batch)
        except apsw.ConstraintError:
            if kind is not SessionRecord or not _free_places(connection, batch):
                raise
            TABLES[kind].insert.append(connection, batch)
    return others


def _free_places(connection: apsw.Connection, batch: Sequence[Row]) -> bool:
    """Take key and conversation from damaged sessions that hold those of the batch.

    No query finds a damaged session, and its key would admit no other.  Its record stays.
    """
    table, found = TABLES[SessionRecord], set[SQLValue]()
    for _, principal, key, agent, channel, conversation_id, *_ in batch:
        holders = connection.execute(
            "SELECT rowid, CAST(record AS BLOB), session_id, principal, key, agent, channel,"
            " conversation_id, is_purging FROM sessions WHERE (principal = ?1 AND key = ?2) OR"
            " (principal = ?1 AND agent = ?3 AND channel = ?4 AND conversation_id = ?5)",
            (principal, key, agent, channel, conversation_id),
        ).fetchall()
        for row, text, *columns in holders:
            try:
                decode_row(SessionRecord, text, columns, table.row)
            except UNDECODED:
                found.add(row)
    for row in found:
        connection.execute("UPDATE sessions SET key = NULL, channel = NULL WHERE rowid = ?", (row,))
    return bool(found)


# Errors of one change: a broken constraint, or a value that no column can hold.
REFUSALS = (apsw.ConstraintError, apsw.TooBigError, OverflowError, UnicodeEncodeError)


def describe_refusal(error: Exception) -> PalyraError:
    """Translate an error of `REFUSALS`, of a unique index or a trigger of `schema` by its text."""
    if not isinstance(error, apsw.ConstraintError):
        return InvalidParams(f"the journal cannot store a value of this change: {error}")
    text = str(error).removeprefix("UNIQUE constraint failed: ")
    if "idempotency key" in text:
        return IdempotencyConflict(text)
    return Conflict(text if "stands" in text or "ended" in text else f"{text} is already in use")


# Records with an end: idempotency records expire, as do pairing requests with their code; of
# resolved incidents the newest are kept, and those of one millisecond go together; ended tasks
# expire.
_EXPIRED = (
    f"DELETE FROM receipts WHERE created_ms <= :now_ms - {RECEIPT_TTL_MS}",  # noqa: S608 - a number
    "DELETE FROM pairings WHERE state = 'pending' AND expires_ms <= :now_ms",
    f"""DELETE FROM incidents WHERE state = 'resolved' AND resolved_ms <= (
            SELECT resolved_ms FROM incidents WHERE state = 'resolved'
            ORDER BY resolved_ms DESC LIMIT 1 OFFSET {KEPT_RESOLVED})""",  # noqa: S608 - a number
    f"DELETE FROM tasks WHERE finished_ms <= :now_ms - {TASK_KEPT_MS}",  # noqa: S608 - a number
)


def delete_expired(connection: apsw.Connection, *, now_ms: int) -> None:
    """Delete the records that are not kept any longer."""
    for statement in _EXPIRED:
        connection.execute(statement, {"now_ms": now_ms})


# --- queries -------------------------------------------------------------------------------------


_COUNT_TASKS = """
WITH due AS (
    SELECT not_before_ms FROM tasks WHERE state = 'queued' AND not_before_ms <= :now
        AND (:who IS NULL OR principal = :who)
)
SELECT (SELECT count(*) FROM due), (SELECT min(not_before_ms) FROM due),
    (SELECT count(*) FROM tasks WHERE state = 'running' AND (:who IS NULL OR principal = :who)),
    (SELECT count(*) FROM tasks WHERE finished_ms > :since AND state = 'failed'
        AND (:who IS NULL OR principal = :who)),
    (SELECT count(*) FROM tasks WHERE finished_ms IS NULL
        AND kind IN (SELECT value FROM json_each(:own)) AND (:who IS NULL OR principal = :who))
"""


def list_newest_ids(connection: apsw.Connection) -> list[str]:
    """Return the newest id of each kind of record that lists show; a damaged table has none."""
    columns = (
        ("runs", "run_id"), ("sessions", "session_id"), ("tasks", "task_id"),
        ("incidents", "incident_id"), ("approvals", "approval_id"), ("schedules", "schedule_id"),
    )  # fmt: skip
    found = list[str]()
    for table, column in columns:
        with suppress(apsw.Error, UnicodeError):
            newest = connection.execute(f"SELECT max({column}) FROM {table}").get  # noqa: S608 - literals of this file
            found += [] if newest is None else [str(newest)]
    return found


class Select(Generic[R]):
    """A SELECT of records of one type, with its WHERE clause under construction."""

    def __init__(
        self, kind: type[R], table: str | None = None, *, key: str = "memory_id", row: str = "rowid"
    ) -> None:
        """`table` has a column `record`, a key and a column `row` that identifies a row.

        None: the table in `TABLES`, with its key.
        """
        self._kind = kind
        self._table = table or TABLES[kind].name
        self._key = tuple(key.split()) if table else TABLES[kind].key
        self._row = row
        self._conditions: list[str] = ["TRUE"]
        self._values: list[SQLValue] = []

    def where(self, condition: str, *values: SQLValue) -> "Select[R]":
        """Add a condition with its parameters; one whose first parameter is None is left out."""
        if not values or values[0] is not None:
            self._conditions.append(condition)
            self._values += values
        return self

    def where_in(self, column: str, values: Sequence[SQLValue]) -> "Select[R]":
        """Add the condition that the column has one of these values; of none, no condition."""
        if values:
            self.where(f"{column} IN ({', '.join('?' * len(values))})", *values)
        return self

    @property
    def condition(self) -> tuple[str, tuple[SQLValue, ...]]:
        """The expression behind WHERE and its parameters."""
        return " AND ".join(self._conditions), tuple(self._values)

    def read(
        self,
        connection: apsw.Connection,
        order: str,
        limit: int = NO_LIMIT,
        *,
        damaged: DamageNotes,
    ) -> list[R]:
        """Return the matching records in this order; those that do not decode go to `damaged`."""
        where, values = self.condition
        source = RecordRows(self._table, self._key, where, values, order, limit, self._row)
        if self._kind in AUTHORITY:
            exact = TABLES[self._kind]
            source = source._replace(columns=exact.columns, make=exact.row)
        return read_records(connection, self._kind, source, damaged)


_IS_OPEN = "state IN ('accepted', 'in_progress')"  # as the index of open runs has it


def _matching(wanted: RunFilter) -> Select[RunRecord]:
    select = Select(RunRecord)
    if {*wanted.states} and {*wanted.states} <= {"accepted", "in_progress"}:
        select.where(_IS_OPEN)  # SQLite chooses a partial index by words, not by parameters
    return (
        select.where("principal = ?", wanted.principal)
        .where("session_id = ?", wanted.session_id)
        .where("run_id < ?", wanted.before)
        .where(f"{_PARENT} = ?", wanted.parent_run_id)
        .where_in("state", wanted.states)
        .where_in("run_id", wanted.run_ids)
    )


def _tasks(wanted: TaskFilter) -> Select[TaskRecord]:
    return (
        Select(TaskRecord)
        .where("principal = ?", wanted.principal)
        .where("task_id < ?", wanted.before)
    )


class Queries(ABC):  # noqa: PLR0904 - as many methods as the Protocol has queries
    """The query half of `core.ports.JournalStore`: one method, one query, defined only here."""

    @abstractmethod
    def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        """Call the query with a reading connection of this thread.  Raises Unavailable."""

    damaged: DamageNotes  # found by these queries

    def _list(self, select: Select[R], order: str, limit: int = NO_LIMIT) -> list[R]:
        return self._read(
            lambda connection: select.read(connection, order, limit, damaged=self.damaged)
        )

    def list_damaged(self) -> tuple[str, ...]:
        """See `core.ports.JournalStore`."""
        return self.damaged.names()

    def _find(self, select: Select[R], order: str = "rowid") -> R | None:
        """Return the first match, None when there is none."""
        found = self._list(select, order, 1)
        return found[0] if found else None

    # runs, sessions, approvals, grants

    def find_run(self, run_id: str) -> RunRecord | None:
        return self._find(Select(RunRecord).where("run_id = ?", run_id))

    def list_runs(self, wanted: RunFilter) -> list[RunRecord]:
        """Newest first."""
        return self._list(_matching(wanted), "run_id DESC", wanted.limit)

    def list_started_ids(self, wanted: RunFilter) -> list[str]:
        """Ids of those of `list_runs` that have started, latest start first.

        Only ids leave the database: every run reads them for its history, and two hundred records
        are a quarter of a megabyte.
        """
        where, values = _matching(wanted).condition
        statement = (
            "SELECT json_quote(run_id) AS found FROM (SELECT run_id, iif(json_valid(record), record ->> '$.started_ms', NULL) AS started_ms FROM runs"  # noqa: S608 - only literals of this file
            f" WHERE {where} ORDER BY run_id DESC LIMIT ?)"
            " WHERE started_ms IS NOT NULL ORDER BY started_ms DESC, run_id DESC"
        )
        return self._read(lambda c: read_found(c, str, statement, (*values, wanted.limit)))

    def list_open_runs(self) -> list[RunRecord]:
        """Every run without a terminal state, oldest first."""
        select = Select(RunRecord).where(_IS_OPEN)
        return self._list(select, "run_id")

    def find_session(self, session_id: str) -> SessionRecord | None:
        return self._find(Select(SessionRecord).where("session_id = ?", session_id))

    def find_session_by_key(self, principal: str, key: str) -> SessionRecord | None:
        return self._find(Select(SessionRecord).where("principal = ? AND key = ?", principal, key))

    def find_conversation(
        self, principal: str, agent: str, channel: str, conversation_id: str
    ) -> SessionRecord | None:
        """The session of this conversation that is not archived."""
        select = Select(SessionRecord).where("principal = ? AND agent = ?", principal, agent)
        select.where("channel = ? AND conversation_id = ?", channel, conversation_id)
        return self._find(select)

    def list_purging(self) -> list[SessionRecord]:
        """The sessions with a purge that is not complete."""
        return self._list(Select(SessionRecord).where("is_purging"), "session_id")

    def list_branches(self, run_ids: Sequence[str]) -> list[RunRecord]:
        """The runs that continue one of these runs, or were delegated by them."""
        select = Select(RunRecord).where(
            f"{_PARENT} IN (SELECT value FROM json_each(?))",  # noqa: S608 - a literal of this file
            _ENCODER.encode(run_ids).decode(),
        )
        return self._list(select, "run_id")

    def list_sessions(
        self, principal: str | None, *, before: str | None, limit: int
    ) -> list[SessionRecord]:
        """Newest first."""
        select = Select(SessionRecord).where("principal = ?", principal)
        return self._list(select.where("session_id < ?", before), "session_id DESC", limit)

    def list_session_checkpoints(
        self, session_id: str, *, limit: int
    ) -> list[SessionCheckpointRecord]:
        """Newest first."""
        select = Select(SessionCheckpointRecord).where("session_id = ?", session_id)
        return self._list(select, "checkpoint_id DESC", limit)

    def find_approval(self, approval_id: str) -> ApprovalRecord | None:
        return self._find(Select(ApprovalRecord).where("approval_id = ?", approval_id))

    def list_approvals(
        self, *, principal: str | None, run_id: str | None, pending_only: bool, limit: int
    ) -> list[ApprovalRecord]:
        """Pending first, then newest first."""
        select = (
            Select(ApprovalRecord).where("principal = ?", principal).where("run_id = ?", run_id)
        )
        if pending_only:  # without the first sort key, so that the index of pending ones serves
            return self._list(select.where("state = 'pending'"), "approval_id DESC", limit)
        return self._list(select, "state = 'pending' DESC, approval_id DESC", limit)

    def count_answers(self, asked: ApprovalRecord, *, limit: int) -> EarlierAnswers:
        """See `RecordStore.count_answers`.  The arguments of no call are read into memory of Python."""
        statement = (
            "SELECT json_object('allowed', count(*) FILTER (WHERE state = 'allowed'),"
            " 'denied', count(*) FILTER (WHERE state = 'denied'),"
            " 'latest_ms', max(record ->> '$.resolved_ms'), 'latest_by', record ->> '$.by') AS found"
            " FROM (SELECT approval_id, state, CASE WHEN json_valid(record) THEN record ELSE '{}' END"
            " AS record FROM approvals WHERE principal = ? ORDER BY approval_id DESC LIMIT ?)"
            " WHERE state IN ('allowed', 'denied') AND approval_id <> ?"
            " AND coalesce(record ->> '$.agent', 'default') = ? AND record ->> '$.tool' = ?"
            " AND record ->> '$.grant_key' = ?"
            " AND json_type(record, '$.resolved_ms') IN ('integer', 'null')"
            " AND json_type(record, '$.by') IN ('text', 'null')"
        )
        values = (
            asked.principal, limit, asked.approval_id, asked.agent, asked.tool, asked.grant_key,
        )  # fmt: skip
        found = self._read(lambda c: read_found(c, EarlierAnswers, statement, values))
        return found[0] if found else EarlierAnswers()  # none: its name is no UTF-8

    def find_grant(self, grant_id: str) -> GrantRecord | None:
        return self._find(Select(GrantRecord).where("grant_id = ?", grant_id))

    def list_grants(
        self, *, principal: str | None, live_at_ms: int | None, limit: int
    ) -> list[GrantRecord]:
        """Newest first; with `live_at_ms` only those in force at that time."""
        select = Select(GrantRecord).where("principal = ?", principal)
        if live_at_ms is not None:
            select.where("ended_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?)", live_at_ms)
        return self._list(select, "grant_id DESC", limit)

    # access

    def find_receipt(self, principal: str, key: str, *, now_ms: int) -> IdempotencyRecord | None:
        """The idempotency record of the key, None once it has expired."""
        select = Select(IdempotencyRecord).where("principal = ? AND key = ?", principal, key)
        return self._find(select.where("created_ms > ?", now_ms - RECEIPT_TTL_MS))

    def find_token(self, sha256: str) -> TokenRecord | None:
        return self._find(Select(TokenRecord).where("sha256 = ?", sha256))

    def find_token_id(self, sha256: str) -> str | None:
        """See `AccessStore.find_token_id`."""
        statement = "SELECT json_quote(token_id) AS found FROM tokens WHERE sha256 = ?"
        found = self._read(lambda c: read_found(c, str, statement, (sha256,)))
        return found[0] if found else None

    def list_tokens(self) -> list[TokenRecord]:
        """By id, which is the order of creation."""
        return self._list(Select(TokenRecord), "token_id")

    # agents and channels

    def find_agent(self, name: str, version: int | None = None) -> AgentRecord | None:
        """This version, or the newest; the newest may be a deletion.

        None if its record is damaged: an older version must not take its place.
        """
        select = Select(AgentRecord).where("name = ?", name)
        if version is None:
            select.where("version = (SELECT max(version) FROM agents WHERE name = ?)", name)
        return self._find(select.where("version = ?", version))

    def list_agents(self) -> list[AgentRecord]:
        """The newest version of each agent that is not deleted, by name."""
        newest = "version = (SELECT max(version) FROM agents AS a WHERE a.name = agents.name)"
        return self._list(Select(AgentRecord).where(newest).where("NOT is_deleted"), "name")

    def find_channel(
        self, principal: str, channel: str, conversation_id: str
    ) -> ChannelRecord | None:
        """Deleted or not."""
        select = Select(ChannelRecord).where("principal = ? AND channel = ?", principal, channel)
        return self._find(select.where("conversation_id = ?", conversation_id))

    def list_channels(self, principal: str | None) -> list[ChannelRecord]:
        """Channels that are not deleted, by principal, channel and conversation."""
        select = Select(ChannelRecord).where("principal = ?", principal).where("NOT is_deleted")
        return self._list(select, "principal, channel, conversation_id")

    def find_pairing(self, pairing_id: str) -> PairingRecord | None:
        return self._find(Select(PairingRecord).where("pairing_id = ?", pairing_id))

    def find_sender(self, principal: str, channel: str, sender: str) -> PairingRecord | None:
        select = Select(PairingRecord).where("principal = ? AND channel = ?", principal, channel)
        return self._find(select.where("sender = ?", sender))

    def list_pairings(self, wanted: PairingFilter) -> list[PairingRecord]:
        """Newest first."""
        select = (
            Select(PairingRecord)
            .where("principal = ?", wanted.principal)
            .where("channel = ?", wanted.channel)
            .where("state = ?", wanted.state)
            .where("pairing_id < ?", wanted.before)
        )
        return self._list(select, "pairing_id DESC", wanted.limit)

    # usage and budgets

    def sum_usage(
        self,
        wanted: UsageFilter,
        by: UsageBy | None = None,
        *,
        grain_ms: int | None = None,
        limit: int = 1_000,
    ) -> list[UsageSum]:
        """See `Ledger.sum_usage`."""
        condition, values = _select_usage(wanted).condition
        statement = (
            "SELECT json_array(grp, begun, last, calls, broken, estimates, unpriced, input, cached,"  # noqa: S608 - only literals of this file
            " output, cost) AS found FROM ("
            f"SELECT {_GROUPS[by]} AS grp, CASE WHEN ?1 THEN at_ms - at_ms % ?1 ELSE 0 END AS begun,"
            " max(at_ms) AS last, count(*) AS calls, sum(outcome <> 'completed') AS broken,"
            " sum(is_estimate) AS estimates, sum(cost_usd_micros IS NULL) AS unpriced,"
            " sum(input_tokens) AS input, sum(cached_tokens) AS cached,"
            " sum(output_tokens) AS output, coalesce(sum(cost_usd_micros), 0) AS cost"
            f" FROM usage WHERE {condition} GROUP BY grp, begun ORDER BY grp, begun LIMIT ?)"
        )
        parameters = (grain_ms or 0, *values, limit)  # a plain ? counts on from ?1
        rows = self._read(
            lambda connection: read_found(connection, list[Any], statement, parameters)
        )
        fields = UsageSum.__struct_fields__
        return [UsageSum(**dict(zip(fields, row, strict=True))) for row in rows]

    def list_usage(self, wanted: UsageFilter, *, limit: int) -> list[UsageRecord]:
        """Newest first."""
        order = "at_ms DESC, run_id DESC, turn DESC, attempt DESC"
        return self._list(_select_usage(wanted), order, limit)

    def find_budget(self, budget_id: str) -> BudgetRecord | None:
        """Deleted or not; see `list_budgets`."""
        found = self._read(lambda c: read_budgets(c, "budget_id = ?", (budget_id,), self.damaged))
        return found[0] if found else None

    def list_budgets(self) -> list[BudgetRecord]:
        """Budgets that are not deleted, by id; one that admits nothing for each damaged row."""
        found = self._read(lambda c: read_budgets(c, "TRUE", (), self.damaged))
        return [each for each in found if each.deleted_ms is None]

    # incidents

    def find_incident(self, incident_id: str) -> IncidentRecord | None:
        return self._find(Select(IncidentRecord).where("incident_id = ?", incident_id))

    def list_incidents(self, wanted: IncidentFilter) -> list[IncidentRecord]:
        """Newest first."""
        select = (
            Select(IncidentRecord)
            .where("domain = ?", wanted.domain)
            .where("incident_id < ?", wanted.before)
            .where_in("state", wanted.states)
        )
        return self._list(select, "incident_id DESC", wanted.limit)

    # learning

    def find_candidate(self, candidate_id: str) -> CandidateRecord | None:
        return self._find(Select(CandidateRecord).where("candidate_id = ?", candidate_id))

    def list_learned(self, wanted: CandidateFilter) -> list[CandidateRecord]:
        """Newest first."""
        select = (
            Select(CandidateRecord)
            .where("principal = ?", wanted.principal)
            .where("candidate_id < ?", wanted.before)
            .where_in("state", wanted.states)
            .where_in("kind", wanted.kinds)
            .where_in("key", wanted.keys)
            .where_in("memory_id", wanted.memory_ids)
        )
        return self._list(select, "candidate_id DESC", wanted.limit)

    def find_reflection(self, run_id: str) -> ReflectionRecord | None:
        return self._find(Select(ReflectionRecord).where("run_id = ?", run_id))

    # tasks and schedules

    def find_task(self, task_id: str) -> TaskRecord | None:
        return self._find(Select(TaskRecord).where("task_id = ?", task_id))

    def list_tasks(self, wanted: TaskFilter) -> list[TaskRecord]:
        """Newest first; by state and kind from one range of an index for each pair of them."""
        if wanted.schedule_id is not None:
            # By the index of firings, which the unary plus leaves as the only one.
            select = Select(TaskRecord).where("+principal = ?", wanted.principal)
            select.where("firing >= ? AND firing < ?", *_firings(wanted.schedule_id))
            select.where("+kind = ?", wanted.kind).where("+task_id < ?", wanted.before)
            select.where_in("+state", wanted.states)
            return self._list(select, "+task_id DESC", wanted.limit)
        if not wanted.states and wanted.kind is None:
            return self._list(_tasks(wanted), "task_id DESC", wanted.limit)
        kinds = get_args(TaskKind) if wanted.kind is None else (wanted.kind,)
        selects = [
            _tasks(wanted).where("state = ? AND kind = ?", state, kind)
            for state, kind in product(wanted.states or get_args(TaskState), kinds)
        ]

        def read(connection: apsw.Connection) -> list[TaskRecord]:
            found = list[TaskRecord]()
            with connection:  # one snapshot: a task that changes its state is listed once
                for select in selects:
                    found += select.read(
                        connection, "task_id DESC", wanted.limit, damaged=self.damaged
                    )
            return found

        found = self._read(read)
        found.sort(key=lambda task: task.task_id, reverse=True)
        return found[: wanted.limit]

    def list_claimable(
        self, *, now_ms: int, limit: int, running: Mapping[str, int]
    ) -> list[TaskRecord]:
        """See `TaskStore.list_claimable`; a rank is at most the first time of its task."""

        def read(principal: str, after: tuple[int, str]) -> Select[TaskRecord]:
            select = Select(TaskRecord).where("state = 'queued' AND principal = ?", principal)
            select.where("(rank_ms, task_id) > (?, ?) AND rank_ms <= ?", *after, now_ms)
            select.where("not_before_ms <= ?", now_ms)
            return select.where("(expires_ms IS NULL OR expires_ms > ?)", now_ms)

        queues = {
            principal: self._follow(partial(read, principal), "rank_ms, task_id", claim_order)
            for principal in self._list_principals(
                "tasks INDEXED BY tasks_queued", "state = 'queued'"
            )
        }
        return pick_fairly(queues, running, claim_order, limit)

    def _list_principals(self, table: str, condition: str) -> list[str]:
        """Return the principals of an index that begins with them, one step in it for each."""
        least = f"SELECT min(principal) FROM {table} WHERE {condition}"  # noqa: S608 - only literals of this file
        statement = (
            f"WITH RECURSIVE p(name) AS ({least} UNION ALL"  # noqa: S608 - the same
            f" SELECT ({least} AND principal > p.name) FROM p WHERE p.name IS NOT NULL)"
            " SELECT json_quote(name) AS found FROM p WHERE name IS NOT NULL"
        )
        return self._read(lambda connection: read_found(connection, str, statement))

    def _follow(
        self,
        read: Callable[[tuple[int, str]], Select[R]],
        columns: str,
        key: Callable[[R], tuple[int, str]],
    ) -> Iterator[R]:
        """Yield the records of a queue in the order of these columns, one and then some at a time."""
        after, size = (-(2**63), ""), 1
        while page := self._list(read(after), columns, size):
            fresh = [each for each in page if key(each) > after]
            yield from fresh
            if not fresh:  # columns of another time than their record: damaged
                return
            after, size = key(fresh[-1]), _PAGE

    def list_running(self) -> list[TaskRecord]:
        """By id."""
        return self._list(Select(TaskRecord).where("state = 'running'"), "task_id")

    def list_expired_tasks(self, *, now_ms: int, limit: int) -> list[TaskRecord]:
        """Earliest first."""
        select = Select(TaskRecord).where("finished_ms IS NULL AND expires_ms IS NOT NULL")
        return self._list(select.where("expires_ms <= ?", now_ms), "expires_ms", limit)

    def list_fired(self, schedule_id: str) -> list[TaskRecord]:
        """See `TaskStore.list_fired`."""
        select = Select(TaskRecord).where("finished_ms IS NULL AND firing IS NOT NULL")
        select.where("firing >= ? AND firing < ?", *_firings(schedule_id))
        return self._list(select, "task_id")

    def count_open_tasks(self, principal: str, *, own: bool) -> int:
        """Tasks that have not ended, of `OWN_KINDS` or of the others."""
        return (
            self._number(
                "SELECT count(*) FROM tasks WHERE principal = ? AND finished_ms IS NULL"
                " AND (kind IN (SELECT value FROM json_each(?))) = ?",
                principal,
                _OWN_KINDS,
                own,
            )
            or 0
        )

    def count_tasks(self, principal: str | None, *, now_ms: int) -> TaskCounts:
        """See `core.ports.JournalStore`; the ended ones are those of a day."""
        values = {"who": principal, "now": now_ms, "since": now_ms - _DAY_MS, "own": _OWN_KINDS}
        due, oldest_ms, running, failed, own = self._read(
            lambda connection: connection.execute(_COUNT_TASKS, values).get
        )
        return TaskCounts(
            due=due,
            running=running,
            oldest_due_ms=oldest_ms,
            failed=failed,
            own=own,
            own_limit=MAX_OPEN_OWN,
        )

    def count_own_tasks(self) -> dict[str, int]:
        """Open tasks of `OWN_KINDS` by principal."""
        statement = (
            "SELECT json_array(principal, count(*)) AS found FROM tasks WHERE finished_ms IS NULL"
            " AND kind IN (SELECT value FROM json_each(?)) GROUP BY principal"
        )
        return dict(self._read(lambda c: read_found(c, tuple[str, int], statement, (_OWN_KINDS,))))

    def find_work(self, removal: WorkRemoval) -> SessionWork:
        """See `TaskStore.find_work`."""
        return self._read(lambda connection: find_work(connection, removal))

    def find_schedule(self, schedule_id: str) -> ScheduleRecord | None:
        """Removed or not."""
        return self._find(Select(ScheduleRecord).where("schedule_id = ?", schedule_id))

    def list_schedules(self, principal: str | None) -> list[ScheduleRecord]:
        """See `TaskStore.list_schedules`."""
        select = Select(ScheduleRecord).where("NOT is_removed").where("principal = ?", principal)
        return self._list(select, "schedule_id")

    def list_due_schedules(self, *, now_ms: int, limit: int) -> list[ScheduleRecord]:
        """See `TaskStore.list_due_schedules`."""

        def read(principal: str, after: tuple[int, str]) -> Select[ScheduleRecord]:
            select = Select(ScheduleRecord).where("principal = ?", principal)
            return select.where(
                "next_ms IS NOT NULL AND (next_ms, schedule_id) > (?, ?) AND next_ms <= ?",
                *after,
                now_ms,
            )

        queues = {
            principal: self._follow(partial(read, principal), "next_ms, schedule_id", firing_order)
            for principal in self._list_principals("schedules", "next_ms IS NOT NULL")
        }
        return pick_fairly(queues, {}, firing_order, limit)

    def find_next_due(self, *, after_ms: int) -> int | None:
        """See `TaskStore.find_next_due`."""
        return self._number(
            "SELECT min(at_ms) FROM ("
            " SELECT min(not_before_ms) AS at_ms FROM tasks"
            "  WHERE state = 'queued' AND not_before_ms > ?1"
            " UNION ALL SELECT min(expires_ms) FROM tasks"
            "  WHERE finished_ms IS NULL AND expires_ms IS NOT NULL"
            " UNION ALL SELECT min(next_ms) FROM schedules WHERE next_ms IS NOT NULL)",
            after_ms,
        )

    def _number(self, statement: str, *values: SQLValue) -> int | None:
        found: int | None = self._read(lambda connection: connection.execute(statement, values).get)
        return found

    # workspace documents

    def list_document_versions(
        self, workspace: str, document: str, *, before: int | None = None, limit: int = NO_LIMIT
    ) -> list[DocumentRecord]:
        """Newest first."""
        select = Select(DocumentRecord).where("workspace = ? AND document = ?", workspace, document)
        return self._list(select.where("version < ?", before), "version DESC", limit)


class _Reach(msgspec.Struct):
    scope: BudgetScope
    subject: str = "*"


def read_budgets(
    connection: apsw.Connection, where: str, values: Sequence[SQLValue], damaged: DamageNotes
) -> list[BudgetRecord]:
    """Return the budgets by id, deleted ones too.

    A row that does not decode, or whose columns are others, may limit anything: a budget of its id
    and revision replaces it, which admits no call in the scope of the row; if that cannot be read, none at all.
    """
    table, found = TABLES[BudgetRecord], list[BudgetRecord]()
    for text, key, *columns in connection.execute(
        "SELECT CAST(record AS BLOB), CAST(budget_id AS BLOB), revision, is_deleted FROM budgets"  # noqa: S608 - literals of this file
        f" WHERE {where} ORDER BY budget_id",
        tuple(values),
    ).fetchall():
        name, is_deleted = key.decode("utf-8", "replace"), False  # type: ignore[union-attr]  # a BLOB
        try:
            found.append(decode_row(BudgetRecord, text, [name, *columns], table.row))
            continue
        except ColumnsDiffer:
            damaged.note(f"budgets:{name}")
        except UNDECODED:
            damaged.note(f"budgets:{name}")
            is_deleted = bool(columns[1])  # nothing says otherwise
        reach = _Reach("global")
        with suppress(*UNDECODED):
            reach = decode_record(_Reach, text)
        found.append(
            BudgetRecord(
                budget_id=name,
                scope=reach.scope,
                subject="*" if reach.scope == "global" else reach.subject,
                metric="tokens",
                window="day",
                hard=0,
                revision=int(columns[0]),  # type: ignore[arg-type]  # an INTEGER
                deleted_ms=0 if is_deleted else None,
                is_damaged=True,
            )
        )
    return found


def _firings(schedule_id: str) -> tuple[str, str]:
    """Return the bounds of the keys of its firings, `schedule@instant`."""
    return f"{schedule_id}@", f"{schedule_id}A"  # A follows @


_GROUPS: dict[UsageBy | None, str] = {
    None: "''",
    "principal": "principal",
    "agent": "agent",
    "session": "session_id",
    "run": "run_id",
    "model": "model",
}


def _select_usage(wanted: UsageFilter) -> Select[UsageRecord]:
    family = wanted.model_family
    return (
        Select(UsageRecord)
        .where("principal = ?", wanted.principal)
        .where("agent = ?", wanted.agent)
        .where("session_id = ?", wanted.session_id)
        .where("run_id = ?", wanted.run_id)
        .where("model = ?", wanted.model if family is None else None)
        .where("substr(model, 1, length(?)) = ?", family, family)
        .where("at_ms >= ?", wanted.since_ms)
        .where("at_ms < ?", wanted.until_ms)
    )


def list_unresolved(connection: apsw.Connection, damaged: DamageNotes) -> list[IncidentRecord]:
    """Return the incidents that an opening journal reports, oldest first."""
    select = Select(IncidentRecord).where("state <> 'resolved'")
    return select.read(connection, "incident_id", damaged=damaged)
