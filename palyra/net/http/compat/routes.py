"""The compat routes: authentication, rates, dispatch, and errors in the shape of each API.

Owns: the request rates of tokens.  The checks of Host and Origin come first
(`palyra.net.http.pages`).  A request passes these steps in order, and the first that fails answers:

1. authenticate: the headers name one token (400 if they may name two), which says whose request it is;
2. the token's rate, for one request;
3. the route (404, 405), from the web app's table;
4. a place among the requests of that token in progress;
5. the body, and the token's rate for its size;
6. the handler, which ends when the client leaves, or the token expires or is revoked.

The handlers are called with the ASGI connection, not as views of the web framework; why is in
docs/decisions/0024-one-http-stack.md.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import structlog
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import Map

from palyra.actors.kernel.threads import run_sync
from palyra.core.access import Caller
from palyra.core.text.excerpt import truncate_safely
from palyra.errors import (
    InvalidParams,
    InvariantBroken,
    NotFound,
    PalyraError,
    RateLimited,
)
from palyra.net.api.rate_limit import TokenBucket
from palyra.net.http.compat.chat import (
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    ChatStream,
    read_chat,
    whole_chat,
)
from palyra.net.http.compat.embeddings import EmbeddingList, EmbeddingsRequest, embed
from palyra.net.http.compat.errors import (
    Unsupported,
    WrongMethod,
    error_body,
    error_headers,
    status_of,
)
from palyra.net.http.compat.headers import check_headers, find_key, find_token, with_headers
from palyra.net.http.compat.http_exchange import INLINE_BYTES, Gone, HttpExchange
from palyra.net.http.compat.messages import (
    CountRequest,
    MessageAnswer,
    MessagesRequest,
    MessageStream,
    TokenCount,
    count_tokens,
    message_error,
    read_messages,
    whole_message,
)
from palyra.net.http.compat.model_names import ModelCard, ModelCards, find_card, list_cards
from palyra.net.http.compat.openapi import (
    HttpRoute,
    MessageErrorAnswer,
    StreamEvent,
    render_openapi,
)
from palyra.net.http.compat.params import without_unknown
from palyra.net.http.compat.responses import (
    Response,
    ResponsesRequest,
    ResponseStream,
    ResponseTokens,
    build_response,
    count_response,
    read_responses,
    response_in_progress,
    run_id_of,
    whole_response,
)
from palyra.net.http.compat.run_follower import token_holds
from palyra.net.http.compat.run_request import find_answer
from palyra.net.http.compat.serving import Api, ApiRequest, name_ignored, send_stream, serve
from palyra.net.http.compat.sources import CompatSources
from palyra.net.protocol import jsonrpc
from palyra.net.protocol.params import Params, convert_params
from palyra.net.server.request_head import LOGIN_PATH, WEBSOCKET_PATH

log = structlog.get_logger("palyra.http")
P = TypeVar("P", bound=Params)

READ_SCOPE = "system:read"
PREFIX = "/v1/"
# The daemon's own protocol.
OTHERS = frozenset({WEBSOCKET_PATH.decode(), LOGIN_PATH.decode(), "/v1/asyncapi.json"})
# Their errors have a shape of their own.
MESSAGES_PATH, MESSAGES_HEADER = "/v1/messages", b"anthropic-version"
MAX_BODY_BYTES = 16_777_216  # pictures are in it as base64
MAX_TOKENS_KNOWN = 1_024  # rates in memory
UNIT_BYTES = 16_384  # each whole unit of a body costs one more request of the rate

CHAT = Api(
    request=ChatRequest,
    read=read_chat,
    whole=whole_chat,
    stream=ChatStream,
)
MESSAGES = Api(
    request=MessagesRequest,
    read=read_messages,
    whole=whole_message,
    stream=MessageStream,
)
RESPONSES = Api(
    request=ResponsesRequest,
    read=read_responses,
    whole=whole_response,
    stream=ResponseStream,
    previous=lambda request: (
        None if request.previous_response_id is None else run_id_of(request.previous_response_id)
    ),
)


@dataclass(slots=True)
class HttpCall:
    """One authenticated request."""

    sources: CompatSources
    caller: Caller
    exchange: HttpExchange
    rest: str = ""  # the id in the path
    body: bytes = b""  # empty once it is decoded
    size_bytes: int = 0  # of the body

    ignored: tuple[str, ...] = ()  # members of the body that its struct lacks

    async def decode(self, kind: type[P]) -> P:
        """Decode the body, once.  Raises BadMessage, InvalidParams."""
        body, self.body = self.body, b""
        if len(body) <= INLINE_BYTES:
            request, self.ignored = _decode(body, kind)
        else:
            request, self.ignored = await run_sync(_decode, body, kind)
        name_ignored(self.exchange, self.ignored)
        return request


Handler = Callable[[HttpCall], Awaitable[None]]


class CompatApp:
    """An ASGI app for the paths below `/v1/`."""

    def __init__(self, sources: CompatSources, urls: Map) -> None:
        """`urls`: the routes of the web app, to which those of this app are added."""
        self._sources = sources
        for route in ROUTES:
            urls.add(route.rule)
        self._urls = urls.bind("palyra")
        self._rates: dict[str, TokenBucket] = {}
        self._in_progress: Counter[str] = Counter()

    @staticmethod
    def serves(path: str) -> bool:
        """True for every path of these APIs, also for one without a route: its 404 is theirs."""
        return path.startswith(PREFIX) and path not in OTHERS

    async def __call__(
        self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Answer one request.  Cancellation: the run that it started continues."""
        exchange = HttpExchange(scope, receive, send, self._sources.backend.redact)
        error: PalyraError | None = None
        try:
            await self._serve(exchange)
        except* PalyraError as group:
            error = _first(group)
        if isinstance(error, InvariantBroken):
            log.error("request failed", path=exchange.path, exc_info=error)
        if error is not None and not exchange.has_begun and not isinstance(error, Gone):
            await _refuse(exchange, error)

    async def _serve(self, exchange: HttpExchange) -> None:
        backend = self._sources.backend
        check_headers(exchange.head)
        caller = await backend.authenticate(find_token(exchange))
        self._check_rate(caller, 1)
        handler, rest = self._route(exchange)
        with self._place(caller):
            body = await exchange.read_body(MAX_BODY_BYTES)
            self._check_rate(caller, len(body) // UNIT_BYTES)
            call = HttpCall(self._sources, caller, exchange, rest, body, len(body))
            del body  # until the call decodes it: a run may be long
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end_with_client, exchange, nursery.cancel_scope)
                async with token_holds(backend, caller):
                    await handler(call)
                nursery.cancel_scope.cancel("answered")

    def _route(self, exchange: HttpExchange) -> tuple[Handler, str]:
        """Return the handler, and the id that the path names.  Raises NotFound, WrongMethod."""
        try:
            route, values = self._urls.match(exchange.path, exchange.method)
        except MethodNotAllowed:
            route, values = None, {}
        except HTTPException:
            raise NotFound(f"no such path: {truncate_safely(exchange.path, 128)!r}") from None
        if not isinstance(route, HttpRoute) or route.method != exchange.method:  # HEAD matches GET
            allowed = [name for name in self._urls.allowed_methods(exchange.path) if name != "HEAD"]
            text = f"{exchange.method} is not supported here; supported: {', '.join(allowed)}"
            raise WrongMethod(text)
        if not route.is_literal_in(exchange.head.target):
            raise NotFound("no such path: only an id may be percent-encoded")
        return route.handler, values.get("id", "")

    @contextmanager
    def _place(self, caller: Caller) -> Generator[None]:
        """Take one of the places for requests of a token in progress.  Raises RateLimited."""
        limit = self._sources.backend.limits.max_inflight
        if self._in_progress[caller.token_id] >= limit:
            raise RateLimited(f"{limit} requests of this token are in progress, the limit")
        self._in_progress[caller.token_id] += 1
        try:
            yield
        finally:
            self._in_progress[caller.token_id] -= 1
            if not self._in_progress[caller.token_id]:
                del self._in_progress[caller.token_id]

    def _check_rate(self, caller: Caller, units: int) -> None:
        limits, now_s = self._sources.backend.limits, trio.current_time()
        if caller.token_id not in self._rates and len(self._rates) >= MAX_TOKENS_KNOWN:
            self._rates.clear()
        per_s = limits.requests_per_s
        fresh = TokenBucket(per_s, limits.burst or 2 * per_s, now_s)
        rate = self._rates.setdefault(caller.token_id, fresh)
        if units and not rate.take(now_s, min(units, 2 * per_s)):
            raise RateLimited(f"more than {per_s} requests a second", retry_after_ms=rate.wait_ms)


