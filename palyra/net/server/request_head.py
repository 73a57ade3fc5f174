"""The head of a request: read before a server is chosen for it, and checked.

`HeadParser` is sans-IO and leaves the grammar to h11, the parser that both the WebSocket
handshake and the HTTP server use afterwards, so the head that was checked is the one that is served.
`read_head` adds the socket and the deadline.

The checks are pure, and run before the first byte of the body is read.  Any web page can make a
browser send requests to 127.0.0.1.  Every request, WebSocket or HTTP, must therefore name this
daemon (`Host`, against DNS rebinding) and, if a page sends it, that page must belong to the daemon
(`Origin`, against cross-site WebSocket hijacking: RFC 6455 section 10.2).  A URL must not contain a
token, because URLs are logged.  Refusals name the setting that would allow the request.
"""

import re
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from ipaddress import AddressValueError, IPv4Address
from urllib.parse import parse_qsl, unquote, unquote_plus

import h11
import trio

from palyra.core.redaction.redactor import Redactor
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.server.stream import RECEIVE_BYTES, PrefixedStream
from palyra.net.server.strict import MAX_HEAD_BYTES, harden

_SHOWN_BYTES = re.compile(r":? *(?:bytearray\()?\bb['\"].*", re.DOTALL)
VERSIONS = frozenset({b"1.0", b"1.1"})


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Request line and headers; header names in lower case, order and repetition kept."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    version: bytes = b"1.1"

    def values(self, name: bytes) -> list[bytes]:
        """Return every value of that header, stripped."""
        return [value.strip() for key, value in self.headers if key == name]

    def tokens(self, name: bytes) -> set[bytes]:
        """Return the comma-separated words of that header in lower case."""
        words = b",".join(self.values(name)).lower().split(b",")
        return {word.strip() for word in words}

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    @property
    def is_websocket(self) -> bool:
        """True if the client asks for an upgrade to WebSocket."""
        return b"websocket" in self.tokens(b"upgrade") and b"upgrade" in self.tokens(b"connection")


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """Answer that ends the connection: status and one line of plain text."""

    status: HTTPStatus
    text: str
    headers: tuple[tuple[str, str], ...] = ()

    def render(self, redact: Redact) -> bytes:
        """Return the whole HTTP response, redacted: the text may quote the request."""
        body, _ = redact(f"{self.text}\n".encode())
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class BadHead(Exception):
    """The received bytes are not the head of a request that is served here."""

    def __init__(self, refusal: HttpRefusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class HeadParser:
    """Bytes in, one `RequestHead` out."""

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        harden(self._parser)
        self.received = bytearray()

    def feed(self, data: bytes) -> RequestHead | None:
        """Return the head once it is complete, else None.  Raises BadHead."""
        self.received += data
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            reason = _SHOWN_BYTES.sub("", str(error))  # h11 shows the received bytes
            raise BadHead(HttpRefusal(status, f"not an HTTP/1.1 request: {reason}")) from None
        return _check_version(event) if isinstance(event, h11.Request) else None

    @property
    def trailing(self) -> bytes:
        """Bytes after the head: a body, or frames sent before the handshake was answered."""
        return bytes(self._parser.trailing_data[0])


def _check_version(request: h11.Request) -> RequestHead:
    if request.http_version not in VERSIONS:
        version = request.http_version.decode("ascii")
        raise BadHead(
            HttpRefusal(
                HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"HTTP/{version} is not served: use 1.1"
            )
        )
    return RequestHead(request.method, request.target, tuple(request.headers), request.http_version)


async def read_head(
    stream: trio.SocketStream, *, timeout_s: float
) -> tuple[RequestHead, HeadParser]:
    """Read the request's head within `timeout_s`, however slowly its bytes arrive.

    Raises BadHead, and EOFError if the peer disconnected (or sent nothing) without a whole head.
    """
    parser = HeadParser()
    with trio.move_on_after(timeout_s):
        return await _read_head(stream, parser), parser
    if not parser.received:
        raise EOFError("the peer sent nothing")
    raise BadHead(
        HttpRefusal(HTTPStatus.REQUEST_TIMEOUT, f"no complete request within {timeout_s:g} s")
    )


async def _read_head(stream: trio.SocketStream, parser: HeadParser) -> RequestHead:
    while True:
        try:
            data = await stream.receive_some(RECEIVE_BYTES)
        except trio.BrokenResourceError as error:
            raise EOFError("the connection broke in the middle of a request") from error
        if not data:
            raise EOFError("the peer disconnected in the middle of a request")
        if head := parser.feed(bytes(data)):
            return head


def replay_all(stream: trio.SocketStream, parser: HeadParser) -> PrefixedStream:
    """Return the connection as if nothing had been read."""
    return PrefixedStream(stream, bytes(parser.received))


def replay_rest(stream: trio.SocketStream, parser: HeadParser) -> PrefixedStream:
    """Return the connection from the first byte after the head."""
    return PrefixedStream(stream, parser.trailing)


WEBSOCKET_PATH = b"/v1/ws"
LOGIN_PATH = b"/v1/console/login"  # plain HTTP
SUBPROTOCOL = "palyra.v1"
HTTP_PORT = 80  # of a Host header without a port (RFC 9110 section 4.2.1)
MAX_PORT = 65_535

_AUTHORITY = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")  # RFC 6455 section 4.1: 16 bytes in base64
_TOKEN_KEYS = frozenset({"token", "access_token", "api_key", "apikey", "key", "authorization"})
_MAX_QUERY_FIELDS = 100
_MAX_DECODINGS = 4  # twice may be a mistake, more is an attempt to hide the value
_TOKEN = re.compile(r"pal_[A-Za-z0-9_-]{8}|\A\s*(?:basic|bearer)[\s:=]", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9_+/-]{32,}")  # the length of the shortest token in a file
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]+")
_MIN_HEX_CHARS = 40  # 160 bits: ids have 32 digits


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the daemon: its port, and the hosts and origins from the settings.

    `hosts` holds `name` (any port) or `name:port`; `origins` holds `scheme://name[:port]`.
    """

    port: int
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    public_origin: str | None = None  # of server.public_url, without a default port


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """A WebSocket request that may be answered with 101."""

    bearer: str | None
    subprotocol: str | None
    cookie_halves: tuple[str, ...] = ()


def check_upgrade(head: RequestHead, names: Names) -> UpgradeRequest | HttpRefusal:
    """Return the token and subprotocol of a valid WebSocket upgrade, else the refusal."""
    refusal = check_request(head, names) or _check_handshake(head)
    if refusal:
        return refusal
    wanted = head.tokens(b"sec-websocket-protocol") - {b""}
    if wanted and SUBPROTOCOL.encode() not in wanted:
        return HttpRefusal(
            HTTPStatus.BAD_REQUEST, f"the only subprotocol is {SUBPROTOCOL}; ask for it or for none"
        )
    return UpgradeRequest(
        find_bearer(head), SUBPROTOCOL if wanted else None, find_cookies(head, cookie_name(names))
    )


def check_request(head: RequestHead, names: Names) -> HttpRefusal | None:
    """Return the refusal of a request that must not be served at any path; None if it may be."""
    return _check_host(head, names) or _check_origin(head, names) or _check_secrets(head)


def find_bearer(head: RequestHead) -> str | None:
    """Return the token of `Authorization: Bearer`; None if missing or of another scheme."""
    for value in head.values(b"authorization"):
        scheme, _, token = value.partition(b" ")
        if scheme.lower() == b"bearer" and token.strip().isascii():
            return token.strip().decode("ascii") or None
    return None


def cookie_name(names: Names) -> str:
    """The cookie of a login: with the port, because cookies of all ports of a host are one jar."""
    return f"palyra_{names.port}"


def find_cookies(head: RequestHead, name: str) -> tuple[str, ...]:
    """Return the values of the cookie, of which pages of other ports may have added some."""
    pairs = b";".join(head.values(b"cookie")).split(b";")
    split = (pair.strip().partition(b"=") for pair in pairs)
    return tuple(
        value.decode("ascii") for key, _, value in split if key == name.encode() and value.isascii()
    )


def is_own_page(head: RequestHead, names: Names) -> bool:
    """True if the request was sent by a page of this daemon, and the browser says nothing else.

    The origin is one that `check_request` accepts; its host must be the one that was asked, or that of
    the public address, so pages of `allowed_origins` are not enough.
    """
    origins, sites = head.values(b"origin"), head.values(b"sec-fetch-site")
    if len(origins) != 1 or check_request(head, names) is not None:
        return False
    if sites not in ([], [b"same-origin"]):  # browsers leave it out over http of another host
        return False
    origin = without_default_port(_text(origins[0]))
    own = _own_origin(_text(head.values(b"host")[0]), names)
    return origin == names.public_origin or host_of(origin) == host_of(without_default_port(own))


def host_of(origin: str) -> str:
    """Return the host of an origin, with its port if it has one."""
    return origin.partition("://")[2]


def is_own_host(authority: str, names: Names) -> bool:
    """True if a `Host` value, in lower case, names this daemon."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return False
    name, port = match["name"], int(match["port"] or HTTP_PORT)
    if port > MAX_PORT:
        return False
    if name in names.hosts or f"{name}:{port}" in names.hosts:
        return True
    # A loopback name without a port is safe: DNS cannot point it to another machine.
    return is_loopback(name) and (match["port"] is None or port == names.port)


