"""The watchdog: finds what is stuck, and treats incidents as the mode of their domain says.

Owns: the beats of runs, the crashes of services, the times of attempts.
Talks to: the registry of actors, open approvals, the incidents, and whatever a remedy changes.
Never: sends a heartbeat, records progress for others, or holds the loop longer than `PIECE` runs take.
Restart: permanent.  Beats begin again, so a stuck subject is found a window later; attempts are counted
in the records of incidents.  The rules are `core.healing`.

A sweep has two parts.  `find` compares marks and opens or clears findings; `treat` takes the step of
each unresolved incident.  Attempts are child tasks with a deadline, because a remedy may hang as well;
an incident has one attempt at a time.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog
import trio

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.kernel.child import ChildSpec, ChildTask, Exit
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.supervisor import run_task
from palyra.actors.run.approval import OpenApprovals
from palyra.actors.run.handle import RunHandle
from palyra.actors.session.handle import CancelQueued
from palyra.actors.session.registry import ActorRegistry
from palyra.core.healing import findings
from palyra.core.healing.rules import (
    APPROVAL_OVERDUE,
    CALL_STUCK,
    CRASH_WINDOW_S,
    OVERDUE_S,
    RUN_STUCK,
    SWEPT,
    Beat,
    Escalate,
    Propose,
    Remedy,
    Try,
    is_crash_loop,
    is_stuck,
    kind_of,
    note_crash,
    observe,
    plan_step,
    subject_of,
)
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.records import IncidentRecord
from palyra.core.memory.items import FILE_GONE
from palyra.core.model.routing import ProviderHealth
from palyra.core.run.inputs import Cancel
from palyra.errors import PalyraError, Unavailable
from palyra.services.healing import HealingModes
from palyra.services.incidents import Incidents
from palyra.services.memory_index import SharedMemoryIndex

log = structlog.get_logger("palyra.watchdog")

PIECE = 250  # runs looked at in one turn of the event loop: a third of a millisecond
DAEMON = "palyra"  # cancels runs
ATTEMPT_S = 30.0  # of one remedy
PATIENT = frozenset({"retry delay", "budget", "person"})  # `waits_for` of tasks that are not stuck

Attempt = Callable[[str], str | Awaitable[str]]  # the key of an incident in, the outcome out


@dataclass(slots=True)
class Watchdog:
    """The state of the watchdog, and what it looks at."""

    incidents: Incidents
    modes: HealingModes
    registry: ActorRegistry
    approvals: OpenApprovals
    journal: JournalHandle
    remedies: Mapping[Remedy, Attempt]
    indexes: Mapping[str, SharedMemoryIndex] = field(default_factory=dict)  # by child of the daemon
    look: Callable[[str], ProviderHealth] | None = None  # health of a provider
    beats: dict[str, Beat] = field(default_factory=dict)  # by run
    index_beats: dict[str, Beat] = field(default_factory=dict)
    crashes: dict[str, tuple[float, ...]] = field(default_factory=dict)  # by actor
    tried_s: dict[str, float] = field(default_factory=dict)  # by incident
    found: set[str] = field(default_factory=set)  # keys that the last sweep found
    attempts: dict[str, ChildTask] = field(default_factory=dict)  # in progress, by incident
    woken: trio.Event = field(default_factory=trio.Event)

    # --- reports

    def notice(self, end: Exit) -> None:
        """Note the end of an actor, as supervisors report it; a plain call that never waits."""
        if end.outcome != "crashed" or end.was_asked:
            return
        now_s = trio.current_time()
        crashes = self.crashes[end.id] = note_crash(self.crashes.get(end.id, ()), now_s)
        if is_crash_loop(crashes):
            self._report(
                findings.actor_crashes(end.supervisor, end.id, len(crashes), str(end.error))
            )
            self.woken.set()

    def wake(self) -> None:
        """Begin the next sweep now."""
        self.woken.set()

    # --- find

    async def find(self) -> None:
        """Open an incident for each stuck subject, and clear those of subjects that progress."""
        self.found = set()
        await self.find_runs()
        if self.registry.is_complete:
            self._find_approvals()
            self._clear_ended_runs()
        self._find_calm_actors()
        for name, index in self.indexes.items():
            await self._check_index(name, index)

    async def find_runs(self) -> None:
        """Look at the marks of all runs, in pieces."""
        runs, beats = self.registry.runs, self.beats
        for run_id in beats.keys() - runs.keys():
            del beats[run_id]
        now_s = trio.current_time()
        for count, (run_id, run) in enumerate(list(runs.items()), 1):
            if runs.get(run_id) is run:
                self.look_at(run, now_s)
            if count % PIECE == 0:
                await trio.lowlevel.checkpoint()
                now_s = trio.current_time()

    def look_at(self, run: RunHandle, now_s: float) -> None:
        """Compare the mark of a run with that of the sweep before."""
        run_id = run.run.run_id
        before = self.beats.get(run_id)
        after = observe(before, mark_of(run), now_s)
        if after is not before:
            self.beats[run_id] = after
            if before is not None and self.incidents.open_count and not is_only_resumed(run):
                for kind in (RUN_STUCK, CALL_STUCK):
                    self.incidents.clear(f"{kind}:{run_id}", "the run progresses")
        elif is_stuck(after, now_s, self.modes.stuck_s) and self._should_progress(run):
            call = next((each for each in run.tasks.values() if each.id.startswith("tool:")), None)
            still_s = round(now_s - after.since_s)
            if call is None:
                waits_for = ", ".join(task.waits_for for task in run.tasks.values())
                self._report(findings.run_stuck(run_id, waits_for, still_s))
            else:
                self._report(findings.call_stuck(run_id, call.id, still_s))

    def _should_progress(self, run: RunHandle) -> bool:
        """True unless the run waits for a full disk, or in the queue of its provider."""
        if not self.journal.has_room:
            return False
        if self.look is None or not run.run.asked_provider:
            return True
        has_lease = any(task.progress for task in run.tasks.values())
        return has_lease or not self.look(run.run.asked_provider).waiting

    def _clear_ended_runs(self) -> None:
        if self.incidents.open_count:
            for each in self.incidents.list_unresolved():
                is_of_run = kind_of(each.key) in {RUN_STUCK, CALL_STUCK}
                if is_of_run and subject_of(each.key) not in self.registry.runs:
                    self.incidents.clear(each.key, "the run has ended")

    def _find_approvals(self) -> None:
        now_s = trio.current_time()
        for approval_id, run_id, deadline_s in self.approvals.list_deadlines():
            if now_s - deadline_s >= OVERDUE_S:
                self._report(
                    findings.approval_overdue(approval_id, run_id, round(now_s - deadline_s))
                )
        if self.incidents.open_count:
            for each in self.incidents.list_unresolved():
                if kind_of(each.key) == APPROVAL_OVERDUE and each.key not in self.found:
                    self.incidents.clear(each.key, "the approval is settled")

    def _find_calm_actors(self) -> None:
        """Forget actors without a crash for a window, and clear their incidents."""
        now_s = trio.current_time()
        for actor in [
            each for each, crashes in self.crashes.items() if now_s - crashes[-1] > CRASH_WINDOW_S
        ]:
            del self.crashes[actor]
            self.incidents.clear(findings.crashes_key(actor), f"no crash for {CRASH_WINDOW_S:g} s")

    async def _check_index(self, name: str, index: SharedMemoryIndex) -> None:
        try:
            damage = await index.find_damage()
        except Unavailable as error:  # a closed journal: its own incident
            log.debug("the memory index was not checked", error=error.message)
            return
        now_s = trio.current_time()
        beat = observe(self.index_beats.get(name), damage or None, now_s)
        self.index_beats[name] = beat
        if damage == FILE_GONE or is_stuck(beat, now_s, self.modes.stuck_s):
            self._report(findings.index_damaged(name, damage))
        elif not damage:
            self.incidents.clear(
                findings.index_key(name), "the index has all its vectors and its file"
            )

    def _report(self, report: IncidentReport) -> None:
        """Report a finding once, unless its domain is disabled."""
        self.found.add(report.key)
        if self.modes.mode(report.domain) != "disabled" and not self.incidents.is_reported(
            report.key
        ):
            self.incidents.report(report)

    # --- treat

    def recover(self) -> None:
        """Reopen incidents whose attempt a restart interrupted; their cool-down begins now."""
        now_s = trio.current_time()
        for incident in self.incidents.list_unresolved():
            if incident.attempts and incident.incident_id not in self.tried_s:
                self.tried_s[incident.incident_id] = now_s
            if incident.state == "remediating" and incident.incident_id not in self.attempts:
                self.incidents.end_attempt(incident.key, "a restart of the daemon interrupted it")

    def treat(self, nursery: trio.Nursery) -> None:
        """Take the step of each unresolved incident."""
        now_s, unresolved = trio.current_time(), self.incidents.list_unresolved()
        for incident in unresolved:
            if incident.incident_id in self.attempts:
                continue
            if kind_of(incident.key) in SWEPT and incident.key not in self.found:
                continue
            mode = self.modes.mode(incident.domain)
            tried_s = self.tried_s.get(incident.incident_id)
            match plan_step(incident, mode, tried_s=tried_s, now_s=now_s):
                case Try(remedy=remedy):
                    self._begin(nursery, incident, remedy, now_s)
                case Propose(remedy=remedy):
                    self.incidents.propose(incident.key, remedy)
                    log.info("would attempt a remedy", key=incident.key, remedy=remedy)
                case Escalate(reason=reason):
                    self.incidents.escalate(incident.key, reason)
                    log.error("an incident is escalated", key=incident.key, reason=reason)
                case None:
                    pass
        for gone in self.tried_s.keys() - {each.incident_id for each in unresolved}:
            del self.tried_s[gone]

    def _begin(
        self, nursery: trio.Nursery, incident: IncidentRecord, remedy: Remedy, now_s: float
    ) -> None:
        self.tried_s[incident.incident_id] = now_s
        self.incidents.begin_attempt(incident.key, remedy)
        log.warning(
            "attempts a remedy", key=incident.key, remedy=remedy, attempt=incident.attempts + 1
        )
        task = ChildTask(id=incident.incident_id, started_ms=0, waits_for=remedy)
        work = partial(self._attempt, incident.key, remedy)
        crashed = partial(self._note_failure, incident.key)
        nursery.start_soon(run_task, self.attempts, task, work, crashed)

    async def _attempt(self, key: str, remedy: Remedy, _task: ChildTask) -> None:
        """Perform one remedy and record its outcome.

        Cancellation: the remedy may have taken effect; the next start counts it as an attempt.
        """
        outcome = f"it did not end within {ATTEMPT_S:g} s"
        with trio.move_on_after(ATTEMPT_S):
            done = self.remedies[remedy](key)
            outcome = done if isinstance(done, str) else await done
        self._end(key, remedy, outcome)

    async def _note_failure(self, key: str, task: ChildTask, error: Exception) -> None:
        text = error.message if isinstance(error, PalyraError) else type(error).__name__
        self._end(key, task.waits_for, f"failed: {text}")

    def _end(self, key: str, remedy: str, outcome: str) -> None:
        self.incidents.end_attempt(key, outcome)
        log.info("a remedy was attempted", key=key, remedy=remedy, outcome=outcome)


def mark_of(run: RunHandle) -> object:
    """Return the mark of a run: another value after progress, None while it waits for others."""
    state = run.run
    if run.lifecycle in {"queued", "suspended"} or state.asked_ms is not None:
        return None
    progress = 0
    for task in run.tasks.values():
        if task.waits_for in PATIENT:
            return None
        progress += task.progress
    return run.lifecycle, state.next_seq, progress


def is_only_resumed(run: RunHandle) -> bool:
    """True if a run was resumed and has not progressed since: no token, and no turn or call ended."""
    is_resumed = run.is_recovering or run.run.recoveries > 0
    return is_resumed and not any(task.progress for task in run.tasks.values())


# --- the loop ------------------------------------------------------------------------------------


async def watch(
    watchdog: Watchdog, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Sweep until cancelled.

    Cancellation: attempts in progress are abandoned; the next incarnation counts them.
    """
    watchdog.recover()
    async with trio.open_nursery() as nursery:
        task_status.started()
        while True:
            with trio.move_on_after(watchdog.modes.sweep_s):
                await watchdog.woken.wait()
            watchdog.woken = trio.Event()
            await watchdog.find()
            watchdog.treat(nursery)


