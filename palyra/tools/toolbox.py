"""The toolbox: all tools of the daemon, their catalogue, and their execution.

A tool is a ToolSpec and a runner: inline for pure and fast code, thread for blocking file work,
async for code that waits in trio.  Tools open no nursery and keep no deadline: the caller does.
Tools come from sources (built-in, sandbox, skills, servers); each source may replace its tools while
the daemon runs.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import msgspec

from palyra.core.ports import RunBlocking
from palyra.core.text.json_schema import UnusableSchema
from palyra.core.tool.arguments import compile_parameters
from palyra.core.tool.spec import (
    CallFacts,
    Catalogue,
    Preflight,
    ToolCall,
    ToolFailure,
    ToolOutput,
    ToolSpec,
    build_catalogue,
    path_facets,
)
from palyra.core.tool.targets import CallTargets
from palyra.errors import InvariantBroken

Arguments = Mapping[str, Any]
OnOutput = Callable[[str], None]
Run = Callable[[ToolCall], ToolOutput]
RunAsync = Callable[[ToolCall, OnOutput], Awaitable[ToolOutput]]
FindFacets = Callable[[Arguments], CallFacts]  # pure; takes validated arguments
Inspect = Callable[[ToolCall], Preflight]  # blocks; raises ToolFailure for a call that cannot run

FindTargets = Callable[[ToolCall], CallTargets]  # what the call would change or contact; blocks

BUILTIN = "builtin"
_WORD = "[a-z][a-z0-9_]{0,63}"
_NAME = re.compile(
    rf"{_WORD}|wasm:[a-z][a-z0-9_-]{{0,63}}\.{_WORD}|mcp:[a-z][a-z0-9_-]{{0,63}}\.{_WORD}"
    rf"|procedure:{_WORD}"
)


@dataclass(frozen=True, slots=True)
class InlineTool:
    """A pure tool that runs on the event loop, well below a millisecond."""

    spec: ToolSpec
    run: Run
    facets: FindFacets | None = None  # None: the path argument, if there is one
    inspect: Inspect | None = None
    targets: FindTargets | None = None


@dataclass(frozen=True, slots=True)
class ThreadTool:
    """A blocking tool that runs in a thread and cannot be interrupted."""

    spec: ToolSpec
    run: Run
    facets: FindFacets | None = None
    inspect: Inspect | None = None
    targets: FindTargets | None = None


@dataclass(frozen=True, slots=True)
class AsyncTool:
    """A tool that waits in trio and may report output while it runs."""

    spec: ToolSpec
    run: RunAsync
    facets: FindFacets | None = None
    inspect: Inspect | None = None
    targets: FindTargets | None = None


Tool = InlineTool | ThreadTool | AsyncTool


class Toolbox:
    """`core.ports.ToolRunner` over the tools of all sources."""

    def __init__(self, tools: Iterable[Tool], run_blocking: RunBlocking) -> None:
        """`tools` are the built-in ones.  Raises InvariantBroken as `put` does."""
        self._run_blocking = run_blocking
        self._sources: dict[str, tuple[Tool, ...]] = {}
        self._tools: dict[str, Tool] = {}
        self._catalogue = build_catalogue(())
        self.put(BUILTIN, tools)

    def put(self, source: str, tools: Iterable[Tool]) -> None:
        """Replace the tools of a source.

        Runs see them from their next turn on; a call of a removed tool fails.  Raises
        InvariantBroken, and changes nothing, for a duplicate name or an unsupported schema.
        """
        sources = {**self._sources, source: tuple(tools)}
        known: dict[str, Tool] = {}
        for tool in (tool for each in sources.values() for tool in each):
            _check_tool(tool, known)
            known[tool.spec.name] = tool
        self._sources, self._tools = sources, known
        self._catalogue = build_catalogue(tool.spec for tool in known.values())

    def catalogue(self) -> Catalogue:
        """Return the available tools, sorted by name, with the hash of that list."""
        return self._catalogue

    def facets(self, spec: ToolSpec, arguments: Arguments) -> CallFacts | None:
        """Return the facts of validated arguments for the rules; None if the tool is unavailable."""
        found = self._tools.get(spec.name)
        if found is None or found.spec.version != spec.version:
            return None
        return path_facets(spec, arguments) if found.facets is None else found.facets(arguments)

    def inspects(self, tool: str) -> bool:
        """True if calls of that tool are inspected before the gate."""
        found = self._tools.get(tool)
        return found is not None and found.inspect is not None

    async def inspect(self, call: ToolCall) -> Preflight | None:
        """Inspect the call's environment; None if its tool has no inspection.

        Raises ToolFailure for a call that could not run.  Cancellation: the inspection completes.
        """
        found = self._tools.get(call.tool)
        if found is None or found.inspect is None:
            return None
        return await self._run_blocking(found.inspect, call)

    def find_targets(self, call: ToolCall) -> CallTargets | None:
        """Return the files and the address of a call; None if its tool names none.

        Blocks; any thread may call.  Raises ToolFailure for a call that could not run now.
        """
        found = self._tools.get(call.tool)
        return None if found is None or found.targets is None else found.targets(call)

    async def execute(self, call: ToolCall, on_output: OnOutput) -> ToolOutput:
        """Execute one allowed call.  Raises ToolFailure with a text for the model.

        Cancellation: an async tool stops at once; one in a thread completes, with its effect.
        """
        tool = self._tools.get(call.tool)
        if tool is None or tool.spec.version != call.tool_version:
            raise ToolFailure(f"{call.tool} {call.tool_version} is not available any more")
        if tool.spec.workspace not in {"", call.workspace}:
            raise ToolFailure(f"{call.tool} works in the workspace {tool.spec.workspace!r} alone")
        output = await self._run(tool, call, on_output)
        return msgspec.structs.replace(
            output,
            executor=output.executor or tool.spec.executor,
            enforcement=output.enforcement or tool.spec.enforcement,
        )

    async def _run(self, tool: Tool, call: ToolCall, on_output: OnOutput) -> ToolOutput:
        match tool:
            case InlineTool():
                return tool.run(call)
            case ThreadTool():
                return await self._run_blocking(tool.run, call)
            case AsyncTool():
                return await tool.run(call, on_output)
            case _:
                assert_never(tool)


def _check_tool(tool: Tool, known: Mapping[str, Tool]) -> None:
    spec = tool.spec
    if spec.name in known or not _NAME.fullmatch(spec.name):
        raise InvariantBroken(f"tool name {spec.name!r} is taken or not of the form read_file")
    try:
        compile_parameters(spec.parameters)
    except UnusableSchema as error:
        raise InvariantBroken(f"{spec.name}: {error.message}") from None
    named = {*spec.never_coerced, *([spec.path_argument] if spec.path_argument else [])}
    missing = named - spec.parameters.get("properties", {}).keys()
    if missing:
        raise InvariantBroken(f"{spec.name}: no such parameters: {', '.join(sorted(missing))}")
