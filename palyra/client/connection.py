"""One connection to the daemon: handshake, requests by id, notifications, end.

Three tasks serve a connection.  One reads and dispatches frames.  One writes, so that a cancelled
caller never leaves half a frame behind.  One pings, since TCP may not report a dead peer for hours.
The end of any of them ends the connection, which is never reopened: every request in progress
raises `ConnectionLost`, and the caller (`reconnecting`) decides whether to retry.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import trio
import trio_websocket

from palyra import __version__
from palyra.client import frames
from palyra.client.frames import Frame
from palyra.client.socket import SUBPROTOCOL
from palyra.errors import ProtocolError, TooLarge
from palyra.net.protocol.notifications import Hello
from palyra.net.protocol.results import Welcome

T = TypeVar("T")

SEND_WITHIN_S = 10.0  # to send one message; a peer that accepts none for so long is dead
CLOSE_WITHIN_S = 1.0  # for the peer's half of the closing handshake
PING_EVERY_S = 20.0
PONG_WITHIN_S = 10.0
QUEUED_REQUESTS = 64

OnNotice = Callable[[str, msgspec.Raw], None]  # method and params
OnResult = Callable[[msgspec.Raw], None]


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
    answered: trio.Event = field(default_factory=trio.Event)
    frame: Frame | None = None


class ClientConnection:
    """An open connection; `closed` is set when it has ended."""

    def __init__(
        self,
        socket: trio_websocket.WebSocketConnection,
        nursery: trio.Nursery,
        on_notice: OnNotice,
    ) -> None:
        self.hello: Hello  # set once `receive_hello` has returned
        self.welcome: Welcome  # once `introduce` has returned
        self.closed = trio.Event()
        self.close_code: int | None = None
        self.close_reason = ""
        self.spawn = nursery.start_soon  # for tasks that must not outlive the connection
        self._socket = socket
        self._on_notice = on_notice
        self._pending: dict[int, _Pending] = {}
        self._next_id = 1
        self._is_closing = False
        self._slots = trio.Semaphore(1)  # `connect`; more once the limits are known
        self._outbox, self._outgoing = trio.open_memory_channel[str](QUEUED_REQUESTS)

    async def request(
        self, method: str, params: dict[str, Any], on_result: OnResult | None = None
    ) -> msgspec.Raw:
        """Send a request and return the result; `on_result` gets it before any later frame is read.

        Raises ConnectionLost, TooLarge (then nothing was sent) or the daemon's error.  Cancellation: the
        request may have taken effect.
        """
        async with self._slots:
            request_id = self._next_id
            self._next_id += 1
            text = frames.render_request(request_id, method, params)
            self._check_size(method, text)
            pending = self._pending[request_id] = _Pending(on_result)
            try:
                await self._send(text)
                await pending.answered.wait()
            finally:
                del self._pending[request_id]
        return _result(pending.frame)

    async def receive_hello(self) -> None:
        """Read `hello`, the daemon's first message.  Raises ProtocolError or ConnectionLost."""
        try:
            text = await self._socket.get_message()
        except trio_websocket.ConnectionClosed as error:
            self._note(error)
            raise ConnectionLost("closed before hello") from None
        greeted = [frame for frame in _parse(text) if frame.method == "hello"]
        if not greeted:
            raise ProtocolError("the peer sent no hello: is it a Palyra daemon?")
        self.hello = decode(greeted[0].params, Hello)
        # One slot stays free for requests that must not queue behind long waits.
        self._slots = trio.Semaphore(max(1, self.hello.limits.max_inflight - 1))

    async def introduce(self, token: str, handshake: Handshake) -> None:
        """Send `connect`; `read` and `write` must be running.  Raises the daemon's refusal."""
        client = {"name": handshake.name, "version": __version__}
        params = {"token": token, "client": client, "want": list(handshake.want)}
        self.welcome = decode(await self.request("connect", params), Welcome)

    async def read(self) -> None:
        """Dispatch frames until the connection ends."""
        with self._ending():
            while True:
                for frame in _parse(await self._socket.get_message()):
                    self._accept(frame)

    async def write(self) -> None:
        """Send queued messages, each under a deadline."""
        with self._ending(), self._outgoing:
            async for text in self._outgoing:
                with trio.fail_after(SEND_WITHIN_S):
                    await self._socket.send_message(text)

    async def listen_for_life(self) -> None:
        """Ping the peer; end the connection if no pong arrives in time."""
        with self._ending():
            while True:
                await trio.sleep(PING_EVERY_S)
                with trio.fail_after(PONG_WITHIN_S):
                    await self._socket.ping()

    async def close(self) -> None:
        """Perform the closing handshake; bounded by CLOSE_WITHIN_S, never raises."""
        self._is_closing = True  # the reader's end is expected from here on
        with trio.move_on_after(CLOSE_WITHIN_S):
            await self._socket.aclose()
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
        if self.closed.is_set():  # a request that registers now would never wake
            raise ConnectionLost("the connection has ended")
        try:
            await self._outbox.send(text)
        except trio.BrokenResourceError:
            raise ConnectionLost("the connection has ended") from None

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
        except trio_websocket.ConnectionClosed as error:
            self._note(error)
        except trio.TooSlowError:
            self._end(None, "the peer stopped answering")
        except (ProtocolError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._end(None, f"the peer does not speak {SUBPROTOCOL}: {error}")
        finally:
            self._end(None, "the connection ended")

    def _note(self, error: trio_websocket.ConnectionClosed) -> None:
        reason = error.reason
        self._end(reason.code if reason else None, (reason.reason if reason else None) or "")

    def _end(self, code: int | None, reason: str) -> None:
        if self._is_closing or self.closed.is_set():
            return
        self.close_code, self.close_reason = code, reason
        self.closed.set()
        for pending in self._pending.values():
            pending.answered.set()


def decode(raw: msgspec.Raw, kind: type[T]) -> T:
    """Decode `raw` as that type.  Raises ProtocolError if it is not one."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not the {kind.__name__} that protocol v1 promises: {error}") from None


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
