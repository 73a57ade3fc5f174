"""Settings that a running daemon takes up: its workspaces, models and MCP servers."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog
import trio

from palyra.actors.session.registry import ActorRegistry
from palyra.config.file import ConfigFile, FileStamp, Redact
from palyra.config.load import Config
from palyra.core.ports import RunBlocking
from palyra.errors import Conflict, InvalidParams, PalyraError
from palyra.services.registry.model_router import ModelRouter
from palyra.tools.files.workspaces import Workspaces
from palyra.wiring.models import Modelset, default_model, read_routes

log = structlog.get_logger("palyra.config")
_NAMED = 3  # runs in an error


class LivePart(Protocol):
    """A part of the daemon that follows the configuration."""

    async def apply(self, config: Config) -> None:
        """Take up the configuration, which was checked.  Raises PalyraError."""


class LiveSettings:
    """The configuration in force, and the file that it follows.

    Owns: the configuration in force.  Talks to: the file, in threads; the parts.
    Never: takes up a configuration that a start would refuse, or removes what an open run uses.
    """

    def __init__(
        self,
        running: Config,
        redact: Redact,
        check: Callable[[Config], object],
        registry: ActorRegistry,
        run_blocking: RunBlocking,
        *,
        parts: Sequence[LivePart],
    ) -> None:
        """`check` raises InvalidParams for a configuration that cannot be started with."""
        self.in_force = running
        self._parts = parts
        self.problem = ""  # why a change of the file is not in force; "" if all of them are
        self.file = ConfigFile(running, redact, self._check)
        self._check_start = check
        self._registry = registry
        self._run_blocking = run_blocking
        self._turn = trio.Lock()
        self._stamp: FileStamp = self.file.look()
        self._waiting: Config | None = None  # read and checked, and not in force yet
        self._partly: Config | None = None  # some parts have it, and others have `in_force`

    def _check(self, wanted: Config) -> None:
        """Raise Conflict or InvalidParams for a file that cannot be taken up.  Blocks."""
        self._check_start(wanted)
        check_in_use(self.in_force, wanted, self._registry)

    async def refresh(self) -> str:
        """Take up what changed in the file; return why something was not, "" if all was.

        Cancellation: some parts may have taken up the change; the next call does the rest.
        """
        async with self._turn:
            stamp = await self._run_blocking(self.file.look)
            if stamp == self._stamp and self._waiting is None:
                return self.problem
            try:
                await self._follow(stamp)
            except PalyraError as error:
                if isinstance(error, InvalidParams):  # not again until the file changes
                    self._stamp, self._waiting = stamp, None
                self._note(error.message)
            else:
                self._note("")
        return self.problem

    async def _follow(self, stamp: FileStamp) -> None:
        """Read the file if it changed, and take up what waits.  Raises PalyraError."""
        if stamp != self._stamp:
            self._waiting = None
            wanted = await self._run_blocking(self.file.load_live)
            if wanted != self.in_force or self._partly is not None:
                await self._run_blocking(self._check_start, wanted)
                self._waiting = wanted
            self._stamp = stamp
        if self._waiting is not None:
            for before in (self.in_force, self._partly or self.in_force):
                check_in_use(before, self._waiting, self._registry)
            self._partly = self._waiting
            for part in self._parts:
                await part.apply(self._waiting)
            self.in_force = self.file.running = self._waiting
            self._waiting = self._partly = None
            log.info("the changed configuration is in force")

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("a change of the configuration is not in force", problem=problem)
        self.problem = problem


def check_in_use(before: Config, after: Config, registry: ActorRegistry) -> None:
    """Raise Conflict if an open run works with something that the change takes away."""
    roots, providers = after.workspaces, {each.name for each in after.models.providers}
    moved = {name for name, root in before.workspaces.items() if roots.get(name) != root}
    gone = {each.name for each in before.models.providers} - providers
    runs = [each.run for each in [*registry.runs.values()]]
    _refuse("workspace", [(run.accepted.workspace, run.run_id) for run in runs], moved)
    _refuse("provider", [(run.model.partition("/")[0], run.run_id) for run in runs], gone)


def _refuse(what: str, uses: list[tuple[str, str]], gone: Collection[str]) -> None:
    """Raise Conflict if one of the names that are gone is used, by a run."""
    name = next((used for used, _ in uses if used in gone), None)
    if name is None:
        return
    runs = [run_id for used, run_id in uses if used == name]
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    raise Conflict(
        f"the {what} {name!r} is in use by {', '.join(runs[:_NAMED])}{more}: wait until they end, or "
        "cancel them (`palyra runs cancel RUN`), and try again"
    )


class WorkspacesPart:
    """The workspaces as a part that follows the configuration."""

    def __init__(self, workspaces: Workspaces, run_blocking: RunBlocking) -> None:
        self._workspaces = workspaces
        self._run_blocking = run_blocking

    async def apply(self, config: Config) -> None:
        """Open new workspaces and drop those that are gone."""
        await self._run_blocking(self._workspaces.replace, config.workspaces)


class ModelsPart:
    """Providers, routes and the default model as a part that follows the configuration."""

    def __init__(self, modelset: Modelset, router: ModelRouter, run_blocking: RunBlocking) -> None:
        self._modelset = modelset
        self._router = router
        self._run_blocking = run_blocking

    async def apply(self, config: Config) -> None:
        """Replace providers and routes.  Calls under way end with the provider that they have."""
        if self._modelset.configure is not None:
            await self._run_blocking(self._modelset.configure, config.models.providers)
        table, known = read_routes(config)
        self._router.configure(table, known, default_model(config, self._modelset.models))
