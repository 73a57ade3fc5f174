"""Connection to the daemon of a bench: a running one, or a local one that the harness starts."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from palyra.client import connect
from palyra.harness.connections import Connect
from palyra.harness.local_daemon import OwnDaemon, run_own_daemon
from palyra.harness.results import DAEMON, DIRECTORY_MODE, WORKSPACE

OWN = "own"
NAME = "palyra-bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The daemon to use, and the start options of a local one."""

    daemon: str  # as in the plan: "own", "url:ADDRESS" or "home:DIRECTORY"
    out: Path
    home: Path | None = None  # directory with the token for "url:ADDRESS"
    scripts: Path | None = None
    config: Path | None = None
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class ConnectedTarget:
    """Reachable daemon: a function that connects to it, and its supervisor if it is local."""

    dial: Connect
    own: OwnDaemon | None = None


@asynccontextmanager
async def reach_daemon(place: Target) -> AsyncGenerator[ConnectedTarget]:
    """Make the daemon reachable for the length of the block, starting a local one if necessary.

    Raises Unavailable, also in a group.
    """
    kind, _, where = place.daemon.partition(":")
    if kind == OWN:
        home = (place.out / DAEMON).resolve()
        async with run_own_daemon(home, _workspace(place), place.config, _settings(place)) as own:
            yield ConnectedTarget(partial(connect, home=home, token=own.token, name=NAME), own)
    elif kind == "url":
        yield ConnectedTarget(partial(connect, where, home=place.home, name=NAME))
    else:
        yield ConnectedTarget(partial(connect, home=where, name=NAME))


def _workspace(place: Target) -> Path:
    """Return the given workspace, or create one in the output directory for the tools."""
    if place.workspace is not None:
        return place.workspace.resolve()
    path = place.out / WORKSPACE
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return path.resolve()


def _settings(place: Target) -> dict[str, str]:
    scripts = place.scripts
    return {} if scripts is None else {"PALYRA_MODELS__SCRIPTS": str(scripts.resolve())}
