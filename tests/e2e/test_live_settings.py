"""A real daemon takes up workspaces, models and MCP servers while it runs."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.errors import Conflict, InvalidParams
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, wait_tool, write_call
from tests.e2e.tapes import read_whole
from tests.e2e.test_terminal import at_terminal
from tests.e2e.wire import WITHIN_S
from tests.models.model_kit import chunk
from tests.models.provider import STREAM, provider, sse

pytestmark = pytest.mark.real

SERVERS = Path(__file__).parents[1] / "tools" / "mcp"
END = {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
CALL = {
    "index": 0,
    "id": "c",
    "type": "function",
    "function": {"name": "write_file", "arguments": '{"path":"a","content":"b"}'},
}
CALLS = [
    STREAM,
    sse(
        {"id": "c1", "choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]},
        {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        "[DONE]",
    ),
]
FINE = [STREAM, sse(chunk(content="fine"), END, "[DONE]")]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon without a configuration; each test leaves it with the settings that it found."""
    with running(tmp_path_factory.mktemp("live")) as started:
        yield started


async def said(client: Client, text: str, **options: str) -> str:
    """The outputs and the answer of one run."""
    started = await client.start_run(text, approval_mode="deny", **options)  # type: ignore[arg-type]
    with trio.fail_after(WITHIN_S):
        await client.wait_run(started.run_id)
    events = [each.event for each in await read_whole(client, started.run_id)]
    outputs = [each.output for each in events if isinstance(each, ev.ToolCompleted)]
    return "\n".join(outputs + [each.text for each in events if isinstance(each, ev.TurnCompleted)])


async def test_a_workspace_is_usable_at_once_and_gone_at_once(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Tools, references, undo and the list have it without a restart; so has its removal."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.txt").write_text("of the site", "utf-8")
    added = await palyra("workspaces", "add", str(site), home=daemon.home)
    assert (0, True) == (added.code, "uses it now" in added.out), added
    assert "restart" not in added.out
    async with daemon.connect() as client:
        assert ["default", "site"] == [each.name for each in await client.list_workspaces()]
        read = '/call read_file {"path":"a.txt"}'
        assert "of the site" in await said(client, read, workspace="site")
        assert "of the site" not in await said(client, read)
        quoted = await client.preview_references("see @file:a.txt", workspace="site")
        assert not quoted.references[0].error
        asked = await ask_for(client, write_call("b.txt", "x"), workspace="site")
        with pytest.raises(Conflict, match=f"'site' is in use by {asked.run_id}: wait"):
            await client.set_config("tools.workspaces", [])
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        with trio.fail_after(WITHIN_S):
            await client.wait_run(asked.run_id)
        assert "x" == (site / "b.txt").read_text("utf-8")
        preview = await client.undo_run(asked.run_id)
        await client.undo_run(asked.run_id, preview.digest)
        assert not (site / "b.txt").exists()
        removed = await palyra("workspaces", "remove", "site", home=daemon.home)
        assert removed.code == 0, removed
        assert ["default"] == [each.name for each in await client.list_workspaces()]
        with pytest.raises(InvalidParams, match="no workspace 'site'"):
            await client.start_run(read, workspace="site")


async def test_a_model_is_usable_at_once_and_the_default_at_once(daemon: DaemonProcess) -> None:
    """`models add` needs no restart, nor do its prices; a run that uses a provider keeps it."""
    async with provider(FINE, CALLS, FINE) as served, daemon.connect() as client:
        url = ("--base-url", served.url, "--model", "m", "--no-test", "--yes")
        added = await palyra("models", "add", "ours", *url, home=daemon.home)
        assert (0, True) == (added.code, "uses it now" in added.out), added
        assert "restart" not in added.out + added.err
        listed = await client.list_models()
        assert ["ours/m"] == [each.name for each in listed.models if each.is_default]
        assert "fine" == await said(client, "hello")
        asked = await ask_for(client, "write it")
        await client.set_config("models.default", "scripted")
        assert "hello" in await said(client, "/say hello")
        with pytest.raises(Conflict, match=f"provider 'ours' is in use by {asked.run_id}"):
            await client.set_config("models.providers", [])
        await client.resolve_approval(asked.approval_id, "deny", asked.digest)
        with trio.fail_after(WITHIN_S):
            await client.wait_run(asked.run_id)
        end = (await read_whole(client, asked.run_id))[-2].event
        assert isinstance(end, ev.MessageCompleted), end
        assert "fine" == end.text
        with pytest.raises(InvalidParams, match="no provider has 'theirs/x'"):
            await client.set_config("models.failover", ["theirs/x"])
        await client.set_config("models.providers", [])
        with pytest.raises(InvalidParams, match="ours/m"):
            await client.start_run("hello", model="ours/m")


