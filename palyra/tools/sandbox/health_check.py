"""Health check of the sandbox: programs can run only while escape probes fail.

Owns: the process tools in the catalogue.  Talks to: the sandbox, the toolbox.
Never: delays the daemon's start, or lets a program run with weaker isolation than configured.
Restart: permanent; the probes run again first.

The check is a loop.  It probes level A, and where A is unavailable and `min_level` is "B", level B.
The best level that holds becomes the sandbox's level, and its tools enter the catalogue; without one
the tools leave it.  A check that failed is repeated after RETRY_S, one that succeeded after PROVE_S or
as soon as a jail cannot be built.  A probe that succeeds is a leak: the check reports an incident,
kills all programs and stops for good, because only a person can know why isolation failed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
import trio

from palyra.core.incident.kinds import walls_leak
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.tools.sandbox.command import Level, SandboxFailure
from palyra.tools.sandbox.escape_probes import find_leak
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.sandbox.spawner import NOT_INSTALLED
from palyra.tools.toolbox import Tool

log = structlog.get_logger("palyra.sandbox")
SOURCE = "process"
PROVE_S = 600.0  # between two successful checks
RETRY_S = 30.0  # after a check that failed
WITHOUT = "shell, programs in the background, skills, MCP servers"

Put = Callable[[str, Sequence[Tool]], None]


class SandboxHealthCheck:
    """Runs the escape probes, and adds or removes the process tools."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        sandbox: Sandbox,
        run_blocking: RunBlocking,
        put: Put,
        tools_at: Callable[[Level], Sequence[Tool]],
        *,
        workspace: Path,
        min_level: Level = "A",
        incidents: IncidentReporter,
    ) -> None:
        """`put` is the toolbox's; `tools_at` makes the tools that need the sandbox, for a level.

        `min_level`: "B" allows level B where level A is unavailable.
        """
        self._sandbox = sandbox
        self._run_blocking = run_blocking
        self._put = put
        self._tools_at = tools_at
        self._workspace = workspace
        self._min_level = min_level
        self._incidents = incidents
        self._recheck = trio.Event()
        self._has_leaked = False
        self._level: Level = "A"
        self.problem: str | None = None  # "": programs can run; None: not checked yet
        self._first_check = trio.Event()
        sandbox.on_failure = self.recheck

    def problems(self) -> tuple[str, ...]:
        """Return the problem that keeps programs from running; see `absent`."""
        return (self.problem,) if self.problem and not self._is_absent else ()

    def absent(self) -> tuple[str, ...]:
        """Return the optional program that is not installed.

        With a level B that does not hold either, its absence is part of the problem instead.
        """
        return (self.problem,) if self.problem and self._is_absent else ()

    @property
    def _is_absent(self) -> bool:
        return self.problem == NOT_INSTALLED

    async def settled(self) -> None:
        """Return when the first check has succeeded or failed."""
        await self._first_check.wait()

    def recheck(self) -> None:
        """Run the next check at once, because a jail could not be built."""
        self._recheck.set()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check until cancelled.  Cancellation: the tools stay as they are."""
        task_status.started()
        self._put(SOURCE, ())
        reaped = await self._sandbox.reap()
        if reaped:
            log.warning("processes of an earlier daemon were killed", count=reaped)
        while not self._has_leaked:
            self._apply(*await self._check())
            self._first_check.set()
            self._recheck = trio.Event()  # the check itself may have set it
            if self.problem:
                await trio.sleep(RETRY_S)
            else:
                with trio.move_on_after(PROVE_S):
                    await self._recheck.wait()
        await trio.sleep_forever()

    async def _check(self) -> tuple[Level, str]:
        """Return the best level that holds, or a level and its problem."""
        problem = await self._probe("A")
        if not problem or self._has_leaked or self._min_level == "A":
            return "A", problem
        obstacle = await self._run_blocking(self._sandbox.find_obstacle, self._workspace)
        why = obstacle or await self._probe("B")
        return "B", f"{why}; level A: {problem}" if why else ""

    async def _probe(self, level: Level) -> str:
        """Return the problem of that level; "" if it holds."""
        if level == "A" and not self._sandbox.is_installed:
            return NOT_INSTALLED
        try:
            leak = await find_leak(self._sandbox, self._run_blocking, level)
        except SandboxFailure as failure:
            return failure.message
        if leak:
            self._has_leaked = True
            return f"the jail leaks: {leak} could be reached from inside"
        return ""

    def _apply(self, level: Level, problem: str) -> None:
        has_changed = (level, problem) != (self._level, self.problem)
        self._sandbox.set_level(level, problem)
        self._level, self.problem = level, problem
        if self._has_leaked:
            self._sandbox.kill_all()
            self._incidents.report(walls_leak(problem))
        if not has_changed:
            return
        self._put(SOURCE, () if problem else self._tools_at(level))
        if self._has_leaked:
            return  # the incident reports it
        if self._is_absent:
            log.warning("an optional program is absent", absent=problem, without=WITHOUT)
        elif problem:
            log.critical("no program can be run", problem=problem)
        else:
            log.info("programs can be run", enforcement=self._sandbox.enforcement)
