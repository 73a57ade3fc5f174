"""The web app: its pages, the checks before every request, and the table of all routes.

Owns: the app object.  Imported on first use (`palyra.net.http.late`).

Every request, also a later one of a kept-alive connection, passes the same checks as an upgrade.
The compat APIs have their routes in the app's table, but are called without its request cycle
(docs/decisions/0024-one-http-stack.md).

`/healthz`, `/readyz`, `/` and the files of the console are open.  Every other page needs a bearer token with the scope
`system:read`.  `/metrics` counts across principals, so its token needs a role that sees them all; it
has the text format of Prometheus, and includes the metrics of the process.
"""

import itertools
import math
from collections.abc import Iterable
from http import HTTPStatus
from typing import cast

from hypercorn.typing import ASGIFramework, ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.registry import Collector
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from palyra.core.access import Caller
from palyra.errors import Forbidden, PalyraError, RateLimited, Unauthenticated
from palyra.net.http.compat.routes import CompatApp
from palyra.net.http.console import ConsoleFiles, wants_page
from palyra.net.http.console_login import API_HEADERS, ConsoleLoginPage, read_head
from palyra.net.http.hypercorn_server import AppServer
from palyra.net.http.late import HttpSources
from palyra.net.http.metrics import Metric
from palyra.net.server.request_head import (
    LOGIN_PATH,
    WEBSOCKET_PATH,
    HttpRefusal,
    check_request,
    find_bearer,
)

MAX_BODY_BYTES = 1_048_576
BODY_TIMEOUT_S = 30
READ_SCOPE = "system:read"

FRONT_PAGE = """\
Palyra {version}, an agent daemon.

Clients talk to it over a WebSocket at ws://{host}/v1/ws (subprotocol palyra.v1);
`palyra run TEXT` sends a message.  In a browser this address is the web console; `palyra console`
prints a link that logs in.

  /healthz            the process is up
  /readyz             the daemon is ready to accept runs
  /metrics            metrics for Prometheus (token)
  /v1/asyncapi.json   the protocol in machine-readable form (token)
  /v1/models          values for `model`, for SDKs of OpenAI and Anthropic (token)
"""
STATUSES = {
    "unauthenticated": HTTPStatus.UNAUTHORIZED,
    "forbidden": HTTPStatus.FORBIDDEN,
    "invalid_params": HTTPStatus.BAD_REQUEST,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
}


class WebPages:
    """The pages, one method each.

    All are coroutines, also those that await nothing: Quart runs a plain function in a thread.
    """

    def __init__(self, sources: HttpSources, console: ConsoleFiles) -> None:
        self._sources = sources
        self._console = console

    async def front(self) -> Response:
        """Answer a browser with the console, any other client with plain text."""
        response = self._console.index() if wants_page() else self._text()
        response.headers["Vary"] = "Accept"
        return response

    def _text(self) -> Response:
        page = FRONT_PAGE.format(version=self._sources.version, host=request.host)
        return _respond(page)

    async def readyz(self) -> Response:
        """Answer 200 if the daemon is ready and the journal takes writes, else 503.

        Further lines count problems and open incidents, without their texts: those may contain
        paths, and this page is open.
        """
        state = self._sources.state()
        if state != "ready":
            return _respond(f"not ready: {state}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        if not self._sources.is_writable():
            text = "not ready: the journal cannot be written\n"
            return _respond(text, HTTPStatus.SERVICE_UNAVAILABLE)
        problems, incidents = len(self._sources.problems()), self._sources.count_incidents()
        more = f"{problems} problem(s); `palyra doctor` lists them\n" if problems else ""
        if incidents:
            more += f"{incidents} open incident(s); `palyra incidents list --open` lists them\n"
        return _respond(f"ready\n{more}")

    async def metrics(self) -> Response:
        caller = await self._authorize()
        if caller.principal_filter is not None:
            raise Forbidden(
                f"these metrics count the runs of all principals; role {caller.role!r} sees only its own"
            )
        page = render_readings(itertools.chain.from_iterable(s() for s in self._sources.metrics))
        return _respond(page, content_type=CONTENT_TYPE)

    async def asyncapi(self) -> Response:
        await self._authorize()
        return _respond(self._sources.asyncapi(), content_type="application/json")

    async def _authorize(self) -> Caller:
        """Return the caller of the request's token.  Raises Unauthenticated, Forbidden."""
        bearer = find_bearer(read_head(cast("HTTPScope", request.scope)))
        if bearer is None:
            raise Unauthenticated("this page needs `Authorization: Bearer TOKEN`")
        caller = await self._sources.authenticate(bearer)
        caller.require(READ_SCOPE)
        return caller


class GuardedApp:
    """The app behind the checks of Host and Origin, which every request passes first."""

    def __init__(self, app: QuartTrio, sources: HttpSources) -> None:
        self._app = app
        self._names = sources.names
        self._compat = (
            CompatApp(sources.compat, app.url_map) if sources.compat is not None else None
        )

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        refusal = self._check(scope)
        compat = self._compat
        if refusal is None and scope["type"] == "http" and compat and compat.serves(scope["path"]):
            await compat(scope, receive, send)
        elif refusal is None:
            await self._app(_literal(cast("HTTPScope", scope)), receive, send)
        elif scope["type"] == "http":
            await _answer(send, refusal)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.text})

    def _check(self, scope: Scope) -> HttpRefusal | None:
        """Refuse all but HTTP/1 requests that name this daemon.

        The second request of a connection was not seen by the acceptor, so it may be anything.
        """
        if scope["type"] != "http":
            return HttpRefusal(HTTPStatus.BAD_REQUEST, "a WebSocket needs a connection of its own")
        if scope["http_version"] not in {"1.0", "1.1"}:
            return HttpRefusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "use HTTP/1.1")
        return check_request(read_head(scope), self._names())


