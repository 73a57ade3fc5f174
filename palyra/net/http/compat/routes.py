"""The routes: who asks, for what, how often; errors in the shape that the API has.

Owns: the request rates of tokens.  Every request meets the checks of Host and Origin before it
comes here (`net.app`).
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

from palyra.actors.kernel.threads import run_sync
from palyra.core.access import Caller
from palyra.core.text.excerpt import truncate_safely
from palyra.errors import (
    InvalidParams,
    InvariantBroken,
    NotFound,
    PalyraError,
    RateLimited,
    Unauthenticated,
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
from palyra.net.http.compat.headers import find_key, with_headers
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
from palyra.net.http.compat.params import refuse_unknown, without_unknown_nulls
from palyra.net.http.compat.responses import (
    Response,
    ResponsesRequest,
    ResponseStream,
    build_response,
    read_responses,
    response_under_way,
    run_id_of,
    whole_response,
)
from palyra.net.http.compat.run_follower import token_holds
from palyra.net.http.compat.run_request import find_answer
from palyra.net.http.compat.serving import Api, ApiRequest, serve
from palyra.net.http.compat.sources import CompatSources
from palyra.net.protocol import jsonrpc
from palyra.net.protocol.params import Params, convert_params
from palyra.net.server.request_head import WEBSOCKET_PATH, find_bearer

log = structlog.get_logger("palyra.http")
P = TypeVar("P", bound=Params)

READ_SCOPE = "system:read"
PREFIX = "/v1/"
OTHERS = frozenset({WEBSOCKET_PATH.decode(), "/v1/asyncapi.json"})  # the daemon's own protocol
MESSAGES_PATH = "/v1/messages"  # its errors have a shape of their own
MAX_BODY_BYTES = 16_777_216  # pictures are in it as base64
MAX_TOKENS_KNOWN = 1_024  # whose rates are remembered
UNIT_BYTES = 16_384  # a request costs one more of its rate per started unit, as on a socket

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
    rest: str = ""  # what the path names
    body: bytes = b""  # until it is decoded: a run may be long
    size_bytes: int = 0  # of the body

    async def read(self) -> None:
        """Read the body.  Raises TooLarge, TooSlow, Gone."""
        self.body = await self.exchange.read_body(MAX_BODY_BYTES)
        self.size_bytes = len(self.body)

    async def decode(self, kind: type[P]) -> P:
        """The body, once.  Raises BadMessage, InvalidParams."""
        body, self.body = self.body, b""
        if len(body) <= INLINE_BYTES:
            return _decode(body, kind)
        return await run_sync(_decode, body, kind)


Handler = Callable[[HttpCall], Awaitable[None]]


class CompatRouter:
    """An ASGI app for the paths it knows."""

    def __init__(self, sources: CompatSources) -> None:
        self._sources = sources
        self._rates: dict[str, TokenBucket] = {}
        self._under_way: Counter[str] = Counter()

    @staticmethod
    def knows(path: str) -> bool:
        """Whether it answers that path: also one that is none, but would be of these APIs."""
        return path.startswith(PREFIX) and path not in OTHERS

    async def __call__(
        self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Answer one request.  Cancellation: the run it started goes on."""
        exchange = HttpExchange(scope, receive, send, self._sources.backend.redact)
        error: PalyraError | None = None
        try:
            await self._visit(exchange)
        except* PalyraError as group:
            error = _first(group)
        if isinstance(error, InvariantBroken):
            log.error("request failed", path=exchange.path, exc_info=error)
        if error is not None and not exchange.has_begun and not isinstance(error, Gone):
            await _refuse(exchange, error)

    async def _visit(self, exchange: HttpExchange) -> None:
        """Who is it, may they ask now, what do they ask: in this order."""
        backend = self._sources.backend
        caller = await backend.authenticate(_find_token(exchange))
        self._check_rate(caller, 1)
        handler, rest = _route(exchange)
        with self._place(caller):
            visit = HttpCall(self._sources, caller, exchange, rest)
            await visit.read()
            self._check_rate(caller, visit.size_bytes // UNIT_BYTES)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end_with_client, exchange, nursery.cancel_scope)
                async with token_holds(backend, caller):
                    await handler(visit)
                nursery.cancel_scope.cancel("answered")

    @contextmanager
    def _place(self, caller: Caller) -> Generator[None]:
        """One of the places for what a token may have under way.  Raises RateLimited."""
        limit = self._sources.backend.limits.max_inflight
        if self._under_way[caller.token_id] >= limit:
            raise RateLimited(f"{limit} requests of this token are under way, the limit")
        self._under_way[caller.token_id] += 1
        try:
            yield
        finally:
            self._under_way[caller.token_id] -= 1
            if not self._under_way[caller.token_id]:
                del self._under_way[caller.token_id]

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
    is_message = exchange.path.startswith(MESSAGES_PATH)
    told = message_error(error) if is_message else {"error": error_body(error)}
    await exchange.respond(status_of(error), told)


def _first(group: BaseExceptionGroup[PalyraError]) -> PalyraError:
    """The first of several errors, however deep in nurseries it was raised."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _end_with_client(exchange: HttpExchange, scope: trio.CancelScope) -> None:
    await exchange.wait_gone()
    scope.cancel("the client has left")


def _find_token(exchange: HttpExchange) -> str:
    token = find_bearer(exchange.head) or exchange.header(b"x-api-key")
    if not token:
        raise Unauthenticated("a token is needed: `Authorization: Bearer TOKEN`")
    return token


# --- handlers ------------------------------------------------------------------------------------


async def _chat(visit: HttpCall) -> None:
    await _ask(CHAT, visit)


async def _messages(visit: HttpCall) -> None:
    await _ask(MESSAGES, visit)


async def _count(visit: HttpCall) -> None:
    request = await visit.decode(CountRequest)
    counted = await count_tokens(visit.sources, visit.caller, request)
    await visit.exchange.respond(HTTPStatus.OK, counted)


async def _embeddings(visit: HttpCall) -> None:
    request = await visit.decode(EmbeddingsRequest)
    made = await embed(visit.sources, visit.caller, request)
    await visit.exchange.respond(HTTPStatus.OK, made)


async def _responses(visit: HttpCall) -> None:
    await _ask(RESPONSES, visit)


async def _response(visit: HttpCall) -> None:
    """A response of before; of one that is under way, what is known without waiting."""
    if visit.exchange.asks("stream", "true"):
        raise Unsupported("stream: only a response that is being asked for streams", field="stream")
    await _show(visit, run_id_of(visit.rest))


async def _cancel(visit: HttpCall) -> None:
    run_id = run_id_of(visit.rest)
    gateway = visit.sources.backend.gateway
    await gateway.cancel_run(visit.caller, run_id, "cancelled as a response")
    await _show(visit, run_id)


async def _show(visit: HttpCall, run_id: str) -> None:
    backend = visit.sources.backend
    record = await backend.gateway.get_run(visit.caller, run_id)
    if not record.is_terminal:
        await visit.exchange.respond(HTTPStatus.OK, response_under_way(record))
        return
    async with find_answer(backend, visit.caller, record) as answer:
        response = build_response(record.model, answer, await answer.read_end())
        await visit.exchange.respond(HTTPStatus.OK, response)


async def _keep(_visit: HttpCall) -> None:  # noqa: RUF029 - as all handlers
    raise Unsupported("a response is a run, and a run keeps its tape: it cannot be deleted")


async def _ask(api: Api[Any], visit: HttpCall) -> None:
    exchange = visit.exchange
    request = with_headers(await visit.decode(api.request), exchange)
    size, redact = visit.size_bytes, visit.sources.backend.redact
    key = await find_key(exchange, visit.caller, request, size, redact)
    asked = ApiRequest(visit.sources, visit.caller, exchange, request, key, size)
    await serve(api, asked)


async def _models(visit: HttpCall) -> None:
    await visit.exchange.respond(HTTPStatus.OK, await list_cards(visit.sources, visit.caller))


async def _model(visit: HttpCall) -> None:
    card = await find_card(visit.sources, visit.caller, visit.rest)
    await visit.exchange.respond(HTTPStatus.OK, card)


def _decode(body: bytes, kind: type[P]) -> P:
    """The request.  Raises BadMessage, InvalidParams, Unsupported."""
    value = jsonrpc.read_json(body)
    if not isinstance(value, dict):
        raise InvalidParams(f"the body must be a JSON object, not {jsonrpc.show(value)}")
    refuse_unknown(kind, value)
    try:
        return convert_params(kind, value)
    except InvalidParams as error:
        pruned = without_unknown_nulls(kind, value)
        if pruned == value:
            raise error from None
    return convert_params(kind, msgspec.convert(pruned, dict[str, Any]))


# --- routes --------------------------------------------------------------------------------------


async def _openapi(visit: HttpCall) -> None:
    visit.caller.require(READ_SCOPE)
    version = visit.sources.backend.version
    await visit.exchange.respond(HTTPStatus.OK, render_openapi(ROUTES, version=version))


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/v1/models", _models, "What `model` may name", answer=ModelCards),
    HttpRoute("GET", "/v1/models/{id}", _model, "One name", answer=ModelCard),
    HttpRoute(
        "POST",
        "/v1/chat/completions",
        _chat,
        "Ask, in OpenAI's chat completions",
        ChatRequest,
        ChatCompletion,
        ChatChunk,
    ),
    HttpRoute(
        "POST",
        "/v1/responses",
        _responses,
        "Ask, in OpenAI's responses",
        ResponsesRequest,
        Response,
        StreamEvent,
    ),
    HttpRoute("GET", "/v1/responses/{id}", _response, "A response of before", answer=Response),
    HttpRoute("DELETE", "/v1/responses/{id}", _keep, "Refused: a run keeps its tape"),
    HttpRoute("POST", "/v1/responses/{id}/cancel", _cancel, "End its run", answer=Response),
    HttpRoute(
        "POST",
        MESSAGES_PATH,
        _messages,
        "Ask, in Anthropic's messages",
        MessagesRequest,
        MessageAnswer,
        StreamEvent,
        error=MessageErrorAnswer,
    ),
    HttpRoute(
        "POST",
        f"{MESSAGES_PATH}/count_tokens",
        _count,
        "What a message would take",
        CountRequest,
        TokenCount,
        error=MessageErrorAnswer,
    ),
    HttpRoute(
        "POST", "/v1/embeddings", _embeddings, "Texts as vectors", EmbeddingsRequest, EmbeddingList
    ),
    HttpRoute("GET", "/v1/openapi.json", _openapi, "This document"),
)
_PATTERNS = [(route, route.pattern) for route in ROUTES]


def _find_routes(path: str) -> tuple[dict[str, HttpRoute], str]:
    """The routes of a path by method, and what the path names."""
    found: dict[str, HttpRoute] = {}
    rest = ""
    for route, pattern in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            found[route.method] = route
            rest = match.groupdict().get("id", "")
    return found, rest


def _route(exchange: HttpExchange) -> tuple[Handler, str]:
    """Who answers.  Raises NotFound, WrongMethod."""
    found, rest = _find_routes(exchange.path)
    if not found:
        raise NotFound(f"no such path: {truncate_safely(exchange.path, 128)!r}")
    route = found.get(exchange.method)
    if route is None:
        raise WrongMethod(f"{exchange.method} is not possible here, only {', '.join(found)}")
    return route.handler, rest
