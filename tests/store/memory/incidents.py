"""The part of the journal in memory that answers `core.ports.IncidentBook`."""

from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from typing import Any

from palyra.core.incident.incident import KEPT_RESOLVED, is_wanted
from palyra.core.journal.changes import IncidentFilter
from palyra.core.journal.records import IncidentRecord
from tests.store.memory.registry import R


class MemoryIncidents(ABC):
    """Reads incidents."""

    @abstractmethod
    def _find(self, kind: type[R], *key: str | int) -> R | None: ...

    @abstractmethod
    def _list(self, kind: type[R]) -> list[R]: ...

    def find_incident(self, incident_id: str) -> IncidentRecord | None:
        return self._find(IncidentRecord, incident_id)

    def list_incidents(self, wanted: IncidentFilter) -> list[IncidentRecord]:
        """Newest first."""
        found = [each for each in self._list(IncidentRecord) if is_wanted(each, wanted)]
        return found[::-1][: wanted.limit]

    def unresolved(self) -> tuple[IncidentRecord, ...]:
        """Oldest first."""
        return tuple(each for each in self._list(IncidentRecord) if each.state != "resolved")


def forget_incidents(kept: MutableMapping[Any, Any]) -> None:
    """Keep the newest of those that are resolved; of equal age all go."""
    ends = {
        key: incident.resolved_ms for key, incident in kept.items() if incident.state == "resolved"
    }
    newest_first = sorted(ends.values(), reverse=True)
    for key, end_ms in ends.items():
        if len(newest_first) > KEPT_RESOLVED and end_ms <= newest_first[KEPT_RESOLVED]:
            del kept[key]
