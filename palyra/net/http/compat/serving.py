"""Serving a request that asks a model: read, start, follow, answer whole or in pieces."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Generic, Protocol, TypeVar

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
    read_past,
    settle,
)
from palyra.net.http.compat.sources import CompatSources

R = TypeVar("R", bound=CompatRequest)


class AnswerStream(Protocol):
    """How an API writes a stream."""

    def begin(self) -> bytes: ...
    def take(self, part: Part) -> bytes: ...
    def fail(self, error: PalyraError) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Api(Generic[R]):
    """One API that asks a model."""

    request: type[R]
    read: Callable[[R, ModelTarget, Mapping[str, str]], RunRequest]
    whole: Callable[[R, CompatAnswer, AnswerEnded], Any]
    stream: Callable[[R, CompatAnswer], AnswerStream]
    previous: Callable[[R], str | None] = lambda _request: None  # the run that it follows


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[R]):
    """One request of an API."""

    sources: CompatSources
    caller: Caller
    exchange: HttpExchange
    request: R
    key: IdempotencyKey | None
    size_bytes: int


async def serve(api: Api[R], asked: ApiRequest[R]) -> None:
    """Answer the request.  Raises PalyraError as long as nothing was sent.

    Cancellation: the run goes on, unless the client has left and asked for its end.
    """
    request = asked.request
    target = await find_target(asked.sources, asked.caller, request.model)
    backend, caller = asked.sources.backend, asked.caller
    past = await read_past(backend, caller, api.previous(request))
    read = partial(api.read, request, target, past.called)
    ask = read() if asked.size_bytes <= INLINE_BYTES else await run_sync(read)
    exchange = asked.exchange
    async with AsyncExitStack() as stack:
        async with _turn(asked.sources, past):
            ask = await settle(backend, caller, ask, past)
            answer = await stack.enter_async_context(
                answering(asked.sources, caller, ask, asked.key, lambda: exchange.is_gone)
            )
        exchange.headers["x-palyra-run-id"] = answer.run_id
        exchange.headers["x-palyra-session-id"] = answer.session_id
        if request.stream:
            await _stream(exchange, answer, api.stream(request, answer))
        else:
            ended = await answer.wait()
            await exchange.respond(HTTPStatus.OK, api.whole(request, answer, ended))


def _turn(sources: CompatSources, past: PreviousResponse) -> AbstractAsyncContextManager[None]:
    """What follows a response begins one after the other."""
    return nullcontext() if past.record is None else sources.turns.of(past.record.run_id)


async def _stream(exchange: HttpExchange, answer: CompatAnswer, stream: AnswerStream) -> None:
    """Until the end of the run, or of patience; what fails before the first piece has a status."""
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