def is_loopback(name: str) -> bool:
    """True if the name can only mean this machine, unlike `localhost.evil.example`."""
    if name in {"localhost", "[::1]"}:
        return True
    try:
        return IPv4Address(name).is_loopback
    except AddressValueError:
        return False


def _check_host(head: RequestHead, names: Names) -> HttpRefusal | None:
    values = head.values(b"host")
    if len(values) == 1 and is_own_host(_text(values[0]), names):
        return None
    shown = ", ".join(map(_shown, values)) or "none"
    return HttpRefusal(
        HTTPStatus.FORBIDDEN,
        f"Host {shown} is not a name of this daemon; add it to server.allowed_hosts to accept it",
    )


def _check_origin(head: RequestHead, names: Names) -> HttpRefusal | None:
    values = head.values(b"origin")
    if not values:
        return None  # not sent by a page: the token decides
    # Compared as a whole, so "null", a similar suffix or a second header cannot match.
    own = _own_origin(_text(head.values(b"host")[0]), names)
    public = () if names.public_origin is None else (names.public_origin,)
    allowed = {without_default_port(name) for name in (own, *names.origins, *public)}
    if len(values) == 1 and without_default_port(_text(values[0])) in allowed:
        return None
    shown = ", ".join(map(_shown, values))
    return HttpRefusal(
        HTTPStatus.FORBIDDEN,
        f"Origin {shown} is not allowed; add it to server.allowed_origins to accept it",
    )


