"""HTTP client for web tools: one request per connection, no redirects, bounded decompression.

The protocol is h11 over a stream from `dial` (docs/decisions/0013-web-fetch.md).
Never: dials by itself, reuses a connection, keeps a cookie, reads a proxy variable.

Decompression bombs: a few kilobytes of gzip can expand to gigabytes.  Each piece of a body is
therefore inflated with a limit on its output, and no input is fed after the cap is reached, so
the decoded body never exceeds the cap.  The compressed input is bounded by the same number
of bytes, because blocks that inflate to nothing would otherwise never end the body.
"""

import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import certifi
import h11
import trio

from palyra.core.outbound import Outbound
from palyra.errors import InvalidParams, InvariantBroken, Unavailable
from palyra.tools.web.dialler import Dial
from palyra.tools.web.request import REDIRECTS, WebRequest
from palyra.tools.web.urls import Url

DIRECTLY = Outbound()
ENCODINGS = ("gzip", "deflate")
_PLAIN = frozenset({"", "identity"})
_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib window bits: select the container format


class Inflater:
    """Decoder of one body.  All `feed` calls together return at most `cap_bytes`."""

    def __init__(self, encoding: str, cap_bytes: int) -> None:
        """`encoding` is the Content-Encoding.  Raises Unavailable for one that was not requested."""
        self._encoding = encoding.strip().lower().removeprefix("x-")
        if self._encoding not in _PLAIN.union(ENCODINGS):
            raise Unavailable("the body's encoding is none that was asked for")
        self._left = cap_bytes
        self._stream: zlib._Decompress | None = None
        self.is_cut = False  # the body was longer than the cap

    @property
    def is_done(self) -> bool:
        """True if further input is ignored: the cap is reached or the compressed stream has ended."""
        return self.is_cut or (self._stream is not None and self._stream.eof)

    def feed(self, data: bytes) -> bytes:
        """Decode the next piece of the body.  Raises Unavailable for damaged data."""
        if not data or self.is_done:
            return b""
        return self._take(data if self._encoding in _PLAIN else self._inflate(data))

    def finish(self) -> None:
        """Signal the end of input.  Raises Unavailable for a truncated compressed body."""
        if self._stream is not None and not self.is_done:
            raise Unavailable(f"the {self._encoding} body broke off")

    def _take(self, decoded: bytes) -> bytes:
        kept = decoded[: self._left]
        self._left -= len(kept)
        self.is_cut = len(kept) < len(decoded)
        return kept

    def _inflate(self, data: bytes) -> bytes:
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window_bits(data))
        try:
            # Request one byte above the cap to detect a body that is longer.
            return self._stream.decompress(data, self._left + 1)
        except zlib.error:
            raise Unavailable(f"the body is no {self._encoding}, or damaged") from None

    def _window_bits(self, data: bytes) -> int:
        """Return the window bits: gzip, or for deflate zlib (RFC 1950) or raw, as some servers send."""
        if self._encoding == "gzip":
            return _GZIP
        has_check = len(data) == 1 or int.from_bytes(data[:2], "big") % 31 == 0
        return _ZLIB if data[0] & 0x0F == zlib.DEFLATED and has_check else _RAW


Headers = tuple[tuple[str, str], ...]
CheckHead = Callable[[int, Headers], None]  # raises to refuse a body before it is read

_OUR_HEADERS = (
    ("user-agent", "palyra"),
    ("accept", "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1"),
    ("accept-encoding", ", ".join(ENCODINGS)),
    ("connection", "close"),
)
_READ_BYTES = 65_536
_MAX_HEAD_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One HTTP response."""

    status: int
    headers: Headers  # names in lower case
    body: bytes  # decoded, cut at the cap
    is_cut: bool  # the body was longer than the cap

    def find(self, name: str) -> str:
        """Return the first value of a header, "" if it is missing."""
        return find_header(self.headers, name)


def find_header(headers: Headers, name: str) -> str:
    """Return the first value of a header, "" if it is missing; `name` is in lower case."""
    return next((value for key, value in headers if key == name), "")


def tls_context(ca_file: str = "", outbound: Outbound = DIRECTLY) -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of `outbound` and those in `ca_file`.

    Blocks for some 20 ms.  Raises InvalidParams for a file that cannot be read.
    """
    roots = outbound.roots_file, outbound.roots_dir
    field, path = "SSL_CERT_FILE", roots[0] or roots[1]
    named = {"network.ca_file": outbound.ca_file, "fetch.ca_file": ca_file}
    files = [(name, file) for name, file in named.items() if file]
    try:
        context = ssl.create_default_context(
            cafile=roots[0] or (None if any(roots) else certifi.where()), capath=roots[1] or None
        )
        for field, path in files:  # noqa: B007 - the message names the one that fails
            context.load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is a subclass
        raise InvalidParams(f"{field} = {path!r}: {error}", field=field) from None
    return context


