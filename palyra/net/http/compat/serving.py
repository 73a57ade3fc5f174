"""Serving a request for an answer of a model: read, start, follow, answer whole or in pieces."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from palyra.actors.kernel.threads import run_sync
from palyra.core.access import Caller
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.errors import PalyraError
from palyra.net.http.compat import http_exchange
from palyra.net.http.compat.answer import AnswerEnded, Part
from palyra.net.http.compat.http_exchange import INLINE_BYTES, HttpExchange
from palyra.net.http.compat.model_names import ModelTarget, find_target
from palyra.net.http.compat.params import CompatRequest
from palyra.net.http.compat.run_request import (
    CompatAnswer,
    PreviousResponse,
    RunRequest,
    answering,
    read_previous,
    settle,
)
from palyra.net.http.compat.sources import CompatSources

R = TypeVar("R", bound=CompatRequest)
MAX_IGNORED_CHARS = 2_048  # of the header


class AnswerStream(Protocol):
    """The stream of an answer in the format of one API."""

    def begin(self) -> bytes: ...
    def take(self, part: Part) -> bytes: ...
    def fail(self, error: PalyraError) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Api(Generic[R]):
    """One API: its request, and the formats of its answers."""

    request: type[R]
    read: Callable[[R, ModelTarget, Mapping[str, str]], RunRequest]
    whole: Callable[[R, CompatAnswer, AnswerEnded], Any]
    stream: Callable[[R, CompatAnswer], AnswerStream]
    previous: Callable[[R], str | None] = lambda _request: (
        None
    )  # the run that the request continues


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[R]):
    """One request of an API, decoded."""

    sources: CompatSources
    caller: Caller
    exchange: HttpExchange
    request: R
    key: IdempotencyKey | None
    size_bytes: int
    ignored: tuple[str, ...] = ()  # members that the API's struct lacks


async def serve(api: Api[R], call: ApiRequest[R]) -> None:
    """Answer the request.  Raises PalyraError as long as nothing was sent.

    Cancellation: the run continues, unless the client has disconnected and call for its end.
    """
    request = call.request
    target = await find_target(call.sources, call.caller, request.model)
    backend, caller = call.sources.backend, call.caller
    previous_response = await read_previous(backend, caller, api.previous(request))
    read = partial(api.read, request, target, previous_response.called)
    is_short = call.size_bytes <= INLINE_BYTES and not request.has_answer_schema
    ask = read() if is_short else await run_sync(read)
    ask = msgspec.structs.replace(ask, chat=ask.chat.with_ignored(call.ignored))
    exchange = call.exchange
    name_ignored(exchange, ask.chat.ignored)
    async with AsyncExitStack() as stack:
        async with _turn(call.sources, previous_response):
            ask = await settle(backend, caller, ask, previous_response)
            answer = await stack.enter_async_context(
                answering(call.sources, caller, ask, call.key, lambda: exchange.is_gone)
            )
        exchange.headers["x-palyra-run-id"] = answer.run_id
        exchange.headers["x-palyra-session-id"] = answer.session_id
        if request.stream:
            await send_stream(exchange, answer, api.stream(request, answer))
        else:
            ended = await answer.wait()
            await exchange.respond(HTTPStatus.OK, api.whole(request, answer, ended))


def name_ignored(exchange: HttpExchange, places: tuple[str, ...]) -> None:
    """Name places of the request without effect in the answer's headers."""
    if places:
        text = ", ".join(place for place in places if place.isascii() and place.isprintable())
        exchange.set_header("palyra-ignored", text[:MAX_IGNORED_CHARS])


def _turn(
    sources: CompatSources, previous_response: PreviousResponse
) -> AbstractAsyncContextManager[None]:
    """Serialise the start of runs that continue the same response."""
    return (
        nullcontext()
        if previous_response.record is None
        else sources.turns.of(previous_response.record.run_id)
    )


async def send_stream(exchange: HttpExchange, answer: CompatAnswer, stream: AnswerStream) -> None:
    """Send parts until the run ends.  A failure before the first piece has a status of its own."""
    while not answer.is_over:
        try:
            parts = await answer.next_parts()
        except PalyraError as error:
            if not exchange.has_begun:
                raise
            await exchange.send(stream.fail(error))
            break
        pieces: list[bytes] = []
        if not exchange.has_begun:
            answer.check()
            await exchange.begin_stream()
            pieces.append(stream.begin())
        pieces += [stream.take(part) for part in parts]
        await exchange.send(b"".join(pieces) or http_exchange.HEARTBEAT)
    await exchange.end_stream()
