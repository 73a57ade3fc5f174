"""Wiring of tools: the built-in ones, their stores, and the services other tools come from.

`Toolset.toolbox` has the built-in tools at once.  The sandbox, servers and skills are services:
supervised actors that add their tools to the toolbox while they can be called and remove them
otherwise.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from palyra.actors.kernel.child import ChildSpec, ExitListener
from palyra.actors.kernel.supervisor import Supervisor
from palyra.actors.session.registry import ActorRegistry
from palyra.config.load import Config, refuse_secrets
from palyra.config.parts import list_absent
from palyra.core.ports import Artifacts, IncidentReporter, ReadDiff
from palyra.core.redaction.redactor import Redactor
from palyra.errors import InvalidParams
from palyra.secrets.service import SecretService
from palyra.tools.artifacts import artifact_tool
from palyra.tools.demo_tools import basic_tools
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.cleanup import keep_swept
from palyra.tools.files.ignores import PersonalExcludes
from palyra.tools.files.read import file_tools
from palyra.tools.files.search import search_tools
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.workspace_watch import WorkspaceWatch
from palyra.tools.files.write import write_tools
from palyra.tools.mcp.directory import McpServers
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.programs.git_diff import GitDiff
from palyra.tools.skills.installed import Skills
from palyra.tools.toolbox import Tool, Toolbox
from palyra.tools.web.fetch import web_tools
from palyra.wiring.host import Host
from palyra.wiring.journal import file_stores
from palyra.wiring.mcp import build_mcpset
from palyra.wiring.sandbox import build_processset, read_limits
from palyra.wiring.skills import build_skillset
from palyra.wiring.web import build_webset


def cedar_policy(config: Config) -> CedarPolicy:
    """Load built-in and user rules; broken user rules are reported, and deny.

    Raises InvalidParams for a configured directory that is missing: its rules would not apply.
    """
    if config.policy.dir and not config.policy_dir.is_dir():
        raise InvalidParams(
            f"policy.dir = {config.policy.dir!r} is not a directory: create it, or change the setting",
            field="policy.dir",
        )
    return CedarPolicy(config.policy_dir, state=[config.paths.data_dir, config.policy_dir])


@dataclass(frozen=True, slots=True)
class Toolset:
    """Toolbox, stores and services for the execution of tool calls."""

    toolbox: Toolbox
    workspace: Workspace
    artifacts: Artifacts
    checkpoints: Checkpoints
    skills: Skills
    mcp: McpServers
    secrets: SecretService
    read_diff: ReadDiff | None = None  # None: no program can be started
    services: list[ChildSpec] = field(default_factory=list)
    problems: Callable[[], tuple[str, ...]] = tuple  # problems that need an operator
    absent: Callable[[], tuple[str, ...]] = tuple  # optional programs and parts that are missing
    settled: Callable[[], Awaitable[None]] | None = (
        None  # returns after the first check of the sandbox
    )

    def branch(self, on_exit: ExitListener | None = None) -> ChildSpec:
        """Return the supervisor of all services; each service restarts alone.

        A service that keeps failing must remove its tools and wait, not crash: an escalation of
        this supervisor stops the daemon.
        """
        return Supervisor(
            "services", self.services, strategy="one_for_one", on_exit=on_exit
        ).child_spec()


def build_toolset(
    config: Config,
    host: Host,
    redactor: Redactor,
    directory: ActorRegistry,
    *,
    alarms: IncidentReporter,
    more: Iterable[Tool] = (),
) -> Toolset:
    """Build the configured tools, and add the tools in `more` to the built-in ones.

    Secrets that the tools use are added to the redactor.  Raises InvalidParams for an invalid
    workspace or setting.  A closed host gets no part that needs processes, sockets or a real clock.
    """
    redact = redactor.redact_text
    refuse_secrets(config, redact)
    workspace = Workspace(config.workspace, keep_out=[config.paths.data_dir, config.policy_dir])
    artifacts, kept = file_stores(config, host)
    checkpoints = Checkpoints(workspace, kept, host.now_ms, host.new_id)
    webset = build_webset(config, host, redactor.learn)
    toolbox = Toolbox(
        [
            *basic_tools(),
            *_file_tools(workspace, checkpoints, artifacts, host),
            *([] if host.is_closed else web_tools(webset.web)),
            *more,
        ],
        host.run_blocking,
    )
    programs = build_processset(
        config, host, toolbox, workspace, directory=directory, open_egress=webset.open_egress,
        alarms=alarms,
    )  # fmt: skip
    sandbox = programs.sandbox
    skillset = build_skillset(config, host, toolbox, sandbox, webset.doors(), redact=redact)
    watch = WorkspaceWatch(workspace, host.run_blocking, alarms)
    services = [*programs.services, *skillset.services, *_upkeep(workspace, watch, host)]
    problems = [watch.problems, programs.problems, skillset.problems, webset.problems]
    mcp = McpServers()
    if sandbox is not None:
        servers = build_mcpset(
            config, host, toolbox, sandbox=sandbox, redact=redact, secrets=webset.secrets,
            open_egress=webset.open_egress, alarms=alarms,
        )  # fmt: skip
        mcp = servers.directory
        services = [*webset.services, *services, *servers.services]
        problems.append(servers.problems)
    return Toolset(
        toolbox=toolbox,
        workspace=workspace,
        artifacts=artifacts,
        checkpoints=checkpoints,
        skills=skillset.skills,
        mcp=mcp,
        secrets=webset.secrets,
        read_diff=None
        if sandbox is None
        else GitDiff(workspace, sandbox, host.run_blocking, read_limits(config.sandbox)),
        services=[*services],
        problems=lambda: tuple(problem for find in problems for problem in find()),
        absent=lambda: (*programs.absent(), *list_absent()),
        settled=programs.settled,
    )


def _file_tools(
    workspace: Workspace, checkpoints: Checkpoints, artifacts: Artifacts, host: Host
) -> list[Tool]:
    """Return the tools for files and for stored outputs."""
    personal = None if host.is_closed else PersonalExcludes.of(os.environ)
    return [
        *file_tools(workspace, personal),
        *search_tools(workspace, personal),
        *write_tools(workspace, checkpoints.keep_for),
        artifact_tool(artifacts),
    ]


def _upkeep(workspace: Workspace, watch: WorkspaceWatch, host: Host) -> list[ChildSpec]:
    """Return the specs of the services that maintain the workspace."""
    if host.is_closed:
        return []
    sweep = ChildSpec("sweep", partial(keep_swept, workspace, host.run_blocking))
    return [sweep, ChildSpec("workspace", watch.serve)]
