"""Connection to one MCP server, independent of the transport: message streams and opener."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Self

import trio

from palyra.errors import PalyraError

MAX_MESSAGES, WINDOW_S = 100, 0.25  # far above what a useful server sends


class ServerGone(PalyraError):
    """The server is unavailable or violates the protocol."""

    code = "unavailable"


class McpTransport(NamedTuple):
    """The two streams of a session of the package `mcp`."""

    incoming: Any  # mcp.shared._stream_protocols.ReadStream
    outgoing: Any  # … WriteStream
    enforcement: str = "none"


class PacedMessages:
    """Stream of messages that passes on at most MAX_MESSAGES in WINDOW_S.

    Each message costs the event loop about a tenth of a millisecond, most of it for its validation.
    The rest of a flood stays in the pipe or socket, so it slows the server down and not the daemon.
    """

    def __init__(self, incoming: Any) -> None:  # noqa: ANN401 - a stream of the package `mcp`
        self._incoming = incoming
        self._began_s = -math.inf
        self._count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - a message of the package `mcp`
        """Return the next message.  Cancellation: a message is lost, as with the session."""
        message = await anext(self._incoming)
        await self._pace()
        return message

    async def receive(self) -> Any:  # noqa: ANN401 - likewise
        """Return the next message.  Cancellation: a message is lost, as with the session."""
        message = await self._incoming.receive()
        await self._pace()
        return message

    async def _pace(self) -> None:
        await trio.lowlevel.checkpoint()  # the next message may be there already
        now_s = trio.current_time()
        if now_s >= self._began_s + WINDOW_S:
            self._began_s, self._count = now_s, 0
        self._count += 1
        if self._count >= MAX_MESSAGES:
            await trio.sleep_until(self._began_s + WINDOW_S)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._incoming.aclose()

    async def __aenter__(self) -> Self:
        await self._incoming.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


OpenLink = Callable[
    [Callable[[], None], Callable[[bytes], None]], AbstractAsyncContextManager[McpTransport]
]
"""Opens a link.  The first argument is called once the other end is gone, the second with each
piece of a program's standard error.
"""


class StdioServer(NamedTuple):
    """The program and environment of a stdio server."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
