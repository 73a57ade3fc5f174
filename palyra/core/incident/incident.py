"""Incidents: problems that the daemon found, recorded once, counted, and resolved once.

An incident report describes a problem, with evidence, under a key.  While the incident of a key is
not resolved, further reports with that key are counted there.  A resolved incident never changes;
the next report with its key opens another.
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

MAX_OPEN = 1_000  # above it the reports of a domain share one incident: see `merged`
KEPT_RESOLVED = 1_000  # the newest; older ones are deleted
UNRESOLVED: tuple[IncidentState, ...] = ("open", "remediating", "escalated")
SUMMARY_CHARS = 300
EVIDENCE_CHARS = 1_000
EVIDENCE_ITEMS = 16

# State machine.  A remediation moves an open incident to remediating and back if it did not help.
# An escalated incident needs a person.  Resolved is final.
MOVES: Mapping[IncidentState, frozenset[IncidentState]] = {
    "open": frozenset({"remediating", "escalated", "resolved"}),
    "remediating": frozenset({"open", "escalated", "resolved"}),
    "escalated": frozenset({"resolved"}),
    "resolved": frozenset(),
}
SEVERITIES: tuple[IncidentSeverity, ...] = get_args(IncidentSeverity)  # ascending


class IncidentReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A problem that was found: domain, key, severity, summary and evidence."""

    domain: IncidentDomain
    key: str  # `kind` or `kind:subject`
    severity: IncidentSeverity
    summary: str
    evidence: Mapping[str, str | int] = {}
    resolves_itself: bool = False  # the reporter also clears it


class _ForeignText(msgspec.Struct):
    """The fields of a report that may contain foreign text."""

    summary: str
    evidence: dict[str, str | int]


def cleaned(
    report: IncidentReport, redact: Callable[[bytes], tuple[bytes, bool]]
) -> IncidentReport:
    """Redact the report, then truncate it to the bounds of an incident."""
    given = _ForeignText(report.summary, dict(report.evidence))
    words = msgspec.json.decode(redact(msgspec.json.encode(given))[0], type=_ForeignText)
    evidence = {
        name: value[:EVIDENCE_CHARS] if isinstance(value, str) else value
        for name, value in list(words.evidence.items())[:EVIDENCE_ITEMS]
    }
    return msgspec.structs.replace(report, summary=words.summary[:SUMMARY_CHARS], evidence=evidence)


def merged(report: IncidentReport) -> IncidentReport:
    """Move the report to the shared incident of its domain, used above `MAX_OPEN`."""
    return msgspec.structs.replace(report, key=f"more:{report.domain}", resolves_itself=False)


def open_incident(
    report: IncidentReport, incident_id: str, now_ms: int, attempts: int = 0
) -> IncidentRecord:
    """Open an incident for a cleaned report, with the attempts that count for its key already."""
    return IncidentRecord(
        incident_id=incident_id,
        domain=report.domain,
        key=report.key,
        severity=report.severity,
        summary=report.summary,
        evidence=dict(report.evidence),
        resolves_itself=report.resolves_itself,
        opened_ms=now_ms,
        last_ms=now_ms,
        attempts=attempts,
    )


def count_again(incident: IncidentRecord, report: IncidentReport, now_ms: int) -> IncidentRecord:
    """Count a further report; keep the state and the worst severity.

    Raises IllegalState for a resolved incident.
    """
    if incident.state == "resolved":
        raise IllegalState(f"{incident.incident_id} is resolved: the report opens another")
    return msgspec.structs.replace(
        incident,
        severity=max(incident.severity, report.severity, key=SEVERITIES.index),
        summary=report.summary,
        evidence=dict(report.evidence),
        count=incident.count + 1,
        last_ms=now_ms,
    )


def is_same_finding(incident: IncidentRecord, alarm: IncidentReport) -> bool:
    """Return True if a cleaned alarm adds nothing to a resolved incident."""
    return (
        incident.state == "resolved"
        and incident.key == alarm.key
        and incident.evidence == dict(alarm.evidence)
    )


def move(incident: IncidentRecord, state: IncidentState, **changes: Any) -> IncidentRecord:  # noqa: ANN401 - the record's own fields
    """Move the incident to a state, counting attempts of remediation.

    Raises IllegalState for a transition that `MOVES` does not have.
    """
    if state not in MOVES[incident.state]:
        raise IllegalState(f"{incident.incident_id} is {incident.state} and cannot be {state}")
    attempts = incident.attempts + (state == "remediating")
    return msgspec.structs.replace(incident, state=state, attempts=attempts, **changes)


def resolve(incident: IncidentRecord, *, by: str, reason: str, now_ms: int) -> IncidentRecord:
    """Resolve the incident; a resolved one is returned unchanged."""
    if incident.state == "resolved":
        return incident
    return move(incident, "resolved", by=by, reason=reason, resolved_ms=now_ms)


def is_wanted(incident: IncidentRecord, wanted: IncidentFilter) -> bool:
    """True if the incident passes the filter."""
    return (
        (not wanted.states or incident.state in wanted.states)
        and wanted.domain in {None, incident.domain}
        and (wanted.before is None or incident.incident_id < wanted.before)
    )
