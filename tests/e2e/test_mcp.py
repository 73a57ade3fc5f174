"""MCP servers of a real daemon, as `palyra tools`, `palyra doctor` and the status show them."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import wait_tool

pytest.importorskip("mcp", reason="needs the package mcp: install palyra[mcp]")
pytestmark = pytest.mark.real

SERVERS = Path(__file__).parents[1] / "tools" / "mcp"


def table(name: str, program: str, *arguments: str) -> str:
    """A server outside the jail, whose tools claim little."""
    command = json.dumps([sys.executable, str(SERVERS / program), *arguments])
    return (
        f'[[mcp.servers]]\nname = "{name}"\ncommand = {command}\nsandbox = "none"\nrisk = "low"\n'
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon with a server that works and one that dies."""
    daemon = DaemonProcess(tmp_path_factory.mktemp("mcp"))
    daemon.home.mkdir(mode=0o700, parents=True)
    servers = table("sample", "sample_server.py") + table("dead", "hungry_server.py", "die")
    (daemon.home / "palyra.toml").write_text(servers, "utf-8")
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.end()


async def test_a_list_and_a_question_name_the_same_risk(served: DaemonProcess) -> None:
    """A tool that may do everything is as risky in `palyra tools` as in the question."""
    async with served.connect() as client:
        await wait_tool(client, "mcp:sample.add")
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        asked = await client.explain_policy("mcp:sample.add", {"a": 1})
    assert "high" == asked.risk == listed["mcp:sample.add"].risk
    told = await palyra("tools", home=served.home)
    rows = {line.split()[0]: line for line in told.out.splitlines()}
    assert "mcp:sample.camelcase (camelCase)" in told.out
    assert rows["mcp:sample.add"].endswith("high      Add two numbers.")
    assert "fenced" not in told.out
    assert "<fenced" in listed["mcp:sample.add"].description  # the model sees it between fences


async def test_doctor_shows_why_a_server_does_not_start(served: DaemonProcess) -> None:
    """Exit code and last output, redacted; the status has the same."""
    async with served.connect() as client:
        with trio.fail_after(60):
            while not any("exit code" in each for each in (await client.status()).problems):
                await trio.lowlevel.checkpoint()
        status = await client.status()
    (problem,) = [each for each in status.problems if each.startswith("MCP server dead")]
    words = "it ended with exit code 7; its standard error ends: cannot find my papers: token="
    assert words in problem
    doctor = await palyra("doctor", home=served.home)
    assert words.split(":", maxsplit=1)[0] in " ".join(doctor.out.split())
    assert "Canary0123" not in doctor.out + problem
