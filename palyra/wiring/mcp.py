"""Wiring of the configured MCP servers, each an actor among the services of tools."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import structlog
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.config.load import Config
from palyra.config.sections import McpServerConfig as Configured
from palyra.config.sections import SandboxConfig
from palyra.core.incident.kinds import mcp_server_key
from palyra.core.outbound import find_proxy
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.core.redaction.secret_references import is_reference, parse_reference
from palyra.core.text.canonical_json import digest_of
from palyra.core.trust.external_descriptions import RedactText
from palyra.errors import InvalidParams
from palyra.secrets.service import SecretService
from palyra.tools.mcp.adopt import AdoptionTerms
from palyra.tools.mcp.directory import McpServers
from palyra.tools.mcp.server import McpServer
from palyra.tools.mcp.stdio_server import ServerEnvironment, jailed, unjailed
from palyra.tools.mcp.streamable_http import addressed
from palyra.tools.mcp.transport import OpenLink, StdioServer
from palyra.tools.sandbox.command import MIB, CommandEgress, CommandLimits
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.toolbox import Toolbox
from palyra.tools.web.http_client import tls_context
from palyra.wiring.host import Host
from palyra.wiring.sandbox import OpenEgress, read_hosts, read_limits

log = structlog.get_logger("palyra.mcp")
MAX_SERVERS = 256
GRACE_S = 15.0  # of a server: its program is asked to end, then killed
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,127})=(.*)", re.DOTALL)
_OF_WORKSPACE = {"none": (), "read": ("fs.read",), "write": ("fs.read", "fs.write")}
_EVERYTHING = ("process", "fs.read", "fs.write", "network")  # of a program without a sandbox


@dataclass(frozen=True, slots=True)
class ServerParts:
    """Services that the servers need.  `open_egress` makes the egress of a sandboxed program to its hosts."""

    host: Host
    toolbox: Toolbox
    sandbox: Sandbox
    secrets: SecretService
    open_egress: OpenEgress
    redact: RedactText
    alarms: IncidentReporter

    def build(self, server: Configured, config: Config) -> McpServer:
        """Build the actor of one server.  Raises InvalidParams for an invalid host."""
        return McpServer(
            _terms(server, config),
            _preparation(
                server,
                config,
                self.sandbox,
                self.secrets,
                _way_out(server, self.open_egress),
                run_blocking=self.host.run_blocking,
            ),
            self.toolbox,
            self.host.random,
            run_blocking=self.host.run_blocking,
            redact=self.redact,
            host=urlsplit(server.url).hostname or "",
            alarms=self.alarms,
        )


class ConfiguredServers:
    """The configured servers, each an actor under one supervisor, started and stopped at any time.

    Owns: the supervisor.  Talks to: the directory, which shows the servers.
    """

    def __init__(self, config: Config, parts: ServerParts) -> None:
        """Build the actors.  Raises InvalidParams for an invalid server."""
        check_servers(config.mcp.servers, config.workspaces)
        self._parts = parts
        self._config = config
        self._ended: dict[str, trio.Event] = {}  # of the actors that were started, by server
        self._serving: set[str] = set()  # servers that were started and not stopped since
        self._supervisor = DynamicSupervisor("mcp", max_children=MAX_SERVERS)
        self.directory = McpServers([parts.build(each, config) for each in config.mcp.servers])

    def services(self) -> list[ChildSpec]:
        """Return the supervisor of the servers, and the task that starts those of the start."""
        started = ChildSpec("mcp-start", self._start_all, "transient")
        return [self._supervisor.child_spec(grace_s=2 * GRACE_S + 1), started]

    def problems(self) -> tuple[str, ...]:
        """Return the problems that need an operator."""
        return tuple(problem for each in self.directory.servers for problem in each.problems())

    async def apply(self, config: Config) -> None:
        """Stop the servers that are gone, start new ones, and restart those that changed.

        Raises InvalidParams, and changes nothing then.
        Cancellation: some servers may be stopped; the next change starts them again.
        """
        check_servers(config.mcp.servers, config.workspaces)
        before = {each.name: _identity(each, self._config) for each in self._config.mcp.servers}
        after = {each.name: _identity(each, config) for each in config.mcp.servers}
        running = {each.name: each for each in self.directory.servers}
        same = {name for name, identity in after.items() if before.get(name) == identity}
        kept = same & self._serving
        servers = {
            each.name: running[each.name] if each.name in same else self._parts.build(each, config)
            for each in config.mcp.servers
        }
        for name in before.keys() - kept:
            await self._stop(name)
            if name not in after:
                self._parts.alarms.clear(mcp_server_key(name), "the server is no longer configured")
        self._config = config
        self.directory.replace([*servers.values()])
        for name in after.keys() - kept:
            self._start(servers[name])

    async def _start_all(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        for server in self.directory.servers:
            if f"mcp-{server.name}" not in self._supervisor:
                self._start(server)
        task_status.started()

    def _start(self, server: McpServer) -> None:
        ended = trio.Event()
        child_id = server.source.replace(":", "-")
        self._supervisor.spawn_child(
            ChildSpec(child_id, server.serve, "transient", grace_s=GRACE_S, close=ended.set)
        )
        self._ended[server.name] = ended
        self._serving.add(server.name)

    async def _stop(self, name: str) -> None:
        """Stop the server; on return its tools are gone.

        Cancellation: it ends nevertheless.
        """
        self._serving.discard(name)
        ended = self._ended.get(name)
        if ended is not None:
            self._supervisor.cancel_child(f"mcp-{name}", "its configuration changed")
            await ended.wait()


def _identity(server: Configured, config: Config) -> tuple[object, ...]:
    """Return everything of the configuration that the actor of a server is built from."""
    root = None if server.workspace == "none" else config.workspaces.get(server.works_in)
    return server, _terms(server, config), root


def _terms(server: Configured, config: Config) -> AdoptionTerms:
    is_bound = server.workspace != "none" and bool(config.tools.workspaces)
    return AdoptionTerms(
        server=server.name,
        capabilities=tuple(dict.fromkeys((*_capabilities(server), *server.capabilities))),
        risk=server.risk,
        read_only=server.read_only,
        left_out=server.left_out,
        deadline_s=float(server.deadline_s),
        workspace=server.works_in if is_bound else "",
        digest=digest_of(msgspec.to_builtins(server)),
    )


def _capabilities(server: Configured) -> tuple[str, ...]:
    """Return the capabilities of a server's tools, derived from where the server runs."""
    if server.url:
        return ("network",)
    if server.sandbox == "none":
        return _EVERYTHING
    network = ("network",) if server.hosts else ()
    return ("process", *_OF_WORKSPACE[server.workspace], *network)


