"""Reflections at the end of runs: the background task that reads a run which has ended.

Owns: nothing; the task is a record that is committed with the run's terminal event, so that a crash
loses neither and repeats neither.
Talks to: the queue of tasks, which it wakes.
Never: reads a run itself.  Without learning it does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palyra.core.ids import NewId
from palyra.core.journal.records import TaskRecord
from palyra.core.run.state import COMPACTION, Run
from palyra.core.task.life import PRIORITIES, Submission, submit

if TYPE_CHECKING:
    from collections.abc import Callable

EXPIRES_MS = 7 * 24 * 3_600_000  # what a daemon did not get round to in a week teaches little


class Reflections:
    """Tasks of the kind `reflection`, one for each run that ended."""

    def __init__(self, new_id: NewId, *, is_on: bool) -> None:
        self.is_on = is_on
        self._new_id = new_id
        self.notify: Callable[[], None] = lambda: None  # wakes the queue; set by the wiring

    def task_for(self, run: Run, now_ms: int) -> TaskRecord | None:
        """Return the task to commit with the end of the run, in the lowest priority.

        None while learning is off, for a run that a model delegated or that compacts its session,
        and for a run that ended before its first turn.
        """
        accepted = run.accepted
        is_own = accepted.depth == 0 and accepted.parent_run_id is None
        if not (self.is_on and is_own and run.turn and accepted.origin != COMPACTION):
            return None
        wanted = Submission(
            kind="reflection",
            payload={"run_id": run.run_id},
            priority=PRIORITIES[0],
            expires_ms=now_ms + EXPIRES_MS,
        )
        return submit(wanted, self._new_id("tsk"), accepted.principal, now_ms)
