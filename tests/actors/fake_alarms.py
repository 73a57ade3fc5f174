"""Alarms that are only written down."""

from palyra.core.incident import Alarm, open_incident
from palyra.core.records import IncidentRecord


class FakeAlarms:
    """`core.ports.Alarms` for those who raise some."""

    def __init__(self) -> None:
        self.raised: list[Alarm] = []
        self.standing = set[str]()  # keys of what is not over; an operator may say that it is
        self.told: list[str] = []  # keys in the order of what was said; over: with a minus

    def report(self, alarm: Alarm) -> IncidentRecord:
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
