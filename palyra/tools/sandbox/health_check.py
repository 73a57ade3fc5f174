"""The keeper of the sandbox: programs can be run only while the walls are proved.

Owns: whether the process tools are in the catalogue.  Talks to: the sandbox, the toolbox.
Never: delays a start, or lets a program run behind fewer walls than are asked for.
Restart: permanent; the walls are proved again first.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
import trio

from palyra.core.incident.kinds import walls_leak
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.tools.sandbox.command import Level, SandboxFailure
from palyra.tools.sandbox.escape_probes import prove_walls
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.sandbox.spawner import NOT_INSTALLED
from palyra.tools.toolbox import Tool

log = structlog.get_logger("palyra.sandbox")
SOURCE = "process"
PROVE_S = 600.0  # between two proofs that succeed
RETRY_S = 30.0  # after one that could not be made
WITHOUT = "shell, programs in the background, skills, MCP servers"

Put = Callable[[str, Sequence[Tool]], None]


class SandboxHealthCheck:
    """Proves the walls, and gives or takes the tools by it."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        sandbox: Sandbox,
        run_blocking: RunBlocking,
        put: Put,
        tools_at: Callable[[Level], Sequence[Tool]],
        *,
        workspace: Path,
        min_level: Level = "A",
        alarms: IncidentReporter,
    ) -> None:
        """`put` is the toolbox's; `tools_at` makes those that need the sandbox, at a level.

        `min_level`: what is asked for; where level A cannot be had, "B" has level B tried.
        """
        self._sandbox = sandbox
        self._run_blocking = run_blocking
        self._put = put
        self._tools_at = tools_at
        self._workspace = workspace
        self._min_level = min_level
        self._alarms = alarms
        self._doubt = trio.Event()
        self._has_leaked = False
        self._level: Level = "A"
        self.problem: str | None = None  # "": programs can be run; None: not proved yet
        self._first_look = trio.Event()
        sandbox.on_failure = self.doubt

    def problems(self) -> tuple[str, ...]:
        """What has to be repaired before programs can be run; see `absent`."""
        return (self.problem,) if self.problem and not self._is_absent else ()

    def absent(self) -> tuple[str, ...]:
        """The optional program that is not installed.

        It is a problem instead where the configuration asks for programs in other words than its
        defaults: with a level B that does not hold either.
        """
        return (self.problem,) if self.problem and self._is_absent else ()

    @property
    def _is_absent(self) -> bool:
        return self.problem == NOT_INSTALLED

    async def settled(self) -> None:
        """Return when the first proof was made, or could not be."""
        await self._first_look.wait()

    def doubt(self) -> None:
        """Something failed: prove the walls again soon."""
        self._doubt.set()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep, for ever.  Cancellation: the tools stay as they are."""
        task_status.started()
        self._put(SOURCE, ())
        reaped = await self._sandbox.reap()
        if reaped:
            log.warning("processes of an earlier life were killed", count=reaped)
        while not self._has_leaked:
            self._judge(*await self._look())
            self._first_look.set()
            self._doubt = trio.Event()  # a proof that fails raises doubts by itself
            if self.problem:
                await trio.sleep(RETRY_S)
            else:
                with trio.move_on_after(PROVE_S):
                    await self._doubt.wait()
        await trio.sleep_forever()

    async def _look(self) -> tuple[Level, str]:
        """The best level that holds; or what is wrong with the walls."""
        problem = await self._prove("A")
        if not problem or self._has_leaked or self._min_level == "A":
            return "A", problem
        obstacle = await self._run_blocking(self._sandbox.find_obstacle, self._workspace)
        why = obstacle or await self._prove("B")
        return "B", f"{why}; level A: {problem}" if why else ""

    async def _prove(self, level: Level) -> str:
        """What is wrong with that level; "" when it holds."""
        if level == "A" and not self._sandbox.is_installed:
            return NOT_INSTALLED
        try:
            leak = await prove_walls(self._sandbox, self._run_blocking, level)
        except SandboxFailure as failure:
            return failure.message
        if leak:
            self._has_leaked = True
            return f"the jail leaks: {leak} could be reached from inside"
        return ""

    def _judge(self, level: Level, problem: str) -> None:
        is_news = (level, problem) != (self._level, self.problem)
        self._sandbox.judge(level, problem)
        self._level, self.problem = level, problem
        if self._has_leaked:
            self._sandbox.kill_all()
            self._alarms.report(walls_leak(problem))
        if not is_news:
            return
        self._put(SOURCE, () if problem else self._tools_at(level))
        if self._has_leaked:
            return  # the incident has said so
        if self._is_absent:
            log.warning("an optional program is absent", absent=problem, without=WITHOUT)
        elif problem:
            log.critical("no program can be run", problem=problem)
        else:
            log.info("programs can be run", enforcement=self._sandbox.enforcement)
