"""MCP servers of a configuration: which can be one, and what follows from where they run."""

from pathlib import Path
from typing import Any

import pytest

from palyra.config import Config, Paths
from palyra.errors import InvalidParams
from palyra.mcpset import build_mcpset, check_servers
from palyra.parts import Host
from palyra.sections import Mcp, McpServer
from palyra.tools.catalog import Toolbox

PROGRAM: dict[str, Any] = {"name": "a", "command": ("/bin/true",)}
ADDRESS: dict[str, Any] = {"name": "b", "url": "https://example.com/mcp"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({**PROGRAM, "name": "A b"}, "name of its own"),
        ({"name": "a"}, "not both"),
        ({**PROGRAM, "url": "https://example.com"}, "not both"),
        ({**ADDRESS, "url": "http://example.com/mcp"}, "https"),
        ({**ADDRESS, "url": "ftp://example.com/mcp"}, "https"),
        ({**ADDRESS, "url": "https:///mcp"}, "https"),
        ({**ADDRESS, "url": "https://user:secret@example.com/mcp"}, "credential"),
        ({**ADDRESS, "token": "not-a-reference"}, "reference"),
        ({**PROGRAM, "token": "env:A"}, "no use for a token"),
        ({**PROGRAM, "folders": ("here",)}, "whole path"),
        ({**PROGRAM, "command": ("server",)}, "whole path"),
        ({**PROGRAM, "environment": ("no assignment",)}, "NAME=TEXT"),
    ],
)
def test_server_that_cannot_be_one(fields: dict[str, Any], reason: str) -> None:
    """Each mistake is named, and no secret is."""
    with pytest.raises(InvalidParams, match=reason) as caught:
        check_servers([McpServer(**fields)])
    assert "secret" not in caught.value.message or reason == "reference"


def test_two_servers_of_one_name() -> None:
    """A name is one server's."""
    with pytest.raises(InvalidParams, match="name of its own"):
        check_servers([McpServer(**PROGRAM), McpServer(**PROGRAM)])


def test_good_servers() -> None:
    """A program in the jail, one outside that is looked up, an address, one on loopback."""
    check_servers(
        [
            McpServer(**PROGRAM, folders=("/opt/x",), environment=("A=b", "KEY=vault:key")),
            McpServer(name="c", command=("server",), sandbox="none"),
            McpServer(**ADDRESS, token="env:TOKEN"),
            McpServer(name="d", url="http://127.0.0.1:1/mcp"),
        ]
    )


def test_each_server_is_an_actor_of_its_own(tmp_path: Path) -> None:
    """What the rules and the risk look at follows from where a server runs."""
    servers = (
        McpServer(**PROGRAM, workspace="write", capabilities=("memory",)),
        McpServer(name="c", command=("server",), sandbox="none"),
        McpServer(**ADDRESS),
    )
    config = Config(
        paths=Paths(config_file=tmp_path / "palyra.toml", data_dir=tmp_path),
        mcp=Mcp(servers=servers),
    )
    toolbox = Toolbox([], Host().run_blocking)
    built = build_mcpset(config, Host(), toolbox, sandbox=None, secrets=None)  # type: ignore[arg-type]  # not started here
    specs = built.services
    actors = [spec.start.__self__ for spec in specs]  # type: ignore[attr-defined]  # a bound method
    assert ["mcp-a", "mcp-c", "mcp-b"] == [spec.id for spec in specs]
    assert [
        ("process", "fs.read", "fs.write", "memory"),
        ("process", "fs.read", "fs.write", "network"),
        ("network",),
    ] == [actor._terms.capabilities for actor in actors]
    assert "MCP server a: it was not started yet" == built.problems()[0]
    assert ["", "", "example.com"] == [actor._facets.host for actor in actors]
