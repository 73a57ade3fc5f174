"""The watchdog: finds stuck runs, calls, tasks and indexes, and treats incidents by the mode of their domain.

Owns: the crashes of services, the times of attempts.
Talks to: the registry of actors, open approvals, the incidents, and the subjects of remedies.
Never: sends a heartbeat, records progress for others, or occupies the loop for more than a batch of
runs.
Restart: permanent.  The time of silence is kept by the runs, attempts are counted by key in the records
of incidents.  The rules are `core.healing`.

A sweep has two parts.  `find` looks for symptoms and opens or clears their incidents; `treat` takes the
step of each unresolved incident.  Attempts are child tasks with a deadline, because a remedy may
hang as well; an incident has one attempt at a time.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Protocol

import structlog
import trio

from palyra.actors.journal.actor import JournalHandle
from palyra.actors.kernel.child import ChildSpec, ChildTask, Exit
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.kernel.supervisor import run_task
from palyra.actors.kernel.threads import run_sync
from palyra.actors.run.approval import OpenApprovals
from palyra.actors.run.handle import RunHandle
from palyra.actors.run.tool_call import ToolExecution
from palyra.actors.session.handle import CancelQueued
from palyra.actors.session.registry import ActorRegistry
from palyra.core.healing import symptoms
from palyra.core.healing.rules import (
    APPROVAL_OVERDUE,
    CALL_STUCK,
    CRASH_WINDOW_S,
    JOURNAL_STUCK,
    OVERDUE_S,
    PERIOD_MS,
    RUN_STUCK,
    SWEPT,
    TASK_STUCK,
    Escalate,
    Propose,
    Remedy,
    Try,
    calm_s,
    is_crash_loop,
    is_stuck,
    kind_of,
    note_crash,
    plan_step,
    subject_of,
)
from palyra.core.incident.incident import IncidentReport
from palyra.core.incident.kinds import (
    CLOCK_AHEAD,
    FILE_LOST,
    FILES,
    SESSION_SET_ASIDE,
    artifact_damaged,
    clock_ahead,
    file_key,
    file_lost,
    files_lost,
    record_damaged,
)
from palyra.core.journal.records import IncidentRecord
from palyra.core.memory.items import FILE_GONE, VECTORS_DAMAGED, WORDS_DAMAGED
from palyra.core.model.routing import ProviderHealth
from palyra.core.run.inputs import Cancel
from palyra.core.text.visible import pluralize
from palyra.errors import ActorGone, PalyraError, Unavailable
from palyra.services.memory.index import SharedMemoryIndex
from palyra.services.task.queue import TaskQueue
from palyra.services.upkeep.healing import HealingModes
from palyra.services.upkeep.incidents import Incidents

log = structlog.get_logger("palyra.watchdog")

BATCH_RUNS = 2_000  # compared in one turn of the event loop: 0.1 ms
BATCH_SILENT = 100  # silent runs checked in one turn: at most 0.5 ms
INDEX_S = 5.0  # longest wait for the turn of an index
TASK_S = 5.0  # longest wait for the state of tasks that were put back
DISK = "/disk"  # no provider has such a name
DAEMON = "palyra"  # cancels runs
REPORTED_MS = (
    7 * 86_400_000
)  # a clock that far ahead is reported; a shorter pause of a home is ordinary
ATTEMPT_S = 30.0  # of one remedy
# Values of `waits_for` of tasks that are not stuck.
EXTERNAL_WAITS = frozenset({"retry delay", "budget", "person", "child"})

CHECKED_ROWS = 200  # of one sweep: some 5 ms of a thread
ARTIFACTS, ARTIFACTS_S = 16, 600.0  # of a sample, and seconds between two
Attempt = Callable[[str], str | Awaitable[str]]  # the key of an incident in, the outcome out


class ObservedClock(Protocol):
    """The clock by which content ages."""

    def look(self) -> tuple[int, int] | None:
        """Return the time known and by how much the wall clock is ahead, None if it is believed.

        Blocks.  Raises Unavailable.
        """


class WatchedFiles(Protocol):
    """Small files of the home, apart from the journal."""

    @property
    def copies(self) -> Mapping[Path, Path]:
        """Copies of lost files."""

    def find_losses(self) -> Mapping[Path, str]:
        """Return the fate of each lost file.  Blocks."""


class CheckedArtifacts(Protocol):
    """A store of artifacts that remembers the damaged ones it has read."""

    @property
    def damaged(self) -> MutableMapping[str, Any]:
        """Path and fate by digest."""

    def check_sample(self, count: int) -> None:
        """Read some of them.  Blocks."""


@dataclass(slots=True)
class Watchdog:
    """State of the watchdog, and the parts of the daemon that it observes."""

    incidents: Incidents
    modes: HealingModes
    registry: ActorRegistry
    approvals: OpenApprovals
    journal: JournalHandle
    remedies: Mapping[Remedy, Attempt]
    queue: TaskQueue | None = None
    indexes: Mapping[str, SharedMemoryIndex] = field(default_factory=dict)  # by child of the daemon
    providers: Sequence[str] = ()
    find_health: Callable[[str], ProviderHealth] | None = None  # of a provider
    # Delays that are no fault of a run: providers with a queue, and `DISK` when it is full.
    delays: set[str] = field(default_factory=set)
    delayed_s: dict[str, float] = field(default_factory=dict)  # time of the last delay
    damaged_s: dict[str, float] = field(default_factory=dict)  # since this time, by index
    checks: dict[str, trio.Event] = field(default_factory=dict)  # in progress, by index
    is_checking_files: bool = False
    ages: ObservedClock | None = None
    files: WatchedFiles | None = None
    artifacts: CheckedArtifacts | None = None  # whose damage is reported
    artifacts_due_s: float = -inf  # of the next sample
    crashes: dict[str, tuple[float, ...]] = field(default_factory=dict)  # by actor
    tried_s: dict[str, float] = field(default_factory=dict)  # of the last attempt, by key
    known_records: set[str] = field(default_factory=set)  # damaged ones that were reported
    found: set[str] = field(default_factory=set)  # keys that the last sweep found
    found_s: dict[str, float] = field(default_factory=dict)  # last found, of unresolved incidents
    attempts: dict[str, ChildTask] = field(default_factory=dict)  # in progress, by incident
    wakeup: trio.Event = field(default_factory=trio.Event)

    # --- reports

    def note_exit(self, end: Exit) -> None:
        """Count the crash of an actor and report a crash loop; supervisors call this."""
        if end.outcome != "crashed" or end.was_asked:
            return
        now_s = trio.current_time()
        crashes = self.crashes[end.id] = note_crash(self.crashes.get(end.id, ()), now_s)
        if is_crash_loop(crashes):
            self._report(
                symptoms.actor_crashes(end.supervisor, end.id, len(crashes), str(end.error))
            )
            self.wakeup.set()

    def wake(self) -> None:
        """Start the next sweep now."""
        self.wakeup.set()

    # --- find

    async def find(self, nursery: trio.Nursery) -> None:
        """Open an incident for each stuck subject, and clear those of subjects that progress."""
        self.found = set()
        self._find_silent_journal()
        if not self.is_checking_files:  # a disk that hangs must not delay the sweeps
            self.is_checking_files = True
            nursery.start_soon(self._check_files)
        self._clear_runs()
        await self.find_runs()
        if self.queue is not None:
            self._find_tasks(self.queue)
            await self._clear_tasks(self.queue)
        if self.registry.is_complete:
            self._find_approvals()
        self._find_sessions_set_aside()
        self._find_calm_actors()
        await self._check_indexes(nursery)

    def _find_silent_journal(self) -> None:
        """Record delays of runs by the disk and by queues of providers; report a journal that hangs."""
        now_s, delays = trio.current_time(), set[str]()
        since_s = self.journal.find_silence(now_s)
        if not self.journal.has_room or (since_s is not None and since_s < now_s):
            delays.add(DISK)
        if self.find_health is not None:
            delays.update(each for each in self.providers if self.find_health(each).waiting)
        # A queue that was there at the last sweep may have ended just now.
        self.delayed_s.update(dict.fromkeys(delays | self.delays, now_s))
        self.delays = delays
        if since_s is not None and is_stuck(since_s, now_s, self.modes.stuck_s):
            self._report(symptoms.journal_stuck(self.journal.backlog, round(now_s - since_s)))
        else:
            self.incidents.clear(JOURNAL_STUCK, "the journal commits again")

    async def _check_files(self) -> None:
        """Report files of the journal that are gone, and damaged artifacts.

        Cancellation: waits for the store.
        """
        try:
            lost = await self.journal.check_files()
        except (Unavailable, ActorGone) as error:  # a closed journal: its own incident
            log.debug("the files of the journal were not checked", error=error.message)
        else:
            if lost is not None and not self.incidents.is_reported(FILES):  # a fact in each mode
                self.incidents.report(files_lost(lost))
        await self._check_home()
        await self._check_clock()
        await self._check_artifacts()
        await self._report_records()
        self.is_checking_files = False

    async def _check_home(self) -> None:
        """Report lost files of the home in each mode, and clear those that are back."""
        if self.files is None:
            return
        losses = await run_sync(self.files.find_losses)
        for path, fate in losses.items():
            if not self.incidents.is_reported(file_key(path.name)):
                copy = self.files.copies.get(path)
                self.incidents.report(file_lost(path.name, str(path), fate, str(copy or "")))
        for key in self._list_unresolved({FILE_LOST}) if not losses else ():
            self.incidents.clear(key, "the file is in place")

    async def _check_clock(self) -> None:
        """Report a wall clock that is ahead of the time this home knows, in each mode."""
        if self.ages is None:
            return
        try:
            doubted = await run_sync(self.ages.look)
        except Unavailable as error:  # a full disk: its own incident
            log.debug("the time was not kept", error=error.message)
            return
        if doubted is None:
            self.incidents.clear(CLOCK_AHEAD, "the clock is believed")
        elif doubted[1] > REPORTED_MS and not self.incidents.is_reported(CLOCK_AHEAD):
            self.incidents.report(clock_ahead(*doubted))

    async def _report_records(self) -> None:
        """Check some rows; report each damaged one once, in each mode; a person's resolution holds."""
        try:
            await self.journal.read(lambda store: store.check_rows(CHECKED_ROWS))
        except (Unavailable, ActorGone) as error:  # a closed journal: its own incident
            log.debug("the rows of the journal were not checked", error=error.message)
        for name in self.journal.store.list_damaged():
            if name not in self.known_records:
                try:
                    await self.incidents.report_finding(record_damaged(name))
                except (Unavailable, ActorGone):  # a closed journal: the next sweep
                    return
                self.known_records.add(name)

    async def _check_artifacts(self) -> None:
        """Read a sample when it is due; report what reads and samples have found, once each."""
        if self.artifacts is None:
            return
        now_s = trio.current_time()
        if now_s >= self.artifacts_due_s:
            self.artifacts_due_s = now_s + ARTIFACTS_S
            await run_sync(self.artifacts.check_sample, ARTIFACTS)
        for digest, (path, fate) in [*self.artifacts.damaged.items()]:
            try:
                await self.incidents.report_finding(artifact_damaged(digest, path, fate))
            except (Unavailable, ActorGone):  # a closed journal: the next sweep
                return
            del self.artifacts.damaged[digest]  # each later read finds it again

    def _clear_runs(self) -> None:
        """Clear the incidents of runs that have progressed since the last sweep, or have ended."""
        for key in self._list_unresolved({RUN_STUCK, CALL_STUCK}):
            run = self.registry.runs.get(subject_of(key))
            if run is None:
                if self.registry.is_complete:
                    self.incidents.clear(key, "the run has ended")
            elif self._has_recovered(key, has_progressed=run.silent_since_s is None):
                self.incidents.clear(key, "the run progresses")

    def _has_recovered(self, key: str, *, has_progressed: bool) -> bool:
        """True if the subject of an incident progresses without help."""
        incident = self.incidents.find_open(key)
        if incident is None or not incident.attempts:
            return has_progressed
        if incident.incident_id in self.attempts:
            return False
        last_s = max(self.found_s.get(key, -inf), self.tried_s.get(key, -inf))
        return trio.current_time() - last_s >= calm_s(self.modes.stuck_s, self.modes.sweep_s)

    async def find_runs(self) -> None:
        """Compare the silence of all runs with the window, in batches."""
        now_s = trio.current_time()
        runs, silent = list(self.registry.runs.values()), list[RunHandle]()
        for batch in batches_of(runs, BATCH_RUNS):
            silent += find_silent(batch, now_s, self.modes.stuck_s)
            await trio.lowlevel.checkpoint()
        for batch in batches_of(silent, BATCH_SILENT):
            for run in batch:
                self.check_run(run, now_s)
            await trio.lowlevel.checkpoint()

    def check_run(self, run: RunHandle, now_s: float) -> None:
        """Report a silent run, unless it waits for something outside it, or waited within the window."""
        since_s = run.silent_since_s
        if since_s is None or self.registry.runs.get(run.run_id) is not run:
            return  # it has progressed in the meantime
        if is_waiting(run):
            run.silent_since_s = now_s
            return
        since_s = max(since_s, self.delayed_s.get(DISK, -inf))
        if run.reservation is None or not run.reservation.chars:  # it may have no lease yet
            since_s = max(since_s, self.delayed_s.get(run.run.asked.provider, -inf))
        if not is_stuck(since_s, now_s, self.modes.stuck_s):
            return
        call = next((each for each in run.tasks.values() if each.id.startswith("tool:")), None)
        still_s = round(now_s - since_s)
        if call is None:
            waits_for = ", ".join(task.waits_for for task in run.tasks.values())
            self._report(symptoms.run_stuck(run.run_id, waits_for, still_s))
        else:
            self._report(symptoms.call_stuck(run.run_id, call.id, still_s))

    def _find_tasks(self, queue: TaskQueue) -> None:
        """Report attempts of tasks that are silent; a full disk does not count.

        The run of a task is looked after as a run: while it is live, its progress is that of the task.
        """
        now_s = trio.current_time()
        for task_id, entry in queue.running.items():
            if entry.outcome is not None:
                continue
            run = self.registry.runs.get(entry.task.run_id or "")
            if run is not None:
                if run.silent_since_s is None or is_waiting(run):
                    queue.progress(task_id)
                entry.silent_since_s = None
                continue
            if entry.silent_since_s is None:
                entry.silent_since_s = now_s
                continue
            since_s = max(entry.silent_since_s, self.delayed_s.get(DISK, -inf))
            if is_stuck(since_s, now_s, self.modes.stuck_s):
                still_s, task = round(now_s - since_s), entry.task
                self._report(symptoms.task_stuck(task_id, task.kind, task.attempts, still_s))

    async def _clear_tasks(self, queue: TaskQueue) -> None:
        """Clear the incidents of tasks that progress or have ended.

        A task that was put back keeps its incident, so that its attempts are counted.
        """
        keys, now_s = self._list_unresolved({TASK_STUCK}), trio.current_time()
        for key in keys:
            entry = queue.running.get(subject_of(key))
            if entry is None:
                self.found_s[key] = now_s  # it waits for its next attempt, which is no recovery
            elif key not in self.found and self._has_recovered(
                key, has_progressed=entry.has_progressed
            ):
                self.incidents.clear(key, "the task progresses")
        gone = {subject_of(key): key for key in keys if subject_of(key) not in queue.running}
        if not gone:
            return
        try:
            with trio.move_on_after(TASK_S):
                for task_id in await queue.list_ended(list(gone)):
                    self.incidents.clear(gone[task_id], "the task has ended")
        except (Unavailable, ActorGone) as error:  # a closed journal: its own incident
            log.debug("stuck tasks were not checked", error=error.message)

    def _find_approvals(self) -> None:
        now_s = trio.current_time()
        is_delayed = (
            now_s - self.delayed_s.get(DISK, -inf) < OVERDUE_S
        )  # an answer may wait for the disk
        for question in () if is_delayed else self.approvals.list_overdue(now_s - OVERDUE_S):
            late_s = round(now_s - (question.deadline_s or now_s))
            prompt = question.prompt
            self._report(symptoms.approval_overdue(prompt.approval_id, prompt.run_id, late_s))
        for key in self._list_unresolved({APPROVAL_OVERDUE}):
            if key not in self.found:
                self.incidents.clear(key, "the approval is settled")

    def _find_sessions_set_aside(self) -> None:
        """Find the sessions that are set aside; clear the incidents of those that stay well."""
        for key in self._list_unresolved({SESSION_SET_ASIDE}):
            if subject_of(key) in self.registry.set_aside:
                self.found.add(key)
                self.found_s[key] = trio.current_time()
            elif self._has_recovered(key, has_progressed=True):
                self.incidents.clear(key, "the session has an actor again")

    def _find_calm_actors(self) -> None:
        """Forget actors without a crash for a window, and clear their incidents."""
        now_s = trio.current_time()
        for actor in [
            each for each, crashes in self.crashes.items() if now_s - crashes[-1] > CRASH_WINDOW_S
        ]:
            del self.crashes[actor]
            self.incidents.clear(symptoms.crashes_key(actor), f"no crash for {CRASH_WINDOW_S:g} s")

    async def _check_indexes(self, nursery: trio.Nursery) -> None:
        """Check each index in a child task: a read that hangs must not delay the sweeps."""
        started = [name for name in self.indexes if name not in self.checks]
        for name in started:
            self.checks[name] = trio.Event()
            nursery.start_soon(self._check_index, name, self.indexes[name])
        with trio.move_on_after(INDEX_S):
            for done in [self.checks[name] for name in started]:
                await done.wait()
        for name in self.checks:
            self._update_index(name, "it does not answer")

    async def _check_index(self, name: str, index: SharedMemoryIndex) -> None:
        """Check an index for damage.  Cancellation: waits for the thread that reads."""
        try:
            self._update_index(name, await index.find_damage())
        except (Unavailable, ActorGone) as error:  # a closed journal: its own incident
            log.debug("the memory index was not checked", error=error.message)
        self.checks.pop(name).set()

    def _update_index(self, name: str, damage: str) -> None:
        """Report an index without its file, or without vectors for the window; clear an intact one."""
        if not damage:
            self.damaged_s.pop(name, None)
            self.incidents.clear(
                symptoms.index_key(name), "the index has all its vectors and its file"
            )
            return
        now_s = trio.current_time()
        since_s = self.damaged_s.setdefault(name, now_s)
        is_certain = damage == FILE_GONE or damage.startswith((WORDS_DAMAGED, VECTORS_DAMAGED))
        if is_certain or is_stuck(since_s, now_s, self.modes.stuck_s):
            self._report(symptoms.index_damaged(name, damage))

    def _list_unresolved(self, kinds: set[str]) -> list[str]:
        """Return the keys of the unresolved incidents of these kinds."""
        if not self.incidents.open_count:
            return []
        return [each.key for each in self.incidents.list_unresolved() if kind_of(each.key) in kinds]

    def _report(self, report: IncidentReport) -> None:
        """Report a symptom once, unless its domain is disabled."""
        self.found.add(report.key)
        self.found_s[report.key] = trio.current_time()
        if self.modes.mode(report.domain) != "disabled" and not self.incidents.is_reported(
            report.key
        ):
            self.incidents.report(report)

    # --- treat

    async def recover(self) -> None:
        """Reopen incidents whose attempt a restart interrupted; cool-downs of all keys start now."""
        now_s, unresolved = trio.current_time(), self.incidents.list_unresolved()
        keys = [each.key for each in unresolved if each.attempts]
        try:
            keys += await self.incidents.load_treated()
        except (Unavailable, ActorGone) as error:  # a closed journal: its own incident
            log.debug("earlier attempts were not read", error=error.message)
        for key in keys:
            self.tried_s.setdefault(key, now_s)
        for incident in unresolved:
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
            tried_s = self.tried_s.get(incident.key)
            match plan_step(incident, mode, tried_s=tried_s, now_s=now_s):
                case Try(remedy=remedy):
                    self._start_attempt(nursery, incident, remedy, now_s)
                case Propose(remedy=remedy):
                    self.incidents.propose(incident.key, remedy)
                    log.info("would attempt a remedy", key=incident.key, remedy=remedy)
                case Escalate(reason=reason):
                    self.incidents.escalate(incident.key, reason)
                    log.error("an incident is escalated", key=incident.key, reason=reason)
                case None:
                    pass
        keys = {each.key for each in unresolved}
        self.found_s = {key: at_s for key, at_s in self.found_s.items() if key in keys}
        self.tried_s = {
            key: at_s
            for key, at_s in self.tried_s.items()
            if key in keys or now_s - at_s <= PERIOD_MS / 1000
        }

    def _start_attempt(
        self, nursery: trio.Nursery, incident: IncidentRecord, remedy: Remedy, now_s: float
    ) -> None:
        self.tried_s[incident.key] = now_s
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
        self._end_attempt(key, remedy, outcome)

    async def _note_failure(self, key: str, task: ChildTask, error: Exception) -> None:
        text = error.message if isinstance(error, PalyraError) else type(error).__name__
        self._end_attempt(key, task.waits_for, f"failed: {text}")

    def _end_attempt(self, key: str, remedy: str, outcome: str) -> None:
        self.incidents.end_attempt(key, outcome)
        log.info("a remedy was attempted", key=key, remedy=remedy, outcome=outcome)


