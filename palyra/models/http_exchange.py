"""One HTTP request to a provider and its answer, as bytes.

Never retries: the run decides that.  Never puts a key into an error, even if the provider repeats it.  The first byte, and each following one, must arrive
within the stall time.
"""

import math
import re
import ssl
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import certifi
import httpx
import msgspec
import trio

from palyra.core.model.messages import ModelFailure
from palyra.core.outbound import UNTRUSTED, Outbound, place_of
from palyra.core.ports import NowMs
from palyra.errors import InvalidParams, PalyraError
from palyra.models.dialect import Dialect
from palyra.models.failures import http_failure, stream_failure

CONNECT_S = 10.0
STALL_S = 60.0
MAX_ERROR_BYTES = 65_536
REST_S = 1.0  # time to read the end of the response after the last needed byte
DIRECTLY = Outbound()
_NO_AUTHORITY = re.compile(r"issuer|self.signed|unable to verify")
HIDDEN = "[redacted:provider_key]"

FindKey = Callable[[], Awaitable[str]]  # the provider's key, "" for none; raises Unavailable
TakeNext = Callable[[], Awaitable[bytes | None]]  # returns the next chunk, None at the end


class ProviderEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Address and limits of one model at a provider."""

    provider: str
    base_url: str  # including the version: https://api.openai.com/v1
    dialect: Dialect
    model: str  # the provider's name of the model
    max_tokens: int = 0  # of one answer; 0: the provider's own limit
    stall_s: float = STALL_S
    extra_headers: Mapping[str, str] = {}
    proxy: str = ""  # that the client uses, for messages


def open_client(
    transport: httpx.AsyncBaseTransport | None = None,
    outbound: Outbound = DIRECTLY,
    proxy: str = "",
) -> httpx.AsyncClient:
    """Open an HTTP client for models; without `transport` it uses sockets, or that proxy.

    Raises InvalidParams for authorities that cannot be read.
    """
    timeout = httpx.Timeout(None, connect=CONNECT_S, pool=CONNECT_S)  # `_in_time` detects stalls
    trusted = None if transport is not None else trust(outbound)
    own_tls = trusted if proxy.startswith("https:") else None
    return httpx.AsyncClient(
        transport=transport,
        verify=trusted or True,
        proxy=httpx.Proxy(proxy, ssl_context=own_tls) if proxy else None,
        trust_env=False,
        follow_redirects=False,
        timeout=timeout,
    )


def trust(outbound: Outbound) -> ssl.SSLContext:
    """Return a TLS context that trusts the usual authorities, or those of the environment, and `ca_file`.

    Blocks for some 20 ms.  Raises InvalidParams for a file that cannot be read.
    """
    name, path = "SSL_CERT_FILE", outbound.roots_file or outbound.roots_dir
    try:
        context = ssl.create_default_context(
            cafile=outbound.roots_file or (None if path else certifi.where()),
            capath=outbound.roots_dir or None,
        )
        if outbound.ca_file:
            name, path = "ca_file", outbound.ca_file
            context.load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is a subclass
        text = f"{name} = {path!r}: {error.strerror or error}: name a file of PEM certificates"
        raise InvalidParams(text, field="network.ca_file") from None
    return context


class ProviderRequest:
    """Sender of requests to one endpoint."""

    def __init__(
        self,
        endpoint: ProviderEndpoint,
        client: httpx.AsyncClient,
        find_key: FindKey,
        now_ms: NowMs,
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._find_key = find_key
        self._now_ms = now_ms

    @asynccontextmanager
    async def post(self, path: str, body: Mapping[str, Any], kind: str) -> AsyncGenerator[TakeNext]:
        """Post `body` and yield the reader of an answer of media type `kind`.

        Every other answer is a failure.  Raises ModelFailure, also out of the block, never with the
        key.  Cancellation: the connection is closed.
        """
        key = await self._key()
        stall_s = self._endpoint.stall_s
        with _hidden(key), _in_time(stall_s) as patience:
            response = await self._send(path, body, kind, key)
            async with _closing(response), _body(response) as chunks:
                take_next = _taker(chunks, patience, stall_s)
                if not _is(kind, response):
                    await self._refuse(response, take_next, kind)
                yield take_next

    async def _send(
        self, path: str, body: Mapping[str, Any], kind: str, key: str
    ) -> httpx.Response:
        endpoint = self._endpoint
        headers = {
            "content-type": "application/json",
            "accept": kind,
            "accept-encoding": "identity",
            **endpoint.extra_headers,
            **endpoint.dialect.headers(key),
        }
        url, content = endpoint.base_url.rstrip("/") + path, msgspec.json.encode(body)
        if endpoint.dialect.sign is not None:
            headers |= endpoint.dialect.sign(key, url, headers, content, self._now_ms())
        try:
            sent = self._client.build_request("POST", url, content=content, headers=headers)
            return await self._client.send(sent, stream=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise read_failure(error, endpoint.proxy) from None

    async def _key(self) -> str:
        provider = self._endpoint.provider
        try:
            key = await self._find_key()
        except PalyraError as error:
            text = f"the key of {provider} cannot be found: {error.message}"
            raise ModelFailure("auth", text, was_asked=False) from None
        if key and not (key.isascii() and key.isprintable()):
            text = f"the key of {provider} holds characters that fit into no header; store it again"
            raise ModelFailure("auth", text, was_asked=False)
        return key

    async def _refuse(self, response: httpx.Response, take_next: TakeNext, kind: str) -> None:
        """Raise the failure described by an error answer."""
        body = b""
        while len(body) < MAX_ERROR_BYTES and (chunk := await take_next()) is not None:
            body += chunk[: MAX_ERROR_BYTES - len(body)]
        if response.status_code != httpx.codes.OK:
            headers = {name.lower(): value for name, value in response.headers.items()}
            failure = http_failure(response.status_code, headers, body, now_ms=self._now_ms())
            raise self._naming_model(failure)
        if b'"error"' in body:
            raise stream_failure(body)
        raise ModelFailure("malformed", f"the provider answered with {_said(response)}, not {kind}")

    def _naming_model(self, failure: ModelFailure) -> ModelFailure:
        """Return the failure; one about a model that is not there names it."""
        endpoint = self._endpoint
        if failure.failure_class != "unknown_model" or endpoint.model in failure.message:
            return failure
        text = f"{endpoint.provider} has no model {endpoint.model!r}: {failure.message}"
        return ModelFailure(failure.failure_class, text)


def _taker(chunks: AsyncIterator[bytes], patience: trio.CancelScope, stall_s: float) -> TakeNext:
    """Return the function that reads the next chunk; it runs once per delta and must be cheap."""

    async def take_next() -> bytes | None:
        patience.deadline = trio.current_time() + stall_s
        try:
            chunk = await anext(chunks, None)
        except httpx.HTTPError as error:
            raise read_failure(error) from None
        patience.deadline = math.inf
        return chunk

    return take_next


@asynccontextmanager
async def _closing(response: httpx.Response) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):  # closing does not wait for the peer
            await response.aclose()


@asynccontextmanager
async def _body(response: httpx.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Open the response body as an iterator of chunks.

    The body is three nested generators.  A generator that is left before its end is finalized by
    the garbage collector, which reports it.  So the body is always read to an end: either its real
    end, which frees the connection for the next request, or the end forced by a cancel that passes
    through all of them.
    """
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - of an async client
    chunks = aiter(response.stream)
    rest_s = 0.0
    try:
        yield chunks
        rest_s = REST_S
    finally:
        with trio.move_on_after(rest_s, shield=True), suppress(httpx.HTTPError):
            async for _ in chunks:
                pass


