"""An incident reporter that records the reports."""

from palyra.core.incident.incident import IncidentReport, open_incident
from palyra.core.journal.records import IncidentRecord


class FakeAlarms:
    """A `core.ports.IncidentReporter` without a journal."""

    def __init__(self) -> None:
        self.raised: list[IncidentReport] = []
        self.standing = set[str]()  # keys of open incidents
        self.told: list[str] = []  # keys in call order; cleared ones with a minus

    def report(self, report: IncidentReport) -> IncidentRecord:
        self.raised.append(report)
        self.told.append(report.key)
        self.standing.add(report.key)
        return open_incident(report, "inc_1", 0)

    def clear(self, key: str, reason: str) -> None:
        assert reason
        self.told.append(f"-{key}")
        self.standing.discard(key)

    def is_reported(self, key: str) -> bool:
        return key in self.standing
