"""Wiring of programs: the sandbox, its health check, and the tools that need it."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.session.registry import ActorRegistry
from palyra.config.load import Config
from palyra.config.sections import SandboxConfig
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.ports import IncidentReporter
from palyra.errors import InvalidParams
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.workspaces import tools_by_workspace
from palyra.tools.programs.process_tools import Processes
from palyra.tools.programs.program import NO_TOOLCHAINS, CommandEnvironment
from palyra.tools.programs.shell import Shell
from palyra.tools.sandbox.command import MIB, CommandEgress, CommandLimits, Level
from palyra.tools.sandbox.git_folders import find_git_obstacle
from palyra.tools.sandbox.health_check import SandboxHealthCheck
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.sandbox.toolchains import Toolchains, open_toolchains
from palyra.tools.toolbox import Tool, Toolbox
from palyra.tools.web.request import grant_key
from palyra.tools.web.urls import parse_url
from palyra.wiring.host import Host

MAX_BACKGROUND = 256  # background programs of all runs together
# Writable places, as named in approvals; see docs/security.md.
_WRITABLE: Mapping[Level, str] = {
    "A": "workspace writable",
    "B": "workspace writable but at its top; HOME and TMPDIR in a folder of the call's own",
}
OpenEgress = Callable[[Sequence[str], Callable[[str], None]], CommandEgress]
log = structlog.get_logger("palyra.sandbox")


class Processset(NamedTuple):
    """The sandbox, its problems, and the services that programs need."""

    sandbox: Sandbox | None  # None: the host is closed
    services: Sequence[ChildSpec]
    problems: Callable[[], tuple[str, ...]]
    absent: Callable[[], tuple[str, ...]]  # optional programs that are not installed
    settled: Callable[[], Awaitable[None]] | None  # returns after the first health check


def build_processset(  # noqa: PLR0913 - the last ones by name
    config: Config,
    host: Host,
    toolbox: Toolbox,
    workspaces: Mapping[str, Workspace],
    *,
    directory: ActorRegistry,
    open_egress: OpenEgress,
    alarms: IncidentReporter,
) -> Processset:
    """Build the sandbox; its tools appear after the first health check.

    A tool works in the workspace of its call.  `open_egress` makes the egress of one command to the
    configured hosts.  Raises InvalidParams for
    an invalid host.
    """
    granted = read_hosts(config.sandbox.hosts)
    toolchains = read_toolchains(config, workspaces)
    if host.is_closed:
        return Processset(None, (), tuple, tuple, None)
    sandbox = Sandbox(
        host.new_thread("sandbox"), records=config.paths.data_dir / "jails", is_proved=False
    )
    programs = DynamicSupervisor("processes", max_children=MAX_BACKGROUND)

    async def spawn(name: str, start: Callable[..., Awaitable[None]]) -> object:
        return await programs.start_child(ChildSpec(f"process:{name}", start, "temporary"))

    processes = Processes(
        sandbox,
        host.run_blocking,
        spawn=spawn,
        is_open=lambda run_id: run_id in directory.runs,
        new_id=host.new_id,
    )

    def tools_at(_level: Level) -> Sequence[Tool]:
        return tools_by_workspace(workspaces, tools_in)

    def tools_in(workspace: Workspace) -> Sequence[Tool]:
        environment = surroundings_at(
            config.sandbox, workspace, sandbox, open_egress=open_egress, granted=granted,
            toolchains=toolchains,
        )  # fmt: skip
        if environment.git_obstacle:
            log.warning("git finds no repository in a workspace", why=environment.git_obstacle)
        shell = Shell(sandbox, environment, host.run_blocking, config.sandbox.deadline_s)
        return [shell.tool(), *processes.tools(environment)]

    health_check = SandboxHealthCheck(
        sandbox,
        host.run_blocking,
        toolbox.put,
        tools_at,
        workspace=workspaces[DEFAULT_WORKSPACE].root,
        min_level=config.sandbox.min_level,
        incidents=alarms,
    )
    services = (ChildSpec("sandbox", health_check.serve), programs.child_spec())
    return Processset(
        sandbox, services, health_check.problems, health_check.absent, health_check.settled
    )


def surroundings_at(
    section: SandboxConfig,
    workspace: Workspace,
    sandbox: Sandbox,
    *,
    open_egress: OpenEgress,
    granted: Sequence[str],
    toolchains: Toolchains = NO_TOOLCHAINS,
) -> CommandEnvironment:
    """Return the environment of commands at the sandbox's level; at level B none has a network."""
    hosts = granted if sandbox.level == "A" else ()
    network = f"network to {', '.join(hosts)}" if hosts else "no network"
    shown = "".join(f"; {folder} read-only" for folder in toolchains.folders)
    return CommandEnvironment(
        workspace=workspace,
        limits=read_limits(section),
        environment=read_environment(section.environment),
        profile=f"{sandbox.enforcement}; {_WRITABLE[sandbox.level]}{shown}; {network}",
        open_egress=partial(open_egress, hosts, _report_refused) if hosts else None,
        level=sandbox.level,
        toolchains=toolchains,
        git_obstacle=find_git_obstacle(str(workspace.root), sandbox.level),
    )


def read_toolchains(config: Config, workspaces: Mapping[str, Workspace]) -> Toolchains:
    """Return the toolchains that programs see.  Raises InvalidParams for one they may not see."""
    own = (config.paths.data_dir, config.policy_dir, config.paths.config_file)
    roots = (workspace.root for workspace in workspaces.values())
    return open_toolchains(config.sandbox.folders, config.sandbox.path, (*own, *roots))


def read_limits(section: SandboxConfig) -> CommandLimits:
    """Return the limits of one command."""
    return CommandLimits(
        address_space_bytes=section.address_space_mib * MIB or None,
        memory_bytes=section.memory_mib * MIB,
        processes=section.processes,
        files=section.open_files,
        file_bytes=section.file_mib * MIB,
        cpu_s=section.cpu_s,
        temporary_bytes=section.temporary_mib * MIB,
    )


def read_hosts(entries: Sequence[str], setting: str = "sandbox.hosts") -> tuple[str, ...]:
    """Return hosts as grant keys; `setting` is named in errors.  Raises InvalidParams."""
    return tuple(sorted({_host(entry, setting) for entry in entries}))


def _host(entry: str, setting: str) -> str:
    try:
        url = parse_url(f"http://{entry}/")
    except InvalidParams as error:
        raise InvalidParams(f"{setting}: {error.message}", field=setting) from None
    if url.target != "/":
        raise InvalidParams(f"{setting} holds {entry!r}: expected host or host:port", field=setting)
    return grant_key(url)


def _report_refused(key: str) -> None:
    log.warning("a host was refused to a program", host=key)


def read_environment(names: Sequence[str]) -> dict[str, str]:
    """Return the daemon's environment variables of these names that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}