async def _refuse(exchange: HttpExchange, error: PalyraError) -> None:
    exchange.headers.update(error_headers(error))
    is_message = exchange.path.startswith(MESSAGES_PATH) or bool(
        exchange.head.values(MESSAGES_HEADER)
    )
    answer = message_error(error) if is_message else {"error": error_body(error)}
    await exchange.respond(status_of(error), answer)


def _first(group: BaseExceptionGroup[PalyraError]) -> PalyraError:
    """Return the first error of a group, however many nurseries wrapped it."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _end_with_client(exchange: HttpExchange, scope: trio.CancelScope) -> None:
    await exchange.wait_gone()
    scope.cancel("the client has left")


# --- handlers ------------------------------------------------------------------------------------


async def _chat(call: HttpCall) -> None:
    await _ask(CHAT, call)


async def _messages(call: HttpCall) -> None:
    await _ask(MESSAGES, call)


async def _count(call: HttpCall) -> None:
    request = await call.decode(CountRequest)
    counted = await count_tokens(call.sources, call.caller, request)
    await call.exchange.respond(HTTPStatus.OK, counted)


async def _embeddings(call: HttpCall) -> None:
    request = await call.decode(EmbeddingsRequest)
    made = await embed(call.sources, call.caller, request)
    await call.exchange.respond(HTTPStatus.OK, made)


async def _responses(call: HttpCall) -> None:
    await _ask(RESPONSES, call)


async def _response(call: HttpCall) -> None:
    """Answer with an earlier response; with one in progress as far as it is known."""
    run_id, exchange = run_id_of(call.rest), call.exchange
    if not exchange.asks("stream", "true"):
        await _show(call, run_id)
        return
    backend = call.sources.backend
    record = await backend.gateway.get_run(call.caller, run_id)
    async with find_answer(backend, call.caller, record) as answer:
        stream = ResponseStream(ResponsesRequest(model=record.model, input=""), answer)
        await send_stream(exchange, answer, stream)


async def _cancel(call: HttpCall) -> None:
    run_id = run_id_of(call.rest)
    gateway = call.sources.backend.gateway
    await gateway.cancel_run(call.caller, run_id, "cancelled as a response")
    await _show(call, run_id)


async def _show(call: HttpCall, run_id: str) -> None:
    backend = call.sources.backend
    record = await backend.gateway.get_run(call.caller, run_id)
    if not record.is_terminal:
        await call.exchange.respond(HTTPStatus.OK, response_in_progress(record))
        return
    async with find_answer(backend, call.caller, record) as answer:
        response = build_response(record.model, answer, await answer.read_end())
        await call.exchange.respond(HTTPStatus.OK, response)


async def _count_response(call: HttpCall) -> None:
    request = await call.decode(ResponsesRequest)
    counted = await count_response(call.sources, call.caller, request)
    await call.exchange.respond(HTTPStatus.OK, counted)


async def _refuse_compact(_call: HttpCall) -> None:  # noqa: RUF029 - as all handlers
    raise Unsupported("compact: not supported; the daemon compacts the sessions that it keeps")


async def _refuse_items(_call: HttpCall) -> None:  # noqa: RUF029 - as all handlers
    raise Unsupported("input_items: not supported; `palyra tape show` has a run's input")


async def _refuse_delete(_call: HttpCall) -> None:  # noqa: RUF029 - as all handlers
    raise Unsupported("a response is a run, and a run keeps its tape: it cannot be deleted")


async def _ask(api: Api[Any], call: HttpCall) -> None:
    exchange = call.exchange
    request = with_headers(await call.decode(api.request), exchange)
    size, redact = call.size_bytes, call.sources.backend.redact
    key = await find_key(exchange, call.caller, request, size, redact)
    await serve(
        api, ApiRequest(call.sources, call.caller, exchange, request, key, size, call.ignored)
    )


async def _models(call: HttpCall) -> None:
    await call.exchange.respond(HTTPStatus.OK, await list_cards(call.sources, call.caller))


async def _model(call: HttpCall) -> None:
    card = await find_card(call.sources, call.caller, call.rest)
    await call.exchange.respond(HTTPStatus.OK, card)


def _decode(body: bytes, kind: type[P]) -> tuple[P, tuple[str, ...]]:
    """Return the request, and the members that are ignored.  Raises BadMessage, InvalidParams."""
    value = jsonrpc.read_json(body)
    if not isinstance(value, dict):
        raise InvalidParams(f"the body must be a JSON object, not {jsonrpc.show(value)}")
    try:
        return convert_params(kind, value), ()
    except InvalidParams:
        pruned, ignored = without_unknown(kind, value)
    return convert_params(kind, msgspec.convert(pruned, dict[str, Any])), ignored


# --- routes --------------------------------------------------------------------------------------


async def _openapi(call: HttpCall) -> None:
    call.caller.require(READ_SCOPE)
    version = call.sources.backend.version
    await call.exchange.respond(HTTPStatus.OK, render_openapi(ROUTES, version=version))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/v1/models", _models, "Values for `model`", answer=ModelCards),
    HttpRoute("GET", "/v1/models/{id}", _model, "One name", answer=ModelCard),
    HttpRoute(
        "POST",
        "/v1/chat/completions",
        _chat,
        "Create a chat completion (OpenAI)",
        ChatRequest,
        ChatCompletion,
        ChatChunk,
    ),
    HttpRoute(
        "POST",
        "/v1/responses",
        _responses,
        "Create a response (OpenAI)",
        ResponsesRequest,
        Response,
        StreamEvent,
    ),
    HttpRoute(
        "POST",
        "/v1/responses/input_tokens",
        _count_response,
        "Count the tokens of a request",
        ResponsesRequest,
        ResponseTokens,
    ),
    HttpRoute("POST", "/v1/responses/compact", _refuse_compact, "Not supported"),
    HttpRoute("GET", "/v1/responses/{id}/input_items", _refuse_items, "Not supported"),
    HttpRoute("GET", "/v1/responses/{id}", _response, "Get an earlier response", answer=Response),
    HttpRoute(
        "DELETE", "/v1/responses/{id}", _refuse_delete, "Not supported: a run keeps its tape"
    ),
    HttpRoute(
        "POST", "/v1/responses/{id}/cancel", _cancel, "Cancel the response's run", answer=Response
    ),
    HttpRoute(
        "POST",
        MESSAGES_PATH,
        _messages,
        "Create a message (Anthropic)",
        MessagesRequest,
        MessageAnswer,
        StreamEvent,
        error=MessageErrorAnswer,
    ),
    HttpRoute(
        "POST",
        f"{MESSAGES_PATH}/count_tokens",
        _count,
        "Count the tokens of a message",
        CountRequest,
        TokenCount,
        error=MessageErrorAnswer,
    ),
    HttpRoute(
        "POST", "/v1/embeddings", _embeddings, "Create embeddings", EmbeddingsRequest, EmbeddingList
    ),
    HttpRoute("GET", "/v1/openapi.json", _openapi, "This document"),
)
