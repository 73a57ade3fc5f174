r"""Rules of self-healing: signs of progress, windows, remedies, cool-down and escalation.

Pure: the caller passes the time.  Seconds are those of the awake clock
(`actors.kernel.awake_clock`), on which a suspended machine takes no time, so a gap makes nothing
stuck and shortens no cool-down.

**Progress.**  Nothing sends heartbeats, and progress reads no clock.  A subject carries the time since
which it is silent.  Each sign of progress (an event, a token, a piece of output, the end of a wait)
erases that time, and a sweep sets it where it is missing.  So a sweep costs one comparison for a
subject that progresses, and progress costs one assignment.  A subject is stuck when it has been silent
for the window of its rule; the detection is late by at most one sweep and never early.  Time in which a
subject waits for something outside it (a person, a full disk, a lease of its provider) does not count.

**Incidents.**  A symptom that a sweep finds, and trouble that another part of the daemon reports, is an
incident; `RULES` maps its kind, the part of the key before the colon, to its remedies.  One incident is
treated like this:

    open --attempt--> remediating --done--> open --cool-down--> remediating ... --> escalated
      \__________________ the symptom is gone: resolved, from each state __________________/

The n-th attempt uses the n-th remedy of the rule; an incident is escalated when the cool-down after
the last one has passed and it is still open.  The cool-down is 60 s after the first attempt and
doubles.  A rule without remedies escalates at once: the trouble needs a person, and nothing that the
daemon could do would help.

Attempts and cool-down belong to the key, not to one incident: an incident that is opened within
`PERIOD_MS` of the end of the last one of its key goes on counting where that ended.  So a subject that
flickers has three attempts an hour, and a person learns of it.  The count is in the records, so a
restart does not reset it; after a restart the cool-down of the last attempt starts from its beginning.

**Recovery.**  A remedy is never judged by the progress that it makes itself: a resumed run appends an
event, and its model may send a token before it hangs again.  An incident that was treated is resolved
when its subject has ended, or was not found for `calm_s`: two windows, in which a subject that hangs
again is found again.

**Modes** of a domain: `auto` acts, `observe_only` records the remedy that `auto` would try next,
`disabled` records no symptoms that a sweep finds.  Incidents that other parts of the daemon report
are recorded in each mode: they are facts, and a damaged journal is not less damaged with healing
switched off.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from palyra.core.incident.kinds import SESSION_SET_ASIDE
from palyra.core.journal.records import IncidentDomain, IncidentRecord

HealingMode = Literal["disabled", "observe_only", "auto"]
Remedy = Literal[
    "end_call", "cancel_run", "resume_run", "requeue_task", "expire_approval", "restart_actor",
    "trip_provider", "rebuild_vectors", "reverify_journal", "checkpoint_wal", "revive_session",
]  # fmt: skip

MAX_ATTEMPTS = 3
COOL_DOWN_S = 60.0  # after the first attempt; doubled by each further one
PERIOD_MS = 3_600_000  # for which the attempts of a key count, after the end of its incident
STUCK_S = 120.0  # of a run, a task, and a build of vectors
OVERDUE_S = 60.0  # of an approval, after its deadline
SWEEP_S, AUTO_SWEEP_S = 15.0, 5.0
CRASHES, CRASH_WINDOW_S = 3, 60.0  # of one actor: a crash loop

RUN_STUCK = "run_stuck"
CALL_STUCK = "call_stuck"
TASK_STUCK = "task_stuck"
APPROVAL_OVERDUE = "approval_overdue"
ACTOR_CRASHES = "actor_crashes"
INDEX_DAMAGED = "index_damaged"
JOURNAL_STUCK = "journal_stuck"

# Kinds that a sweep finds, and clears when it does not find them again.  A step of such an incident is
# taken in a sweep that finds it: after an attempt the subject has the whole window to progress.
SWEPT = frozenset({
    RUN_STUCK, CALL_STUCK, TASK_STUCK, APPROVAL_OVERDUE, INDEX_DAMAGED, JOURNAL_STUCK,
    SESSION_SET_ASIDE,
})  # fmt: skip


class HealingRule(msgspec.Struct, frozen=True):
    """Remedies of one kind of incident, in the order of the attempts, and their blast radius."""

    domain: IncidentDomain
    remedies: tuple[Remedy, ...]
    blast: str


def _always(remedy: Remedy) -> tuple[Remedy, ...]:
    return (remedy,) * MAX_ATTEMPTS


# kind: domain, remedy of each attempt, all that an attempt may change
RULES: Mapping[str, HealingRule] = {
    # A turn is repeated from the tape, which costs a model call; calls of tools have ended.
    RUN_STUCK: HealingRule("run", ("resume_run", "resume_run", "cancel_run"), "one run"),
    # A call may have had an effect, so it is not repeated; the model learns that it was stopped.
    CALL_STUCK: HealingRule(
        "run", ("end_call", "end_call", "cancel_run"), "one call and its programs; then its run"
    ),
    # The attempt counts; the run of a prompt is not stopped, the next attempt waits for its end.
    TASK_STUCK: HealingRule("task", _always("requeue_task"), "one task: its work begins again"),
    SESSION_SET_ASIDE: HealingRule("run", _always("revive_session"), "one session: it goes on"),
    APPROVAL_OVERDUE: HealingRule("approval", _always("expire_approval"), "one approval: denied"),
    "provider_left_alone": HealingRule(
        "provider", _always("trip_provider"), "calls of one model, for 30 s"
    ),
    "chain_broken": HealingRule("store", ("reverify_journal",), "nothing: it only reads"),
    # Its thread waits for the disk, and cannot be interrupted.
    JOURNAL_STUCK: HealingRule("store", (), "none: runs wait for the disk"),
    "journal_refuses": HealingRule("store", _always("checkpoint_wal"), "the write-ahead log"),
    INDEX_DAMAGED: HealingRule(
        "memory",
        ("rebuild_vectors", "rebuild_vectors", "restart_actor"),
        "searches use words until it is built",
    ),
    "artifact_damaged": HealingRule("artifact", (), "none: a backup has the file"),
    ACTOR_CRASHES: HealingRule("tool_runtime", (), "none: its supervisor has restarted it"),
    "walls_leak": HealingRule("tool_runtime", (), "none: no program is run"),
}


def kind_of(key: str) -> str:
    """Return the kind of an incident: its key up to the colon."""
    return key.partition(":")[0]


def subject_of(key: str) -> str:
    """Return the subject of an incident: its key after the colon."""
    return key.partition(":")[2]


# --- progress ------------------------------------------------------------------------------------


def is_stuck(since_s: float, now_s: float, window_s: float = STUCK_S) -> bool:
    """True if a subject that should progress is silent for the window."""
    return now_s - since_s >= window_s


def calm_s(window_s: float, sweep_s: float) -> float:
    """Return how long a subject must not be found before its treated incident is resolved."""
    return 2 * (window_s + sweep_s)


def note_crash(crashes: tuple[float, ...], now_s: float) -> tuple[float, ...]:
    """Return the times of the crashes of one actor that count, with this one."""
    recent = (*(at_s for at_s in crashes if now_s - at_s < CRASH_WINDOW_S), now_s)
    return recent[-CRASHES:]


def is_crash_loop(crashes: tuple[float, ...]) -> bool:
    """True if an actor crashed too often within `CRASH_WINDOW_S`."""
    return len(crashes) >= CRASHES


# --- remedies ------------------------------------------------------------------------------------


class Try(msgspec.Struct, frozen=True):
    """Attempt this remedy now."""

    remedy: Remedy


class Propose(msgspec.Struct, frozen=True):
    """Record the remedy that `auto` would attempt."""

    remedy: Remedy


class Escalate(msgspec.Struct, frozen=True):
    """Leave the incident to a person."""

    reason: str


Step = Try | Propose | Escalate


def cool_down_s(attempts: int) -> float:
    """Return the pause after the attempt with this number, from 1."""
    return COOL_DOWN_S * (1 << (attempts - 1))


def plan_step(
    incident: IncidentRecord, mode: HealingMode, *, tried_s: float | None, now_s: float
) -> Step | None:
    """Return the next step of an unresolved incident; None to leave it as it is.

    `tried_s` is the time of the last attempt, None for none yet.
    """
    rule = RULES.get(kind_of(incident.key))
    if rule is None or mode == "disabled" or incident.state not in {"open", "remediating"}:
        return None
    attempts = incident.attempts
    has_cooled = tried_s is None or now_s - tried_s >= cool_down_s(attempts)
    if attempts < len(rule.remedies):
        remedy = rule.remedies[attempts]
        if mode == "observe_only":
            return None if incident.remedy == remedy else Propose(remedy)
        return Try(remedy) if has_cooled else None
    if mode != "auto" or not has_cooled:
        return None
    tried = f"{attempts} attempts did not help" if attempts else "no remedy helps"
    return Escalate(f"{tried}: it needs a person")
