"""Reading the record tables.  A list is read in one step, as one JSON array (see `bulk`).

The part of the journal on SQLite that answers `core.ports.Registry`.

The part of the journal on SQLite that answers `core.ports.Ledger`.

The part of the journal on SQLite that answers `core.ports.IncidentBook`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import apsw
import msgspec

from palyra.core.journal.changes import (
    IncidentFilter,
    PairingFilter,
    RunFilter,
    UsageBy,
    UsageFilter,
    UsageSum,
)
from palyra.core.journal.records import (
    RECEIPT_TTL_MS,
    AgentRecord,
    ApprovalRecord,
    BudgetRecord,
    ChannelRecord,
    GrantRecord,
    IdempotencyRecord,
    IncidentRecord,
    PairingRecord,
    RunRecord,
    SessionRecord,
    TokenRecord,
    UsageRecord,
)
from palyra.store.sqlite.connection import SQLValue

R = TypeVar(
    "R",
    RunRecord,
    SessionRecord,
    ApprovalRecord,
    IdempotencyRecord,
    TokenRecord,
    AgentRecord,
    ChannelRecord,
    PairingRecord,
    GrantRecord,
    UsageRecord,
    BudgetRecord,
    IncidentRecord,
)

NO_LIMIT = -1  # SQLite's word for it


class Query:
    """A WHERE clause under construction; every value is a parameter."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._conditions: list[str] = ["TRUE"]
        self._values: list[SQLValue] = []

    def where(self, condition: str, *values: SQLValue) -> "Query":
        """Add a condition, unless its first value is None: then nobody asked for it."""
        if not values or values[0] is not None:
            self._conditions.append(condition)
            self._values += values
        return self

    @property
    def condition(self) -> tuple[str, tuple[SQLValue, ...]]:
        """What stands behind WHERE, and its parameters."""
        return " AND ".join(self._conditions), tuple(self._values)

    def read(
        self, connection: apsw.Connection, kind: type[R], order: str, limit: int = NO_LIMIT
    ) -> list[R]:
        """The records found, in this order."""
        where: tuple[str, tuple[SQLValue, ...]] = self.condition
        found = connection.execute(
            "SELECT CAST('[' || group_concat(record, ',') || ']' AS BLOB) FROM"  # noqa: S608 - only literals of this file
            f" (SELECT record FROM {self._table} WHERE {where[0]}"
            f" ORDER BY {order} LIMIT ?)",
            (*where[1], limit),
        ).get
        return [] if found is None else msgspec.json.decode(found, type=list[kind])  # type: ignore[valid-type]  # a type chosen at run time

    def find(self, connection: apsw.Connection, kind: type[R]) -> R | None:
        """The one record found, or None."""
        found = self.read(connection, kind, "rowid", 1)
        return found[0] if found else None


def find_run(connection: apsw.Connection, run_id: str) -> RunRecord | None:
    return Query("runs").where("run_id = ?", run_id).find(connection, RunRecord)


def list_runs(connection: apsw.Connection, wanted: RunFilter) -> list[RunRecord]:
    """Newest first."""
    query = (
        Query("runs")
        .where("principal = ?", wanted.principal)
        .where("session_id = ?", wanted.session_id)
        .where("run_id < ?", wanted.before)
    )
    if wanted.states:
        query.where(f"state IN ({', '.join('?' * len(wanted.states))})", *wanted.states)
    return query.read(connection, RunRecord, "run_id DESC", wanted.limit)


def list_open_runs(connection: apsw.Connection) -> list[RunRecord]:
    """Every run that has not ended, oldest first."""
    query = Query("runs").where("state IN ('accepted', 'in_progress')")
    return query.read(connection, RunRecord, "run_id")


def find_session(connection: apsw.Connection, session_id: str) -> SessionRecord | None:
    return Query("sessions").where("session_id = ?", session_id).find(connection, SessionRecord)


def find_session_by_key(
    connection: apsw.Connection, principal: str, key: str
) -> SessionRecord | None:
    query = Query("sessions").where("principal = ? AND key = ?", principal, key)
    return query.find(connection, SessionRecord)


def list_sessions(
    connection: apsw.Connection, principal: str | None, *, before: str | None, limit: int
) -> list[SessionRecord]:
    """Newest first."""
    query = Query("sessions").where("principal = ?", principal).where("session_id < ?", before)
    return query.read(connection, SessionRecord, "session_id DESC", limit)


def find_approval(connection: apsw.Connection, approval_id: str) -> ApprovalRecord | None:
    query = Query("approvals").where("approval_id = ?", approval_id)
    return query.find(connection, ApprovalRecord)


def list_approvals(
    connection: apsw.Connection,
    *,
    principal: str | None,
    run_id: str | None,
    pending_only: bool,
    limit: int,
) -> list[ApprovalRecord]:
    """Pending first, then the newest first."""
    query = Query("approvals").where("principal = ?", principal).where("run_id = ?", run_id)
    if pending_only:
        query.where("state = 'pending'")
        return query.read(connection, ApprovalRecord, "approval_id DESC", limit)
    order = "state = 'pending' DESC, approval_id DESC"
    return query.read(connection, ApprovalRecord, order, limit)


