"""MCP servers of a configuration: which can be one, and what follows from where they run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.config.load import Config
from palyra.config.paths import Paths
from palyra.config.sections import (
    Mcp,
    McpServerConfig,
    SandboxConfig,
    ToolsConfig,
    WorkspaceConfig,
)
from palyra.core.redaction.redactor import Redactor
from palyra.errors import InvalidParams
from palyra.tools.mcp.stdio_server import ServerEnvironment, jailed
from palyra.tools.mcp.transport import ServerGone, StdioServer
from palyra.tools.sandbox.command import MIB, Command, CommandLimits, SandboxFailure
from palyra.tools.toolbox import Toolbox
from palyra.wiring.host import Host
from palyra.wiring.mcp import ConfiguredServers, ServerParts, check_servers, server_limits
from palyra.wiring.tools import check_workspaces
from tests.actors.fake_alarms import FakeAlarms
from tests.rows import every_row

REDACT = Redactor([]).redact_text
PROGRAM: dict[str, Any] = {"name": "a", "command": ("/bin/true",)}
ADDRESS: dict[str, Any] = {"name": "b", "url": "https://example.com/mcp"}


@every_row(
    ("fields", "reason"),
    [
        ({**PROGRAM, "name": "A b"}, "unique name"),
        ({"name": "a"}, "either a command or a url"),
        ({**PROGRAM, "url": "https://example.com"}, "either a command or a url"),
        ({**ADDRESS, "url": "http://example.com/mcp"}, "https"),
        ({**ADDRESS, "url": "ftp://example.com/mcp"}, "https"),
        ({**ADDRESS, "url": "https:///mcp"}, "https"),
        ({**ADDRESS, "url": "https://user:secret@example.com/mcp"}, "credential"),
        ({**ADDRESS, "token": "not-a-reference"}, "reference"),
        ({**PROGRAM, "token": "env:A"}, "has no effect: use"),
        ({**PROGRAM, "folders": ("here",)}, "absolute path"),
        ({**PROGRAM, "command": ("server",)}, "absolute path"),
        ({**PROGRAM, "sandbox": "none", "hosts": ("example.com",)}, "has no effect"),
        ({**ADDRESS, "hosts": ("example.com",)}, "programs in the jail"),
        ({**PROGRAM, "environment": ("no assignment",)}, "NAME=TEXT"),
        ({**PROGRAM, "works_in": "nowhere"}, "'nowhere', which is no workspace; known: default"),
    ],
)
def test_server_that_cannot_be_one(fields: dict[str, Any], reason: str) -> None:
    """Each mistake is named, and no secret is."""
    with pytest.raises(InvalidParams, match=reason) as caught:
        check_servers([McpServerConfig(**fields)], ["default"])
    assert "secret" not in caught.value.message or reason == "reference"


def test_two_servers_of_one_name() -> None:
    """A name is one server's."""
    with pytest.raises(InvalidParams, match="unique name"):
        check_servers([McpServerConfig(**PROGRAM), McpServerConfig(**PROGRAM)], ["default"])


def test_good_servers() -> None:
    """A program in the jail, one outside that is looked up, an address, one on loopback."""
    check_servers(
        [
            McpServerConfig(**PROGRAM, folders=("/opt/x",), environment=("A=b", "KEY=vault:key")),
            McpServerConfig(name="c", command=("server",), sandbox="none"),
            McpServerConfig(**ADDRESS, token="env:TOKEN"),
            McpServerConfig(name="d", url="http://127.0.0.1:1/mcp"),
        ],
        ["default"],
    )


def test_each_server_is_an_actor_of_its_own(tmp_path: Path) -> None:
    """A server's capabilities for policy and risk follow from its sandbox and address."""
    servers = (
        McpServerConfig(**PROGRAM, workspace="write", capabilities=("memory",)),
        McpServerConfig(name="c", command=("server",), sandbox="none"),
        McpServerConfig(**ADDRESS),
    )
    config = Config(
        paths=Paths(config_file=tmp_path / "palyra.toml", data_dir=tmp_path),
        mcp=Mcp(servers=servers),
    )
    toolbox = Toolbox([], Host().run_blocking)
    none: Any = None  # nothing is started here
    built = ConfiguredServers(
        config, ServerParts(Host(), toolbox, none, none, none, REDACT, alarms=none)
    )
    actors = built.directory.servers
    assert ["a", "c", "b"] == [actor.name for actor in actors]
    assert [
        ("process", "fs.read", "fs.write", "memory"),
        ("process", "fs.read", "fs.write", "network"),
        ("network",),
    ] == [actor._terms.capabilities for actor in actors]
    assert "MCP server a: it was not started yet" == built.problems()[0]
    digests = [actor._terms.digest for actor in actors]
    assert 3 == len({*digests})  # a grant for a tool does not hold for another server
    assert "" not in digests
    assert ["", "", "example.com"] == [actor._host for actor in actors]


def test_a_server_belongs_to_the_workspace_it_sees(tmp_path: Path) -> None:
    """Where there are several; one that sees none, and the only workspace, are for all sessions."""
    nobody: Any = None  # nothing is started here

    def build(*workspaces: WorkspaceConfig) -> list[str]:
        servers = (
            McpServerConfig(**PROGRAM, workspace="read", works_in=[*names(workspaces)][-1]),
            McpServerConfig(name="c", command=("/bin/true",)),
        )
        config = Config(
            paths=Paths(config_file=tmp_path / "palyra.toml", data_dir=tmp_path),
            tools=ToolsConfig(workspaces=workspaces),
            mcp=Mcp(servers=servers),
        )
        toolbox = Toolbox([], Host().run_blocking)
        parts = ServerParts(Host(), toolbox, nobody, nobody, nobody, REDACT, alarms=nobody)
        made = ConfiguredServers(config, parts)
        return [each._terms.workspace for each in made.directory.servers]

    def names(workspaces: tuple[WorkspaceConfig, ...]) -> list[str]:
        return ["default", *(each.name for each in workspaces)]

    assert ["", ""] == build()
    assert ["site", ""] == build(WorkspaceConfig(name="site", path="/srv/site"))


