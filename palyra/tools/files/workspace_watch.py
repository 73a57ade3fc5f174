"""Workspace watch: checks that the workspace is usable, and reports an incident if it is not.

Owns: the present problem.  Talks to: the workspace, in a thread; the incident reporter.
Never: repairs anything; the tools reopen a folder that is back.
Restart: permanent; it checks again.
"""

import trio

from palyra.core.incident.kinds import WORKSPACE, workspace_unusable
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.tools.files.workspace import Workspace

LOOK_S = 5.0  # between checks, each of two stats


class WorkspaceWatch:
    """The present problem of one workspace."""

    def __init__(
        self, workspace: Workspace, run_blocking: RunBlocking, alarms: IncidentReporter
    ) -> None:
        self._workspace = workspace
        self._run_blocking = run_blocking
        self._alarms = alarms
        self._problem = ""

    def problems(self) -> tuple[str, ...]:
        """Return the problem found by the last check, with its remedy."""
        return (self._problem,) if self._problem else ()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check every LOOK_S until cancelled.  Cancellation: reported incidents stay."""
        task_status.started()
        while True:
            before = self._problem
            self._problem = await self._run_blocking(self._workspace.find_problem)
            is_hidden = self._problem and not self._alarms.is_reported(WORKSPACE)
            if self._problem != before or is_hidden:
                self._tell()
            await trio.sleep(LOOK_S)

    def _tell(self) -> None:
        if self._problem:
            self._alarms.report(workspace_unusable(self._problem))
        else:
            self._alarms.clear(WORKSPACE, "the workspace can be used again")
