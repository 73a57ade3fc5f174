"""A link to one server: messages in and out, whatever carries them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from palyra.errors import PalyraError


class ServerGone(PalyraError):
    """The server is not there, or does not keep to the protocol."""

    code = "unavailable"


class McpTransport(NamedTuple):
    """The two streams a session of the package `mcp` runs on."""

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
    """A program to run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
