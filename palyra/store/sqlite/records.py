"""The record tables: one row per thing, its JSON beside the columns that are searched.

Writing is an upsert, last writer wins; what must not be overwritten is refused by a trigger or a
unique index (see `schema`), and the refusal is named here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import apsw
import msgspec

from palyra.core.incident.incident import KEPT_RESOLVED
from palyra.core.journal.records import (
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    ChannelRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    PairingRecord,
    Record,
    RunRecord,
    SessionRecord,
    TokenRecord,
    UsageRecord,
)
from palyra.errors import Conflict, IdempotencyConflict, PalyraError
from palyra.store.sqlite.connection import BulkInsert, Row

_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class RecordTable:
    """How records of one type become rows."""

    insert: BulkInsert
    row: Callable[[Any, str], Row]  # the record and its JSON


def _table(name: str, key: str, columns: str, row: Callable[[Any, str], Row]) -> RecordTable:
    """A table with these columns and `record`; the columns of `key` identify a row."""
    rest = [column for column in (*columns.split(), "record") if column not in key.split()]
    changes = ", ".join(f"{column} = excluded.{column}" for column in rest)
    suffix = f"ON CONFLICT ({', '.join(key.split())}) DO UPDATE SET {changes}"
    return RecordTable(BulkInsert(name, (*key.split(), *rest), suffix), row)


NO_PLACE = (None,) * 4

TABLES: dict[type[Record], RecordTable] = {
    RunRecord: _table(
        "runs",
        "run_id",
        "session_id principal state",
        lambda r, text: (r.run_id, r.session_id, r.principal, r.state, text),
    ),
    SessionRecord: _table(
        "sessions",
        "session_id",
        "principal key agent channel conversation_id",
        lambda r, text: (r.session_id, r.principal, r.key, *(r.place or NO_PLACE)[1:], text),
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
}  # fmt: skip


def append(connection: apsw.Connection, records: Iterable[Record]) -> None:
    """Write the records, each table in the order given.  Raises apsw.ConstraintError."""
    rows: dict[type[Record], list[Row]] = {}
    for record in records:
        text = _ENCODER.encode(record).decode()
        kind = type(record)
        rows.setdefault(kind, []).append(TABLES[kind].row(record, text))
    for kind, batch in rows.items():
        TABLES[kind].insert.append(connection, batch)


def forget_receipts(connection: apsw.Connection, *, created_before_ms: int) -> None:
    """Drop receipts nobody may ask for any more."""
    connection.execute("DELETE FROM receipts WHERE created_ms <= ?", (created_before_ms,))


def forget_pairings(connection: apsw.Connection, *, expired_ms: int) -> None:
    """Drop requests whose code is of no use any more."""
    connection.execute(
        "DELETE FROM pairings WHERE state = 'pending' AND expires_ms <= ?", (expired_ms,)
    )


def forget_incidents(connection: apsw.Connection) -> None:
    """Keep the newest of those that are resolved; of equal age all go."""
    connection.execute(
        "DELETE FROM incidents WHERE state = 'resolved' AND resolved_ms <= (SELECT resolved_ms"
        " FROM incidents WHERE state = 'resolved' ORDER BY resolved_ms DESC LIMIT 1 OFFSET ?)",
        (KEPT_RESOLVED,),
    )


def describe_refusal(error: apsw.ConstraintError) -> PalyraError:
    """What a constraint of the record tables means to the writer."""
    text = str(error).removeprefix("UNIQUE constraint failed: ")
    if "idempotency key" in text:
        return IdempotencyConflict(text)
    return Conflict(text if "stands" in text or "ended" in text else f"{text} is taken")