# --- remedies ------------------------------------------------------------------------------------


async def cancel_run(registry: ActorRegistry, key: str) -> str:
    """Cancel the run of the incident, as an operator would.  Raises ActorGone, Overloaded.

    Cancellation: the run may have been cancelled.
    """
    run = registry.runs.get(subject_of(key))
    if run is None:
        return "the run has ended"
    cancel = Cancel(reason="it made no progress", by=DAEMON)
    session = registry.sessions.get(run.run.accepted.session_id)
    run.inbox.offer(cancel)
    if session is not None:
        session.inbox.offer(CancelQueued(run.run_id, cancel))
    while not run.is_over:
        await run.wait_change()
    return "the run was cancelled"


def resume_run(registry: ActorRegistry, work: DynamicSupervisor, key: str) -> str:
    """Cancel the actor of the run; its session starts another one from the tape."""
    run = registry.runs.get(subject_of(key))
    if run is None:
        return "the run has ended"
    work.cancel_child(f"run:{run.run_id}", "the run made no progress")
    return "the run was resumed from its tape"


def expire_approval(approvals: OpenApprovals, key: str) -> str:
    """Settle the approval of the incident as unanswered, which denies it.  Raises Overloaded."""
    approvals.expire(subject_of(key))
    return "the approval was settled as unanswered"


def child_spec(watchdog: Watchdog) -> ChildSpec:
    """Return the spec of the watchdog; no other child depends on it."""
    return ChildSpec("watchdog", partial(watch, watchdog))