class HttpClient:
    """Sends single requests over connections from `dial`; https needs a TLS context."""

    def __init__(self, dial: Dial, tls: ssl.SSLContext | None, cap_bytes: int) -> None:
        self._dial = dial
        self._tls = tls
        self._cap_bytes = cap_bytes

    async def send(
        self, request: WebRequest, secret: Headers, check_head: CheckHead
    ) -> HttpResponse:
        """Send the request and return its response; the body of a redirect is not read.

        `secret` holds headers that are written to the wire and stored nowhere else.
        Raises the exceptions of `dial` and `check_head`, and Unavailable for protocol and
        connection errors.
        Cancellation: the connection is closed; the server may have processed the request.
        """
        stream = self._secured(await self._dial(request.url.host, request.url.port), request.url)
        try:
            if isinstance(stream, trio.SSLStream):
                await stream.do_handshake()
            exchange = _Exchange(stream, self._cap_bytes)
            await exchange.ask(request, secret)
            return await exchange.hear(check_head)
        except (h11.ProtocolError, trio.BrokenResourceError) as error:
            raise _failure(request.url, error) from None
        finally:
            await trio.aclose_forcefully(stream)  # noqa: ASYNC102 - waits for nothing

    def _secured(self, stream: trio.abc.Stream, url: Url) -> trio.abc.Stream:
        if url.scheme == "http":
            return stream
        if self._tls is None:
            raise InvariantBroken("https without a context")
        host = url.host.strip("[]")
        return trio.SSLStream(stream, self._tls, server_hostname=host, https_compatible=True)


class _Exchange:
    """One request and its response over one stream."""

    def __init__(self, stream: trio.abc.Stream, cap_bytes: int) -> None:
        self._stream = stream
        self._cap_bytes = cap_bytes
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def ask(self, request: WebRequest, secret: Headers) -> None:
        """Send the request.  Raises h11.LocalProtocolError for an invalid request."""
        events: list[h11.Event] = [
            h11.Request(
                method=request.method,
                target=request.url.target,
                headers=list(_headers(request, secret)),
            )
        ]
        events += [h11.Data(data=request.body)] if request.body else []
        wire = [self._state.send(event) or b"" for event in [*events, h11.EndOfMessage()]]
        with suppress(trio.BrokenResourceError):  # a response may have arrived
            await self._stream.send_all(b"".join(wire))

    async def hear(self, check_head: CheckHead) -> HttpResponse:
        """Read the response.  Raises h11.RemoteProtocolError for an invalid one."""
        head = await self._next()
        while isinstance(head, h11.InformationalResponse):
            head = await self._next()
        if not isinstance(head, h11.Response):
            raise h11.RemoteProtocolError("the server closed the connection without an answer")
        headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers
        )
        if head.status_code in REDIRECTS and find_header(headers, "location"):
            return HttpResponse(head.status_code, headers, b"", is_cut=False)
        check_head(head.status_code, headers)
        body, is_cut = await self._read(find_header(headers, "content-encoding"))
        return HttpResponse(head.status_code, headers, body, is_cut)

    async def _read(self, encoding: str) -> tuple[bytes, bool]:
        """Read the body up to the cap; the flag is True if the body was longer."""
        inflater = Inflater(encoding, self._cap_bytes)
        pieces: list[bytes] = []
        raw_left = self._cap_bytes  # bounds input whose blocks inflate to nothing
        while not inflater.is_done and raw_left >= 0:
            event = await self._next()
            if not isinstance(event, h11.Data):
                inflater.finish()
                break
            raw_left -= len(event.data)
            pieces.append(inflater.feed(bytes(event.data)))
        return b"".join(pieces), inflater.is_cut or raw_left < 0

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            self._state.receive_data(bytes(await self._stream.receive_some(_READ_BYTES)))
        return event


def _headers(request: WebRequest, secret: Headers) -> Iterator[tuple[bytes, bytes]]:
    for name, value in _named(request, secret):
        yield name.encode("ascii"), value.encode("utf-8")


def _named(request: WebRequest, secret: Headers) -> Iterator[tuple[str, str]]:
    own = {name.lower() for name, _ in request.headers}
    yield "host", request.url.authority
    yield from (header for header in _OUR_HEADERS if header[0] not in own)
    if request.body is not None:
        yield "content-length", str(len(request.body))
    yield from request.headers
    yield from secret


def _failure(url: Url, error: BaseException) -> Unavailable:
    """Convert a library error to Unavailable with a fixed message.

    The library's own text is not used: it can repeat server data or a secret header.
    """
    match error.__cause__ or error:
        case ssl.SSLCertVerificationError() as unbelieved:
            reason = f"its certificate is not believed: {unbelieved.verify_message}"
        case ssl.SSLError() as broken:
            reason = f"TLS: {broken.reason}"
        case h11.LocalProtocolError():
            reason = "the request cannot be sent: a header of it is no line of text"
        case h11.RemoteProtocolError():
            reason = "what came back is no whole HTTP answer"
        case _:
            reason = "the connection broke off"
    return Unavailable(f"{url.host}: {reason}")