def find_grant(connection: apsw.Connection, grant_id: str) -> GrantRecord | None:
    return Query("grants").where("grant_id = ?", grant_id).find(connection, GrantRecord)


def list_grants(
    connection: apsw.Connection, *, principal: str | None, live_at_ms: int | None, limit: int
) -> list[GrantRecord]:
    """Newest first; with `live_at_ms` only those that hold then."""
    query = Query("grants").where("principal = ?", principal)
    if live_at_ms is not None:
        query.where("ended_ms IS NULL AND (expires_ms IS NULL OR expires_ms > ?)", live_at_ms)
    return query.read(connection, GrantRecord, "grant_id DESC", limit)


def find_receipt(
    connection: apsw.Connection, principal: str, key: str, *, now_ms: int
) -> IdempotencyRecord | None:
    query = Query("receipts").where("principal = ? AND key = ?", principal, key)
    return query.where("created_ms > ?", now_ms - RECEIPT_TTL_MS).find(
        connection, IdempotencyRecord
    )


def find_token(connection: apsw.Connection, sha256: str) -> TokenRecord | None:
    return Query("tokens").where("sha256 = ?", sha256).find(connection, TokenRecord)


def list_tokens(connection: apsw.Connection) -> list[TokenRecord]:
    """In the order of their ids, which is that of their making."""
    return Query("tokens").read(connection, TokenRecord, "token_id")


def find_conversation(
    connection: apsw.Connection, principal: str, agent: str, channel: str, conversation_id: str
) -> SessionRecord | None:
    """The session of that identity which is not archived."""
    query = Query("sessions").where("principal = ? AND agent = ?", principal, agent)
    query.where("channel = ? AND conversation_id = ?", channel, conversation_id)
    return query.find(connection, SessionRecord)


def find_agent(
    connection: apsw.Connection, name: str, version: int | None = None
) -> AgentRecord | None:
    """That version, or the newest, which may say that the agent is deleted."""
    query = Query("agents").where("name = ?", name).where("version = ?", version)
    return next(iter(query.read(connection, AgentRecord, "version DESC", 1)), None)


def list_agents(connection: apsw.Connection) -> list[AgentRecord]:
    """The newest version of each that is not deleted, by name."""
    newest = "version = (SELECT max(version) FROM agents AS a WHERE a.name = agents.name)"
    query = Query("agents").where(newest).where("NOT is_deleted")
    return query.read(connection, AgentRecord, "name")


def find_channel(
    connection: apsw.Connection, principal: str, channel: str, conversation_id: str
) -> ChannelRecord | None:
    """Also one that is deleted."""
    query = Query("channels").where("principal = ? AND channel = ?", principal, channel)
    return query.where("conversation_id = ?", conversation_id).find(connection, ChannelRecord)


def list_channels(connection: apsw.Connection, principal: str | None) -> list[ChannelRecord]:
    """By principal, channel and conversation; none that is deleted."""
    query = Query("channels").where("principal = ?", principal).where("NOT is_deleted")
    return query.read(connection, ChannelRecord, "principal, channel, conversation_id")


def find_pairing(connection: apsw.Connection, pairing_id: str) -> PairingRecord | None:
    return Query("pairings").where("pairing_id = ?", pairing_id).find(connection, PairingRecord)


def find_sender(
    connection: apsw.Connection, principal: str, channel: str, sender: str
) -> PairingRecord | None:
    query = Query("pairings").where("principal = ? AND channel = ?", principal, channel)
    return query.where("sender = ?", sender).find(connection, PairingRecord)


def list_pairings(connection: apsw.Connection, wanted: PairingFilter) -> list[PairingRecord]:
    """Newest first."""
    query = (
        Query("pairings")
        .where("principal = ?", wanted.principal)
        .where("channel = ?", wanted.channel)
        .where("state = ?", wanted.state)
        .where("pairing_id < ?", wanted.before)
    )
    return query.read(connection, PairingRecord, "pairing_id DESC", wanted.limit)


T = TypeVar("T")


class SqliteRegistry(ABC):
    """Reads agents, channels, pairings and conversations."""

    @abstractmethod
    def _read(self, query: Callable[[apsw.Connection], T]) -> T: ...

    def find_conversation(
        self, principal: str, agent: str, channel: str, conversation_id: str
    ) -> SessionRecord | None:
        """One that is not archived."""
        return self._read(
            lambda c: find_conversation(c, principal, agent, channel, conversation_id)
        )

    def find_agent(self, name: str, version: int | None = None) -> AgentRecord | None:
        """That version, or the newest, deleted or not."""
        return self._read(lambda c: find_agent(c, name, version))

    def list_agents(self) -> list[AgentRecord]:
        """The newest version of each that is not deleted, by name."""
        return self._read(list_agents)

    def find_channel(
        self, principal: str, channel: str, conversation_id: str
    ) -> ChannelRecord | None:
        """Deleted or not."""
        return self._read(lambda c: find_channel(c, principal, channel, conversation_id))

    def list_channels(self, principal: str | None) -> list[ChannelRecord]:
        """By principal, channel and conversation; none that is deleted."""
        return self._read(lambda c: list_channels(c, principal))

    def find_pairing(self, pairing_id: str) -> PairingRecord | None:
        return self._read(lambda c: find_pairing(c, pairing_id))

    def find_sender(self, principal: str, channel: str, sender: str) -> PairingRecord | None:
        return self._read(lambda c: find_sender(c, principal, channel, sender))

    def list_pairings(self, wanted: PairingFilter) -> list[PairingRecord]:
        """Newest first."""
        return self._read(lambda c: list_pairings(c, wanted))

    def find_grant(self, grant_id: str) -> GrantRecord | None:
        return self._read(lambda c: find_grant(c, grant_id))

    def list_grants(
        self, *, principal: str | None, live_at_ms: int | None, limit: int
    ) -> list[GrantRecord]:
        return self._read(
            lambda c: list_grants(c, principal=principal, live_at_ms=live_at_ms, limit=limit)
        )


