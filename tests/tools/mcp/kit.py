"""A toolbox with one MCP server: started, waited for, called."""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from palyra.actors.kernel.threads import run_sync
from palyra.core.ports import IncidentReporter
from palyra.core.redaction.redactor import Redactor
from palyra.core.tool.spec import ToolCall, ToolOutput, ToolSpec
from palyra.tools.mcp.adopt import AdoptionTerms
from palyra.tools.mcp.server import McpServer
from palyra.tools.mcp.stdio_server import unjailed
from palyra.tools.mcp.transport import OpenLink, StdioServer
from palyra.tools.toolbox import OnOutput, Toolbox

SAMPLE = Path(__file__).with_name("sample_server.py")
REDACT = Redactor([]).redact_text
TERMS = AdoptionTerms(
    server="sample", capabilities=("process",), read_only=("add",), left_out=("look",)
)


def plain(*arguments: str, environment: dict[str, str] | None = None) -> OpenLink:
    """The sample server as a process of ours."""
    argv = (sys.executable, str(SAMPLE), *arguments)
    return unjailed(StdioServer(argv, environment or {}))


class Box:
    """The toolbox and the actor that fills it."""

    def __init__(
        self,
        open_link: OpenLink,
        terms: AdoptionTerms = TERMS,
        alarms: IncidentReporter | None = None,
    ) -> None:
        async def prepare() -> OpenLink:
            await trio.lowlevel.checkpoint()
            return open_link

        self.starts = 0
        self.toolbox = Toolbox([], run_sync)
        self.server = McpServer(
            terms,
            self._counted(prepare),
            self.toolbox,
            lambda: 0.0,
            run_blocking=run_sync,
            redact=REDACT,
            alarms=alarms,
        )
        self._changed = trio.Event()
        put = self.toolbox.put

        def told(source: str, tools: Any) -> None:
            put(source, tools)
            self._changed.set()
            self._changed = trio.Event()

        self.toolbox.put = told  # type: ignore[method-assign]  # to hear of it

    def _counted(
        self, prepare: Callable[[], Awaitable[OpenLink]]
    ) -> Callable[[], Awaitable[OpenLink]]:
        async def counted() -> OpenLink:
            self.starts += 1
            return await prepare()

        return counted

    @property
    def names(self) -> set[str]:
        """The callable tools, without the server's prefix."""
        return {name.removeprefix("mcp:sample.") for name in self.toolbox.catalogue().tools}

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once that is so; looked at whenever the tools change."""
        with trio.fail_after(120):
            while not is_so():
                await self._changed.wait()

    async def call(self, tool: str, **arguments: Any) -> ToolOutput:
        """Call one of its tools."""
        return await self.call_with(lambda _text: None, tool, **arguments)

    async def call_with(self, on_output: OnOutput, tool: str, **arguments: Any) -> ToolOutput:
        """Call one of its tools, with a receiver of its progress."""
        spec = self.toolbox.catalogue().tools[f"mcp:sample.{tool}"]
        return await self.toolbox.execute(self.make_call(spec, **arguments), on_output)

    @staticmethod
    def make_call(spec: ToolSpec, **arguments: Any) -> ToolCall:
        """Return a call as the gate allowed it."""
        return ToolCall(
            call_id="c",
            run_id="r",
            session_id="s",
            principal="p",
            tool=spec.name,
            tool_version=spec.version,
            arguments=arguments,
        )


@asynccontextmanager
async def serving(open_link: OpenLink, terms: AdoptionTerms = TERMS) -> AsyncGenerator[Box]:
    """The server's actor in operation, with its tools registered."""
    box = Box(open_link, terms)
    async with trio.open_nursery() as nursery:
        await nursery.start(box.server.serve)
        await box.until(lambda: bool(box.names))
        try:
            yield box
        finally:
            nursery.cancel_scope.cancel()
