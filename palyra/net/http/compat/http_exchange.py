"""One HTTP request and its answer over ASGI: a bounded body, an answer whole or in pieces.

Owns: the read and write state of one exchange.  Never: decides anything about the request.

Handlers of the compat APIs use an exchange instead of the web framework's request and response: a
stream holds a nursery from its first look at the run to its last byte, and needs to know at any
time whether the client is still connected (docs/decisions/0024-one-http-stack.md).

Server-sent events (HTML, section 9.2): JSON has no line ends, so one line of data is enough.
"""

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec
import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

from palyra.errors import PalyraError, TooLarge, TooSlow
from palyra.net.connection.requests import redact_frame
from palyra.net.http.compat.errors import Encoded
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.server.request_head import RequestHead

BODY_TIMEOUT_S = 30.0
# Bounds for dropping the rest of a refused body: if the connection were closed with bytes unread, it
# would be reset, and the client could not read the refusal.
LINGER_S = 10.0
LINGER_BYTES = 33_554_432
INLINE_BYTES = 16_384  # of a body: about 1 ms of work; a larger one goes to a thread
JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream; charset=utf-8"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Gone(PalyraError):
    """The client disconnected before its request was complete."""


class HttpExchange:
    """One request and its answer."""

    def __init__(
        self,
        scope: HTTPScope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
        redact: Redact,
    ) -> None:
        self.method = scope["method"]
        self.path = scope["path"]
        self._query = scope["query_string"]
        self.head = RequestHead(
            scope["method"].encode(), scope["raw_path"], tuple(scope["headers"])
        )
        self.has_begun = False
        self.is_gone = False  # the client has disconnected
        self._is_read = False  # the whole body was received
        self.headers: dict[str, str] = {}  # of the answer, besides those that every answer has
        self._receive = receive
        self._send = send
        self._redact = redact

    def header(self, name: bytes) -> str | None:
        """Return the first header of that (lower case) name; None if it is missing or not ASCII."""
        for value in self.head.values(name):
            return value.decode("ascii") if value.isascii() else None
        return None

    def set_header(self, name: str, text: str) -> None:
        """Set a header of the answer that has texts of the request, redacted."""
        self.headers[name] = self._redact(text.encode())[0].decode()

    def asks(self, name: str, value: str) -> bool:
        """True if the query has that value for that name."""
        return value in parse_qs(self._query.decode("ascii", "replace")).get(name, ())

    async def read_body(self, max_bytes: int) -> bytes:
        """Return the whole body.  Raises Encoded, TooLarge, TooSlow, Gone."""
        encoding = self.header(b"content-encoding")
        if any(self.head.values(b"content-encoding")) and encoding != "identity":
            raise Encoded(
                "Content-Encoding: send the body without encoding", field="content-encoding"
            )
        announced = self.header(b"content-length") or ""
        if announced.isdigit() and int(announced) > max_bytes:
            raise TooLarge(f"the body has {announced} bytes, the limit is {max_bytes}")
        body = bytearray()
        with trio.move_on_after(BODY_TIMEOUT_S):
            while True:
                event = await self._receive()
                if event["type"] != "http.request":
                    raise Gone("the client has disconnected")
                body += event["body"]
                if len(body) > max_bytes:
                    raise TooLarge(f"the body has more than {max_bytes} bytes, the limit")
                if not event["more_body"]:
                    self._is_read = True
                    return bytes(body)
        raise TooSlow(f"the body did not arrive within {BODY_TIMEOUT_S:g} s")

    async def wait_gone(self) -> None:
        """Return once the client has disconnected.  Call it after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True

    async def respond(self, status: HTTPStatus, value: object) -> None:
        """Send a whole answer as redacted JSON; bytes are JSON already.

        Redacted, because an answer may quote the request, which is redacted on the tape alone.  An
        answer before the end of the body is sent at once, and the rest of the body is dropped.
        """
        encoded = value if isinstance(value, bytes) else msgspec.json.encode(value)
        body = await redact_frame(encoded, self._redact)
        await self._begin(status, {"Content-Type": JSON_TYPE, "Content-Length": str(len(body))})
        await self._put(body, is_last=self._is_read)
        if not self._is_read:
            await self._drop_body()
            await self.end_stream()

    async def _drop_body(self) -> None:
        left = LINGER_BYTES
        with trio.move_on_after(LINGER_S):
            while left > 0:
                event = await self._receive()
                if event["type"] != "http.request" or not event["more_body"]:
                    return
                left -= len(event["body"])

    async def begin_stream(self) -> None:
        """Send the head of an answer that comes in pieces."""
        await self._begin(HTTPStatus.OK, {"Content-Type": SSE_TYPE, "X-Accel-Buffering": "no"})

    async def send(self, piece: bytes) -> None:
        """Send one piece, redacted.  Waits for a slow reader, until the server gives up on it."""
        await self._put(await redact_frame(piece, self._redact), is_last=False)

    async def end_stream(self) -> None:
        """Send the end of the answer."""
        await self._put(b"", is_last=True)

    async def _put(self, body: bytes, *, is_last: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def _begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.has_begun = True
        every = {**HEADERS, **self.headers, **headers}
        await self._send(
            {
                "type": "http.response.start",
                "status": status.value,
                "headers": [(name.lower().encode(), text.encode()) for name, text in every.items()],
                "trailers": False,
            }
        )


_ENCODER = msgspec.json.Encoder()
HEARTBEAT = b": still there\n\n"
DONE = b"data: [DONE]\n\n"


def event(value: object, name: str = "") -> bytes:
    """Encode one event, with a name if the API has typed events."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, _ENCODER.encode(value))
