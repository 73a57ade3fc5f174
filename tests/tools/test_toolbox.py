"""The toolbox: exact names, one hash, three ways to run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.actors.kernel.threads import run_sync
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput, ToolSpec, build_catalogue
from palyra.errors import InvariantBroken
from palyra.tools.demo_tools import basic_tools
from palyra.tools.files.read import file_tools
from palyra.tools.files.workspace import Workspace
from palyra.tools.toolbox import AsyncTool, InlineTool, Toolbox
from tests.core.policy.tool_samples import a_spec
from tests.rows import every_row

T = TypeVar("T")


async def here(function: Callable[..., T], *arguments: object) -> T:
    """In place of a thread: the call itself."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


def a_call(tool: str, arguments: dict[str, Any], version: str = "1") -> ToolCall:
    """An allowed call."""
    return ToolCall(
        call_id="call_1", run_id="run_1", session_id="ses_1", principal="alice", tool=tool,
        tool_version=version, arguments=arguments,
    )  # fmt: skip


def nowhere(_text: str) -> None:
    """A sink for output."""


def answer(_call: object) -> ToolOutput:
    """A tool that always says the same."""
    return ToolOutput(text="answer")


@pytest.fixture
def toolbox(tmp_path: Path) -> Iterator[Toolbox]:
    """Every tool there is, over an empty workspace, without threads."""
    workspace = Workspace(tmp_path)
    yield Toolbox([*basic_tools(), *file_tools(workspace)], here)
    workspace.close()


def test_the_catalogue_is_sorted_and_complete(toolbox: Toolbox) -> None:
    """All tools are in it, by name."""
    expected = ["echo", "list_dir", "read_file", "sleep"]
    assert expected == list(toolbox.catalogue().tools)


def test_same_tools_same_hash() -> None:
    """The hash does not depend on the order in which tools were registered."""
    specs = [a_spec("a"), a_spec("b")]
    assert build_catalogue(specs).hash == build_catalogue(reversed(specs)).hash


@every_row("name", sorted(set(ToolSpec.__struct_fields__) - {"name"}))
def test_any_change_of_a_tool_changes_the_hash(name: str) -> None:
    """The hash covers every field of every tool."""
    spec = a_spec("a")
    changed = msgspec.structs.replace(spec, **{name: "changed"})
    assert build_catalogue([spec]).hash != build_catalogue([changed]).hash


@every_row("name", ["", "Echo", "read-file", "a b", "1st", "x" * 65, "mcp:x"])
def test_a_name_is_a_plain_word(name: str) -> None:
    """A tool cannot be registered under a name that could be misread."""
    with pytest.raises(InvariantBroken, match="tool name"):
        Toolbox([InlineTool(a_spec(name), answer)], here)


def test_a_name_is_taken_once() -> None:
    """Two tools of one name are a bug."""
    with pytest.raises(InvariantBroken, match="'a' is taken"):
        Toolbox([InlineTool(a_spec("a"), answer)] * 2, here)


@every_row(
    ("changes", "complaint"),
    [
        ({"parameters": {"type": "string"}}, "must describe an object"),
        ({"parameters": {"type": "object", "oneOf": []}}, "oneOf: no JSON Schema"),
        ({"parameters": {"type": "object", "minlength": 1}}, "minlength is no keyword"),
        ({"path_argument": "file"}, "no such parameters: file"),
        ({"never_coerced": ("text", "url")}, "no such parameters: url"),
    ],
)
def test_a_spec_must_be_kept(changes: dict[str, Any], complaint: str) -> None:
    """A tool whose spec says what nothing enforces cannot be registered."""
    with pytest.raises(InvariantBroken, match=complaint):
        Toolbox([InlineTool(a_spec("a", **changes), answer)], here)


async def test_echo(toolbox: Toolbox) -> None:
    """The text comes back, from where it was called."""
    output = await toolbox.execute(a_call("echo", {"text": "hé"}), nowhere)
    assert ToolOutput(text="hé", executor="inline", enforcement="none") == output


async def test_sleep_takes_its_time(toolbox: Toolbox, autojump_clock: MockClock) -> None:
    """It waits as long as requested, on the caller's clock."""
    output = await toolbox.execute(a_call("sleep", {"seconds": 25}), nowhere)
    assert ("slept 25 s", 25.0) == (output.text, autojump_clock.current_time())


async def test_a_file_tool_reports_executor_and_isolation(toolbox: Toolbox) -> None:
    """The outcome names both."""
    output = await toolbox.execute(a_call("list_dir", {}), nowhere)
    expected = toolbox.catalogue().tools["list_dir"].enforcement
    assert ("thread", expected) == (output.executor, output.enforcement)


@pytest.mark.real
async def test_a_thread_tool_runs_in_a_real_thread(tmp_path: Path) -> None:
    """With the daemon's own thread hop, reading a file works."""
    (tmp_path / "a").write_text("text")
    workspace = Workspace(tmp_path)
    toolbox = Toolbox(file_tools(workspace), run_sync)
    output = await toolbox.execute(a_call("read_file", {"path": "a"}), nowhere)
    assert output.text == "text"
    workspace.close()


async def test_an_async_tool_may_report_as_it_goes() -> None:
    """Its output callback is the caller's."""
    heard: list[str] = []

    async def tell(_call: object, on_output: Callable[[str], None]) -> ToolOutput:
        on_output("half")
        await trio.lowlevel.checkpoint()
        return ToolOutput(text="whole")

    toolbox = Toolbox([AsyncTool(a_spec("tell", executor="wasm"), tell)], here)
    output = await toolbox.execute(a_call("tell", {}), heard.append)
    assert (["half"], "whole", "wasm") == (heard, output.text, output.executor)


@pytest.mark.parametrize(("tool", "version"), [("echo", "2"), ("echos", "1"), ("", "1")])
async def test_a_missing_or_changed_tool_does_not_run(
    toolbox: Toolbox, tool: str, version: str
) -> None:
    """A tool that is missing, or of another version than gated, fails the call."""
    with pytest.raises(ToolFailure, match="is not available any more"):
        await toolbox.execute(a_call(tool, {"text": ""}, version), nowhere)


async def test_a_failure_reaches_the_caller(toolbox: Toolbox) -> None:
    """A tool's own failure comes through as it is, with its text for the model."""
    with pytest.raises(ToolFailure, match="none: no such file"):
        await toolbox.execute(a_call("read_file", {"path": "none"}), nowhere)
