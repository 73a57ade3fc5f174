"""Workspace watch: checks that every workspace is usable, and reports an incident if one is not.

Owns: the present problems.  Talks to: the workspaces, in a thread; the incident reporter.
Never: repairs anything; the tools reopen a folder that is back.
Restart: permanent; it checks again.
"""

from collections.abc import Callable, Collection

import trio

from palyra.core.incident.kinds import WORKSPACE, workspace_unusable
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.tools.files.workspace import Workspace

LOOK_S = 5.0  # between checks, each of two stats


class WorkspaceWatch:
    """The present problems of the workspaces."""

    def __init__(
        self,
        workspaces: Collection[Workspace],
        run_blocking: RunBlocking,
        alarms: IncidentReporter,
        notice: Callable[[], None] = lambda: None,
    ) -> None:
        """`notice` is called with each check, in its thread."""
        self._notice = notice
        self._workspaces = workspaces
        self._run_blocking = run_blocking
        self._alarms = alarms
        self._problems: tuple[str, ...] = ()

    def problems(self) -> tuple[str, ...]:
        """Return the problems found by the last check, with their remedies."""
        return self._problems

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check every LOOK_S until cancelled.  Cancellation: reported incidents stay."""
        task_status.started()
        while True:
            before = self._problems
            self._problems = await self._run_blocking(self._find_problems)
            is_hidden = self._problems and not self._alarms.is_reported(WORKSPACE)
            if self._problems != before or is_hidden:
                self._report()
            await trio.sleep(LOOK_S)

    def _find_problems(self) -> tuple[str, ...]:
        """Return the problems of all workspaces.  Blocks."""
        self._notice()
        return tuple(filter(None, (each.find_problem() for each in self._workspaces)))

    def _report(self) -> None:
        if self._problems:
            self._alarms.report(workspace_unusable("; ".join(self._problems)))
        else:
            self._alarms.clear(WORKSPACE, "the workspace can be used again")
