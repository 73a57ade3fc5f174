"""Actor of one MCP server: keeps it running, publishes its tools and calls them.

Life cycle, repeated by `serve`:
1. Prepare the start (secrets) and open the link.
2. Initialize the session and list the tools within START_S; put the tools into the toolbox.
3. List resources and prompts, each within LIST_S, and add the tools that reach them.  A server that
   cannot list them keeps its tools.
4. Follow `list_changed` notifications, at most once in RELIST_S.  When idle, ping every PING_EVERY_S.
5. After a failure, withdraw the tools and wait with exponential backoff (1 s to 300 s), or until
   `retry` is called.  A life of at least STEADY_S resets the backoff.  From the REPORTED_FAILURES-th failure in a row there is an
   incident, which the next connection resolves.

Notifications of the server are bounded: progress by MAX_PROGRESS pieces a call, log messages by
MAX_LOGGED a minute.

Owns: the link and the session of its server.
Talks to: the toolbox (source `mcp:NAME`), the server.
Never: crashes because of a server's behaviour.
Restart: permanent.
"""

import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib import invalidate_caches
from importlib.util import find_spec
from itertools import starmap
from typing import Any

import msgspec
import structlog
import trio

from palyra.core.backoff import Backoff, compute_delay_s
from palyra.core.incident.kinds import mcp_server_down, mcp_server_key
from palyra.core.policy.grants import server_tool_key
from palyra.core.ports import IncidentReporter, RunBlocking
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.core.tool.mcp import McpServerView
from palyra.core.tool.spec import CallFacts, ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.core.trust.external_descriptions import RedactText
from palyra.errors import InvariantBroken
from palyra.tools.mcp.adopt import (
    AdoptedTools,
    AdoptionTerms,
    DescribedTool,
    adopt,
    find_idle_trust,
)
from palyra.tools.mcp.errors import ErrorTail
from palyra.tools.mcp.failures import is_answer, server_failures
from palyra.tools.mcp.listing import MAX_PAGES, ask_for_log, list_prompts, list_resources
from palyra.tools.mcp.notices import CallProgress, ServerLog
from palyra.tools.mcp.offers import Offers, adopt_offers
from palyra.tools.mcp.requests import MAX_OUTPUT_CHARS, OWN_ASKS, Ask, ask_tool
from palyra.tools.mcp.transport import OpenLink, PacedMessages, ServerGone
from palyra.tools.toolbox import AsyncTool, OnOutput, Toolbox

log = structlog.get_logger("palyra.mcp")

BACKOFF = Backoff(base_s=1.0, cap_s=300.0)
START_S = 30.0  # to initialize the session and list the tools
PING_EVERY_S, PING_S = 30.0, 10.0
STEADY_S = 60.0  # a life of this length resets the backoff
PACKAGE_EVERY_S = 10.0  # between two looks for the package
NO_PACKAGE = (
    "the package mcp is missing: `.venv/bin/pip install '.[mcp]'` in a checkout, "
    "`pip install 'FILE.whl[mcp]'` with a wheel; it is taken up without a restart"
)
NOT_STARTED = "it was not started yet"
RELIST_S = 1.0  # between two lists on notifications
REPORTED_FAILURES = 3  # in a row; the second restart may still be a passing fault