def _own_origin(host: str, names: Names) -> str:
    """Return the origin of a page that this daemon serves under that (checked) Host."""
    is_bare = is_loopback(host) and host not in names.hosts
    return f"http://{host}:{names.port}" if is_bare else f"http://{host}"


def without_default_port(origin: str) -> str:
    """Return the origin as browsers write it."""
    if origin.startswith("http://"):
        return origin.removesuffix(":80")
    return origin.removesuffix(":443") if origin.startswith("https://") else origin


def _check_secrets(head: RequestHead) -> HttpRefusal | None:
    if len(head.values(b"authorization")) > 1:
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "more than one Authorization header")
    query = head.target.partition(b"?")[2].decode("latin-1")
    if query.count("&") >= _MAX_QUERY_FIELDS:
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "too many query fields")
    if _holds_token(query) or _names_token(
        head.path.decode("latin-1")
    ):  # the answer does not quote it: answers are logged, too
        return HttpRefusal(
            HTTPStatus.BAD_REQUEST, "no token in the URL: send `Authorization: Bearer` instead"
        )
    return None


def _holds_token(query: str) -> bool:
    """True if a parameter has the name of a token, or contains a likely token in any encoding."""
    for _ in range(_MAX_DECODINGS):
        pairs = parse_qsl(query.replace(";", "&"), keep_blank_values=True, encoding="latin-1")
        if any(name.strip().lower() in _TOKEN_KEYS for name, _ in pairs):
            return True
        if any(looks_like_token(text) for pair in pairs for text in pair):
            return True
        query, before = unquote_plus(query, encoding="latin-1"), query
        if query == before:
            return False
    return True  # still encoded: its value is hidden on purpose


def _names_token(path: str) -> bool:
    """True if a path contains a Palyra token or a secret of a known format in any encoding.

    Names of models are in paths, so a long mixed word is no sign of a token there.
    """
    for _ in range(_MAX_DECODINGS):
        if _redactor().redact_text(path)[1]:
            return True
        path, before = unquote(path, encoding="latin-1"), path
        if path == before:
            return False
    return True


def looks_like_token(text: str) -> bool:
    """True if a text contains a Palyra token, a secret of a known format, or a long random word."""
    if _TOKEN.search(text) or _redactor().redact_text(text)[1]:
        return True
    return any(_is_random(word) for word in _WORD.findall(text))


def _is_random(word: str) -> bool:
    """True if a word is too mixed for a name or id: those are lower case, or have 32 digits."""
    if _HEXADECIMAL.fullmatch(word):
        return len(word) >= _MIN_HEX_CHARS
    kinds = (str.islower, str.isupper, str.isdigit)
    return all(any(is_kind(letter) for letter in word) for is_kind in kinds)


@cache
def _redactor() -> Redactor:
    """Return the redactor with all built-in rules; made on first use, in some milliseconds."""
    return Redactor([])


def _check_handshake(head: RequestHead) -> HttpRefusal | None:
    """Check the parts of the handshake that the WebSocket library refuses vaguely or not at all."""
    if head.version != b"1.1":
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "a WebSocket opens with HTTP/1.1")
    if head.method != b"GET":
        return HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "a WebSocket opens with GET")
    if head.values(b"transfer-encoding") or set(head.values(b"content-length")) - {b"0"}:
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "a WebSocket handshake has no body")
    if head.values(b"sec-websocket-version") != [b"13"]:
        return HttpRefusal(
            HTTPStatus.UPGRADE_REQUIRED,
            "this daemon speaks WebSocket version 13",
            (("Sec-WebSocket-Version", "13"),),
        )
    keys = head.values(b"sec-websocket-key")
    if len(keys) != 1 or _KEY.fullmatch(keys[0]) is None:
        return HttpRefusal(HTTPStatus.BAD_REQUEST, "one Sec-WebSocket-Key of 16 bytes is needed")
    return None


def _text(value: bytes) -> str:
    return value.decode("latin-1").lower()


def _shown(value: bytes) -> str:
    """Return a header value bounded and printable, to be quoted in an answer."""
    return ascii(value[:100].decode("latin-1"))
