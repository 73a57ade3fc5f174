"""The web tools: http_fetch reads, http_send sends a request with a body.

They are two tools because tool class, risk and grants are properties of a tool.  A read may run in
parallel with other calls and be repeated after a crash; a send may not
(docs/decisions/0013-web-fetch.md).
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache

import trio

from palyra.core.ports import RunBlocking
from palyra.core.tool.spec import Preflight, ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.core.tool.targets import CallTargets
from palyra.errors import PalyraError, TooSlow, Unavailable
from palyra.tools.toolbox import AsyncTool, OnOutput, Tool
from palyra.tools.web.credentials import Credential, find_credential
from palyra.tools.web.dialler import Dialler
from palyra.tools.web.http_client import Headers, HttpClient, HttpResponse, find_header, tls_context
from palyra.tools.web.page import MAX_PAGE_BYTES, check_type, is_page, render
from palyra.tools.web.request import (
    MAX_REDIRECTS,
    REDIRECTS,
    WebRequest,
    find_facets,
    follow,
    read_request,
)
from palyra.tools.web.urls import MAX_URL_CHARS

DEADLINE_S = 15.0  # total: DNS, connections, redirects and a slow body
BODY_CAP_BYTES = 2_097_152  # after decompression
_SHOWN_HEADERS = ("content-type", "location", "last-modified", "etag", "retry-after")
_FIRST_ERROR_STATUS = 400
_NO_CONTENT = frozenset({204, 205, 304})

_COMMON = {
    "url": {
        "type": "string",
        "maxLength": MAX_URL_CHARS,
        "description": "http or https, without user name and password.",
    },
    "headers": {
        "type": "object",
        "additionalProperties": True,
        "description": "Further request headers, name to value.",
    },
    "credential": {
        "type": "string",
        "maxLength": 64,
        "description": "Name of a configured credential to send along.",
    },
}
FETCH = ToolSpec(
    name="http_fetch",
    version="1",
    description="Read a page or a file of text from the web. HTML comes as Markdown.",
    parameters={
        "type": "object",
        "properties": {
            **_COMMON,
            "method": {"type": "string", "enum": ["GET", "HEAD"], "description": "Default GET."},
        },
        "required": ["url"],
    },
    tool_class="idempotent_network",
    risk="medium",
    capabilities=("network",),
    deadline_s=DEADLINE_S + 5,  # DEADLINE_S expires first and gives a better message
    never_coerced=("url", "headers", "credential", "method"),
    executor="async",
    enforcement="egress",
)
SEND = ToolSpec(
    name="http_send",
    version="1",
    description="Send a request with a body to a web service and read the answer.",
    parameters={
        "type": "object",
        "properties": {
            **_COMMON,
            "method": {
                "type": "string",
                "enum": ["POST", "PUT", "PATCH", "DELETE"],
                "description": "Default POST.",
            },
            "body": {"type": "string", "maxLength": 49_152, "description": "UTF-8 text."},
        },
        "required": ["url", "body"],
    },
    tool_class="effect",
    risk="high",
    capabilities=("network",),
    deadline_s=DEADLINE_S + 5,
    never_coerced=("url", "headers", "credential", "method", "body"),
    executor="async",
    enforcement="egress",
)

FindSecret = Callable[
    [str], Awaitable[str]
]  # reference to value; the value is added to the redactor


class Web:
    """Sends requests under the rules of http_fetch, for the web tools and for skills.

    `find_secret` resolves a credential's secret reference.
    """

    def __init__(
        self,
        dialler: Dialler,
        run_blocking: RunBlocking,
        *,
        credentials: Mapping[str, Credential] | None = None,
        find_secret: FindSecret,
        trust: Callable[[], ssl.SSLContext] = tls_context,
    ) -> None:
        self.rules = dialler.rules
        self.dialler = dialler
        self._run_blocking = run_blocking
        self._credentials = credentials or {}
        self._find_secret = find_secret
        self._tls = lru_cache(maxsize=1)(trust)

    def check(self, request: WebRequest) -> None:
        """Check URL and credential without network access.  Raises EgressRefused, NotFound."""
        self.rules.check_url(request.url)
        if request.credential:
            find_credential(request.credential, request.url, self._credentials, self.rules)

    async def fetch(self, request: WebRequest) -> ToolOutput:
        """Send the request, follow redirects and return the response as text for a model.

        A response of any status is returned; 400 and above are marked as failures.
        Raises EgressRefused before contacting a refused address, Unavailable, and TooSlow after
        DEADLINE_S.  Cancellation: the connection is closed.
        """
        with trio.move_on_after(DEADLINE_S):
            request, answer = await self._follow(request)
            shown = await self._run_blocking(_text, request, answer)
            return ToolOutput(
                text=shown,
                is_truncated=answer.is_cut
                or (is_page(answer.find("content-type")) and len(answer.body) > MAX_PAGE_BYTES),
                is_failure=answer.status >= _FIRST_ERROR_STATUS,
                trust="external_untrusted",
            )
        raise _too_slow(request)

    async def exchange(self, request: WebRequest) -> HttpResponse:
        """Send one request and return its response without following redirects.  Raises as `fetch`."""
        with trio.move_on_after(DEADLINE_S):
            return await self._send(request)
        raise _too_slow(request)

    async def _follow(self, request: WebRequest) -> tuple[WebRequest, HttpResponse]:
        """Follow up to MAX_REDIRECTS redirects; return the last request and its response."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._send(request)
            location = answer.find("location")
            if answer.status not in REDIRECTS or not location:
                return request, answer
            request = follow(request, answer.status, location)
        raise Unavailable(f"more than {MAX_REDIRECTS} redirects")

    async def _send(self, request: WebRequest) -> HttpResponse:
        self.check(request)
        is_secure = request.url.scheme == "https"
        context = await self._run_blocking(self._tls) if is_secure else None
        client = HttpClient(self.dialler.dial, context, BODY_CAP_BYTES)
        return await client.send(request, await self._secret(request), _check_head(request))

    async def _secret(self, request: WebRequest) -> Headers:
        if not request.credential:
            return ()
        found = find_credential(request.credential, request.url, self._credentials, self.rules)
        value = await self._find_secret(found.secret)
        return ((found.header.lower(), found.prefix + value),)


