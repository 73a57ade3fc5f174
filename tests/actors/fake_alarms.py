"""Alarms that are only written down."""

from palyra.core.incident import Alarm, open_incident
from palyra.core.records import IncidentRecord


class FakeAlarms:
    """`core.ports.Alarms` for those who raise some."""

    def __init__(self) -> None:
        self.raised: list[Alarm] = []
        self.told: list[str] = []  # keys in the order of what was said; over: with a minus

    def report(self, alarm: Alarm) -> IncidentRecord:
        self.raised.append(alarm)
        self.told.append(alarm.key)
        return open_incident(alarm, "inc_1", 0)

    def clear(self, key: str, reason: str) -> None:
        assert reason
        self.told.append(f"-{key}")
