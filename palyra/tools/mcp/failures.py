"""Exceptions that a server, its process or its connection can cause."""

import trio

from palyra.errors import PalyraError


def is_answer(error: Exception) -> bool:
    """True if the error is an answer of the server and not a lost connection."""
    from mcp import MCPError  # noqa: PLC0415 - see the package
    from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415 - likewise

    return isinstance(error, MCPError) and error.error.code != CONNECTION_CLOSED


def is_unknown_method(error: Exception) -> bool:
    """True if the server answered that it does not have the method."""
    from mcp import MCPError  # noqa: PLC0415 - see the package
    from mcp_types import METHOD_NOT_FOUND  # noqa: PLC0415 - likewise

    return isinstance(error, MCPError) and error.error.code == METHOD_NOT_FOUND


def server_failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that a server, its process or its connection can cause."""
    import anyio  # noqa: PLC0415 - comes with the package `mcp`
    import httpx2  # noqa: PLC0415 - likewise
    from mcp import MCPError  # noqa: PLC0415 - likewise

    return (
        PalyraError, MCPError, httpx2.HTTPError, OSError, ValueError, TypeError, LookupError,
        RuntimeError, AttributeError, anyio.BrokenResourceError, anyio.ClosedResourceError,
        anyio.EndOfStream, trio.BrokenResourceError, trio.ClosedResourceError,
    )  # fmt: skip