async def test_an_edited_file_is_followed_and_a_wrong_one_is_not(daemon: DaemonProcess) -> None:
    """Without any command; a file that cannot be taken up changes nothing, and is a problem."""
    file = daemon.home / "palyra.toml"
    before = file.read_text("utf-8") if file.exists() else ""
    async with daemon.connect() as client:
        table = '[[models.routes]]\nmodel = "scripted"\ntier = 3\n'
        for text, problem in (
            (f"{before}\n{table}", ""),
            (f"{before}\n{table.replace('scripted', 'x/y')}", "x/y"),
        ):
            file.write_text(text, "utf-8")
            (entry,) = (await client.get_config("models.routes")).entries
            assert ["scripted"] == [each["model"] for each in entry.value]
            assert problem in (await client.get_config("models.routes")).problem
            found = "\n".join((await client.status()).problems)
            assert bool(problem) == ("is not in force" in found), found
        file.write_text(before, "utf-8")
        assert not (await client.get_config("models.routes")).problem
        assert not [each for each in (await client.list_models()).models if each.tier]


async def test_an_mcp_server_is_started_and_stopped_at_once(daemon: DaemonProcess) -> None:
    """Its tools come and go with its entry; a changed one is started again."""
    pytest.importorskip("mcp", reason="needs the package mcp: install palyra[mcp]")
    command = [sys.executable, str(SERVERS / "sample_server.py")]
    server = {"name": "sample", "command": command, "sandbox": "none", "risk": "low"}
    async with daemon.connect() as client:
        await client.set_config("mcp.servers", [server])
        await wait_tool(client, "mcp:sample.add")
        await client.set_config("mcp.servers", [{**server, "left_out": ["add"]}])
        await wait_tool(client, "mcp:sample.camelcase")
        names = {each.name for each in (await client.list_tools()).tools}
        assert "mcp:sample.add" not in names
        await client.set_config("mcp.servers", None)
        names = {each.name for each in (await client.list_tools()).tools}
        assert not [each for each in names if each.startswith("mcp:")]
        assert not (await client.list_mcp_servers()).servers


async def test_a_chat_in_another_folder_asks_once(daemon: DaemonProcess, tmp_path: Path) -> None:
    """At a terminal: yes makes it a workspace, and the chat works there; no leaves all as it was."""
    other = tmp_path / "my project"
    other.mkdir()
    (other / "whose.txt").write_text("of the project", "utf-8")
    question = f"make {other} a workspace of the daemon (y/n)? "
    async with at_terminal(daemon, "chat", folder=other) as (person, _process):
        await person.see(question)
        person.type("\n")
        await person.see("not a workspace of the daemon; working in")
        await person.see("idle")
        person.type("\x04")
    async with at_terminal(daemon, "chat", folder=other) as (person, _process):
        await person.see(question)
        person.type("y\n")
        await person.see("in my-project")
        await person.see("idle")
        person.type("\x04")
    run = ("run", '/call read_file {"path":"whose.txt"}')
    async with at_terminal(daemon, *run, folder=other) as (person, _process):
        shown = await person.see("of the project")
        assert "make " not in shown
    async with at_terminal(daemon, *run, folder=Path("/")) as (person, _process):
        await person.see("/ cannot be a workspace")
    removed = await palyra("workspaces", "remove", "my-project", home=daemon.home)
    assert removed.code == 0, removed


async def test_an_mcp_server_is_added_tested_and_removed_by_commands(daemon: DaemonProcess) -> None:
    """A failing one is named with its standard error; an entry has the given keys alone."""
    pytest.importorskip("mcp", reason="needs the package mcp: install palyra[mcp]")
    for name, program in (("good", ("sample_server.py",)), ("dead", ("hungry_server.py", "die"))):
        command = (sys.executable, str(SERVERS / program[0]), *program[1:])
        added = await palyra("mcp", "add", name, "--no-jail", "--", *command, home=daemon.home)
        assert (0, True) == (added.code, "uses it now" in added.out), added
    good = await palyra("mcp", "test", "good", home=daemon.home)
    assert (0, True) == (good.code, "  mcp:good.add" in good.out), good
    dead = await palyra("mcp", "test", "dead", home=daemon.home)
    assert (True, True) == (dead.code != 0, "cannot find my papers" in dead.err), dead
    again = await palyra("mcp", "test", "dead", home=daemon.home)
    assert "cannot find my papers" in again.err, again
    twice = await palyra("mcp", "add", "dead", "--no-jail", "--", sys.executable, home=daemon.home)
    assert (True, True) == (twice.code != 0, "palyra mcp remove dead" in twice.err), twice
    missing = await palyra("mcp", "add", "bad", "--", "/no/such/prog", home=daemon.home)
    assert (True, True) == (missing.code != 0, "no program /no/such/prog" in missing.err), missing
    assert "works_in" not in (daemon.home / "palyra.toml").read_text("utf-8")
    for name in ("good", "dead"):
        removed = await palyra("mcp", "remove", name, home=daemon.home)
        assert removed.code == 0, removed
    assert (await palyra("mcp", "remove", "good", home=daemon.home)).code != 0
