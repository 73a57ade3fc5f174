"""MCP servers of a real daemon, as `palyra tools`, `palyra doctor` and the status show them."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from palyra.core.tape.events import ContextGathered
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import wait_tool
from tests.e2e.test_terminal import chatting

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
        with trio.fail_after(120):
            while not any("exit code" in each for each in (await client.status()).problems):
                await trio.lowlevel.checkpoint()
        status = await client.status()
    (problem,) = [each for each in status.problems if each.startswith("MCP server dead")]
    words = "it ended with exit code 7; its standard error ends: cannot find my papers: token="
    assert words in problem
    doctor = await palyra("doctor", home=served.home)
    assert words.split(":", maxsplit=1)[0] in " ".join(doctor.out.split())
    assert "Canary0123" not in doctor.out + problem


async def test_servers_resources_and_prompts_are_listed(served: DaemonProcess) -> None:
    """`palyra mcp` shows them as a person can use them, and names a server that there is not."""
    async with served.connect() as client:
        await wait_tool(client, "mcp:sample.get_prompt")
        previewed = await client.preview_references(
            "@mcp:sample/note://today @prompt:sample/review?code=x @mcp:sample/note://none"
        )
        assert ["", "", "mcp:sample.read_resource answered with an error"] == [
            each.error for each in previewed.references
        ]
        assert all(each.tokens > 0 for each in previewed.references[:2])
        assert "external_untrusted" == previewed.references[0].trust
        started = await client.start_run("repeat @mcp:sample/note://today")
        await client.wait_run(started.run_id)
        events = (await client.read_tape(started.run_id, limit=50)).events
    (source,) = [
        source
        for each in events
        if isinstance(each.event, ContextGathered)
        for source in each.event.sources
        if source.kind == "mcp"
    ]
    assert ("buy milk", "external_untrusted") == (source.text, source.trust)
    listed = await palyra("mcp", "list", home=served.home)
    rows = {line.split()[0]: line.split() for line in listed.out.splitlines()}
    assert ["connected", "1"] == [rows["sample"][1], rows["sample"][4]]
    assert "down" == rows["dead"][1]
    assert "sample: poisoned is left out" in listed.out
    resources = await palyra("mcp", "resources", "sample", home=served.home)
    assert "note://today" in resources.out
    assert "page://{number} (template)" in resources.out
    prompts = await palyra("mcp", "prompts", home=served.home)
    assert ["sample", "review", "code", "[style]"] == prompts.out.splitlines()[1].split()[:4]
    wrong = await palyra("mcp", "resources", "sampel", home=served.home)
    assert 0 != wrong.code
    assert "no MCP server 'sampel'; configured: sample, dead" in wrong.err
    empty = await palyra("mcp", "resources", "dead", home=served.home)
    assert "no resources" in empty.out
    as_json = await palyra("mcp", "list", "--json", home=served.home)
    assert ["sample", "dead"] == [each["name"] for each in json.loads(as_json.out)["servers"]]


async def test_a_prompt_is_a_command_of_the_conversation(served: DaemonProcess) -> None:
    """Its text goes into the prompt as text of a stranger, without any words of the person in it."""
    async with served.connect() as client:
        await wait_tool(client, "mcp:sample.get_prompt")
        async with chatting(served) as (person, process):
            person.type("/review\r")
            await person.see("/review needs code; usage: /review CODE [STYLE]")
            person.type("/review 'x = 1' very few\r")
            await person.see("idle")
            person.type("/help\r")
            await person.see("/review CODE [STYLE]")
            await person.see("idle")  # raw again: while text is printed Ctrl-D would be lost
            person.type("\x04")
        run = (await client.list_runs(limit=1)).runs[0]
        events = (await client.read_tape(run.run_id, limit=50)).events
    (source,) = [
        source
        for each in events
        if isinstance(each.event, ContextGathered)
        for source in each.event.sources
        if source.kind == "prompt"
    ]
    assert ("Review this in very few words: x = 1", "external_untrusted", 0) == (
        source.text,
        source.trust,
        process.poll(),
    )


async def test_one_answer_holds_for_a_tool_of_a_server(served: DaemonProcess) -> None:
    """For any arguments in the session; another tool asks, and a rule can be written for that one."""
    add = '/call mcp:sample.add {"a": 1, "b": %d}'
    async with served.connect() as client:
        await wait_tool(client, "mcp:sample.add")
        first = await client.start_run(add % 1, session_key="one")
        with trio.fail_after(120):
            while not (found := await client.list_approvals(run_id=first.run_id)):
                await trio.lowlevel.checkpoint()
        (asked,) = found
        assert ("once", "session", "timeboxed") == asked.scopes
        assert asked.grant_key.startswith("mcp:sample.add [any arguments, unchanged server ")
        shown = await palyra(
            "policy", "allow", "--from", asked.approval_id, "--dry-run", home=served.home
        )
        assert (0, True) == (shown.code, 'resource == Tool::"mcp:sample.add"' in shown.out)
        await client.resolve_approval(asked.approval_id, "allow", asked.digest, scope="session")
        assert "done" == (await client.wait_run(first.run_id)).phase
        second = await client.start_run(add % 2, session_key="one")
        assert "done" == (await client.wait_run(second.run_id)).phase
    listed = await palyra(
        "run", "--approve", "mcp:sample.add", "--session", "two", add % 3, home=served.home
    )
    assert (0, True) == (listed.code, "4" in listed.out)
    other = await palyra(
        "run", "--approve", "mcp:sample.add", "--session", "one", '/call mcp:sample.echo_back {"text": "x"}',
        home=served.home,
    )  # fmt: skip
    assert "denied" in other.out + other.err
