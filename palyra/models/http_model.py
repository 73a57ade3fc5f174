"""Language model over HTTP: sends requests in its provider's dialect and streams the answer."""

from collections.abc import Callable

import httpx

from palyra.core.ids import NewId
from palyra.core.model.messages import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.core.ports import NowMs
from palyra.models.dialect import Reader, StreamParser, path_of, wire_names
from palyra.models.http_exchange import FindKey, ProviderEndpoint, ProviderRequest, TakeNext
from palyra.models.turn_builder import TurnBuilder


class HttpModel:
    """`core.ports.LanguageModel` over an HTTP endpoint."""

    def __init__(
        self,
        name: str,
        endpoint: ProviderEndpoint,
        client: httpx.AsyncClient,
        find_key: FindKey,
        *,
        new_id: NewId,
        now_ms: NowMs,
    ) -> None:
        self.name = name
        self.provider = endpoint.provider
        self._endpoint = endpoint
        self._exchange = ProviderRequest(endpoint, client, find_key, now_ms)
        self._new_id = new_id

    def most_output(self, request: ModelRequest) -> int:
        """Return the output limit that the request body sends."""
        return self._endpoint.dialect.most_tokens(request, self._endpoint.max_tokens)

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """Return the finished turn; pass deltas to `on_delta` as they arrive.

        Raises ModelFailure.  Cancellation: the connection is closed, nothing else changes.
        """
        endpoint, dialect = self._endpoint, self._endpoint.dialect
        spelt = wire_names(tool["name"] for tool in request.tools)
        builder = TurnBuilder(on_delta)
        body = dialect.body(request, endpoint.model, spelt, endpoint.max_tokens)
        path = path_of(dialect.path, endpoint.model)
        async with self._exchange.post(path, body, dialect.media_type) as take_next:
            await _read(take_next, dialect.parser(), dialect.reader(builder))
        return builder.build(request, {wire: name for name, wire in spelt.items()}, self._new_id)


async def _read(take_next: TakeNext, parser: StreamParser, reader: Reader) -> None:
    """Pass events to the reader until the last one or the end of the connection."""
    while (chunk := await take_next()) is not None:
        if any(reader.take(data) for data in parser.feed(chunk)):
            return
    last = parser.finish()
    if not (last is not None and _is_last(reader, last)) and not reader.is_whole:
        raise ModelFailure("transient", "the connection ended in the middle of the answer")


def _is_last(reader: Reader, data: str) -> bool:
    """True if a final event without its closing line was the last; a partial event is dropped."""
    try:
        return reader.take(data)
    except ModelFailure as failure:
        if failure.failure_class != "malformed":
            raise
        return False
