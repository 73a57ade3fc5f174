"""Symptoms that a sweep finds: one function per kind, which builds the report of its incident.

All of them are cleared by the sweep that does not find them again.
"""

from palyra.core.healing.rules import (
    ACTOR_CRASHES,
    APPROVAL_OVERDUE,
    CALL_STUCK,
    INDEX_DAMAGED,
    JOURNAL_STUCK,
    RUN_STUCK,
    TASK_STUCK,
)
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.records import IncidentDomain


def run_stuck(run_id: str, waits_for: str, still_s: int) -> IncidentReport:
    """A run without a token, an event or a message for the window."""
    return IncidentReport(
        domain="run",
        key=f"{RUN_STUCK}:{run_id}",
        severity="error",
        summary=f"a run has made no progress for {still_s} s",
        evidence={"run_id": run_id, "waits_for": waits_for, "still_s": still_s},
        resolves_itself=True,
    )


def call_stuck(run_id: str, call_id: str, still_s: int) -> IncidentReport:
    """A tool call without output for the window."""
    return IncidentReport(
        domain="run",
        key=f"{CALL_STUCK}:{run_id}",
        severity="error",
        summary=f"a tool call has had no output for {still_s} s",
        evidence={"run_id": run_id, "call_id": call_id, "still_s": still_s},
        resolves_itself=True,
    )


def task_stuck(task_id: str, kind: str, attempt: int, still_s: int) -> IncidentReport:
    """The worker of a background task without progress for the window."""
    return IncidentReport(
        domain="task",
        key=f"{TASK_STUCK}:{task_id}",
        severity="error",
        summary=f"the work of a task of the kind {kind} has made no progress for {still_s} s",
        evidence={"task_id": task_id, "kind": kind, "attempt": attempt, "still_s": still_s},
        resolves_itself=True,
    )


def approval_overdue(approval_id: str, run_id: str, late_s: int) -> IncidentReport:
    """An approval that is open after its deadline."""
    return IncidentReport(
        domain="approval",
        key=f"{APPROVAL_OVERDUE}:{approval_id}",
        severity="error",
        summary=f"an approval is open {late_s} s after its deadline",
        evidence={"approval_id": approval_id, "run_id": run_id, "late_s": late_s},
        resolves_itself=True,
    )


def journal_stuck(rows: int, still_s: int) -> IncidentReport:
    """Rows wait, and the journal has ended no batch for the window."""
    return IncidentReport(
        domain="store",
        key=JOURNAL_STUCK,
        severity="critical",
        summary=f"the journal has committed nothing for {still_s} s although rows wait: does the disk "
        "answer?",
        evidence={"rows": rows, "still_s": still_s},
        resolves_itself=True,
    )


def index_key(index: str) -> str:
    """Return the key of `index_damaged`."""
    return f"{INDEX_DAMAGED}:{index}"


def index_damaged(index: str, damage: str) -> IncidentReport:
    """An index of the memory has damaged words, no vectors, or no file."""
    return IncidentReport(
        domain="memory",
        key=index_key(index),
        severity="warning",
        summary=f"the index of {index} is damaged ({damage}): searches find less or fail until it is "
        "built; `palyra memory rebuild` does so",
        evidence={"index": index, "damage": damage},
        resolves_itself=True,
    )


# Children of the daemon's own supervisor that are not part of the edge, and of its services those
# that are not part of the tool runtime.
_DOMAINS: dict[str, IncidentDomain] = {
    "models": "provider",
    "journal": "store",
    "page-check": "store",
    "incidents": "store",
    "memory": "memory",
    "conversations": "memory",
    "work": "run",
    "recovery": "run",
    "tasks": "task",
    "background": "task",
    "housekeeping": "task",
}


_SUPERVISORS: dict[str, IncidentDomain] = {
    "services": "tool_runtime", "tasks": "task", "work": "run",
}  # fmt: skip


def crashes_key(actor: str) -> str:
    """Return the key of `actor_crashes`."""
    return f"{ACTOR_CRASHES}:{actor}"


def actor_crashes(supervisor: str, actor: str, crashes: int, error: str) -> IncidentReport:
    """An actor that crashes again and again; its supervisor restarts it each time."""
    domain = _DOMAINS.get(actor) or _SUPERVISORS.get(supervisor, "edge")
    return IncidentReport(
        domain=domain,
        key=crashes_key(actor),
        severity="critical",
        summary=f"{actor} crashed {crashes} times within a minute",
        evidence={"supervisor": supervisor, "actor": actor, "error": error},
        resolves_itself=True,
    )
