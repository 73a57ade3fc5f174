"""The client for asyncio programs: the methods of `Client`.

    async with aio.connect() as client:
        started = await client.start_run("hello")
        async with client.events(started.run_id) as items:
            async for item in items:
                ...

Deadlines belong to the caller: `async with asyncio.timeout(5): await client.ping()`.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from h11 import ProtocolError as HttpError
from wsproto.utilities import ProtocolError as WebSocketError

from palyra.client.asyncio_socket import AsyncioSocket, UpgradeRefused
from palyra.client.client import PATIENCE_S, Client
from palyra.client.connection import (
    OPEN_WITHIN_S,
    ClientConnection,
    ConnectionLost,
    Handshake,
    OnNotice,
    explain_refusal,
)
from palyra.client.reconnecting import ClientOptions, Driver, ReconnectingConnection
from palyra.errors import PalyraError, ProtocolError, Unreachable
from palyra.net.protocol.discovery import Endpoint, find_endpoint

FOREIGN = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    HttpError,
    WebSocketError,
)  # the peer speaks another protocol


@asynccontextmanager
async def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    home: Path | str | None = None,
    name: str = "palyra-python",
    want: Sequence[str] = ("batch",),
    patience_s: float = PATIENCE_S,
) -> AsyncGenerator[Client]:
    """Open a client of the daemon at `url`, or of the one announced in `home`.

    A lost connection is re-established with exponential backoff; after `patience_s` without one,
    every call and iterator raises Unavailable.  Raises immediately, with the remedy, if there is
    no daemon or no token, and Unauthenticated or Forbidden if the token is refused.
    """
    connection = ReconnectingConnection(
        ClientOptions(
            find_endpoint=partial(find_endpoint, url, token, home),
            handshake=Handshake(name=name, want=tuple(want)),
            patience_s=patience_s,
        ),
        ASYNCIO,
    )
    is_open = asyncio.Event()
    keeper = asyncio.create_task(connection.keep_open(is_open.set), name="palyra keeper")
    opening = asyncio.create_task(is_open.wait(), name="palyra opening")
    try:
        await asyncio.wait({keeper, opening}, return_when=asyncio.FIRST_COMPLETED)
        if not is_open.is_set():
            await keeper  # raises
        keeper.add_done_callback(partial(_note_end, connection))
        yield Client(connection)
        await connection.close()
    finally:
        connection.give_up(Unreachable("this client was closed"))
        for task in (opening, keeper):
            task.cancel()
        await asyncio.wait({opening, keeper})


def _note_end(connection: ReconnectingConnection, keeper: asyncio.Task[None]) -> None:
    """End every call if the keeper has failed: without it they would wait forever."""
    fault = None if keeper.cancelled() else keeper.exception()
    if fault is not None:
        connection.give_up(Unreachable(f"the client has failed: {fault!r}"))


async def _run_connection(
    endpoint: Endpoint,
    handshake: Handshake,
    on_notice: OnNotice,
    on_open: Callable[[ClientConnection], None],
) -> None:
    """See `reconnecting.Driver`."""
    url = endpoint.ws_url
    try:
        async with _upgraded(url) as socket:
            connection = await _serve(socket, endpoint, handshake, on_notice, on_open)
    except UpgradeRefused as error:
        raise explain_refusal(endpoint, error.status) from None
    except TimeoutError:
        raise Unreachable(f"{url} did not answer within {OPEN_WITHIN_S:.0f} s") from None
    except (OSError, ConnectionLost) as error:
        raise Unreachable(f"{url} is not reachable: {error}") from None
    except FOREIGN as error:
        raise ProtocolError(f"{url} is not a Palyra daemon: {error}") from None
    verdict = connection.verdict()
    if verdict is not None:
        raise verdict


@asynccontextmanager
async def _upgraded(url: str) -> AsyncGenerator[AsyncioSocket]:
    """Open a WebSocket, closed at the end of the block."""
    async with asyncio.timeout(OPEN_WITHIN_S):
        socket = await _open_socket(url)
    try:
        async with asyncio.timeout(OPEN_WITHIN_S):
            await socket.upgrade(urlsplit(url))
        yield socket
    finally:
        socket.abort()


async def _open_socket(url: str) -> AsyncioSocket:
    parts = urlsplit(url)
    is_tls = parts.scheme == "wss"
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if is_tls else 80),
        ssl=ssl.create_default_context() if is_tls else None,
    )
    return AsyncioSocket(reader, writer)


async def _serve(
    socket: AsyncioSocket,
    endpoint: Endpoint,
    handshake: Handshake,
    on_notice: OnNotice,
    on_open: Callable[[ClientConnection], None],
) -> ClientConnection:
    """Open the protocol and serve the connection until it ends."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        tasks = _Tasks(group)
        connection = ClientConnection(socket, tasks.spawn, on_notice, ASYNCIO)
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                await connection.open(endpoint.token, handshake)
            on_open(connection)
            await connection.closed.wait()
        except (PalyraError, ConnectionLost, TimeoutError, *FOREIGN) as error:
            failure = error  # raised outside: a task group would wrap it
        finally:
            tasks.cancel()
    if failure is not None:
        raise failure
    return connection


class _Tasks:
    """The tasks of one connection."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()
        self._is_over = False

    def spawn(self, run: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        if not self._is_over:
            task = self._group.create_task(run(*args))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        self._is_over = True
        for task in self._running:
            task.cancel()


ASYNCIO = Driver(
    make_event=asyncio.Event,
    make_slots=asyncio.Semaphore,
    now_s=time.monotonic,
    sleep=asyncio.sleep,
    checkpoint=partial(asyncio.sleep, 0),
    run_connection=_run_connection,
)
