"""One live connection: handshake, requests by id, notifications, and its end.

A link is used once.  One task reads, one writes (so that a caller who gives up never leaves half
a frame behind), one listens for signs of life.  Whoever waits for a reply when the link ends gets
`LinkLost`; deciding what that means is the client's business.
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

SEND_WITHIN_S = 10.0  # one message; a peer that takes none for so long is gone
CLOSE_WITHIN_S = 1.0  # for the peer's half of the closing handshake
PING_EVERY_S = 20.0
PONG_WITHIN_S = 10.0
QUEUED_REQUESTS = 64

OnNotice = Callable[[str, msgspec.Raw], None]  # method and params
OnResult = Callable[[msgspec.Raw], None]


class LinkLost(Exception):
    """The connection ended before the reply came."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What this client says of itself when it connects."""

    name: str
    want: tuple[str, ...]


@dataclass(slots=True)
class _Waiting:
    """A request without its reply."""

    on_result: OnResult | None
    answered: trio.Event = field(default_factory=trio.Event)
    frame: Frame | None = None


class ClientConnection:
    """A connection that is open; `closed` is set when it no longer is."""

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
        self.spawn = nursery.start_soon  # for tasks that must not outlive the link
        self._socket = socket
        self._on_notice = on_notice
        self._waiting: dict[int, _Waiting] = {}
        self._next_id = 1
        self._is_closing = False
        self._slots = trio.Semaphore(1)  # `connect`; more once the limits are known
        self._outbox, self._outgoing = trio.open_memory_channel[str](QUEUED_REQUESTS)

    async def request(
        self, method: str, params: dict[str, Any], on_result: OnResult | None = None
    ) -> msgspec.Raw:
        """The result.  `on_result` sees it before any later frame is looked at.

        Raises LinkLost, TooLarge (then nothing was sent) or the daemon's error.  Cancellation: the
        request may have taken effect.
        """
        async with self._slots:
            request_id = self._next_id
            self._next_id += 1
            text = frames.render_request(request_id, method, params)
            self._check_size(method, text)
            waiting = self._waiting[request_id] = _Waiting(on_result)
            try:
                await self._send(text)
                await waiting.answered.wait()
            finally:
                del self._waiting[request_id]
        return _result(waiting.frame)

    async def receive_hello(self) -> None:
        """Read the daemon's first message.  Raises ProtocolError or LinkLost."""
        try:
            text = await self._socket.get_message()
        except trio_websocket.ConnectionClosed as error:
            self._note(error)
            raise LinkLost("closed before hello") from None
        greeted = [frame for frame in _parse(text) if frame.method == "hello"]
        if not greeted:
            raise ProtocolError("the peer did not say hello: is it a Palyra daemon?")
        self.hello = decode(greeted[0].params, Hello)
        # One slot stays free for what must not queue behind long waits.
        self._slots = trio.Semaphore(max(1, self.hello.limits.max_inflight - 1))

    async def introduce(self, token: str, greeting: Handshake) -> None:
        """Send `connect`; `read` and `write` must be running.  Raises the daemon's refusal."""
        client = {"name": greeting.name, "version": __version__}
        params = {"token": token, "client": client, "want": list(greeting.want)}
        self.welcome = decode(await self.request("connect", params), Welcome)

    async def read(self) -> None:
        """Hand out what arrives until the connection ends."""
        with self._ending():
            while True:
                for frame in _parse(await self._socket.get_message()):
                    self._accept(frame)

    async def write(self) -> None:
        """Send what was asked for, each message under a deadline."""
        with self._ending(), self._outgoing:
            async for text in self._outgoing:
                with trio.fail_after(SEND_WITHIN_S):
                    await self._socket.send_message(text)

    async def listen_for_life(self) -> None:
        """End the link when the peer answers no ping: TCP alone may not notice for hours."""
        with self._ending():
            while True:
                await trio.sleep(PING_EVERY_S)
                with trio.fail_after(PONG_WITHIN_S):
                    await self._socket.ping()

    async def close(self) -> None:
        """Say goodbye; bounded by CLOSE_WITHIN_S, never raises."""
        self._is_closing = True  # from here on the reader's end is not the link's
        with trio.move_on_after(CLOSE_WITHIN_S):
            await self._socket.aclose()
        self._is_closing = False
        self._end(None, "closed by this client")

    def _check_size(self, method: str, text: str) -> None:
        """Refuse what the daemon would hang up on: sent again it would cut the next link, too."""
        size_bytes, limit_bytes = len(text.encode()), self.hello.limits.max_message_bytes
        if size_bytes > limit_bytes:
            raise TooLarge(
                f"{method} has {size_bytes} bytes, and this daemon takes at most {limit_bytes} in "
                f"a message: send less, or raise server.max_message_bytes there"
            )

    async def _send(self, text: str) -> None:
        if self.closed.is_set():  # nobody wakes a request that registers from now on
            raise LinkLost("the connection has ended")
        try:
            await self._outbox.send(text)
        except trio.BrokenResourceError:
            raise LinkLost("the connection has ended") from None

    def _accept(self, frame: Frame) -> None:
        if frame.method is not None:
            self._on_notice(frame.method, frame.params)
            return
        waiting = self._waiting.get(frame.id) if frame.id is not None else None
        if waiting is None:
            return  # its asker gave up
        if waiting.on_result is not None and frame.error is None:
            waiting.on_result(frame.result)
        waiting.frame = frame
        waiting.answered.set()

    @contextmanager
    def _ending(self) -> Generator[None]:
        """However the block ends, so does the link."""
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
        for waiting in self._waiting.values():
            waiting.answered.set()


def decode(raw: msgspec.Raw, kind: type[T]) -> T:
    """`raw` as that type.  Raises ProtocolError when the daemon sent something else."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not the {kind.__name__} that protocol v1 promises: {error}") from None


def _result(frame: Frame | None) -> msgspec.Raw:
    if frame is None:
        raise LinkLost("the connection ended before the reply came")
    if frame.error is not None:
        raise frames.to_exception(frame.error)
    return frame.result


def _parse(text: str | bytes) -> list[Frame]:
    if isinstance(text, bytes):
        raise ProtocolError("a binary message")
    return frames.parse_frames(text)