def _way_out(server: Configured, open_egress: OpenEgress) -> Callable[[], CommandEgress] | None:
    granted = read_hosts(server.hosts, f"mcp.servers: {server.name!r}")
    if not granted:
        return None

    def report(key: str) -> None:
        log.warning("a host was refused to an MCP server", server=server.name, host=key)

    return partial(open_egress, granted, report)


def _preparation(
    server: Configured,
    config: Config,
    sandbox: Sandbox,
    secrets: SecretService,
    open_egress: Callable[[], CommandEgress] | None,
    *,
    run_blocking: RunBlocking,
) -> Callable[[], Awaitable[OpenLink]]:
    """Return the function that resolves the secrets of one start and returns the link's opener."""

    async def prepare() -> OpenLink:
        if server.url:
            token = await secrets.find(server.token) if server.token else ""
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            outbound = config.outbound
            trusted = await run_blocking(tls_context, "", outbound)
            proxy = find_proxy(outbound, server.url)
            return addressed(server.url, lambda: headers, trusted=trusted, proxy=proxy)
        program = StdioServer(server.command, await _environment(server, secrets))
        if server.sandbox == "none":
            return unjailed(program)
        workspace = None if server.workspace == "none" else config.workspaces[server.works_in]
        around = ServerEnvironment(
            workspace,
            writes=server.workspace == "write",
            folders=tuple(map(Path, server.folders)),
            limits=server_limits(server, config.sandbox),
            open_egress=open_egress,
        )
        return jailed(sandbox, program, around)

    return prepare


def server_limits(server: Configured, section: SandboxConfig) -> CommandLimits:
    """Return the limits of a sandboxed server; unset ones are the limits of all programs."""
    shared = read_limits(section)
    own = shared.memory_bytes if server.memory_mib is None else server.memory_mib * MIB
    return replace(
        shared,
        files=server.open_files,
        address_space_bytes=server.address_space_mib * MIB or None,
        memory_bytes=own,
    )


async def _environment(server: Configured, secrets: SecretService) -> Mapping[str, str]:
    found = {}
    for each in server.environment:
        name, text = _variable(each)
        found[name] = await secrets.find(text) if is_reference(text) else text
    return found


def _variable(text: str) -> tuple[str, str]:
    match = _VARIABLE.fullmatch(text)
    if match is None:
        raise InvalidParams("mcp.servers: a variable is NAME=TEXT", field="mcp.servers")
    return match[1], match[2]


# --- validation ----------------------------------------------------------------------------------


def check_servers(servers: Sequence[Configured], workspaces: Collection[str]) -> None:
    """Raise InvalidParams for an invalid server; `workspaces` are the names of all."""
    names = [server.name for server in servers]
    for server in servers:
        if not _NAME.fullmatch(server.name) or names.count(server.name) > 1:
            raise _wrong(server, "needs a unique name of lowercase letters, digits, - and _")
        if bool(server.command) == bool(server.url):
            raise _wrong(server, "needs either a command or a url")
        if server.works_in not in workspaces:
            known = ", ".join(workspaces)
            raise _wrong(
                server, f"works in {server.works_in!r}, which is no workspace; known: {known}"
            )
        _check_address(server) if server.url else _check_program(server)


def _check_address(server: Configured) -> None:
    parts = urlsplit(server.url)
    is_near = parts.hostname in {"127.0.0.1", "::1", "localhost"}
    if parts.scheme not in {"https", *(["http"] if is_near else [])} or not parts.hostname:
        raise _wrong(server, "needs an https address (http on loopback only)")
    if parts.username is not None or parts.password is not None:
        raise _wrong(server, "holds a credential in its address: use `token`")
    if server.hosts:
        raise _wrong(server, "is an address: `hosts` is for programs in the jail")
    if server.token:
        parse_reference(server.token)


def _check_program(server: Configured) -> None:
    if server.token:
        raise _wrong(server, "is a program, for which `token` has no effect: use `environment`")
    for folder in server.folders:
        if not Path(folder).is_absolute():
            raise _wrong(server, f"names the folder {folder!r}, which is not an absolute path")
    if server.hosts and server.sandbox == "none":
        raise _wrong(server, "runs without the jail, where `hosts` has no effect")
    if server.sandbox == "jail" and not Path(server.command[0]).is_absolute():
        raise _wrong(
            server, f"names {server.command[0]!r}: the jail needs the program's absolute path"
        )
    for each in server.environment:
        _variable(each)


def _wrong(server: Configured, what: str) -> InvalidParams:
    return InvalidParams(f"mcp.servers: {server.name!r} {what}", field="mcp.servers")
