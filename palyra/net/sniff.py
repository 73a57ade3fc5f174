"""Reading the head of a request before anything decides who serves it.

`HeadParser` is sans-IO and leaves the grammar to h11, the parser that both the WebSocket
handshake and the HTTP server use afterwards: what was checked is what will be served.
`read_head` adds the socket and the deadline.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus

import h11
import trio

from palyra.net.replay import RECEIVE_BYTES, ReplayStream
from palyra.net.rpc import Redact
from palyra.net.strict import harden

_SHOWN_BYTES = re.compile(r":? *(?:bytearray\()?\bb['\"].*", re.DOTALL)
MAX_HEAD_BYTES = 16_384  # what h11 itself allows by default, and so the HTTP server behind us
VERSIONS = frozenset({b"1.0", b"1.1"})


@dataclass(frozen=True, slots=True)
class Head:
    """Request line and headers; header names in lower case, order and repetition kept."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    version: bytes = b"1.1"

    def values(self, name: bytes) -> list[bytes]:
        """Every value of that header, stripped."""
        return [value.strip() for key, value in self.headers if key == name]

    def tokens(self, name: bytes) -> set[bytes]:
        """The header's comma-separated words in lower case."""
        words = b",".join(self.values(name)).lower().split(b",")
        return {word.strip() for word in words}

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    @property
    def is_websocket(self) -> bool:
        """Whether the client asks to switch to WebSocket."""
        return b"websocket" in self.tokens(b"upgrade") and b"upgrade" in self.tokens(b"connection")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that ends the connection: status and one line of plain text."""

    status: HTTPStatus
    text: str
    headers: tuple[tuple[str, str], ...] = ()

    def render(self, redact: Redact) -> bytes:
        """The whole HTTP response, without secrets: the text may quote the request."""
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
    """What came is not the head of a request we serve."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class HeadParser:
    """Bytes in, one `Head` out."""

    def __init__(self, max_bytes: int = MAX_HEAD_BYTES) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=max_bytes)
        harden(self._parser)
        self.received = bytearray()

    def feed(self, data: bytes) -> Head | None:
        """The head once it is complete, else None.  Raises BadHead."""
        self.received += data
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            raise BadHead(Refusal(status, f"not an HTTP/1.1 request: {_reason(error)}")) from None
        return _check_version(event) if isinstance(event, h11.Request) else None

    @property
    def trailing(self) -> bytes:
        """What came after the head: a body, or bytes sent before the handshake was answered."""
        return bytes(self._parser.trailing_data[0])


def _reason(error: h11.RemoteProtocolError) -> str:
    """The error without the bytes that came, which h11 shows as Python would write them."""
    return _SHOWN_BYTES.sub("", str(error))


def _check_version(request: h11.Request) -> Head:
    if request.http_version not in VERSIONS:
        version = request.http_version.decode("ascii")
        raise BadHead(
            Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"HTTP/{version} is not served: use 1.1")
        )
    return Head(request.method, request.target, tuple(request.headers), request.http_version)


async def read_head(stream: trio.SocketStream, *, timeout_s: float) -> tuple[Head, HeadParser]:
    """The request's head within `timeout_s` of the call, however slowly it drips in.

    Raises BadHead, and EOFError when the peer left (or never spoke) without a whole head.
    """
    parser = HeadParser()
    with trio.move_on_after(timeout_s):
        return await _read_head(stream, parser), parser
    if not parser.received:
        raise EOFError("the peer connected and said nothing")
    raise BadHead(Refusal(HTTPStatus.REQUEST_TIMEOUT, f"no whole request within {timeout_s:g} s"))


async def _read_head(stream: trio.SocketStream, parser: HeadParser) -> Head:
    while True:
        try:
            data = await stream.receive_some(RECEIVE_BYTES)
        except trio.BrokenResourceError as error:
            raise EOFError("the peer vanished in the middle of a request") from error
        if not data:
            raise EOFError("the peer left in the middle of a request")
        if head := parser.feed(bytes(data)):
            return head


def replay_all(stream: trio.SocketStream, parser: HeadParser) -> ReplayStream:
    """The connection as if nothing had been read."""
    return ReplayStream(stream, bytes(parser.received))


def replay_rest(stream: trio.SocketStream, parser: HeadParser) -> ReplayStream:
    """The connection from the first byte after the head."""
    return ReplayStream(stream, parser.trailing)
