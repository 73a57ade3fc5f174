"""One connection to the daemon: handshake, requests by id, notifications, end.

Three tasks serve a connection.  One reads and dispatches frames.  One writes, so that a cancelled
caller never leaves half a frame behind.  One pings, since TCP may not report a dead peer for hours.
The end of any of them ends the connection, which is never reopened: every request in progress
raises `ConnectionLost`, and the caller (`reconnecting`) decides whether to retry.
"""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from palyra import __version__
from palyra.client import frames
from palyra.client.frames import Frame
from palyra.client.waits import Event, Socket, SocketClosed, Waits
from palyra.errors import (
    Forbidden,
    PalyraError,
    ProtocolError,
    TooLarge,
    Unauthenticated,
    Unreachable,
)
from palyra.net.protocol import close_codes
from palyra.net.protocol.discovery import Endpoint
from palyra.net.protocol.notifications import PROTOCOL, Hello
from palyra.net.protocol.results import Welcome

T = TypeVar("T")

OPEN_WITHIN_S = 10.0  # for TCP and TLS, and again for upgrade, hello and connect
SEND_WITHIN_S = 10.0  # to send one message; a peer that accepts none for so long is dead
CLOSE_WITHIN_S = 1.0  # for the peer's half of the closing handshake
PING_EVERY_S = 20.0
PONG_WITHIN_S = 10.0
QUEUED_REQUESTS = 64

OnNotice = Callable[[str, msgspec.Raw], None]  # method and params
OnResult = Callable[[msgspec.Raw], None]
Spawn = Callable[..., None]  # start a task with a function and its arguments


