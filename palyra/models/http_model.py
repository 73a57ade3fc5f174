"""A model behind HTTP: asks in its provider's dialect and streams the answer.

Never: retries, once or at all (the run decides); reads a proxy from the environment; puts a key
into an error.  The first byte, and each one after it, must come within the stall time.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

import httpx
import msgspec
import trio

from palyra.core.ids import NewId
from palyra.core.ports import NowMs
from palyra.core.prompt import Delta, ModelFailure, ModelRequest, ModelTurn
from palyra.errors import PalyraError
from palyra.models.dialect import Dialect, Reader
from palyra.models.failures import http_failure, stream_failure
from palyra.models.sse import SseParser
from palyra.models.tool_names import wire_names
from palyra.models.turn_builder import TurnBuilder

CONNECT_S = 10.0
STALL_S = 60.0
MAX_ERROR_BYTES = 65_536
REST_S = 1.0  # after the last event, for the end of the response

FindKey = Callable[[], Awaitable[str]]  # the provider's key, "" for none; raises Unavailable


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model is and how it is spoken to."""

    provider: str
    base_url: str  # with the version: https://api.openai.com/v1
    dialect: Dialect
    model: str  # as the provider calls it
    max_tokens: int = 0  # of one answer; 0: the provider's own limit
    stall_s: float = STALL_S
    extra_headers: Mapping[str, str] = {}


def open_client() -> httpx.AsyncClient:
    """The HTTP client that all models share."""
    timeout = httpx.Timeout(None, connect=CONNECT_S, pool=CONNECT_S)  # stalls are told by us
    return httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout)


class HttpModel:
    """`core.ports.LanguageModel` over an endpoint."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        client: httpx.AsyncClient,
        find_key: FindKey,
        *,
        new_id: NewId,
        now_ms: NowMs,
    ) -> None:
        self.name = name
        self.provider = endpoint.provider
        self.endpoint = endpoint
        self._client = client
        self._find_key = find_key
        self._new_id = new_id
        self._now_ms = now_ms

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        """The finished turn; deltas are handed over as they arrive.

        Raises ModelFailure.  Cancellation: the connection is closed, nothing else changes.
        """
        spelt = wire_names(tool["name"] for tool in request.tools)
        builder = TurnBuilder(on_delta)
        reader = self.endpoint.dialect.reader(builder)
        async with self._ask(request, spelt) as response:
            await self._read(response, reader)
        return builder.build(request, {wire: name for name, wire in spelt.items()}, self._new_id)

    @asynccontextmanager
    async def _ask(
        self, request: ModelRequest, spelt: Mapping[str, str]
    ) -> AsyncGenerator[httpx.Response]:
        """An answer that is a stream; every other one is a failure."""
        endpoint, dialect = self.endpoint, self.endpoint.dialect
        body = dialect.body(request, endpoint.model, spelt, endpoint.max_tokens)
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            **endpoint.extra_headers,
            **dialect.headers(await self._key()),
        }
        sent = self._client.build_request(
            "POST",
            endpoint.base_url.rstrip("/") + dialect.path,
            content=msgspec.json.encode(body),
            headers=headers,
        )
        with _told(), _in_time(endpoint.stall_s):
            response = await self._client.send(sent, stream=True)
        try:
            if not _is_stream(response):
                await self._refuse(response)
            yield response
        finally:
            with trio.CancelScope(shield=True):  # closing does not wait for the peer
                await response.aclose()

    async def _key(self) -> str:
        try:
            return await self._find_key()
        except PalyraError as error:
            text = f"the key of {self.provider} cannot be found: {error.message}"
            raise ModelFailure("auth", text) from None

    async def _read(self, response: httpx.Response, reader: Reader) -> None:
        """Take events until the last one, or until the connection ends."""
        parser = SseParser()
        async with _body(response) as chunks:
            while (chunk := await self._next(chunks)) is not None:
                if any(reader.take(data) for data in parser.feed(chunk)):
                    return
        last = parser.finish()
        if not (last is not None and _is_last(reader, last)) and not reader.is_whole:
            raise ModelFailure("transient", "the connection ended in the middle of the answer")

    async def _refuse(self, response: httpx.Response) -> None:
        """Raise the failure that the answer tells of."""
        body = b""
        async with _body(response) as chunks:
            while len(body) < MAX_ERROR_BYTES and (chunk := await self._next(chunks)) is not None:
                body += chunk[: MAX_ERROR_BYTES - len(body)]
        if response.status_code != httpx.codes.OK:
            headers = {name.lower(): value for name, value in response.headers.items()}
            raise http_failure(response.status_code, headers, body, now_ms=self._now_ms())
        if b'"error"' in body:
            raise stream_failure(body)
        kind = response.headers.get("content-type", "no content type")
        raise ModelFailure("malformed", f"the provider answered with {kind}, not with a stream")

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """What arrives next; None at the end."""
        with _told(), _in_time(self.endpoint.stall_s):
            return await anext(chunks, None)


@asynccontextmanager
async def _body(response: httpx.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The body as it comes.

    It is five generators deep, and one that is left before its end is found by the collector and
    reported.  So it is always read to its end: to the real one, which frees the connection for the
    next request, or to one made by a cancel that goes through all of them.
    """
    chunks = response.aiter_raw()
    rest_s = 0.0
    try:
        yield chunks
        rest_s = REST_S
    finally:
        with trio.move_on_after(rest_s, shield=True), suppress(httpx.HTTPError):
            async for _ in chunks:
                pass


def _is_stream(response: httpx.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    is_plain = response.headers.get("content-encoding", "identity") == "identity"
    return (
        response.status_code == httpx.codes.OK
        and is_plain
        and kind.partition(";")[0].strip().lower() == "text/event-stream"
    )


def _is_last(reader: Reader, data: str) -> bool:
    """Whether an event without its closing line was the last; half an event is none."""
    try:
        return reader.take(data)
    except ModelFailure as failure:
        if failure.failure_class != "malformed":
            raise
        return False


@contextmanager
def _in_time(stall_s: float) -> Generator[None]:
    """Raise ModelFailure (timeout) when the block takes longer."""
    with trio.move_on_after(stall_s) as patience:
        yield
    if patience.cancelled_caught:
        raise ModelFailure("timeout", f"the provider was silent for {stall_s:g} s")


@contextmanager
def _told() -> Generator[None]:
    """What the transport reports, as failures; only its kind: the text may hold addresses."""
    try:
        yield
    except httpx.TimeoutException:
        text = f"the provider did not take the connection within {CONNECT_S:g} s"
        raise ModelFailure("timeout", text) from None
    except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise ModelFailure("unavailable", f"the provider cannot be reached: {error}") from None
    except httpx.HTTPError as error:
        text = f"the connection to the provider broke: {type(error).__name__}"
        raise ModelFailure("transient", text) from None
