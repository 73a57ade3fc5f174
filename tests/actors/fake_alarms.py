"""Alarms that are only written down."""

from palyra.core.incident.incident import IncidentReport, open_incident
from palyra.core.journal.records import IncidentRecord


class FakeAlarms:
    """`core.ports.IncidentReporter` for those who raise some."""

    def __init__(self) -> None:
        self.raised: list[IncidentReport] = []
        self.standing = set[str]()  # keys of what is not over; an operator may say that it is
        self.told: list[str] = []  # keys in the order of what was said; over: with a minus

    def report(self, alarm: IncidentReport) -> IncidentRecord:
        self.raised.append(alarm)
        self.told.append(alarm.key)
        self.standing.add(alarm.key)
        return open_incident(alarm, "inc_1", 0)

    def clear(self, key: str, reason: str) -> None:
        assert reason
        self.told.append(f"-{key}")
        self.standing.discard(key)

    def is_told(self, key: str) -> bool:
        return key in self.standing
