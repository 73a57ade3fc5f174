"""Dialling: from an address to an open connection, and the errors of a refusal."""

from collections.abc import Callable
from http import HTTPStatus

import h11
import msgspec
import trio
import trio_websocket
import wsproto.utilities

from palyra.client.connection import ClientConnection, ConnectionLost, Handshake, OnNotice
from palyra.client.socket import open_stream, upgrade
from palyra.errors import Forbidden, PalyraError, ProtocolError, Unauthenticated, Unreachable
from palyra.net.protocol import close_codes
from palyra.net.protocol.discovery import Endpoint

OPEN_WITHIN_S = 10.0  # for TCP and TLS, and again for upgrade, hello and connect

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
        failure = _verdict(connection)
    except* trio_websocket.ConnectionRejected as group:
        failure = _refusal(endpoint, _first_error(group))
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
                connection = ClientConnection(socket, nursery, on_notice)
                await _open_protocol(connection, nursery, endpoint.token, handshake)
            on_open(connection)
            await connection.closed.wait()
            nursery.cancel_scope.cancel("the connection has ended")
    finally:
        await trio.aclose_forcefully(stream)  # trio-websocket leaves it open
    return connection


async def _open_protocol(
    connection: ClientConnection, nursery: trio.Nursery, token: str, handshake: Handshake
) -> None:
    await connection.receive_hello()
    for task in (connection.read, connection.write, connection.listen_for_life):
        nursery.start_soon(task)
    try:
        await connection.introduce(token, handshake)
    except ConnectionLost:
        raise _verdict(connection) or ConnectionLost(connection.close_reason) from None


def _verdict(connection: ClientConnection) -> PalyraError | None:
    """Return the error of an ended connection that rules out a retry, or None."""
    if connection.close_code == close_codes.UNAUTHENTICATED:
        return Unauthenticated(
            f"the daemon refused the token: {connection.close_reason or 'unknown'}"
        )
    if connection.close_code == close_codes.REVOKED:
        return Forbidden(f"the token was revoked: {connection.close_reason or 'ask its operator'}")
    return None


def _refusal(endpoint: Endpoint, error: BaseException) -> PalyraError:
    status = getattr(error, "status_code", 0)
    if status == HTTPStatus.UNAUTHORIZED:
        return Unauthenticated(f"{endpoint.ws_url} refused the token")
    if status == HTTPStatus.FORBIDDEN:
        return Forbidden(f"{endpoint.ws_url} refused this host name or origin (HTTP 403)")
    return Unreachable(f"{endpoint.ws_url} refused the WebSocket upgrade (HTTP {status})")


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in the group that is not a group."""
    inner = group.exceptions[0]
    return _first_error(inner) if isinstance(inner, BaseExceptionGroup) else inner
