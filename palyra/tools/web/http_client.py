"""The HTTP client: one request, no redirects, a body that is read raw and inflated under a cap.

The only module that speaks HTTP outwards, by h11 and nothing above it
(docs/decisions/0013-web-fetch.md).
Never: dials by itself (`dial` does), keeps a connection or a cookie, listens to a proxy variable.

Inflating a body under a cap: never more in memory than what may be kept.

A few kilobytes of gzip hold gigabytes of zeros.  So each piece is inflated with a limit on what
comes out, and nothing more is fed in once the cap is reached.
"""

import ssl
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import certifi
import h11
import trio

from palyra.errors import InvalidParams, InvariantBroken, Unavailable
from palyra.tools.web.dialler import Dial
from palyra.tools.web.redirects import REDIRECTS, WebRequest
from palyra.tools.web.urls import Url

ENCODINGS = ("gzip", "deflate")
_PLAIN = frozenset({"", "identity"})
_GZIP, _ZLIB, _RAW = 31, 15, -15  # window bits: the wrapping zlib expects


class Inflater:
    """One body.  `feed` gives what is decoded, at most `cap_bytes` of it over all calls."""

    def __init__(self, encoding: str, cap_bytes: int) -> None:
        """`encoding` is the Content-Encoding.  Raises Unavailable for one we did not ask for."""
        self._encoding = encoding.strip().lower().removeprefix("x-")
        if self._encoding not in _PLAIN.union(ENCODINGS):
            raise Unavailable("the body's encoding is none that was asked for")
        self._left = cap_bytes
        self._stream: zlib._Decompress | None = None
        self.is_cut = False  # there was more than the cap

    @property
    def is_done(self) -> bool:
        """Whether nothing more is taken; what follows the end of the stream does not count."""
        return self.is_cut or (self._stream is not None and self._stream.eof)

    def feed(self, data: bytes) -> bytes:
        """What the next piece of the body decodes to.  Raises Unavailable for damaged data."""
        if not data or self.is_done:
            return b""
        return self._take(data if self._encoding in _PLAIN else self._inflate(data))

    def finish(self) -> None:
        """There is no more.  Raises Unavailable when the body broke off."""
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
            # One byte more than there is room for tells whether there is more.
            return self._stream.decompress(data, self._left + 1)
        except zlib.error:
            raise Unavailable(f"the body is no {self._encoding}, or damaged") from None

    def _window_bits(self, data: bytes) -> int:
        """Of gzip; for deflate, of zlib (RFC 1950) or of none at all, which some servers send."""
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
    """What came back."""

    status: int
    headers: Headers  # names in lower case
    body: bytes  # decoded, at most the cap
    is_cut: bool  # there was more

    def find(self, name: str) -> str:
        """The value of a header; "" when it is missing."""
        return find_header(self.headers, name)


def find_header(headers: Headers, name: str) -> str:
    """The first value of a header; "" when it is missing."""
    return next((value for key, value in headers if key == name), "")


def tls_context(ca_file: str = "") -> ssl.SSLContext:
    """Who is believed: the usual authorities, and those in `ca_file`.  Blocks for some 20 ms.

    Raises InvalidParams for a file that cannot be read.
    """
    context = ssl.create_default_context(cafile=certifi.where())
    try:
        if ca_file:
            context.load_verify_locations(ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidParams(
            f"fetch.ca_file = {ca_file!r}: {error}", field="fetch.ca_file"
        ) from None
    return context


class HttpClient:
    """Requests over connections that `dial` made, secured when there is a context for that."""

    def __init__(self, dial: Dial, tls: ssl.SSLContext | None, cap_bytes: int) -> None:
        self._dial = dial
        self._tls = tls
        self._cap_bytes = cap_bytes

    async def send(
        self, request: WebRequest, secret: Headers, check_head: CheckHead
    ) -> HttpResponse:
        """The answer to this one request; the body of a redirect is not read.

        `secret` are headers that only the wire sees.  Raises what `dial` and `check_head` raise,
        and Unavailable for everything that goes wrong on the way.
        Cancellation: the connection is closed; the server may have acted.
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
    """One request and its answer over one stream."""

    def __init__(self, stream: trio.abc.Stream, cap_bytes: int) -> None:
        self._stream = stream
        self._cap_bytes = cap_bytes
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def ask(self, request: WebRequest, secret: Headers) -> None:
        """Send the request.  Raises h11.LocalProtocolError for what cannot stand in one."""
        events: list[h11.Event] = [
            h11.Request(
                method=request.method,
                target=request.url.target,
                headers=list(_headers(request, secret)),
            )
        ]
        events += [h11.Data(data=request.body)] if request.body else []
        wire = [self._state.send(event) or b"" for event in [*events, h11.EndOfMessage()]]
        with suppress(trio.BrokenResourceError):  # an answer may be there all the same
            await self._stream.send_all(b"".join(wire))

    async def hear(self, check_head: CheckHead) -> HttpResponse:
        """Read the answer.  Raises h11.RemoteProtocolError for what is none."""
        head = await self._next()
        while isinstance(head, h11.InformationalResponse):
            head = await self._next()
        if not isinstance(head, h11.Response):
            raise h11.RemoteProtocolError("the server closed the connection without an answer")
        headers = tuple(_read_headers(head))
        if head.status_code in REDIRECTS and find_header(headers, "location"):
            return HttpResponse(head.status_code, headers, b"", is_cut=False)
        check_head(head.status_code, headers)
        body, is_cut = await self._read(find_header(headers, "content-encoding"))
        return HttpResponse(head.status_code, headers, body, is_cut)

    async def _read(self, encoding: str) -> tuple[bytes, bool]:
        """The body under the cap, and whether there was more of it."""
        inflater = Inflater(encoding, self._cap_bytes)
        pieces: list[bytes] = []
        raw_left = self._cap_bytes  # blocks that inflate to nothing can go on for ever
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


def _read_headers(head: h11.Response) -> Iterable[tuple[str, str]]:
    return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)


def _failure(url: Url, error: BaseException) -> Unavailable:
    """What went wrong, in our words: those of the library repeat what the server, or a secret, says."""
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
