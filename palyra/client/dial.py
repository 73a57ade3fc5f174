"""Dialling: from an address to an open link, and what a refusal means."""

from collections.abc import Callable
from http import HTTPStatus

import h11
import msgspec
import trio
import trio_websocket
import wsproto.utilities

from palyra.client.connection import ClientConnection, Handshake, LinkLost, OnNotice
from palyra.client.socket import open_stream, upgrade
from palyra.errors import Forbidden, PalyraError, ProtocolError, Unauthenticated, Unreachable
from palyra.net.protocol import close_codes
from palyra.net.protocol.discovery import Endpoint

OPEN_WITHIN_S = 10.0  # for TCP and TLS, and again for upgrade, hello and connect

# What a peer that speaks something else makes of us; trio-websocket lets its engines' own through.
FOREIGN = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    h11.ProtocolError,
    wsproto.utilities.ProtocolError,
)


async def run_link(
    endpoint: Endpoint,
    greeting: Handshake,
    on_notice: OnNotice,
    on_open: Callable[[ClientConnection], None],
) -> None:
    """Connect, announce the open link, serve it until it ends.

    Raises Unauthenticated or Forbidden when the daemon refuses or revokes the token (asking again
    is pointless), any other PalyraError when it cannot be reached or understood.
    """
    failure: BaseException | None = None
    try:
        link = await _serve(endpoint, greeting, on_notice, on_open)
        failure = _verdict(link)
    except* trio_websocket.ConnectionRejected as group:
        failure = _refusal(endpoint, _first(group))
    except* trio.TooSlowError:
        failure = Unreachable(f"{endpoint.ws_url} did not answer within {OPEN_WITHIN_S:.0f} s")
    except* (OSError, LinkLost) as group:
        failure = Unreachable(f"{endpoint.ws_url} is not reachable: {_first(group)}")
    except* FOREIGN as group:
        failure = ProtocolError(f"{endpoint.ws_url} is no Palyra daemon: {_first(group)}")
    except* PalyraError as group:
        failure = _first(group)
    if failure is not None:
        raise failure


async def _serve(
    endpoint: Endpoint,
    greeting: Handshake,
    on_notice: OnNotice,
    on_open: Callable[[ClientConnection], None],
) -> ClientConnection:
    with trio.fail_after(OPEN_WITHIN_S):
        stream = await open_stream(endpoint.ws_url)
    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(OPEN_WITHIN_S):
                socket = await upgrade(nursery, stream, endpoint.ws_url)
                link = ClientConnection(socket, nursery, on_notice)
                await _greet(link, nursery, endpoint.token, greeting)
            on_open(link)
            await link.closed.wait()
            nursery.cancel_scope.cancel("the link has ended")
    finally:
        await trio.aclose_forcefully(stream)  # trio-websocket leaves it open
    return link


async def _greet(
    link: ClientConnection, nursery: trio.Nursery, token: str, greeting: Handshake
) -> None:
    await link.receive_hello()
    for task in (link.read, link.write, link.listen_for_life):
        nursery.start_soon(task)
    try:
        await link.introduce(token, greeting)
    except LinkLost:
        raise _verdict(link) or LinkLost(link.close_reason) from None


def _verdict(link: ClientConnection) -> PalyraError | None:
    """The error of an ended link that no reconnect can cure; None when another try may help."""
    if link.close_code == close_codes.UNAUTHENTICATED:
        return Unauthenticated(f"the daemon refused the token: {link.close_reason or 'unknown'}")
    if link.close_code == close_codes.REVOKED:
        return Forbidden(f"the token was revoked: {link.close_reason or 'ask its operator'}")
    return None


def _refusal(endpoint: Endpoint, error: BaseException) -> PalyraError:
    status = getattr(error, "status_code", 0)
    if status == HTTPStatus.UNAUTHORIZED:
        return Unauthenticated(f"{endpoint.ws_url} refused the token")
    if status == HTTPStatus.FORBIDDEN:
        return Forbidden(f"{endpoint.ws_url} refused this host name or origin (HTTP 403)")
    return Unreachable(f"{endpoint.ws_url} refused the WebSocket upgrade (HTTP {status})")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in the group that is no group itself."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