def _is(kind: str, response: httpx.Response) -> bool:
    found: str = response.headers.get("content-type", "")
    is_plain = response.headers.get("content-encoding", "identity") == "identity"
    return (
        response.status_code == httpx.codes.OK
        and is_plain
        and found.partition(";")[0].strip().lower() == kind
    )


def _said(response: httpx.Response) -> str:
    """Describe the media type of an answer."""
    kind: str = response.headers.get("content-type", "no content type")
    coding = response.headers.get("content-encoding")
    return f"{kind} in {coding}" if coding else kind


@contextmanager
def _hidden(key: str) -> Generator[None]:
    """Remove the key from the failures raised inside the block."""
    try:
        yield
    except ModelFailure as failure:
        text = failure.message
        for part in (key, *key.split(" ")):  # a signing key has several parts
            text = text.replace(part, HIDDEN) if part else text
        if text == failure.message:
            raise
        raise ModelFailure(failure.failure_class, text, failure.retry_after_ms) from None


@contextmanager
def _in_time(stall_s: float) -> Generator[trio.CancelScope]:
    """Raise ModelFailure (timeout) when the block passes the deadline; the block may move it."""
    with trio.move_on_after(stall_s) as patience:
        yield patience
    if patience.cancelled_caught:
        raise ModelFailure("timeout", f"the provider was silent for {stall_s:g} s")


def read_failure(
    error: httpx.HTTPError | httpx.InvalidURL, proxy: str = "", peer: str = "the provider"
) -> ModelFailure:
    """Translate a transport error; give only its kind where its text may contain addresses."""
    through = f" through the proxy {place_of(proxy)}" if proxy else ""
    if isinstance(error, httpx.TimeoutException):
        text = f"{peer} did not take the connection{through} within {CONNECT_S:g} s"
        return ModelFailure("timeout", text)
    if isinstance(error, httpx.ProxyError):
        text = f"the proxy {place_of(proxy)} refused the connection: {error}: see `network.proxy`, HTTPS_PROXY, NO_PROXY"
        return ModelFailure("unavailable", text)
    causes = list(_causes(error))
    unbelieved = next((e for e in causes if isinstance(e, ssl.SSLCertVerificationError)), None)
    if unbelieved is not None:
        why = unbelieved.verify_message
        remedy = f": {UNTRUSTED}" if _NO_AUTHORITY.search(why) else ""
        text = f"the certificate of {peer} is not trusted: {why}{remedy}"
        return ModelFailure("unavailable", text)
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol | httpx.InvalidURL):
        why = str(error) or next(filter(None, map(str, causes)), type(error).__name__)
        return ModelFailure("unavailable", f"{peer} cannot be reached{through}: {why}")
    text = f"the connection to {peer} broke: {type(error).__name__}"
    return ModelFailure("transient", text)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what an error was raised from, step by step: libraries wrap those of TLS without a text."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
