"""The client for trio programs: its driver, and from an address to an open connection."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import h11
import msgspec
import trio
import trio_websocket
import wsproto.utilities

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
from palyra.client.socket import TrioSocket, open_stream, upgrade
from palyra.errors import PalyraError, ProtocolError, Unreachable
from palyra.net.protocol.discovery import Endpoint, find_endpoint

# Errors for a peer that speaks another protocol; trio-websocket lets those of its engines through.
FOREIGN = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    h11.ProtocolError,
    wsproto.utilities.ProtocolError,
)


async def run_connection(
    endpoint: Endpoint,
    handshake: Handshake,
    on_notice: OnNotice,
    on_open: Callable[[ClientConnection], None],
) -> None:
    """Connect, call `on_open` with the open connection, serve it until it ends.

    Raises Unauthenticated or Forbidden if the daemon refuses or revokes the token (a retry is
    pointless), another PalyraError if the daemon cannot be reached or understood.
    """
    failure: BaseException | None = None
    try:
        connection = await _serve(endpoint, handshake, on_notice, on_open)
        failure = connection.verdict()
    except* trio_websocket.ConnectionRejected as group:
        failure = explain_refusal(endpoint, getattr(_first_error(group), "status_code", 0))
    except* trio.TooSlowError:
        failure = Unreachable(f"{endpoint.ws_url} did not answer within {OPEN_WITHIN_S:.0f} s")
    except* (OSError, ConnectionLost) as group:
        failure = Unreachable(f"{endpoint.ws_url} is not reachable: {_first_error(group)}")
    except* FOREIGN as group:
        failure = ProtocolError(f"{endpoint.ws_url} is not a Palyra daemon: {_first_error(group)}")
    except* PalyraError as group:
        failure = _first_error(group)
    if failure is not None:
        raise failure


async def _serve(
    endpoint: Endpoint,
    handshake: Handshake,
    on_notice: OnNotice,
    on_open: Callable[[ClientConnection], None],
) -> ClientConnection:
    with trio.fail_after(OPEN_WITHIN_S):
        stream = await open_stream(endpoint.ws_url)
    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(OPEN_WITHIN_S):
                socket = await upgrade(nursery, stream, endpoint.ws_url)
                connection = ClientConnection(
                    TrioSocket(socket), nursery.start_soon, on_notice, TRIO
                )
                await connection.open(endpoint.token, handshake)
            on_open(connection)
            await connection.closed.wait()
            nursery.cancel_scope.cancel("the connection has ended")
    finally:
        await trio.aclose_forcefully(stream)  # trio-websocket leaves it open
    return connection


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in the group that is not a group."""
    inner = group.exceptions[0]
    return _first_error(inner) if isinstance(inner, BaseExceptionGroup) else inner


TRIO = Driver(
    make_event=trio.Event,
    make_slots=trio.Semaphore,
    now_s=trio.current_time,
    sleep=trio.sleep,
    checkpoint=trio.lowlevel.checkpoint,
    run_connection=run_connection,
)


async def wait_any(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when the first returns; the others are cancelled, so none may consume an item."""
    async with trio.open_nursery() as nursery:

        async def end_with(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            nursery.cancel_scope.cancel("another wait has returned")

        for wait in waits:
            nursery.start_soon(end_with, wait)


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
        TRIO,
    )
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_open, connection)
            yield Client(connection)
            await connection.close()
            nursery.cancel_scope.cancel("the client was closed")
    except BaseExceptionGroup as group:
        failure = _alone(group)
    if failure is not None:
        raise failure


async def keep_open(
    connection: ReconnectingConnection, *, task_status: trio.TaskStatus[None]
) -> None:
    """Keep the connection open; started when it is open for the first time."""
    await connection.keep_open(task_status.started)


def _alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Unwrap a group of one error, so that callers can catch it by class."""
    return group.exceptions[0] if len(group.exceptions) == 1 else group
