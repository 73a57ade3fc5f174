"""The part of the journal on SQLite that answers `core.ports.IncidentBook`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import apsw

from palyra.core.journal import IncidentFilter
from palyra.core.records import IncidentRecord
from palyra.store.projections import Query

T = TypeVar("T")


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
