"""Connection to one MCP server, independent of the transport: message streams and opener."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from palyra.errors import PalyraError


class ServerGone(PalyraError):
    """The server is unavailable or violates the protocol."""

    code = "unavailable"


class McpTransport(NamedTuple):
    """The two streams of a session of the package `mcp`."""

    incoming: Any  # mcp.shared._stream_protocols.ReadStream
    outgoing: Any  # … WriteStream
    enforcement: str = "none"


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
