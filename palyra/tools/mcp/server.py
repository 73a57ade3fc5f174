"""Actor of one MCP server: keeps it running, publishes its tools and calls them.

Life cycle, repeated by `serve`:
1. Prepare the start (secrets) and open the link.
2. Initialize the session and list the tools within START_S; put the tools into the toolbox.
3. Follow `tools/list_changed` notifications.  When idle, ping every PING_EVERY_S.
4. After a failure, withdraw the tools and wait with exponential backoff (1 s to 300 s).  A life of
   at least STEADY_S resets the backoff.

Owns: the link and the session of its server.
Talks to: the toolbox (source `mcp:NAME`), the server.
Never: crashes because of a server's behaviour.
Restart: permanent.
"""

import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from itertools import starmap
from typing import Any

import msgspec
import structlog
import trio

from palyra.core.backoff import Backoff, compute_delay_s
from palyra.core.ports import RunBlocking
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.core.tool.spec import CallFacts, ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.core.trust.external_descriptions import RedactText
from palyra.errors import InvariantBroken, PalyraError
from palyra.tools.mcp.adopt import AdoptedTools, AdoptionTerms, DescribedTool, adopt
from palyra.tools.mcp.errors import ErrorTail
from palyra.tools.mcp.transport import OpenLink, ServerGone
from palyra.tools.toolbox import AsyncTool, OnOutput, Toolbox

log = structlog.get_logger("palyra.mcp")

BACKOFF = Backoff(base_s=1.0, cap_s=300.0)
START_S = 30.0  # to initialize the session and list the tools
PING_EVERY_S, PING_S = 30.0, 10.0
STEADY_S = 60.0  # a life of this length resets the backoff
NOT_STARTED = "it was not started yet"
MAX_PAGES = 16
MAX_OUTPUT_CHARS = 1_048_576