@every_row(
    ("names", "path", "reason"),
    [
        (("A b",), "/srv", "unique name"),
        (("default",), "/srv", "not 'default'"),
        (("a", "a"), "/srv", "unique name"),
        (("a",), "here", "'here', which is not an absolute path"),
        (("a",), "", "not an absolute path"),
    ],
)
def test_workspaces_that_cannot_be(names: tuple[str, ...], path: str, reason: str) -> None:
    """Each mistake is named with its value; a good one is the control."""
    paths = Paths(config_file=Path("/none"), data_dir=Path("/none"))

    def check(*given: str, at: str) -> None:
        tables = tuple(WorkspaceConfig(name=name, path=at) for name in given)
        check_workspaces(Config(paths=paths, tools=ToolsConfig(workspaces=tables)))

    with pytest.raises(InvalidParams, match=reason):
        check(*names, at=path)
    check("good", at="/srv")


def test_hosts_add_the_network_capability(tmp_path: Path) -> None:
    """A program with hosts counts as networked; a bad host is reported with its server."""

    def built(*hosts: str) -> tuple[str, ...]:
        config = Config(
            paths=Paths(config_file=tmp_path / "palyra.toml", data_dir=tmp_path),
            mcp=Mcp(servers=(McpServerConfig(**PROGRAM, hosts=hosts),)),
        )
        nobody: Any = None  # nothing is started here
        toolbox = Toolbox([], Host().run_blocking)
        parts = ServerParts(
            Host(), toolbox, nobody, nobody, lambda _granted, _report: nobody, REDACT, nobody
        )
        (server,) = ConfiguredServers(config, parts).directory.servers
        return server._terms.capabilities

    assert ("process", "network") == built("example.com")
    assert ("process",) == built()
    with pytest.raises(InvalidParams, match=r"mcp\.servers: 'a' holds"):
        built("example.com/path")


def test_limits_are_a_servers_own() -> None:
    """A server's own limits apply; limits it does not set come from [sandbox]."""
    section = SandboxConfig(open_files=64, address_space_mib=512, memory_mib=256, processes=7)
    assert CommandLimits(
        files=1_024, address_space_bytes=4_096 * MIB, memory_bytes=256 * MIB, processes=7
    ) == server_limits(McpServerConfig(**PROGRAM), section)
    own = McpServerConfig(**PROGRAM, open_files=9, address_space_mib=0, memory_mib=99)
    found = server_limits(own, section)
    assert (9, None, 99 * MIB) == (found.files, found.address_space_bytes, found.memory_bytes)


class Seen:
    """A sandbox that starts nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.networks: list[object] = []

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[None]:
        """Refuse it."""
        self.networks.append(command.network)
        if command.argv:
            raise SandboxFailure("seen")
        yield


async def test_each_start_has_a_proxy_for_its_own_hosts() -> None:
    """Each start of a server with hosts has its own egress; a server without hosts has none."""
    ways: list[object] = []

    def open_egress() -> Any:
        ways.append(object())
        return ways[-1]

    seen, server = Seen(), StdioServer(("/bin/true",), {})
    for around in (ServerEnvironment(open_egress=open_egress), ServerEnvironment()):
        open_link = jailed(seen, server, around)  # type: ignore[arg-type]
        with pytest.raises(ServerGone, match="seen"):
            async with open_link(lambda: None, lambda _piece: None):
                pass
    assert [*ways, None] == seen.networks


class SlowServer:
    """A server that takes its time to end."""

    def __init__(self, name: str) -> None:
        self.name, self.source = name, f"mcp:{name}"
        self.starts = 0
        self.may_end = trio.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled, and then until it may end."""
        self.starts += 1
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self.may_end.wait()


class SlowParts:
    """Builds slow servers."""

    def __init__(self) -> None:
        self.made: list[SlowServer] = []
        self.alarms = FakeAlarms()

    def build(self, server: McpServerConfig, _config: Config) -> SlowServer:
        """Build one."""
        self.made.append(SlowServer(server.name))
        return self.made[-1]


async def test_a_change_that_was_cut_short_leaves_no_server_stopped(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A server that it stopped is started again by the next change, also by one that takes it back."""
    paths = Paths(config_file=tmp_path / "palyra.toml", data_dir=tmp_path)
    before = Config(paths=paths, mcp=Mcp(servers=(McpServerConfig(**PROGRAM),)))
    after = Config(paths=paths, mcp=Mcp(servers=(McpServerConfig(**PROGRAM, deadline_s=7),)))
    parts: Any = SlowParts()
    servers = ConfiguredServers(before, parts)
    supervisor, starter = servers.services()
    started = list[int]()
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(supervisor.start)
            for _ in range(2):  # as after a crash of the starter
                await nursery.start(starter.start)
            (first,) = parts.made
            await wait_all_tasks_blocked()
            with trio.move_on_after(1):
                await servers.apply(after)
            first.may_end.set()
            for config in (before, after):
                await wait_all_tasks_blocked()
                started.append(first.starts)
                await servers.apply(config)
            await wait_all_tasks_blocked()
        finally:
            for each in parts.made:
                each.may_end.set()
            nursery.cancel_scope.cancel()
    assert [1, 2] == started
    assert 1 == parts.made[-1].starts
    assert [parts.made[-1]] == [*servers.directory.servers]
