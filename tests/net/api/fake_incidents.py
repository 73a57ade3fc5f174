"""Fake incidents for connections: one incident, and the recorded requests."""

import msgspec

from palyra.core.access import Caller
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.changes import IncidentFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import IncidentRecord
from tests.net.api.fake_registry import Asked
from tests.net.api.fake_store import FakeStore

FULL = IncidentRecord(
    incident_id="inc_1",
    domain="store",
    key="journal_refuses",
    severity="critical",
    summary="the journal refuses writes",
    evidence={"error": "disk full"},
    count=3,
    resolves_itself=True,
    opened_ms=1,
    last_ms=2,
)
ENDED = msgspec.structs.replace(
    FULL, state="resolved", resolved_ms=5, by="root", reason="made room"
)


class FakeIncidents(Asked):
    """One incident; changes are kept for the test and change nothing."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__(store)
        self.alarms: list[IncidentReport] = []
        self.open_count = 4

    def report(self, alarm: IncidentReport) -> IncidentRecord:
        self.alarms.append(alarm)
        return FULL

    async def report_finding(self, alarm: IncidentReport) -> None:
        self.alarms.append(alarm)

    async def list_page(
        self, caller: Caller, wanted: IncidentFilter
    ) -> tuple[list[IncidentRecord], str | None]:
        await self.note(FULL, "list", caller.principal, wanted)
        return [FULL], "inc_1"

    async def get(self, caller: Caller, incident_id: str) -> IncidentRecord:
        await self.note(FULL, "get", caller.principal, incident_id)
        return FULL

    async def resolve(
        self, caller: Caller, incident_id: str, reason: str, receipt: IdempotencyKey | None = None
    ) -> IncidentRecord:
        await self.note(ENDED, "resolve", caller.principal, incident_id, reason, receipt)
        return ENDED
