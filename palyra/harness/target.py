"""The daemon that results come from: one that runs, or the harness's own."""

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
    """Which daemon, and what an own one is started with."""

    daemon: str  # of the plan: "own", "url:ADDRESS" or "home:DIRECTORY"
    out: Path
    home: Path | None = None  # where the token for an address lies
    scripts: Path | None = None
    config: Path | None = None
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class ConnectedTarget:
    """A daemon that can be dialled."""

    dial: Connect
    own: OwnDaemon | None = None


@asynccontextmanager
async def reach_daemon(place: Target) -> AsyncGenerator[ConnectedTarget]:
    """How to connect, for the length of the block.  Raises Unavailable, also in a group."""
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
    """As given, else a directory that the tools of the cases have to themselves."""
    if place.workspace is not None:
        return place.workspace.resolve()
    path = place.out / WORKSPACE
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    return path.resolve()


def _settings(place: Target) -> dict[str, str]:
    scripts = place.scripts
    return {} if scripts is None else {"PALYRA_MODELS__SCRIPTS": str(scripts.resolve())}