_LIST_CHANGES = frozenset(
    f"notifications/{each}/list_changed" for each in ("tools", "resources", "prompts")
)


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
        alarms: IncidentReporter | None = None,
    ) -> None:
        """`prepare` resolves secrets for a start; `host` is the target host shown to policy rules."""
        self._terms = terms
        self._prepare = prepare
        self._toolbox = toolbox
        self._random = random
        self._run_blocking = run_blocking
        self._redact = redact
        self._host = host
        self._session: Any = None  # mcp.ClientSession while connected
        self._calls = 0
        self._is_gone = False
        self._list_changed = False
        self._list_error = ""  # answer to the last list of tools, if it was an error
        self._news = trio.Event()
        self._outcome = trio.Event()  # the present attempt to connect has ended, well or not
        self._hurry = trio.Event()  # ends the pause after a failure
        self._alarms = alarms
        self._offers = Offers()
        self._broken: dict[str, dict[str, str]] = {}  # method of a list: broken items and reasons
        self._chatter = ServerLog(terms.server, redact)
        self._title = self._protocol = ""
        self._starts = 0
        self._errors = ErrorTail(redact)  # of the current life
        self._last_words = ""  # stderr tail of the life that `problem` describes
        self.problem = NOT_STARTED  # "" while the tools can be called
        self.missing: dict[str, str] = {}  # omitted tools: name to reason
        self._idle_trust: tuple[str, ...] = ()  # names of `read_only` without effect

    @property
    def source(self) -> str:
        """The source name of this server in the toolbox."""
        return f"mcp:{self._terms.server}"

    def problems(self) -> tuple[str, ...]:
        """Return problems for the operator to fix: the failure, each omitted tool, `read_only` in vain.

        Tools that the configuration excludes are not reported.
        """
        name = self._terms.server
        wrote = f"; its standard error ends: {self._last_words}" if self._last_words else ""
        gone = (f"MCP server {name}: {self.problem}{wrote}",) if self.problem else ()
        left_out = (
            f"MCP server {name}: {visible(tool)} is left out: {reason}"
            for tool, reason in (self.missing | self._offers.left_out).items()
            if tool not in self._terms.left_out
        )
        idle = () if self.problem else self._idle_trust
        return (*gone, *left_out, *(f"MCP server {name}: {each}" for each in idle))

    @property
    def name(self) -> str:
        """The configured name."""
        return self._terms.server

    @property
    def offers(self) -> Offers:
        """Resources and prompts; empty while the server is not connected."""
        return Offers() if self.problem else self._offers

    def view(self) -> McpServerView:
        """Return the state of the server."""
        offers, tools = self.offers, self._toolbox.catalogue().tools
        return McpServerView(
            name=self.name,
            problem=self.problem,
            title=self._title,
            protocol=self._protocol,
            tools=sum(name.startswith(f"{self.source}.") for name in tools),
            resources=len(offers.resources),
            prompts=len(offers.prompts),
            starts=self._starts,
            left_out={visible(name): why for name, why in (self.missing | offers.left_out).items()},
        )

    # --- life cycle

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run and restart the server for ever.  Cancellation: the server's process group is dead."""
        task_status.started()
        try:
            await self._keep_alive()
        finally:
            self._outcome.set()

    async def retry(self) -> None:
        """Connect now instead of after the pause, and wait until the server is connected or has failed.

        An attempt that is under way is not repeated.  Cancellation: the attempt goes on.
        """
        if not self.problem or self.problem == NO_PACKAGE:
            return
        if self._outcome.is_set():
            self._outcome = trio.Event()
            self._hurry.set()
        await self._outcome.wait()

    async def _keep_alive(self) -> None:
        failures = 0
        while True:
            await self._wait_package()
            if self._outcome.is_set():
                self._outcome = trio.Event()
            began_s = trio.current_time()
            try:
                await self._live()
            finally:
                self._session = None
                self._toolbox.put(self.source, ())
            is_steady = trio.current_time() - began_s >= STEADY_S
            failures = 1 if is_steady else failures + 1
            if self._alarms is not None and failures >= REPORTED_FAILURES:
                self._alarms.report(mcp_server_down(self.name, failures, self.problem))
            delay_s = compute_delay_s(BACKOFF, failures, self._random)
            log.warning(
                "an MCP server is not there",
                server=self._terms.server,
                problem=self.problem,
                stderr=self._last_words,
                next_try_s=math.ceil(delay_s),
            )
            self._hurry = trio.Event()
            self._outcome.set()
            with trio.move_on_after(delay_s):
                await self._hurry.wait()

    async def _wait_package(self) -> None:
        """Wait until the package `mcp` is installed; log once that it is not.  No retry cures that."""
        if await self._run_blocking(_has_package):
            return
        self.problem, self._last_words = NO_PACKAGE, ""
        self._outcome.set()
        log.warning("the package of MCP is missing", server=self.name, problem=NO_PACKAGE)
        while not await self._run_blocking(_has_package):  # noqa: ASYNC110 - no event for it
            await trio.sleep(PACKAGE_EVERY_S)

    async def _live(self) -> None:
        """Run the server once, until it fails; set `problem` to the reason."""
        try:
            import mcp  # noqa: F401, PLC0415 - two seconds, and an extra
        except ImportError as error:
            self.problem = f"the package mcp cannot be imported: {error}"
            return
        self._is_gone = self._list_changed = False
        self._starts += 1
        self._errors = ErrorTail(self._redact)
        try:
            open_link = await self._prepare()
            await self._converse(open_link)
        except* server_failures() as failed:
            self._last_words, limit = self._errors.text(), self._errors.find_limit()
            problem = truncate_safely(f"{_innermost(failed)}", 500) or "it failed"
            is_named = not limit or "limit:" in problem
            self.problem = problem if is_named else f"{problem}, limit: {limit}"

    async def _converse(self, open_link: OpenLink) -> None:
        from mcp import ClientSession  # noqa: PLC0415 - see the package docstring

        from palyra.tools.mcp.sieve import Sieve  # noqa: PLC0415 - likewise

        async with open_link(self._end, self._errors.take) as link:
            terms = msgspec.structs.replace(self._terms, enforcement=link.enforcement)
            sieve = Sieve(PacedMessages(link.incoming), link.outgoing, self._run_blocking)
            self._broken = sieve.left_out
            session = ClientSession(
                dispatcher=sieve,
                message_handler=self._hear,
                logging_callback=self._chatter.take,
            )
            async with session:
                with _within(START_S, "it did not say hello"):
                    await session.initialize()
                    sieve.version = session.protocol_version or ""
                    self._note_identity(session)
                    described = await self._list(session)
                    await self._take(terms, described)
                self._session, self.problem, self._last_words = session, "", ""
                self._outcome.set()
                if self._alarms is not None:
                    self._alarms.clear(mcp_server_key(self.name), "the server is connected again")
                await ask_for_log(session)
                await self._take_offers(session, terms, described)
                await self._watch(session, terms)

    def _note_identity(self, session: Any) -> None:  # noqa: ANN401 - mcp's
        about = session.server_info
        claimed = f"{about.name} {about.version}" if about is not None else ""
        self._title = visible(truncate_safely(self._redact(claimed[:800])[0], 200))
        self._protocol = visible(str(session.protocol_version or "")[:32])

    async def _watch(self, session: Any, terms: AdoptionTerms) -> None:  # noqa: ANN401 - mcp's
        """Refresh the lists on change notifications, ping when idle.  Raises ServerGone at the end."""
        listed_s = -math.inf
        while not self._is_gone:
            wait_s = PING_EVERY_S
            if self._list_changed:
                wait_s = max(0.0, listed_s + RELIST_S - trio.current_time())
            with trio.move_on_after(wait_s) as quiet:
                await self._news.wait()
            self._news = trio.Event()
            is_due = trio.current_time() >= listed_s + RELIST_S
            if self._list_changed and is_due and not self._is_gone:
                self._list_changed = False
                with _within(START_S, "it did not list its tools"):
                    described = await self._list(session)
                    await self._take(terms, described)
                await self._take_offers(session, terms, described)
                listed_s = trio.current_time()
            elif quiet.cancelled_caught and not self._list_changed and not self._calls:
                with _within(PING_S, "it does not answer"):
                    await session.send_ping()
        raise ServerGone("it ended")

    def _end(self) -> None:
        self._is_gone = True
        self._news.set()

    async def _hear(self, message: Any) -> None:  # noqa: ANN401 - mcp's notifications
        if getattr(message, "method", "") in _LIST_CHANGES:
            self._list_changed = True
            self._news.set()
        await trio.lowlevel.checkpoint()

    # --- resources and prompts

    async def _take_offers(
        self,
        session: Any,  # noqa: ANN401 - mcp's
        terms: AdoptionTerms,
        described: list[DescribedTool],
    ) -> None:
        """List resources and prompts, and add the tools that reach them."""
        had_tools = bool(self._offers.tools())
        failed: dict[str, str] = {}
        resources = await list_resources(session, failed)
        prompts = await list_prompts(session, failed)
        self._offers = await self._run_blocking(
            adopt_offers,
            terms.server,
            resources,
            prompts,
            self._redact,
        )
        for method, broken in self._broken.items():
            if method != "tools/list":
                self._offers.left_out.update(broken)
        self._offers.left_out.update(failed)
        if had_tools or self._offers.tools():
            await self._take(terms, described)

    # --- tools

    async def _list(self, session: Any) -> list[DescribedTool]:  # noqa: ANN401 - mcp's
        """List all tools, at most MAX_PAGES pages.  Raises ServerGone for more.

        An error answer costs the list, or the rest of it: the server may have resources and prompts.
        """
        self._list_error = ""
        from mcp_types import (  # noqa: PLC0415 - see the package
            ListToolsRequest,
            ListToolsResult,
            PaginatedRequestParams,
        )

        found: list[DescribedTool] = []
        declared = session.server_capabilities
        if (
            declared is not None
            and declared.tools is None
            and (declared.resources is not None or declared.prompts is not None)
        ):
            return found  # such a server may answer that the method is unknown
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            wanted = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
            try:
                page = await session.send_request(wanted, ListToolsResult)
            except server_failures() as error:
                if not is_answer(error):
                    raise
                self._list_error = f"failed: {visible(truncate_safely(f'{error}', 200))}"
                return found
            found += [_described(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ServerGone(f"its list of tools has more than {MAX_PAGES} pages")

    async def _take(self, terms: AdoptionTerms, described: list[DescribedTool]) -> None:
        # In a thread: scans of texts and compiled schemas take up to a millisecond a tool.
        own = self._offers.tools()  # first: a tool of the server does not take their names
        adopted: AdoptedTools = await self._run_blocking(
            adopt, terms, [*own, *described], self._redact
        )
        tools = list(starmap(self._tool, adopted.tools.values()))
        try:
            self._toolbox.put(self.source, tools)
        except InvariantBroken as error:
            raise ServerGone(f"its tools cannot be taken: {error.message}") from None
        self.missing = {**adopted.missing, **self._broken.get("tools/list", {})}
        if self._list_error:
            self.missing["list of tools"] = self._list_error
        else:
            self._idle_trust = find_idle_trust(terms, [*own, *described])
        for name, reason in self.missing.items():
            log.warning("a tool is left out", server=terms.server, tool=name, reason=reason)
        log.info("an MCP server is there", server=terms.server, tools=len(tools))

    def _tool(self, name: str, spec: ToolSpec) -> AsyncTool:
        own = {each.name for each in self._offers.tools()}
        ask = OWN_ASKS[name] if name in own else partial(ask_tool, name)

        key = server_tool_key(spec.name, self._terms.digest, spec.version)
        facets = CallFacts(host=self._host, grant_key=key)

        async def run(call: ToolCall, on_output: OnOutput) -> ToolOutput:
            return await self._call(ask, call, on_output)

        return AsyncTool(spec, run, facets=lambda _arguments: facets)

    async def _call(self, ask: Ask, call: ToolCall, on_output: OnOutput) -> ToolOutput:
        """Send the request of a call and return the server's answer; an error is a failed output.

        Raises ToolFailure when no answer arrived.  Cancellation: the server is notified, and its
        answer is dropped.
        """
        if self._session is None:
            raise ToolFailure(f"the server {self._terms.server} is not there: {self.problem}")
        request, result, render = ask(call.arguments)
        self._calls += 1
        progress = CallProgress(on_output)
        try:
            answer = await self._session.send_request(
                request, result, progress_callback=progress.take
            )
        except server_failures() as error:
            if is_answer(error):
                text = truncate_safely(f"{error}", MAX_OUTPUT_CHARS)
                return ToolOutput(text=text, is_failure=True, trust="external_untrusted")
            if isinstance(error, ValueError):  # of the package's validation
                raise ToolFailure(
                    f"{self._terms.server} answered, but not in a form of the protocol: "
                    "the answer is dropped"
                ) from None
            raise ToolFailure(f"{self._terms.server} is gone: there is no answer") from None
        finally:
            progress.close()
            self._calls -= 1
        return render(answer)


def _has_package() -> bool:
    """True if the package `mcp` is installed.  Blocks."""
    invalidate_caches()
    return find_spec("mcp") is not None


def _described(tool: Any) -> DescribedTool:  # noqa: ANN401 - mcp's
    notes = tool.annotations
    return DescribedTool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema,
        claims_read_only=notes.read_only_hint if notes is not None else None,
        claims_destructive=notes.destructive_hint if notes is not None else None,
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
