"""MCP servers reached by URL: the streamable HTTP transport with additional bounds.

Compression is disabled, and one response has at most MAX_ANSWER_BYTES.  An event stream that reaches the limit is cut; the transport reconnects.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from palyra.tools.mcp.transport import McpTransport, OpenLink

MAX_ANSWER_BYTES = 16_777_216
_CONNECT_S = 10.0
_ANSWER_S = 600.0  # upper bound; the deadline of the call is shorter


def addressed(
    url: str,
    headers: Callable[[], dict[str, str]],
    *,
    trusted: ssl.SSLContext | None = None,
    proxy: str = "",
) -> OpenLink:
    """Return a link to the server at `url`, through a proxy if one is given.

    `headers` is called at each start; `trusted` replaces the usual certificate authorities.
    """

    @asynccontextmanager
    async def open_link(
        _on_end: Callable[[], None], _on_error: Callable[[bytes], None]
    ) -> AsyncGenerator[McpTransport]:
        import httpx2  # noqa: PLC0415 - part of the extra `mcp`
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - likewise

        counted = _counted(httpx2)

        async def bound(answer: Any) -> None:  # noqa: ANN401, RUF029 - httpx2 awaits its hooks
            answer.stream = counted(answer.stream)

        own_tls = trusted if proxy.startswith("https:") else None
        client = httpx2.AsyncClient(
            event_hooks={"response": [bound]},
            headers={"Accept-Encoding": "identity", **headers()},
            timeout=httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S),
            verify=True if trusted is None else trusted,
            proxy=httpx2.Proxy(proxy, ssl_context=own_tls) if proxy else None,
            trust_env=False,
        )
        async with client, streamable_http_client(url, http_client=client) as (incoming, outgoing):
            yield McpTransport(incoming, outgoing)

    return open_link


def _counted(httpx2: Any) -> type[Any]:  # noqa: ANN401 - a module that is imported late
    """Return a byte stream class that raises ReadError after MAX_ANSWER_BYTES."""

    class Counted(httpx2.AsyncByteStream):  # type: ignore[misc]  # a class of a module that is a value
        def __init__(self, inner: Any) -> None:  # noqa: ANN401 - httpx2's
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900 - as httpx2 wants it
            left = MAX_ANSWER_BYTES
            async for piece in self._inner:
                left -= len(piece)
                if left < 0:
                    raise httpx2.ReadError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    return Counted
