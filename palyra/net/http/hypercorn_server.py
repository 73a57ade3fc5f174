"""Hypercorn, driven one accepted connection at a time.  Imported with the first page, by `late`.

Owns: no state between connections.  Hypercorn's own server loop is not used: a crash of one
connection ends all of them, and its shutdown waits for a client that does not read.
"""

import logging
from typing import Any, cast

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ASGIFramework, ConnectionState

from palyra.net.server.stream import PrefixedStream
from palyra.net.server.strict import harden

IDLE_TIMEOUT_S = 15.0  # between two requests of a connection, including the head of the second


class AppServer:
    """Runs an app for one connection after another; an `HttpServer`."""

    def __init__(self, app: ASGIFramework) -> None:
        self._app = ASGIWrapper(app)
        self._config = Config()
        self._config.accesslog = None
        self._config.errorlog = logging.getLogger("palyra.http")
        self._config.include_server_header = False
        self._config.keep_alive_timeout = IDLE_TIMEOUT_S

    async def serve(self, stream: PrefixedStream) -> None:
        """Serve the connection to its end.  Cancellation: the socket is closed at once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_abort_when_cancelled, stream)
            await _Connection(self._app, self._config, stream).run()
            nursery.cancel_scope.cancel(reason="the connection has been served")


async def _abort_when_cancelled(stream: PrefixedStream) -> None:
    """Close the socket on cancellation: Hypercorn shields its writes, so nothing else ends them."""
    try:
        await trio.sleep_forever()
    finally:
        stream.abort()


class _Connection(TCPServer):
    """Hypercorn's connection without TLS and HTTP/2, which ends at once when cancelled."""

    def __init__(self, app: AppWrapper, config: Config, stream: PrefixedStream) -> None:
        super().__init__(app, config, WorkerContext(None), {}, stream)  # type: ignore[arg-type]  # what it uses of a stream is there

    async def run(self) -> None:
        """Serve until either side closes."""
        client = self.stream.socket.getpeername()
        async with TaskGroup() as group:
            self._task_group = group
            self.protocol = _Http1(  # type: ignore[assignment]  # of the wrapper only `handle` is used
                self.app,
                self.config,
                self.context,
                group,
                ConnectionState({}),
                ssl=False,
                client=client[:2],
                server=None,
                send=self.protocol_send,
            )
            await self.idle_task.restart(group, self._idle_timeout)
            await self._read_data()
            await self.idle_task.stop()  # else the group would wait for it


class _Http1(H11Protocol):
    """Strict about heads, and never HTTP/2: an offer may be ignored (RFC 9110 section 7.8)."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - passed through
        super().__init__(*arguments, **named)
        harden(cast("h11.Connection", self.connection))

    async def _check_protocol(self, event: h11.Request) -> None:
        """Ignore upgrades: a request of HTTP version 2 is answered with 505 like any other."""
