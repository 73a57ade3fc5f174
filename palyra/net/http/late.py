"""HTTP, loaded on first use: the first HTTP request imports the web stack, not the start.

Quart, Hypercorn and the Prometheus client take 0.2 to 0.3 s and 13 MB, and a daemon that only
speaks WebSocket never needs them.  They are imported in a thread; the longest pause the event
loop saw meanwhile was 23 ms.  Importing after `ready` would do that work in every daemon.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from palyra.actors.kernel.threads import run_sync
from palyra.net.api.logins import Logins
from palyra.net.api.tokens import Authenticate
from palyra.net.http.compat.sources import CompatSources
from palyra.net.http.metrics import Source
from palyra.net.protocol.notifications import State
from palyra.net.server.accept import HttpServer
from palyra.net.server.request_head import Names
from palyra.net.server.stream import PrefixedStream

WRITE_TIMEOUT_S = 30.0  # a stalled reader is cut off here, because Hypercorn shields its writes


@dataclass(frozen=True, slots=True)
class HttpSources:
    """Services and snapshots that the pages show."""

    version: str
    state: Callable[[], State]
    is_writable: Callable[[], bool]  # whether the journal takes commits
    authenticate: Authenticate
    names: Callable[[], Names]
    asyncapi: Callable[[], bytes]
    metrics: Sequence[Source] = field(default=())
    problems: Callable[[], Sequence[str]] = tuple  # in words, for the operator
    count_incidents: Callable[[], int] = int  # that are not resolved
    logins: Logins | None = None  # of the console
    compat: CompatSources | None = None  # for SDKs of other vendors


class LateHttp:
    """An `HttpServer` that imports its implementation on first use."""

    def __init__(self, sources: HttpSources) -> None:
        self._sources = sources
        self._server: HttpServer | None = None
        self._loading = trio.Lock()

    async def serve(self, stream: PrefixedStream) -> None:
        """Serve the connection to its end.  Cancellation: the socket is closed at once."""
        server = await self._load()
        stream.write_timeout_s = WRITE_TIMEOUT_S
        await server.serve(stream)

    async def _load(self) -> HttpServer:
        async with self._loading:
            if self._server is None:
                app = await run_sync(importlib.import_module, "palyra.net.http.pages")
                self._server = app.build_server(self._sources)
            return self._server