def find_silent(runs: Iterable[RunHandle], now_s: float, window_s: float) -> list[RunHandle]:
    """Set the start of silence of runs that have none; return the runs silent for the window."""
    before_s, silent = now_s - window_s, list[RunHandle]()
    for run in runs:
        since_s = run.silent_since_s
        if since_s is None:
            run.silent_since_s = now_s
        elif since_s <= before_s:
            silent.append(run)
    return silent


def is_waiting(run: RunHandle) -> bool:
    """True if a run waits for its turn, the journal, a person, a budget or the time of a retry."""
    is_asking = run.lifecycle in {"queued", "suspended"} or run.run.clock.asked_ms is not None
    return is_asking or any(task.waits_for in EXTERNAL_WAITS for task in run.tasks.values())


def batches_of(runs: list[RunHandle], size: int) -> Iterable[list[RunHandle]]:
    """Split a list into batches of at most this size."""
    return (runs[start : start + size] for start in range(0, len(runs), size))


# --- the loop ------------------------------------------------------------------------------------


async def watch(
    watchdog: Watchdog, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Sweep until cancelled.

    Cancellation: attempts in progress are abandoned; the next incarnation counts them.
    """
    task_status.started()
    await watchdog.recover()
    watchdog.is_checking_files = False
    watchdog.checks.clear()  # of the last incarnation
    async with trio.open_nursery() as nursery:
        while True:
            with trio.move_on_after(watchdog.modes.sweep_s):
                await watchdog.wakeup.wait()
            watchdog.wakeup = trio.Event()
            await watchdog.find(nursery)
            watchdog.treat(nursery)


# --- remedies ------------------------------------------------------------------------------------


def end_calls(registry: ActorRegistry, key: str) -> str:
    """Stop the running calls of the run, which goes on with their outcomes."""
    run = registry.runs.get(subject_of(key))
    if run is None:
        return "the run has ended"
    calls = [each for each in run.tasks.values() if isinstance(each, ToolExecution)]
    count = sum(each.stop("it gave no sign of life, so the watchdog stopped it") for each in calls)
    return f"stopped {pluralize(count, 'call')}" if count else "no call could be stopped"


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
