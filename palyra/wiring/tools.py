"""Wiring of tools: the built-in ones, their stores, and the services other tools come from.

`Toolset.toolbox` has the built-in tools at once.  The sandbox, servers and skills are services:
supervised actors that add their tools to the toolbox while they can be called and remove them
otherwise.
"""

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from palyra.actors.kernel.child import ChildSpec, ExitListener
from palyra.actors.kernel.supervisor import Supervisor
from palyra.actors.session.registry import ActorRegistry
from palyra.config.load import Config, refuse_secrets
from palyra.config.parts import list_absent
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.ports import Artifacts, CheckpointStore, IncidentReporter, ReadDiff
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
from palyra.tools.files.workspace_watch import WorkspaceWatch
from palyra.tools.files.workspaces import (
    PerWorkspace,
    WorkspaceCheckpoints,
    Workspaces,
    tools_by_workspace,
)
from palyra.tools.files.write import write_tools
from palyra.tools.mcp.directory import McpServers
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.programs.git_diff import GitDiff
from palyra.tools.skills.installed import Skills
from palyra.tools.skills.text_skills import SOURCE as TEXT_SKILLS
from palyra.tools.skills.text_skills import TextSkills
from palyra.tools.todos import todo_tools
from palyra.tools.toolbox import Tool, Toolbox
from palyra.tools.web.fetch import web_tools
from palyra.wiring.host import Host
from palyra.wiring.mcp import ConfiguredServers, ServerParts
from palyra.wiring.sandbox import build_processset, read_limits
from palyra.wiring.skills import build_skillset
from palyra.wiring.web import build_webset

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


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
    workspaces: Workspaces
    artifacts: Artifacts
    checkpoints: WorkspaceCheckpoints
    skills: Skills
    text_skills: TextSkills
    mcp: McpServers
    secrets: SecretService
    servers: ConfiguredServers | None = None  # None: the host is closed
    read_diffs: Mapping[str, ReadDiff] = field(  # by workspace; none if no program can be started
        default_factory=dict
    )
    services: list[ChildSpec] = field(default_factory=list)
    problems: Callable[[], tuple[str, ...]] = tuple  # problems that need an operator
    absent: Callable[[], tuple[str, ...]] = tuple  # optional programs and parts that are missing
    settled: Callable[[], Awaitable[None]] | None = (
        None  # returns after the first check of the sandbox
    )

    def branch(self, on_exit: ExitListener, rng: Callable[[], float]) -> ChildSpec:
        """Return the supervisor of all services; each service restarts alone.

        A service that keeps failing must remove its tools and wait, not crash: an escalation of
        this supervisor stops the daemon.
        """
        return Supervisor(
            "services", self.services, strategy="one_for_one", on_exit=on_exit, rng=rng
        ).child_spec()


