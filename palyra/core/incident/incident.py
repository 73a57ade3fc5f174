"""Incidents: what was found to be wrong, recorded once and counted, until it is resolved.

An alarm says what is wrong, in words, with evidence, and under a key: while the incident of that
key is not resolved, the same alarm again is counted there and opens no other.  What is resolved
stays so; found again, it is another incident.
"""

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from palyra.core.journal.changes import IncidentFilter
from palyra.core.journal.records import (
    IncidentDomain,
    IncidentRecord,
    IncidentSeverity,
    IncidentState,
)
from palyra.errors import IllegalState

MAX_OPEN = 1_000  # above it the alarms of a domain share one incident: see `merged`
KEPT_RESOLVED = 1_000  # the newest; older ones are forgotten
UNRESOLVED: tuple[IncidentState, ...] = ("open", "remediating", "escalated")
SUMMARY_CHARS = 300
EVIDENCE_CHARS = 1_000
EVIDENCE_ITEMS = 16

# Open until something is done about it (remediating), which helps or does not, or until it needs a
# person (escalated).  Resolved is final.
MOVES: Mapping[IncidentState, frozenset[IncidentState]] = {
    "open": frozenset({"remediating", "escalated", "resolved"}),
    "remediating": frozenset({"open", "escalated", "resolved"}),
    "escalated": frozenset({"resolved"}),
    "resolved": frozenset(),
}
SEVERITIES: tuple[IncidentSeverity, ...] = get_args(IncidentSeverity)  # the worst last


class IncidentReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something is wrong: what, where, how badly, and how that is known."""

    domain: IncidentDomain
    key: str  # `kind` or `kind:subject`
    severity: IncidentSeverity
    summary: str
    evidence: Mapping[str, str | int] = {}
    resolves_itself: bool = False  # whoever raises it also says when it is over


class _Words(msgspec.Struct):
    """What of an alarm may repeat anything."""

    summary: str
    evidence: dict[str, str | int]


def cleaned(alarm: IncidentReport, redact: Callable[[bytes], tuple[bytes, bool]]) -> IncidentReport:
    """The alarm without secrets, and not longer than an incident may be; cut after redacting."""
    given = _Words(alarm.summary, dict(alarm.evidence))
    words = msgspec.json.decode(redact(msgspec.json.encode(given))[0], type=_Words)
    evidence = {
        name: value[:EVIDENCE_CHARS] if isinstance(value, str) else value
        for name, value in list(words.evidence.items())[:EVIDENCE_ITEMS]
    }
    return msgspec.structs.replace(alarm, summary=words.summary[:SUMMARY_CHARS], evidence=evidence)


def merged(alarm: IncidentReport) -> IncidentReport:
    """The alarm in the incident that its domain has for all there is no room for."""
    return msgspec.structs.replace(alarm, key=f"more:{alarm.domain}", resolves_itself=False)


def open_incident(alarm: IncidentReport, incident_id: str, now_ms: int) -> IncidentRecord:
    """The incident that a cleaned alarm opens."""
    return IncidentRecord(
        incident_id=incident_id,
        domain=alarm.domain,
        key=alarm.key,
        severity=alarm.severity,
        summary=alarm.summary,
        evidence=dict(alarm.evidence),
        resolves_itself=alarm.resolves_itself,
        opened_ms=now_ms,
        last_ms=now_ms,
    )


def count_again(incident: IncidentRecord, alarm: IncidentReport, now_ms: int) -> IncidentRecord:
    """The incident with one more; it keeps its state and its worst severity.

    Raises IllegalState for one that is resolved.
    """
    if incident.state == "resolved":
        raise IllegalState(f"{incident.incident_id} is resolved: the alarm opens another")
    return msgspec.structs.replace(
        incident,
        severity=max(incident.severity, alarm.severity, key=SEVERITIES.index),
        summary=alarm.summary,
        evidence=dict(alarm.evidence),
        count=incident.count + 1,
        last_ms=now_ms,
    )


def is_same_finding(incident: IncidentRecord, alarm: IncidentReport) -> bool:
    """Whether a cleaned alarm says nothing that a resolved incident has not said."""
    return (
        incident.state == "resolved"
        and incident.key == alarm.key
        and incident.evidence == dict(alarm.evidence)
    )


def move(incident: IncidentRecord, state: IncidentState, **changes: Any) -> IncidentRecord:  # noqa: ANN401 - the record's own fields
    """The incident in that state; an attempt to do something about it is counted.

    Raises IllegalState for a state that does not follow.
    """
    if state not in MOVES[incident.state]:
        raise IllegalState(f"{incident.incident_id} is {incident.state} and cannot be {state}")
    attempts = incident.attempts + (state == "remediating")
    return msgspec.structs.replace(incident, state=state, attempts=attempts, **changes)


def resolve(incident: IncidentRecord, *, by: str, reason: str, now_ms: int) -> IncidentRecord:
    """The incident with its end; one that has an end keeps it."""
    if incident.state == "resolved":
        return incident
    return move(incident, "resolved", by=by, reason=reason, resolved_ms=now_ms)


def is_wanted(incident: IncidentRecord, wanted: IncidentFilter) -> bool:
    """Whether a list of these, however long, has it."""
    return (
        (not wanted.states or incident.state in wanted.states)
        and wanted.domain in {None, incident.domain}
        and (wanted.before is None or incident.incident_id < wanted.before)
    )
