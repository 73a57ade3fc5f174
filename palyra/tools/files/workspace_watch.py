"""The workspace watch: looks whether the workspace can be used, and says so when it cannot.

Owns: what is wrong with it.  Talks to: the workspace, in a thread; alarms.
Never: mends anything; the tools open a folder that is there again by themselves.
Restart: permanent; it looks again.
"""

import trio

from palyra.core.incident.kinds import WORKSPACE, workspace_unusable
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.tools.files.workspace import Workspace

LOOK_S = 5.0  # between looks: two stats


class WorkspaceWatch:
    """What is wrong with one workspace."""

    def __init__(
        self, workspace: Workspace, run_blocking: RunBlocking, alarms: IncidentReporter
    ) -> None:
        self._workspace = workspace
        self._run_blocking = run_blocking
        self._alarms = alarms
        self._problem = ""

    def problems(self) -> tuple[str, ...]:
        """What somebody has to mend before files and programs can be used; as of the last look."""
        return (self._problem,) if self._problem else ()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look every few seconds, for ever.  Cancellation: what was said stays said."""
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
