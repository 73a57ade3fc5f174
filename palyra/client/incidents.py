"""Typed methods about incidents."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from palyra.client.requests import RequestMethods
from palyra.core.journal.records import IncidentDomain, IncidentState
from palyra.net.protocol.results import IncidentPage, IncidentView


class IncidentsWanted(TypedDict, total=False):
    """Filter of `incident.list`."""

    states: Sequence[IncidentState]
    domain: IncidentDomain | None
    cursor: str | None
    limit: int


class IncidentMethods(RequestMethods):
    """List, read and resolve incidents."""

    async def list_incidents(self, **wanted: Unpack[IncidentsWanted]) -> IncidentPage:
        """A page, newest first; `cursor` is the `next_cursor` of the page before."""
        return await self._ask("incident.list", {**wanted}, IncidentPage)

    async def get_incident(self, incident_id: str) -> IncidentView:
        """Return an incident.  Raises NotFound."""
        return await self._ask("incident.get", {"incident_id": incident_id}, IncidentView)

    async def resolve_incident(
        self, incident_id: str, reason: str, *, idempotency_key: str | None = None
    ) -> IncidentView:
        """Resolve an incident; one that is resolved already keeps its resolution."""
        params = {
            "incident_id": incident_id,
            "reason": reason,
            "idempotency_key": idempotency_key,
        }
        return await self._mutate("incident.resolve", params, IncidentView)