def build_toolset(  # noqa: PLR0913, PLR0914 - all by name; one part a line
    config: Config,
    host: Host,
    redactor: Redactor,
    directory: ActorRegistry,
    *,
    stores: tuple[Artifacts, CheckpointStore],
    alarms: IncidentReporter,
    more: Iterable[Tool] = (),
) -> Toolset:
    """Build the configured tools, and add the tools in `more` to the built-in ones.

    Secrets that the tools use are added to the redactor.  Raises InvalidParams for an invalid
    workspace or setting.  A closed host gets no part that needs processes, sockets or a real clock.
    """
    redact = redactor.redact_text
    refuse_secrets(config, redact)
    check_workspaces(config)
    workspaces = Workspaces(config.workspaces, [config.paths.data_dir, config.policy_dir])
    artifacts, kept = stores
    checkpoints = WorkspaceCheckpoints(
        PerWorkspace(workspaces, lambda each: Checkpoints(each, kept, host.now_ms, host.new_id))
    )
    webset = build_webset(config, host, redactor.learn)
    toolbox = Toolbox(
        [
            *basic_tools(),
            *todo_tools(),
            *_file_tools(checkpoints, host),
            artifact_tool(artifacts),
            *([] if host.is_closed else web_tools(webset.web)),
            *more,
        ],
        host.run_blocking,
    )
    programs = build_processset(
        config, host, toolbox, workspaces, directory=directory, open_egress=webset.open_egress,
        alarms=alarms,
    )  # fmt: skip
    sandbox = programs.sandbox
    skillset = build_skillset(config, host, toolbox, sandbox, webset.doors(), redact=redact)
    texts = TextSkills(
        workspaces,
        config.paths.config_dir,
        lambda tool: toolbox.put(TEXT_SKILLS, [tool]),
        is_used=config.context.text_skills,
    )
    for name in texts.present if config.context.text_skills else ():
        texts.look(name)  # before an agent or a replay names the tool
        texts.offer_tool(name)
    watch = WorkspaceWatch(workspaces.values(), host.run_blocking, alarms, texts.notice)
    services = [*programs.services, *skillset.services, *_upkeep(workspaces, watch, host)]
    problems = [watch.problems, programs.problems, skillset.problems, webset.problems]
    mcp, servers = McpServers(), None
    if sandbox is not None:
        servers = ConfiguredServers(
            config,
            ServerParts(host, toolbox, sandbox, webset.secrets, webset.open_egress, redact, alarms),
        )
        mcp = servers.directory
        services = [*webset.services, *services, *servers.services()]
        problems.append(servers.problems)
    return Toolset(
        toolbox=toolbox,
        workspaces=workspaces,
        artifacts=artifacts,
        checkpoints=checkpoints,
        skills=skillset.skills,
        text_skills=texts,
        mcp=mcp,
        servers=servers,
        secrets=webset.secrets,
        read_diffs={}
        if sandbox is None
        else PerWorkspace(
            workspaces,
            lambda each: GitDiff(each, sandbox, host.run_blocking, read_limits(config.sandbox)),
        ),
        services=[*services],
        problems=lambda: tuple(problem for find in problems for problem in find()),
        absent=lambda: (*programs.absent(), *list_absent()),
        settled=programs.settled,
    )


def check_workspaces(config: Config) -> None:
    """Raise InvalidParams for a workspace whose name or path no session could use."""
    names = [DEFAULT_WORKSPACE, *(each.name for each in config.tools.workspaces)]
    for each in config.tools.workspaces:
        if not _NAME.fullmatch(each.name) or names.count(each.name) > 1:
            raise InvalidParams(
                f"tools.workspaces: {each.name!r} needs a unique name of lowercase letters, digits, "
                f"- and _ that is not {DEFAULT_WORKSPACE!r}",
                field="tools.workspaces",
            )
        if not (each.path.startswith("~") or Path(each.path).is_absolute()):
            raise InvalidParams(
                f"tools.workspaces: {each.name!r} names the folder {each.path!r}, which is not an "
                "absolute path",
                field="tools.workspaces",
            )


def _file_tools(checkpoints: WorkspaceCheckpoints, host: Host) -> list[Tool]:
    """Return the tools for files, which work in the workspace of the call."""
    personal = None if host.is_closed else PersonalExcludes.of(os.environ)

    def build(kept: Checkpoints) -> list[Tool]:
        return [
            *file_tools(kept.workspace, personal),
            *search_tools(kept.workspace, personal),
            *write_tools(kept.workspace, kept.keep_for),
        ]

    return tools_by_workspace(checkpoints.by_name, build)


def _upkeep(workspaces: Workspaces, watch: WorkspaceWatch, host: Host) -> list[ChildSpec]:
    """Return the specs of the services that maintain the workspaces."""
    if host.is_closed:
        return []
    sweep = ChildSpec("sweep", partial(keep_swept, workspaces.values(), host.run_blocking))
    return [sweep, ChildSpec("workspace", watch.serve)]
