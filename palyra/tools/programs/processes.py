"""A program in the background: started by one call, read and stopped by others, ended with its run.

Owns: its jail and its output.  Talks to: the sandbox; reads the registry of runs.
Never: outlives its run, or the daemon.
Restart: temporary; a program is started once.
"""

from collections.abc import Callable
from dataclasses import replace

import trio

from palyra.core.ports import RunBlocking
from palyra.tools.programs.disk_watch import DiskWatch, disks_of
from palyra.tools.programs.output import OutputBuffer, read_until_exit
from palyra.tools.programs.result_notes import CommandTrace, file_clock_ns, find_notes
from palyra.tools.sandbox.child import ProcessExit
from palyra.tools.sandbox.command import Command, SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox


class BackgroundProgram:
    """One program: its command, its output, and its state."""

    def __init__(
        self,
        process_id: str,
        run_id: str,
        name: str,
        command: Command,
        *,
        run_blocking: RunBlocking,
        explain_missing: Callable[[Command, str], str],
    ) -> None:
        self.process_id = process_id
        self.run_id = run_id
        self.name = name
        self.command = command
        self._run_blocking = run_blocking
        self._explain_missing = explain_missing
        self.output = OutputBuffer()
        self.started_s = trio.current_time()
        self.ended_s: float | None = None
        self.ending: ProcessExit | None = None
        self.notes: list[str] = []  # on limits it met; after its end
        self.failure = ""  # why it could not be started
        self.enforcement = ""
        self.changed = trio.Event()  # set at each change, and replaced by a new one
        self._stopping = trio.CancelScope()

    @property
    def is_running(self) -> bool:
        """True until nothing of it is alive."""
        return self.ended_s is None

    def stop(self) -> None:
        """Kill it, without waiting; see `wait_ended`."""
        self._stopping.cancel("the run stopped it")

    async def wait_ended(self) -> None:
        """Return when nothing of it is alive."""
        while self.is_running:
            await self.wait_change()

    async def wait_change(self) -> None:
        """Return when it has written more, or has ended."""
        await self.changed.wait()

    async def live(
        self,
        sandbox: Sandbox,
        is_open: Callable[[str], bool],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run it until it exits, is stopped, or its run ends.

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
            self.command = replace(self.command, files={})  # stays listed, without its scripts
            self.ending = self.ending or ProcessExit(None, "SIGKILL")
            self._notify()

    async def _run(
        self, sandbox: Sandbox, is_open: Callable[[str], bool], ready: trio.TaskStatus[None]
    ) -> None:
        watch = DiskWatch(*disks_of(self.command))
        trace = CommandTrace(
            self.command, file_clock_ns(), self._run_blocking, self._explain_missing
        )
        async with sandbox.open(self.command) as child:
            self.enforcement = child.enforcement
            ready.started()
            limit = await read_until_exit(
                child,
                self.output,
                watch,
                is_wanted=lambda: is_open(self.run_id),
                on_change=self._notify,
            )
        self.failure = child.find_failure()
        self.ending = ProcessExit(None, "SIGKILL", limit) if limit else child.ending
        self.notes = await find_notes(self.output.result().text, child, self.ending, trace)

    def _notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()
