"""Kinds of incidents: one function per kind, which builds the report.

The part of the daemon that reports a kind with `resolves_itself` also clears it, by the key given
here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.backup import Restoration
from palyra.core.journal.changes import ChainViolation, FilesLost, VerifyReport
from palyra.core.text.visible import pluralize

POLICIES = "policies_broken"
USAGE = "usage_broken"
SETTINGS = "settings_pending"
JOURNAL = "journal_refuses"
FILES = "journal_files"
WORKSPACE = "workspace_unusable"
REFLECTIONS = "reflections_skipped"


def policies_broken(problems: Sequence[str]) -> IncidentReport:
    """The user policies cannot be read; the previous ones stay in force."""
    return IncidentReport(
        domain="tool_runtime",
        key=POLICIES,
        severity="critical",
        summary="the user policies are invalid: the last valid ones stay in force; without any, "
        "sensitive calls are denied",
        evidence={"problem": problems[0], "problems": len(problems)},
        resolves_itself=True,
    )


def usage_broken(problems: Sequence[str]) -> IncidentReport:
    """Configured prices and budgets cannot be read; the previous ones stay in force."""
    return IncidentReport(
        domain="provider",
        key=USAGE,
        severity="critical",
        summary="the configuration is broken: prices and budgets stay as they were",
        evidence={"problem": problems[0], "problems": len(problems)},
        resolves_itself=True,
    )


def settings_pending(problem: str) -> IncidentReport:
    """A change of the configuration file cannot be taken up; the previous one stays in force."""
    return IncidentReport(
        domain="tool_runtime",
        key=SETTINGS,
        severity="warning",
        summary="a change of the configuration is not in force",
        evidence={"problem": problem},
        resolves_itself=True,
    )


def chain_broken(found: ChainViolation, report: VerifyReport) -> IncidentReport:
    """The journal fails verification; one incident per kind and position."""
    place = "" if found.position is None else f":{found.position}"
    known = {"run_id": found.run_id, "seq": found.seq, "position": found.position}
    return IncidentReport(
        domain="store",
        key=f"chain_broken:{found.kind}{place}",
        severity="critical",
        summary="the journal's chain is broken: run `palyra tape verify`",
        evidence={
            "kind": found.kind,
            "detail": found.detail,
            "breaks": report.breaks,
            **{name: value for name, value in known.items() if value is not None},
        },
    )


# What a damaged row of a table does, and what to do about it.
_OF_DAMAGE = {
    "budgets": "admits nothing: every call that it may limit is refused; set or delete the budget "
    "again (`palyra budget set`, `palyra budget delete`)",
    "tokens": "admits nobody; make another token (`palyra tokens create`)",
    "grants": "grants nothing; the next such call asks again",
    "approvals": "allows nothing; cancel its run (`palyra runs cancel`), or wait until it expires",
    "pairings": "admits nobody; the sender is paired again",
    "tape": "is shown as damaged; its run is read around it, and verification fails there",
}


def record_damaged(name: str) -> IncidentReport:
    """A record of the journal does not decode; `name` is its table and key."""
    table, _, key = name.partition(":")
    effect = _OF_DAMAGE.get(table, "is left out; go on without it")
    return IncidentReport(
        domain="store",
        key=f"record_damaged:{name}",
        severity="critical",
        summary=f"a row of the table {table} is damaged and {effect}, or restore a backup that has it "
        "(`palyra backup restore`); its bytes are kept",
        evidence={"table": table, "key": key},
    )


def restored_key(found: Restoration) -> str:
    """Return the key of the incident of one restore."""
    return f"journal_restored:{found.backup_id}:{found.at_ms}"


def journal_restored(found: Restoration) -> IncidentReport:
    """The data directory was restored from a backup, which a person has declared."""
    return IncidentReport(
        domain="store",
        key=restored_key(found),
        severity="warning",
        summary="the data directory was restored from a backup: newer events and records are gone",
        evidence={
            "backup_id": found.backup_id,
            "backup_ms": found.created_ms,
            "by": found.by,
            "reason": found.reason,
            "restored_ms": found.at_ms,
            "through_position": found.head_position,
        },
    )


def journal_refuses(why: str) -> IncidentReport:
    """The store refuses writes, for example on a full disk; reads still work."""
    return IncidentReport(
        domain="store",
        key=JOURNAL,
        severity="critical",
        summary="the journal refuses writes: is the disk full?",
        evidence={"error": why},
        resolves_itself=True,
    )


def files_lost(lost: FilesLost) -> IncidentReport:
    """Files of the running journal were removed, replaced, shortened or written."""
    if lost.copy:
        remedy = (
            f"the open journal is saved as {lost.copy}, with its roots beside it: stop the daemon, remove "
            "journal.sqlite3-wal, move both copies over journal.sqlite3 and journal.roots.ndjson, start"
        )
    elif lost.problem:
        remedy = f"no copy could be made ({lost.problem}): restore the data directory from a backup"
    elif lost.keys:
        remedy = f"put the keys back before the next start, from {lost.keys}"
    else:
        remedy = "put the keys back from a backup before the next start"
    return IncidentReport(
        domain="store",
        key=FILES,
        severity="critical",
        summary=f"files of the running journal are gone, and no run is started: {remedy}",
        evidence={"found": lost.found, "copy": lost.copy or lost.keys, "problem": lost.problem},
        resolves_itself=True,
    )


FILE_LOST = "file_lost"


def file_key(name: str) -> str:
    """Return the key of `file_lost`."""
    return f"{FILE_LOST}:{name}"


def file_lost(name: str, path: str, fate: str, copy: str) -> IncidentReport:
    """A file of the home that a restart needs was removed or changed from outside."""
    remedy = f"its last good content is in {copy}" if copy else "put it back from a backup"
    return IncidentReport(
        domain="store",
        key=file_key(name),
        severity="error",
        summary=f"{path} {fate}, which the next start needs: {remedy}",
        evidence={"path": path, "fate": fate, "copy": copy},
        resolves_itself=True,
    )


def artifact_damaged(digest: str, path: str, fate: str) -> IncidentReport:
    """A stored output or picture does not have its digest any more, or its file is gone."""
    return IncidentReport(
        domain="artifact",
        key=f"artifact_damaged:{digest}",
        severity="error",
        summary=f"a stored output is {fate} and is not returned: restore {path} from a backup "
        "(`palyra backup restore` makes a home that has it)",
        evidence={"artifact": digest, "path": path, "fate": fate},
    )


def outcome_unknown(run_id: str, call_id: str, tool: str) -> IncidentReport:
    """The daemon ended during a call that must not be repeated automatically."""
    return IncidentReport(
        domain="run",
        key=f"outcome_unknown:{call_id}",
        severity="error",
        summary=f"{tool} was running when the daemon stopped: its outcome is unknown",
        evidence={"run_id": run_id, "call_id": call_id, "tool": tool},
    )


def tool_crashed(tool: str, run_id: str, call_id: str, error: str) -> IncidentReport:
    """A tool raised an exception that is not a failure it announces: a bug of the tool."""
    return IncidentReport(
        domain="tool_runtime",
        key=f"tool_crashed:{tool}",
        severity="error",
        summary=f"{tool} crashed: the call has failed, the run continues",
        evidence={"run_id": run_id, "call_id": call_id, "tool": tool, "error": error},
    )


def recovery_exhausted(run_id: str, recoveries: int) -> IncidentReport:
    """A run was resumed repeatedly without progress and has failed."""
    return IncidentReport(
        domain="run",
        key=f"recovery_exhausted:{run_id}",
        severity="error",
        summary=f"a run was resumed {recoveries} times without getting further and has failed",
        evidence={"run_id": run_id, "resumed": recoveries},
    )


def stranded_key(run_id: str) -> str:
    """Return the key of `run_stranded`."""
    return f"run_stranded:{run_id}"


def run_stranded(run_id: str, why: str) -> IncidentReport:
    """An open run cannot continue until the daemon is restarted."""
    return IncidentReport(
        domain="run",
        key=stranded_key(run_id),
        severity="critical",
        summary="a run cannot be resumed: the next start tries again, cancelling the run gives it up",
        evidence={"run_id": run_id, "why": why},
        resolves_itself=True,
    )


SESSION_SET_ASIDE = "session_set_aside"


def session_set_aside(session_id: str, principal: str, error: str) -> IncidentReport:
    """The actor of a session crashed too often in a row; no message reaches the session."""
    return IncidentReport(
        domain="run",
        key=f"{SESSION_SET_ASIDE}:{session_id}",
        severity="critical",
        summary="a session is set aside, because its actor crashed again and again; "
        "`palyra incidents resolve` of this incident lets it go on",
        evidence={"session_id": session_id, "principal": principal, "error": error},
        resolves_itself=True,
    )


def walls_leak(problem: str) -> IncidentReport:
    """An escape probe inside the sandbox succeeded."""
    return IncidentReport(
        domain="tool_runtime",
        key="walls_leak",
        severity="critical",
        summary="the sandbox failed its self-test: no program runs until the daemon is restarted",
        evidence={"problem": problem},
    )


def workspace_unusable(problem: str) -> IncidentReport:
    """The workspace was removed, closed or replaced."""
    return IncidentReport(
        domain="tool_runtime",
        key=WORKSPACE,
        severity="critical",
        summary="the workspace cannot be used: calls of files and programs fail",
        evidence={"problem": problem},
        resolves_itself=True,
    )


def mcp_server_key(server: str) -> str:
    """Return the key of `mcp_server_down`."""
    return f"mcp_server_down:{server}"


def mcp_server_down(server: str, failures: int, problem: str) -> IncidentReport:
    """An MCP server failed several times in a row; it is retried after a growing pause."""
    return IncidentReport(
        domain="tool_runtime",
        key=mcp_server_key(server),
        severity="warning",
        summary=f"the MCP server {server} keeps failing: its tools are absent",
        evidence={"server": server, "failures": failures, "problem": problem},
        resolves_itself=True,
    )


def provider_key(model: str) -> str:
    """Return the key of `provider_left_alone`."""
    return f"provider_left_alone:{model}"


def provider_left_alone(model: str, failures: int, last: str) -> IncidentReport:
    """A model of a provider kept failing: its circuit breaker is open."""
    return IncidentReport(
        domain="provider",
        key=provider_key(model),
        severity="warning",
        summary=f"{model} kept failing and is left alone",
        evidence={
            "provider": model.partition("/")[0],
            "model": model,
            "failures": failures,
            "last": last,
        },
        resolves_itself=True,
    )


def reflections_key(principal: str) -> str:
    """Return the key of `reflections_skipped`."""
    return f"{REFLECTIONS}:{principal}"


def reflections_skipped(principal: str, run_id: str, limit: int) -> IncidentReport:
    """Runs of a principal end faster than they are read; each run that has to wait counts."""
    return IncidentReport(
        domain="task",
        key=reflections_key(principal),
        severity="warning",
        summary=f"{limit} runs wait to be read for learning: further runs are read when half of them "
        "are done, if the daemon runs until then; `palyra learn reflect RUN` reads one",
        evidence={"run_id": run_id, "limit": limit},
        resolves_itself=True,
    )


CLOCK_AHEAD = "clock_ahead"


def clock_ahead(agreed_ms: int, ahead_ms: int) -> IncidentReport:
    """The wall clock is far ahead of the time that the home knows; its ages stand still."""
    known = f"{datetime.fromtimestamp(agreed_ms / 1_000, UTC):%Y-%m-%dT%H:%MZ}"
    return IncidentReport(
        domain="store",
        key=CLOCK_AHEAD,
        severity="warning",
        summary=f"the clock is {ahead_ms // 86_400_000} days ahead of the time this home knows ({known}): "
        "nothing is deleted by age until the daemon has run for a day with it; correct the clock, or "
        "confirm it with `palyra incidents resolve`",
        evidence={"known": known, "ahead_ms": ahead_ms},
        resolves_itself=True,
    )


CLOCK = "clock_was_ahead"


def clock_was_ahead(until: str, schedules: int, tasks: int) -> IncidentReport:
    """Times of schedules and tasks lay in the future; they were set back."""
    return IncidentReport(
        domain="task",
        key=CLOCK,
        severity="warning",
        summary=f"the clock was ahead, up to {until}: {pluralize(schedules, 'schedule')} and "
        f"{pluralize(tasks, 'task')} that waited for that time were set back; what expired meanwhile "
        "stays expired",
        evidence={"until": until, "schedules": schedules, "tasks": tasks},
        resolves_itself=True,
    )


def schedule_key(schedule_id: str) -> str:
    """Return the key of `schedule_paused`."""
    return f"schedule:{schedule_id}"


def schedule_paused(schedule_id: str, name: str, why: str) -> IncidentReport:
    """A schedule whose instants can no longer be computed."""
    return IncidentReport(
        domain="task",
        key=schedule_key(schedule_id),
        severity="error",
        summary=f"the schedule {name!r} was paused: {why}",
        evidence={"schedule_id": schedule_id},
    )
