"""The watchdog in the simulation: whom its remedies may reach, and how its incidents end.

The signs of progress are noted where the world sees them: events that are published, pieces of answers
and of tool output.  None of them is read from the watchdog.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from palyra.core.healing.rules import MAX_ATTEMPTS, OVERDUE_S, STUCK_S, SWEPT, kind_of, subject_of
from palyra.core.journal.records import IncidentRecord
from palyra.daemon import Daemon
from tests.simulate.models import MODELS

if TYPE_CHECKING:
    from tests.simulate.life import Life

OF_RUNS = ("cancel_run", "resume_run")
PATIENT = {"person", "budget", "retry delay"}


class Vigil:
    """What the world knows of the progress of its runs."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self._progressed_s: dict[str, float] = {}  # by run
        self.remedies = 0

    def note(self, run_id: str) -> None:
        """A run has progressed."""
        self._progressed_s[run_id] = trio.current_time()

    def take(self, incident: IncidentRecord) -> None:
        """Check an incident that is committed."""
        if incident.attempts > MAX_ATTEMPTS:
            self._fail("remedies are bounded", f"{incident.key}: {incident.attempts}")

    def watch(self, life: "Life", daemon: Daemon) -> None:
        """See the progress of a life, and each remedy before it acts."""
        hub: Any = daemon.hub
        publish, progress, dog = hub.publish, hub.progress, daemon.watchdog

        def published(rows: Any) -> None:
            if life.is_on:
                self.note(rows[0].run_id)
            publish(rows)

        def progressed(*, run_id: str, **delta: Any) -> None:
            if life.is_on:
                self.note(run_id)
            progress(run_id=run_id, **delta)

        def checked(remedy: Any, act: Any) -> Any:
            def attempt(key: str) -> Any:
                if life.is_on:
                    self._check(life, daemon, remedy, key)
                return act(key)

            return attempt

        hub.publish, hub.progress = published, progressed
        dog.providers = MODELS
        dog.remedies = {name: checked(name, act) for name, act in dog.remedies.items()}

    def _check(self, life: "Life", daemon: Daemon, remedy: str, key: str) -> None:
        """Check that a remedy is wanted, and that its subject has deserved it."""
        self.remedies += 1
        life.world.trace.counts[f"remedy {remedy}"] += 1
        incident = next(each for each in daemon.incidents.list_unresolved() if each.key == key)
        if daemon.healing.mode(incident.domain) != "auto":
            self._fail("only auto acts", f"{remedy} {key}")
        now_s = trio.current_time()
        if remedy in OF_RUNS:
            run = daemon.registry.runs.get(subject_of(key))
            if run is None:
                return
            silent_s = now_s - self._progressed_s.get(run.run_id, -STUCK_S)
            waits = {task.waits_for for task in run.tasks.values()} & PATIENT
            if silent_s < STUCK_S or waits or run.run.clock.asked_ms is not None:
                self._fail("no remedy for a healthy run", f"{key}: {silent_s:.0f} s, {waits}")
        elif remedy == "expire_approval" and all(
            question.prompt.approval_id != subject_of(key)
            for question in daemon.services.approvals.list_overdue(now_s - OVERDUE_S)
        ):
            self._fail("no remedy for a healthy run", key)

    def check_end(self, daemon: Daemon) -> None:
        """Check, some sweeps after the last run has ended, that no symptom is left."""
        for each in daemon.incidents.list_unresolved():
            if kind_of(each.key) in SWEPT:
                self._fail("an incident that is healed is resolved", each.key)
