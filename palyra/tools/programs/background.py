"""A program in the background: started in one call, looked at in others, ended with its run.

Owns: its jail and what it wrote.  Talks to: nobody; its run is looked for in the directory.
Never: outlives its run, or the daemon.
Restart: temporary; a program is started once.
"""

from collections.abc import Callable
from dataclasses import replace

import trio

from palyra.tools.programs.disk_watch import LOOK_S, DiskWatch, disks_of
from palyra.tools.programs.output import FLOOD_BYTES, KeptOutput
from palyra.tools.sandbox.child import JailedProcess, ProcessExit
from palyra.tools.sandbox.command import Command, SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox

PIECE_BYTES = 65_536


class Background:
    """One program and what is known of it."""

    def __init__(self, process_id: str, run_id: str, name: str, command: Command) -> None:
        self.process_id = process_id
        self.run_id = run_id
        self.name = name
        self.command = command
        self.output = KeptOutput()
        self.started_s = trio.current_time()
        self.ended_s: float | None = None
        self.ending: ProcessExit | None = None
        self.failure = ""  # why it could not be started
        self.enforcement = ""
        self.news = trio.Event()  # set at every change; who waits takes a new one
        self._stopping = trio.CancelScope()

    @property
    def is_running(self) -> bool:
        """Whether its jail is there."""
        return self.ended_s is None

    def stop(self) -> None:
        """Kill it; `wait_ended` tells when it is gone."""
        self._stopping.cancel("it was asked to stop")

    async def wait_ended(self) -> None:
        """Return when nothing of it is alive."""
        while self.is_running:
            await self.wait_news()

    async def wait_news(self) -> None:
        """Return when more was written, or it ended."""
        await self.news.wait()

    async def live(
        self,
        sandbox: Sandbox,
        is_open: Callable[[str], bool],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run it until it ends, is stopped, or its run is over.

        Cancellation: nothing of it is alive.
        """
        try:
            with self._stopping:
                await self._run(sandbox, is_open, task_status)
        except SandboxFailure as failure:
            self.failure = failure.message
            raise
        finally:
            self.ended_s = trio.current_time()
            self.command = replace(self.command, files={})  # it is remembered, its scripts are not
            self.ending = self.ending or ProcessExit(None, "SIGKILL")
            self._tell()

    async def _run(
        self, sandbox: Sandbox, is_open: Callable[[str], bool], ready: trio.TaskStatus[None]
    ) -> None:
        watch = DiskWatch(*disks_of(self.command))
        async with sandbox.open(self.command) as child:
            self.enforcement = child.enforcement
            ready.started()
            limit = await self._attend(child, watch, is_open)
        self.failure = child.find_failure()
        self.ending = ProcessExit(None, "SIGKILL", limit) if limit else child.ending

    async def _attend(
        self, child: JailedProcess, watch: DiskWatch, is_open: Callable[[str], bool]
    ) -> str:
        """Take its output until it ends; "", or the limit it must be stopped for."""
        has_more, limit = True, ""
        while child.ending is None and not limit and is_open(self.run_id):
            with trio.move_on_after(LOOK_S):
                if has_more:
                    piece = await child.stdout.receive_some(PIECE_BYTES)
                    self.output.take(child.without_complaint(bytes(piece)))
                    has_more = bool(piece)
                    self._tell()
                else:
                    await child.wait()
            limit = "output" if self.output.total > FLOOD_BYTES else watch.find_limit()
        return limit

    def _tell(self) -> None:
        self.news.set()
        self.news = trio.Event()