class ConnectionLost(Exception):
    """The connection ended before the reply came."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """Name and wanted features that the client sends in `connect`."""

    name: str
    want: tuple[str, ...]


@dataclass(slots=True)
class _Pending:
    """A request without its reply."""

    on_result: OnResult | None
    answered: Event
    frame: Frame | None = None


class ClientConnection:
    """An open connection; `closed` is set when it has ended."""

    def __init__(self, socket: Socket, spawn: Spawn, on_notice: OnNotice, waits: Waits) -> None:
        self.hello: Hello  # set once `receive_hello` has returned
        self.welcome: Welcome  # once `introduce` has returned
        self.closed = waits.make_event()
        self.close_code: int | None = None
        self.close_reason = ""
        self.spawn = spawn  # for tasks that must not outlive the connection
        self._waits = waits
        self._socket = socket
        self._on_notice = on_notice
        self._pending: dict[int, _Pending] = {}
        self._next_id = 1
        self._is_closing = False
        self._slots = waits.make_slots(1)  # `connect`; more once the limits are known
        self._outgoing: deque[str] = deque()  # texts that the writer has not taken
        self._outgoing_changed = waits.make_event()

    async def request(
        self, method: str, params: dict[str, Any], on_result: OnResult | None = None
    ) -> msgspec.Raw:
        """Send a request and return the result; `on_result` gets it before any later frame is read.

        Raises ConnectionLost, TooLarge (then nothing was sent) or the daemon's error.
        Cancellation: the request may have taken effect.
        """
        async with self._slots:
            request_id = self._next_id
            self._next_id += 1
            text = frames.render_request(request_id, method, params)
            self._check_size(method, text)
            pending = self._pending[request_id] = _Pending(on_result, self._waits.make_event())
            try:
                await self._send(text)
                await pending.answered.wait()
            finally:
                del self._pending[request_id]
        return _result(pending.frame)

    async def open(self, token: str, handshake: Handshake) -> None:
        """Greet and start the tasks.  Raises the daemon's refusal, ProtocolError or ConnectionLost."""
        await self.receive_hello()
        for task in (self.read, self.write, self.listen_for_life):
            self.spawn(task)
        try:
            await self.introduce(token, handshake)
        except ConnectionLost:
            raise self.verdict() or ConnectionLost(self.close_reason) from None

    def verdict(self) -> PalyraError | None:
        """Return the error of an ended connection that rules out a retry, or None."""
        if self.close_code == close_codes.UNAUTHENTICATED:
            return Unauthenticated(
                f"the daemon refused the token: {self.close_reason or 'unknown'}"
            )
        if self.close_code == close_codes.REVOKED:
            return Forbidden(f"the token was revoked: {self.close_reason or 'ask its operator'}")
        return None

    async def receive_hello(self) -> None:
        """Read `hello`, the daemon's first message.  Raises ProtocolError or ConnectionLost."""
        try:
            text = await self._socket.receive()
        except SocketClosed as error:
            self._end(error.code, error.reason)
            raise ConnectionLost("closed before hello") from None
        greeted = [frame for frame in _parse(text) if frame.method == "hello"]
        if not greeted:
            raise ProtocolError("the peer sent no hello: is it a Palyra daemon?")
        self.hello = decode(greeted[0].params, Hello)
        # One slot stays free for requests that must not queue behind long waits.
        self._slots = self._waits.make_slots(max(1, self.hello.limits.max_inflight - 1))

    async def introduce(self, token: str, handshake: Handshake) -> None:
        """Send `connect`; `read` and `write` must be running.  Raises the daemon's refusal."""
        client = {"name": handshake.name, "version": __version__}
        params = {"token": token, "client": client, "want": list(handshake.want)}
        self.welcome = decode(await self.request("connect", params), Welcome)

    async def read(self) -> None:
        """Dispatch frames until the connection ends."""
        with self._ending():
            while True:
                for frame in _parse(await self._socket.receive()):
                    self._accept(frame)

    async def write(self) -> None:
        """Send queued messages, each under a deadline."""
        with self._ending():
            while True:
                while not self._outgoing:
                    await self._outgoing_changed.wait()
                text = self._outgoing.popleft()
                self._note_outgoing()
                await self._socket.send(text, SEND_WITHIN_S)

    async def listen_for_life(self) -> None:
        """Ping the peer; end the connection if no pong arrives in time."""
        with self._ending():
            while True:
                await self._waits.sleep(PING_EVERY_S)
                await self._socket.ping(PONG_WITHIN_S)

    async def close(self) -> None:
        """Perform the closing handshake; bounded by CLOSE_WITHIN_S, never raises."""
        self._is_closing = True  # the reader's end is expected from here on
        await self._socket.close(CLOSE_WITHIN_S)
        self._is_closing = False
        self._end(None, "closed by this client")

    def _check_size(self, method: str, text: str) -> None:
        """Refuse a message over the daemon's limit: a retry would end the next connection too."""
        size_bytes, limit_bytes = len(text.encode()), self.hello.limits.max_message_bytes
        if size_bytes > limit_bytes:
            raise TooLarge(
                f"{method} has {size_bytes} bytes, and this daemon accepts at most {limit_bytes} in "
                f"a message: send less, or raise server.max_message_bytes there"
            )

    async def _send(self, text: str) -> None:
        """Queue a message; waits while the queue is full."""
        while len(self._outgoing) >= QUEUED_REQUESTS and not self.closed.is_set():
            await self._outgoing_changed.wait()
        if self.closed.is_set():  # a request that registers now would never wake
            raise ConnectionLost("the connection has ended")
        self._outgoing.append(text)
        self._note_outgoing()
        await self._waits.checkpoint()  # a caller in a loop lets the writer run

    def _note_outgoing(self) -> None:
        self._outgoing_changed.set()
        self._outgoing_changed = self._waits.make_event()

    def _accept(self, frame: Frame) -> None:
        if frame.method is not None:
            self._on_notice(frame.method, frame.params)
            return
        pending = self._pending.get(frame.id) if frame.id is not None else None
        if pending is None:
            return  # the caller was cancelled
        if pending.on_result is not None and frame.error is None:
            pending.on_result(frame.result)
        pending.frame = frame
        pending.answered.set()

    @contextmanager
    def _ending(self) -> Generator[None]:
        """End the connection however the block ends."""
        try:
            yield
        except SocketClosed as error:
            self._end(error.code, error.reason)
        except TimeoutError:
            self._end(None, "the peer stopped answering")
        except (ProtocolError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._end(None, f"the peer does not speak {PROTOCOL}: {error}")
        finally:
            self._end(None, "the connection ended")

    def _end(self, code: int | None, reason: str) -> None:
        if self._is_closing or self.closed.is_set():
            return
        self.close_code, self.close_reason = code, reason
        self.closed.set()
        self._note_outgoing()
        for pending in self._pending.values():
            pending.answered.set()


def decode(raw: msgspec.Raw, kind: type[T]) -> T:
    """Decode `raw` as that type.  Raises ProtocolError if it is not one."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not the {kind.__name__} that protocol v1 promises: {error}") from None


def explain_refusal(endpoint: Endpoint, status: int) -> PalyraError:
    """Return the error for a refused WebSocket upgrade."""
    if status == HTTPStatus.UNAUTHORIZED:
        return Unauthenticated(f"{endpoint.ws_url} refused the token")
    if status == HTTPStatus.FORBIDDEN:
        name = urlsplit(endpoint.ws_url).hostname
        return Forbidden(
            f"{endpoint.ws_url} does not answer to this name (HTTP 403): "
            f"add {name} to its `server.allowed_hosts`",
            field="host",
        )
    return Unreachable(f"{endpoint.ws_url} refused the WebSocket upgrade (HTTP {status})")


def _result(frame: Frame | None) -> msgspec.Raw:
    if frame is None:
        raise ConnectionLost("the connection ended before the reply came")
    if frame.error is not None:
        raise frames.to_exception(frame.error)
    return frame.result


def _parse(text: str | bytes) -> list[Frame]:
    if isinstance(text, bytes):
        raise ProtocolError("a binary message")
    return frames.parse_frames(text)