class McpServer:
    """One server and its current state."""

    def __init__(  # noqa: PLR0913 - all by name, and each a part of its own
        self,
        terms: AdoptionTerms,
        prepare: Callable[[], Awaitable[OpenLink]],
        toolbox: Toolbox,
        random: Callable[[], float],
        *,
        run_blocking: RunBlocking,
        redact: RedactText,
        host: str = "",
    ) -> None:
        """`prepare` resolves secrets for a start; `host` is the target host shown to policy rules."""
        self._terms = terms
        self._prepare = prepare
        self._toolbox = toolbox
        self._random = random
        self._run_blocking = run_blocking
        self._redact = redact
        self._facets = CallFacts(host=host)
        self._session: Any = None  # mcp.ClientSession while connected
        self._calls = 0
        self._is_gone = False
        self._list_changed = False
        self._news = trio.Event()
        self._errors = ErrorTail(redact)  # of the current life
        self._last_words = ""  # stderr tail of the life that `problem` describes
        self.problem = NOT_STARTED  # "" while the tools can be called
        self.missing: dict[str, str] = {}  # omitted tools: name to reason

    @property
    def source(self) -> str:
        """The source name of this server in the toolbox."""
        return f"mcp:{self._terms.server}"

    def problems(self) -> tuple[str, ...]:
        """Return problems for the operator to fix: the server's failure and each omitted tool.

        Tools that the configuration excludes are not reported.
        """
        name = self._terms.server
        wrote = f"; its standard error ends: {self._last_words}" if self._last_words else ""
        gone = (f"MCP server {name}: {self.problem}{wrote}",) if self.problem else ()
        left_out = (
            f"MCP server {name}: {visible(tool)} is left out: {reason}"
            for tool, reason in self.missing.items()
            if tool not in self._terms.left_out
        )
        return (*gone, *left_out)

    # --- life cycle

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run and restart the server for ever.  Cancellation: the server's process group is dead."""
        task_status.started()
        failures = 0
        while True:
            began_s = trio.current_time()
            try:
                await self._live()
            finally:
                self._session = None
                self._toolbox.put(self.source, ())
            is_steady = trio.current_time() - began_s >= STEADY_S
            failures = 1 if is_steady else failures + 1
            delay_s = compute_delay_s(BACKOFF, failures, self._random)
            log.warning(
                "an MCP server is not there",
                server=self._terms.server,
                problem=self.problem,
                stderr=self._last_words,
                next_try_s=math.ceil(delay_s),
            )
            await trio.sleep(delay_s)

    async def _live(self) -> None:
        """Run the server once, until it fails; set `problem` to the reason."""
        try:
            import mcp  # noqa: F401, PLC0415 - two seconds, and an extra
        except ImportError:
            self.problem = "the package mcp is missing: install palyra[mcp]"
            return
        self._is_gone = self._list_changed = False
        self._errors = ErrorTail(self._redact)
        try:
            open_link = await self._prepare()
            await self._converse(open_link)
        except* _failures() as failed:
            self._last_words, limit = self._errors.text(), self._errors.find_limit()
            problem = truncate_safely(f"{_innermost(failed)}", 500) or "it failed"
            is_named = not limit or "limit:" in problem
            self.problem = problem if is_named else f"{problem}, limit: {limit}"

    async def _converse(self, open_link: OpenLink) -> None:
        from mcp import ClientSession  # noqa: PLC0415 - see the package docstring

        async with open_link(self._end, self._errors.take) as link:
            terms = msgspec.structs.replace(self._terms, enforcement=link.enforcement)
            session = ClientSession(link.incoming, link.outgoing, message_handler=self._hear)
            async with session:
                with _within(START_S, "it did not say hello"):
                    await session.initialize()
                    await self._take(terms, await self._list(session))
                self._session, self.problem, self._last_words = session, "", ""
                await self._watch(session, terms)

    async def _watch(self, session: Any, terms: AdoptionTerms) -> None:  # noqa: ANN401 - mcp's
        """Refresh the tools on change notifications, ping when idle.  Raises ServerGone at the end."""
        while not self._is_gone:
            with trio.move_on_after(PING_EVERY_S) as quiet:
                await self._news.wait()
            self._news = trio.Event()
            if quiet.cancelled_caught and not self._calls:
                with _within(PING_S, "it does not answer"):
                    await session.send_ping()
            elif self._list_changed:
                self._list_changed = False
                with _within(START_S, "it did not list its tools"):
                    await self._take(terms, await self._list(session))
        raise ServerGone("it ended")

    def _end(self) -> None:
        self._is_gone = True
        self._news.set()

    async def _hear(self, message: Any) -> None:  # noqa: ANN401 - mcp's notifications
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._list_changed = True
            self._news.set()
        await trio.lowlevel.checkpoint()

    # --- tools

    @staticmethod
    async def _list(session: Any) -> list[DescribedTool]:  # noqa: ANN401 - mcp's
        """List all tools, at most MAX_PAGES pages.  Raises ServerGone for more."""
        from mcp_types import (  # noqa: PLC0415 - see the package
            ListToolsRequest,
            ListToolsResult,
            PaginatedRequestParams,
        )

        found: list[DescribedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            wanted = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
            page = await session.send_request(wanted, ListToolsResult)
            found += [_described(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ServerGone(f"its list of tools has more than {MAX_PAGES} pages")

    async def _take(self, terms: AdoptionTerms, described: list[DescribedTool]) -> None:
        # In a thread: scans of texts and compiled schemas take up to a millisecond a tool.
        adopted: AdoptedTools = await self._run_blocking(adopt, terms, described, self._redact)
        tools = list(starmap(self._tool, adopted.tools.values()))
        try:
            self._toolbox.put(self.source, tools)
        except InvariantBroken as error:
            raise ServerGone(f"its tools cannot be taken: {error.message}") from None
        self.missing = dict(adopted.missing)
        for name, reason in self.missing.items():
            log.warning("a tool is left out", server=terms.server, tool=name, reason=reason)
        log.info("an MCP server is there", server=terms.server, tools=len(tools))

    def _tool(self, name: str, spec: ToolSpec) -> AsyncTool:
        async def run(call: ToolCall, _on_output: OnOutput) -> ToolOutput:
            return await self._call(name, call)

        return AsyncTool(spec, run, facets=lambda _arguments: self._facets)

    async def _call(self, name: str, call: ToolCall) -> ToolOutput:
        """Call the tool and return the server's answer; an error answer becomes a failed output.

        Raises ToolFailure when no answer arrived.  Cancellation: the server is notified, and its
        answer is dropped.
        """
        from mcp_types import (  # noqa: PLC0415 - see the package
            CallToolRequest,
            CallToolRequestParams,
            CallToolResult,
        )

        if self._session is None:
            raise ToolFailure(f"the server {self._terms.server} is not there: {self.problem}")
        params = CallToolRequestParams(name=name, arguments=dict(call.arguments))
        self._calls += 1
        try:
            answer = await self._session.send_request(
                CallToolRequest(params=params), CallToolResult
            )
        except _failures() as error:
            if _is_answer(error):
                text = truncate_safely(f"{error}", MAX_OUTPUT_CHARS)
                return ToolOutput(text=text, is_failure=True, trust="external_untrusted")
            raise ToolFailure(f"{self._terms.server} is gone: there is no answer") from None
        finally:
            self._calls -= 1
        return _output(answer)


def _described(tool: Any) -> DescribedTool:  # noqa: ANN401 - mcp's
    notes = tool.annotations
    return DescribedTool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema,
        claims_read_only=notes.read_only_hint if notes is not None else None,
        claims_destructive=notes.destructive_hint if notes is not None else None,
    )


def _output(answer: Any) -> ToolOutput:  # noqa: ANN401 - mcp's
    """Join the text blocks of an answer; other blocks are replaced by their type."""
    texts = [
        block.text if block.type == "text" else f"[{block.type} left out]"
        for block in answer.content
    ]
    if not texts and answer.structured_content is not None:
        texts = [msgspec.json.encode(answer.structured_content).decode()]
    text = "\n".join(texts)
    return ToolOutput(
        text=truncate_safely(text, MAX_OUTPUT_CHARS),
        is_truncated=len(text) > MAX_OUTPUT_CHARS,
        is_failure=bool(answer.is_error),
        trust="external_untrusted",
    )


@contextmanager
def _within(seconds: float, otherwise: str) -> Generator[None]:
    """Raise ServerGone if the block takes longer than `seconds`."""
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise ServerGone(f"{otherwise} within {seconds:g} s")


def _innermost(failed: BaseExceptionGroup[Any]) -> BaseException:
    """Return the first leaf exception of nested exception groups."""
    first: BaseException = failed
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _is_answer(error: Exception) -> bool:
    """True if the error is an answer of the server and not a lost connection."""
    from mcp import MCPError  # noqa: PLC0415 - see the package
    from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - likewise

    return isinstance(error, MCPError) and error.error.code != CONNECTION_CLOSED


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that a server, its process or its connection can cause."""
    import anyio  # noqa: PLC0415 - comes with the package `mcp`
    import httpx2  # noqa: PLC0415 - likewise
    from mcp import MCPError  # noqa: PLC0415 - likewise

    return (
        PalyraError, MCPError, httpx2.HTTPError, OSError, ValueError, TypeError, LookupError,
        RuntimeError, AttributeError, anyio.BrokenResourceError, anyio.ClosedResourceError,
        anyio.EndOfStream, trio.BrokenResourceError, trio.ClosedResourceError,
    )  # fmt: skip