def _literal(scope: HTTPScope) -> HTTPScope:
    """Return the request with its path as received: pages have no percent-encoded spellings."""
    return cast("HTTPScope", {**scope, "path": scope["raw_path"].decode("ascii")})


def build_server(sources: HttpSources) -> AppServer:
    """Return a server of the guarded app."""
    return AppServer(cast("ASGIFramework", GuardedApp(build_app(sources), sources)))


def build_app(sources: HttpSources) -> QuartTrio:
    """Return the app with all its pages."""
    app = QuartTrio("palyra", static_folder=None)
    app.config.update(
        MAX_CONTENT_LENGTH=MAX_BODY_BYTES, BODY_TIMEOUT=BODY_TIMEOUT_S, RESPONSE_TIMEOUT=None
    )
    app.url_map.merge_slashes = False  # an address has one spelling, and none redirects
    console = ConsoleFiles(sources.version)
    pages = WebPages(sources, console)
    app.add_url_rule("/", view_func=pages.front)
    app.add_url_rule("/console-worker.js", view_func=console.worker)
    app.add_url_rule("/console/<release>/<path:name>", view_func=console.file)
    if sources.logins is not None:
        login = ConsoleLoginPage(sources, sources.logins)
        app.add_url_rule(LOGIN_PATH.decode(), view_func=login.log_in, methods=["POST"])
    app.add_url_rule("/healthz", view_func=_healthz)
    app.add_url_rule("/readyz", view_func=pages.readyz)
    app.add_url_rule("/metrics", view_func=pages.metrics)
    app.add_url_rule("/v1/asyncapi.json", view_func=pages.asyncapi)
    app.add_url_rule(WEBSOCKET_PATH.decode(), view_func=_want_websocket)
    app.register_error_handler(HTTPException, _explain)
    app.register_error_handler(PalyraError, _explain)
    return app


async def _healthz() -> Response:  # noqa: RUF029 - Quart runs a plain function in a thread
    return _respond("up\n")


async def _want_websocket() -> Response:  # noqa: RUF029 - as above
    """Answer a plain request to the WebSocket's address (RFC 9110 section 15.5.22)."""
    text = "this address speaks WebSocket: connect with ws:// and subprotocol palyra.v1\n"
    response = _respond(text, HTTPStatus.UPGRADE_REQUIRED)
    response.headers["Upgrade"] = "websocket"
    return response


async def _explain(error: Exception) -> Response:  # noqa: RUF029 - as above
    """Answer an error with one line of plain text; an unexpected one is a 500 without details."""
    if isinstance(error, PalyraError):
        status = STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
        response = _respond(f"{error.message}\n", status)
        if isinstance(error, RateLimited):
            response.headers["Retry-After"] = str(math.ceil(error.retry_after_ms / 1000))
    else:
        status = HTTPStatus(getattr(error, "code", None) or HTTPStatus.INTERNAL_SERVER_ERROR)
        response = _respond(f"{status.phrase}\n", status)
    if status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _respond(
    body: str | bytes,
    status: HTTPStatus = HTTPStatus.OK,
    content_type: str = "text/plain; charset=utf-8",
) -> Response:
    return Response(body, status, API_HEADERS, content_type=content_type)


async def _answer(send: ASGISendCallable, refusal: HttpRefusal) -> None:
    """Send a refusal without the app."""
    headers = {"Content-Type": "text/plain; charset=utf-8", "Connection": "close", **API_HEADERS}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    status, body = refusal.status.value, f"{refusal.text}\n".encode()
    await send(
        {"type": "http.response.start", "status": status, "headers": pairs, "trailers": False}
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


__all__ = ["CONTENT_TYPE", "render_readings"]

Family = CounterMetricFamily | GaugeMetricFamily


class _Readings(Collector):
    """The readings of one scrape."""

    def __init__(self, readings: Iterable[Metric]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for reading in self._readings:
            family = families.get(reading.name) or _family(reading)
            families[reading.name] = family
            family.add_metric([value for _, value in reading.labels], reading.value)
        return families.values()


def _family(reading: Metric) -> Family:
    kind = CounterMetricFamily if reading.is_total else GaugeMetricFamily
    return kind(reading.name, reading.help, labels=[name for name, _ in reading.labels])


def render_readings(readings: Iterable[Metric]) -> bytes:
    """Return the metrics page; names of counters end in `_total`."""
    registry = CollectorRegistry(auto_describe=False)  # its own: nothing global is exported
    ProcessCollector(registry=registry)
    registry.register(_Readings(readings))
    return generate_latest(registry)