COLUMNS: dict[UsageBy | None, str] = {
    None: "''",
    "principal": "principal",
    "agent": "agent",
    "session": "session_id",
    "run": "run_id",
    "model": "model",
}


class SqliteLedger(ABC):
    """Reads usage and budgets."""

    @abstractmethod
    def _read(self, query: Callable[[apsw.Connection], T]) -> T: ...

    def sum_usage(
        self,
        wanted: UsageFilter,
        by: UsageBy | None = None,
        *,
        grain_ms: int | None = None,
        limit: int = 1_000,
    ) -> list[UsageSum]:
        """See `Ledger.sum_usage`."""
        return self._read(lambda c: _sum(c, wanted, by, grain_ms, limit))

    def list_usage(self, wanted: UsageFilter, *, limit: int) -> list[UsageRecord]:
        """Newest first."""
        order = "at_ms DESC, run_id DESC, turn DESC, attempt DESC"
        return self._read(lambda c: _select(wanted).read(c, UsageRecord, order, limit))

    def find_budget(self, budget_id: str) -> BudgetRecord | None:
        """Deleted or not."""
        query = Query("budgets").where("budget_id = ?", budget_id)
        return self._read(lambda c: query.find(c, BudgetRecord))

    def list_budgets(self) -> list[BudgetRecord]:
        """By id; none that is deleted."""
        query = Query("budgets").where("NOT is_deleted")
        return self._read(lambda c: query.read(c, BudgetRecord, "budget_id"))


def _select(wanted: UsageFilter) -> Query:
    family = wanted.model_family
    return (
        Query("usage")
        .where("principal = ?", wanted.principal)
        .where("agent = ?", wanted.agent)
        .where("session_id = ?", wanted.session_id)
        .where("run_id = ?", wanted.run_id)
        .where("model = ?", wanted.model if family is None else None)
        .where("substr(model, 1, length(?)) = ?", family, family)
        .where("at_ms >= ?", wanted.since_ms)
        .where("at_ms < ?", wanted.until_ms)
    )


def _sum(
    connection: apsw.Connection,
    wanted: UsageFilter,
    by: UsageBy | None,
    grain_ms: int | None,
    limit: int,
) -> list[UsageSum]:
    key = COLUMNS[by]
    condition, values = _select(wanted).condition
    rows = connection.execute(
        f"SELECT {key} AS grp, CASE WHEN ?1 THEN at_ms - at_ms % ?1 ELSE 0 END AS begun,"  # noqa: S608 - only literals of this file
        " max(at_ms), count(*), sum(outcome <> 'completed'), sum(is_estimate),"
        " sum(cost_usd_micros IS NULL), sum(input_tokens), sum(cached_tokens),"
        " sum(output_tokens), coalesce(sum(cost_usd_micros), 0)"
        f" FROM usage WHERE {condition} GROUP BY grp, begun ORDER BY grp, begun LIMIT ?",
        (grain_ms or 0, *values, limit),  # a plain ? counts on from ?1
    )
    fields = UsageSum.__struct_fields__
    return [UsageSum(**dict(zip(fields, row, strict=True))) for row in rows]


class SqliteIncidents(ABC):
    """Reads incidents."""

    @abstractmethod
    def _read(self, query: Callable[[apsw.Connection], T]) -> T: ...

    def find_incident(self, incident_id: str) -> IncidentRecord | None:
        query = Query("incidents").where("incident_id = ?", incident_id)
        return self._read(lambda c: query.find(c, IncidentRecord))

    def list_incidents(self, wanted: IncidentFilter) -> list[IncidentRecord]:
        """Newest first."""
        query = (
            Query("incidents")
            .where("domain = ?", wanted.domain)
            .where("incident_id < ?", wanted.before)
        )
        if wanted.states:
            query.where(f"state IN ({', '.join('?' * len(wanted.states))})", *wanted.states)
        order = "incident_id DESC"
        return self._read(lambda c: query.read(c, IncidentRecord, order, wanted.limit))


def list_unresolved(connection: apsw.Connection) -> list[IncidentRecord]:
    """Oldest first."""
    query = Query("incidents").where("state <> 'resolved'")
    return query.read(connection, IncidentRecord, "incident_id")
