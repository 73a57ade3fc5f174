"""Opening the WebSocket a link lives on."""

import ssl
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

import trio
import trio_websocket

from palyra.errors import InvalidParams, Unavailable

SUBPROTOCOL = "palyra.v1"
MAX_MESSAGE_BYTES = 16_777_216  # a page of tape is 2 MiB before its JSON is escaped
QUEUED_MESSAGES = 64
RECEIVE_BYTES = 65_536


class WatchedStream(trio.abc.Stream):
    """A stream that tells when it ends.

    trio-websocket does not: a peer that hangs up during the upgrade leaves it waiting for good.
    """

    def __init__(self, inner: trio.abc.Stream, on_end: Callable[[], None]) -> None:
        self._inner = inner
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


async def open_socket(nursery: trio.Nursery, ws_url: str) -> trio_websocket.WebSocketConnection:
    """A connection whose upgrade is done; its reader runs in `nursery`.

    Raises OSError or Unavailable; a refusal (`ConnectionRejected`) comes out of the nursery.
    """
    parts = _split(ws_url)
    with trio.CancelScope() as upgrading:
        stream = WatchedStream(await _open_stream(parts), upgrading.cancel)
        return await trio_websocket.wrap_client_stream(
            nursery,
            stream,  # type: ignore[arg-type]  # any Stream will do
            parts.netloc.rpartition("@")[2],
            parts.path + (f"?{parts.query}" if parts.query else ""),
            subprotocols=[SUBPROTOCOL],
            message_queue_size=QUEUED_MESSAGES,
            max_message_size=MAX_MESSAGE_BYTES,
            receive_buffer_size=RECEIVE_BYTES,
        )
    raise Unavailable(f"{ws_url} hung up during the WebSocket upgrade")


async def _open_stream(parts: SplitResult) -> trio.abc.Stream:
    host = parts.hostname or ""
    if parts.scheme == "ws":
        return await trio.open_tcp_stream(host, parts.port or 80)
    return await trio.open_ssl_over_tcp_stream(
        host,
        parts.port or 443,
        ssl_context=ssl.create_default_context(),
        https_compatible=True,
    )


def _split(ws_url: str) -> SplitResult:
    parts = urlsplit(ws_url)
    if parts.scheme not in {"ws", "wss"} or parts.hostname is None:
        raise InvalidParams(f"{ws_url!r} is no WebSocket address (ws://host:port/v1/ws)")
    return parts