def _too_slow(request: WebRequest) -> TooSlow:
    return TooSlow(f"{request.url.host}: no whole answer within {DEADLINE_S:g} s")


def _check_head(request: WebRequest) -> Callable[[int, Headers], None]:
    """Return a check that refuses a non-text response before its body is read."""

    def check(status: int, headers: Headers) -> None:
        has_body = request.method != "HEAD" and status not in _NO_CONTENT
        if has_body and find_header(headers, "content-length") != "0":
            check_type(find_header(headers, "content-type"))

    return check


def _text(request: WebRequest, answer: HttpResponse) -> str:
    """Render status, final URL, selected headers and body as text (blocks)."""
    headers = [(name, answer.find(name)) for name in _SHOWN_HEADERS]
    if request.method == "HEAD":
        headers = [header for header in answer.headers if header[0] != "set-cookie"]
    lines = [f"status: {answer.status}", f"url: {request.url.text}"]
    lines += [f"{name}: {value}" for name, value in headers if value]
    return "\n".join([*lines, "", render(answer.body, answer.find("content-type"))])


# --- tools -----------------------------------------------------------------------------------------


def web_tools(web: Web) -> list[Tool]:
    """Return the tools http_fetch and http_send."""

    def inspect(call: ToolCall) -> Preflight:
        """Refuse an invalid request before an approval is requested; no network access."""
        try:
            web.check(read_request(call.arguments))
        except PalyraError as error:
            raise ToolFailure(error.message) from None
        return Preflight()

    def targets(call: ToolCall) -> CallTargets:
        """Return the normalised address of the first request."""
        try:
            return CallTargets(address=read_request(call.arguments).url.text)
        except PalyraError as error:
            raise ToolFailure(error.message) from None

    async def run(call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        try:
            return await web.fetch(read_request(call.arguments))
        except PalyraError as error:  # may name a host from an untrusted redirect
            return ToolOutput(text=error.message, is_failure=True, trust="external_untrusted")

    return [AsyncTool(spec, run, find_facets, inspect, targets) for spec in (FETCH, SEND)]
