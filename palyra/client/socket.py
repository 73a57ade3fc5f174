"""The WebSocket of a connection under trio."""

import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

import trio
import trio_websocket

from palyra.client.waits import SocketClosed
from palyra.errors import TlsFailed, Unreachable
from palyra.net.protocol.notifications import PROTOCOL

MAX_MESSAGE_BYTES = 16_777_216  # a page of tape is 2 MiB before its JSON is escaped
QUEUED_MESSAGES = 64
RECEIVE_BYTES = 65_536


class WatchedStream(trio.abc.Stream):
    """A stream that reports its end to a callback.

    trio-websocket waits forever if the peer closes the connection during the upgrade.
    """

    def __init__(self, inner: trio.abc.Stream) -> None:
        self._inner = inner
        self.watch(lambda: None)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` when either side closes the stream."""
        self._on_end = on_end

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        received = await self._inner.receive_some(max_bytes)
        if not received:
            self._on_end()
        return received

    async def aclose(self) -> None:
        self._on_end()
        await self._inner.aclose()


async def open_stream(ws_url: str) -> WatchedStream:
    """Open a TCP or TLS connection to the host of that address.

    Raises OSError, and TlsFailed if TLS cannot be agreed on, as with an untrusted certificate.
    """
    parts = urlsplit(ws_url)
    host = parts.hostname or ""
    if parts.scheme == "ws":
        return WatchedStream(await trio.open_tcp_stream(host, parts.port or 80))
    stream = await trio.open_ssl_over_tcp_stream(
        host, parts.port or 443, ssl_context=ssl.create_default_context(), https_compatible=True
    )
    is_agreed = False
    try:
        # Otherwise the first message would, and the WebSocket library waits on after its failure.
        await stream.do_handshake()
        is_agreed = True
    except trio.BrokenResourceError as error:
        raise TlsFailed(f"{ws_url}: TLS failed: {error.__cause__ or error}") from None
    finally:
        if not is_agreed:
            await trio.aclose_forcefully(stream)
    return WatchedStream(stream)


async def upgrade(
    nursery: trio.Nursery, stream: WatchedStream, ws_url: str
) -> trio_websocket.WebSocketConnection:
    """Upgrade the stream to a WebSocket whose reader runs in `nursery`; the caller closes the stream.

    Raises Unavailable; a refusal (`ConnectionRejected`) comes out of the nursery.
    """
    parts = urlsplit(ws_url)
    with trio.CancelScope() as upgrading:
        stream.watch(upgrading.cancel)
        return await trio_websocket.wrap_client_stream(
            nursery,
            stream,  # type: ignore[arg-type]  # any Stream will do
            parts.netloc.rpartition("@")[2],
            parts.path + (f"?{parts.query}" if parts.query else ""),
            subprotocols=[PROTOCOL],
            message_queue_size=QUEUED_MESSAGES,
            max_message_size=MAX_MESSAGE_BYTES,
            receive_buffer_size=RECEIVE_BYTES,
        )
    raise Unreachable(f"{ws_url} closed the connection during the WebSocket upgrade")


class TrioSocket:
    """An open WebSocket, as the core of the client uses it."""

    def __init__(self, inner: trio_websocket.WebSocketConnection) -> None:
        self._inner = inner

    async def receive(self) -> str | bytes:
        with _closing():
            return await self._inner.get_message()

    async def send(self, text: str, within_s: float) -> None:
        with _closing(), trio.fail_after(within_s):
            await self._inner.send_message(text)

    async def ping(self, within_s: float) -> None:
        with _closing(), trio.fail_after(within_s):
            await self._inner.ping()

    async def close(self, within_s: float) -> None:
        with trio.move_on_after(within_s):
            await self._inner.aclose()


@contextmanager
def _closing() -> Generator[None]:
    """Raise the errors that `waits.Socket` promises."""
    try:
        yield
    except trio_websocket.ConnectionClosed as error:
        reason = error.reason
        raise SocketClosed(
            reason.code if reason else None, (reason.reason if reason else None) or ""
        ) from None
    except trio.TooSlowError:
        raise TimeoutError from None
