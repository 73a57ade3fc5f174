"""The toolbox: every tool of the daemon, the catalogue they make, and how each is run.

A tool is a ToolSpec and a runner: `inline` for what is pure and fast, `thread` for blocking file
work, `async` for what waits in trio.  Tools open no nursery and keep no deadline: the caller does.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import msgspec

from palyra.core.ports import RunBlocking
from palyra.core.schema import check_schema
from palyra.core.tools import (
    Catalogue,
    ToolCall,
    ToolFailure,
    ToolOutput,
    ToolSpec,
    build_catalogue,
)
from palyra.errors import InvariantBroken

Arguments = Mapping[str, Any]
Run = Callable[[Arguments], ToolOutput]
RunAsync = Callable[[Arguments, Callable[[str], None]], Awaitable[ToolOutput]]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class InlineTool:
    """Runs where it is called: pure, well below a millisecond."""

    spec: ToolSpec
    run: Run


@dataclass(frozen=True, slots=True)
class ThreadTool:
    """Blocks, so it runs in a thread; once begun it runs to its end."""

    spec: ToolSpec
    run: Run


@dataclass(frozen=True, slots=True)
class AsyncTool:
    """Waits in trio; may report output while it runs."""

    spec: ToolSpec
    run: RunAsync


Tool = InlineTool | ThreadTool | AsyncTool


class Toolbox:
    """`core.ports.Toolbox` over a fixed set of tools."""

    def __init__(self, tools: Iterable[Tool], run_blocking: RunBlocking) -> None:
        """Raises InvariantBroken for two tools of one name, or a schema intake cannot keep."""
        self._tools: dict[str, Tool] = {}
        self._run_blocking = run_blocking
        for tool in tools:
            _check_tool(tool, self._tools)
            self._tools[tool.spec.name] = tool
        self._catalogue = build_catalogue(tool.spec for tool in self._tools.values())

    def catalogue(self) -> Catalogue:
        """The tools that can be called now, sorted by name, with the hash of that list."""
        return self._catalogue

    async def execute(self, call: ToolCall, on_output: Callable[[str], None]) -> ToolOutput:
        """Run one allowed call to its end.  Raises ToolFailure with a text for the model.

        Cancellation: an async tool stops at once; one in a thread ends first, and its effect, if
        it has one, has happened.
        """
        tool = self._tools.get(call.tool)
        if tool is None or tool.spec.version != call.tool_version:
            raise ToolFailure(f"{call.tool} {call.tool_version} is not available any more")
        output = await self._run(tool, call.arguments, on_output)
        return msgspec.structs.replace(
            output, executor=tool.spec.executor, enforcement=tool.spec.enforcement
        )

    async def _run(
        self, tool: Tool, arguments: Arguments, on_output: Callable[[str], None]
    ) -> ToolOutput:
        match tool:
            case InlineTool():
                return tool.run(arguments)
            case ThreadTool():
                return await self._run_blocking(tool.run, arguments)
            case AsyncTool():
                return await tool.run(arguments, on_output)
            case _:
                assert_never(tool)


def _check_tool(tool: Tool, known: Mapping[str, Tool]) -> None:
    spec = tool.spec
    if spec.name in known or not _NAME.fullmatch(spec.name):
        raise InvariantBroken(f"tool name {spec.name!r} is taken or not of the form read_file")
    if spec.parameters.get("type") != "object":
        raise InvariantBroken(f"{spec.name}: parameters must describe an object")
    check_schema(spec.parameters, spec.name)
    named = {*spec.never_coerced, *([spec.path_argument] if spec.path_argument else [])}
    missing = named - spec.parameters.get("properties", {}).keys()
    if missing:
        raise InvariantBroken(f"{spec.name}: no such parameters: {', '.join(sorted(missing))}")
