"""A provider for tests: a real HTTP server that sends the given bytes, in pieces."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

Piece = bytes | Callable[[], Awaitable[None]]  # a piece of the answer, or something to wait for
STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"connection: close\r\n\r\n"
)


def refusal(status: int, body: Any, *headers: str) -> bytes:
    """An answer that is no stream."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} x", "content-type: application/json", f"content-length: {len(text)}",
        *headers, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + text


def sse(*events: Any) -> bytes:
    """Events as a provider sends them."""
    texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return b"".join(f"data: {text}\n\n".encode() for text in texts)


@dataclass
class Provider:
    """Answers requests in order from a list and records each request."""

    url: str = ""
    answers: list[Sequence[Piece]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)  # the bodies as they came
    gone: int = 0  # clients that left before the end

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, one request."""
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
            head, _, body = received.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            while len(body) < length:
                body += await stream.receive_some()
            self.heads.append(head.decode().lower())
            self.bodies.append(json.loads(body))
            self.raw.append(body)
            await self._answer(stream, self.answers.pop(0))

    async def _answer(self, stream: trio.SocketStream, pieces: Sequence[Piece]) -> None:
        try:
            for piece in pieces:
                if isinstance(piece, bytes):
                    await stream.send_all(piece)
                else:
                    await piece()
        except trio.BrokenResourceError:
            self.gone += 1


@asynccontextmanager
async def provider(*answers: Sequence[Piece]) -> AsyncGenerator[Provider]:
    """A provider on a port of its own."""
    made = Provider(answers=list(answers))
    failure: Exception | None = None  # raised outside of the nursery: as it is, not in a group
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        made.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        await nursery.start(trio.serve_listeners, made.serve, listeners)
        try:
            yield made
        except Exception as error:  # noqa: BLE001 - raised again
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
