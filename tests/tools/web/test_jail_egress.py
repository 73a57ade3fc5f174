"""The proxy from inside a real jail: a granted host is reached, and nothing else is."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from palyra.actors.egress import EgressBranch
from palyra.actors.kernel.threads import DedicatedThread, run_sync
from palyra.tools.files.workspace import Workspace
from palyra.tools.programs.program import CommandEnvironment
from palyra.tools.programs.shell import Shell
from palyra.tools.sandbox.command import Command, CommandLimits, SandboxFailure
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.toolbox import AsyncTool
from palyra.tools.web.dialler import Dialler
from palyra.tools.web.egress_policy import ReachRules, parse_opened
from palyra.tools.web.proxy import ProxyGate
from tests.optional import needs
from tests.tools.web.internet import a_call, a_page

pytestmark = [
    pytest.mark.real,
    needs("bubblewrap"),
]
# The hosts of these tests are this machine, which programs reach directly otherwise.
CURL = "curl -sS --noproxy '' --max-time 10"
needs_curl = needs("curl")


class Outside:
    """A server of loopback, and jails that may or may not reach it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._branch = EgressBranch()
        self._sandbox = Sandbox(DedicatedThread("sandbox"))
        self.accepted = 0
        self.port = 0
        self.refused: list[str] = []

    async def start(self) -> None:
        """Listen, and be ready for commands."""
        listeners = await self._nursery.start(trio.serve_tcp, self._serve, 0)
        self.port = listeners[0].socket.getsockname()[1]
        await self._nursery.start(self._branch.child_spec().start)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.accepted += 1
        if await stream.receive_some():
            await stream.send_all(a_page(b"hello\n"))

    def shell(self, workspace: Path, *granted: str) -> AsyncTool:
        """The tool over a workspace, as the daemon makes it."""
        rules = ReachRules(opened=parse_opened([f"localhost:{self.port}"]))
        gate = ProxyGate(Dialler(rules).dial, granted, self.refused.append)
        around = CommandEnvironment(
            workspace=Workspace(workspace),
            limits=CommandLimits(),
            environment={},
            profile="a test's",
            open_egress=(lambda: self._branch.open(gate.admit)) if granted else None,
        )
        return Shell(self._sandbox, around, run_sync, 60).tool()

    async def run(self, line: str, *granted: str, is_connected: bool = True) -> str:
        """The output of a shell line in a jail."""
        rules = ReachRules(opened=parse_opened([f"localhost:{self.port}"]))
        gate = ProxyGate(Dialler(rules).dial, granted, self.refused.append)
        network = self._branch.open(gate.admit) if is_connected else None
        command = Command(
            argv=("/bin/sh", "-c", line),
            environment={} if network is None else dict(network.environment),
            network=network,
            merges_errors=True,
        )
        text = b""
        with trio.fail_after(120):
            async with self._sandbox.open(command) as child:
                while piece := await child.stdout.receive_some():
                    text += piece
        return text.decode()


def nowhere(_text: str) -> None:
    """A sink for output."""


def count_descriptors() -> int:
    """Open ones of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def outside() -> AsyncGenerator[Outside]:
    """All of it, while the block lasts."""
    async with trio.open_nursery() as nursery:
        found = Outside(nursery)
        await found.start()
        try:
            yield found
        finally:
            nursery.cancel_scope.cancel()


@needs_curl
async def test_a_granted_host_is_reached() -> None:
    """By a program that knows of proxies by the usual variables; plainly and through a tunnel."""
    async with outside() as world:
        url, key = f"http://localhost:{world.port}/", f"localhost:{world.port}"
        assert "hello\n" == await world.run(f"{CURL} {url}", key)
        assert "hello\n" == await world.run(f"{CURL} --proxytunnel {url}", key)
        assert [] == world.refused


@needs_curl
@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:{port}/", "http://localhost:22/", "https://example.com/",
     "http://169.254.169.254/latest/meta-data/", "http://[::1]:{port}/", "http://10.0.0.1/"],
)  # fmt: skip
async def test_everything_else_is_refused(address: str) -> None:
    """The result has the reason."""
    async with outside() as world:
        found = await world.run(
            f"{CURL} {address.format(port=world.port)}", f"localhost:{world.port}"
        )
        assert "not among the hosts" in found or "403" in found
        assert 1 == len(world.refused)
        assert 0 == world.accepted


@needs_curl
async def test_there_is_no_way_round_the_proxy() -> None:
    """Ignoring the variables leads nowhere: the jail has no other network."""
    async with outside() as world:
        for target in (f"http://127.0.0.1:{world.port}/", f"http://localhost:{world.port}/"):
            found = await world.run(f"{CURL} --noproxy '*' {target}", f"localhost:{world.port}")
            assert "onnect" in found
        own = socket.gethostname()
        found = await world.run(f"{CURL} --noproxy '*' http://{own}:{world.port}/")
        assert "hello" not in found
        assert 0 == world.accepted


@needs_curl
async def test_without_network_there_is_no_proxy() -> None:
    """Control of the first test: a command without grants has no proxy."""
    async with outside() as world:
        found = await world.run(
            f"{CURL} -x http://127.0.0.1:3128 http://localhost:{world.port}/", is_connected=False
        )
        assert "onnect" in found
        assert 0 == world.accepted


async def test_the_proxy_ends_with_the_command() -> None:
    """A listener that outlived its command would be egress for the next one."""
    async with outside() as world:
        key = f"localhost:{world.port}"
        before = count_descriptors()
        for _ in range(3):
            await world.run("exec 3<>/dev/null; true", key)
        await wait_all_tasks_blocked(0.05)
        assert count_descriptors() <= before + 2


async def test_a_failed_proxy_prevents_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with granted hosts does not run without its proxy."""
    monkeypatch.setattr("palyra.actors.egress.MAX_COMMANDS", 0)
    async with outside() as world:
        with pytest.raises(SandboxFailure, match="no egress"):
            await world.run("true", "e.example")


@needs_curl
async def test_shell_reaches_the_hosts_of_the_configuration(tmp_path: Path) -> None:
    """And is a network tool then, by its capabilities and its description."""
    async with outside() as world:
        key = f"localhost:{world.port}"
        shell = world.shell(tmp_path, key)
        call = a_call("shell", command=f"{CURL} http://{key}/ http://example.com/")
        assert ("process", "network") == shell.spec.capabilities
        assert shell.inspect is not None
        assert "http://127.0.0.1:3128" == shell.inspect(call).environment["http_proxy"]
        output = await shell.run(call, nowhere)
        assert "hello" in output.text
        assert "example.com is not among the hosts" in output.text


@needs_curl
async def test_shell_has_no_network_without_them(tmp_path: Path) -> None:
    """The control."""
    async with outside() as world:
        shell = world.shell(tmp_path)
        call = a_call("shell", command=f"{CURL} http://localhost:{world.port}/")
        assert ("process",) == shell.spec.capabilities
        output = await shell.run(call, nowhere)
        assert output.is_failure
        assert 0 == world.accepted
