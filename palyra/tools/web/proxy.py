"""HTTP egress proxy, one connection: read the target, check the grant, connect upstream.

A jailed command has no other access to the network.  The proxy supports the two forms of RFC 9110
(§9.3.6, §7.1): CONNECT for encrypted connections, and plain requests with an absolute URL.  The
target host must be granted to the command; URL and address checks are those of http_fetch and use
the same dialler.

One connection passes through these steps:
1. Read one request head within HEAD_S.
2. Parse the target and look it up among the granted hosts.
3. Dial upstream within DIAL_S.
4. CONNECT: answer 200; the caller then copies bytes both ways.  Plain request: forward the head
   and body; the caller then copies the response only.
A PalyraError in any step is answered with an HTTP error status and the reason.
Never: decrypts a connection, or forwards a second request of a plain connection.
"""

from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from typing import NamedTuple

import h11
import trio

from palyra.errors import InvalidParams, PalyraError, ProtocolError, Unavailable
from palyra.tools.web.dialler import Dial, Stream
from palyra.tools.web.egress_policy import EgressRefused
from palyra.tools.web.request import grant_key
from palyra.tools.web.urls import Url, parse_url

HEAD_S = 10.0  # to receive the request head
DIAL_S = 15.0  # to connect upstream
MAX_NOTED = 32  # refused hosts reported per command; bounds the log
_READ_BYTES = 16_384
_MAX_HEAD_BYTES = 32_768
_HOP_BY_HOP = frozenset(
    {b"connection", b"expect", b"host", b"keep-alive", b"te", b"trailer", b"upgrade"}
)
Event = h11.Event | type[h11.NEED_DATA | h11.PAUSED]
_STATUS: tuple[tuple[type[PalyraError], str], ...] = (
    (EgressRefused, "403 Forbidden"),
    (InvalidParams, "400 Bad Request"),
    (ProtocolError, "400 Bad Request"),
)
_GATEWAY = "502 Bad Gateway"


class Tunnel(NamedTuple):
    """An established upstream connection, ready for copying."""

    upstream: Stream
    is_two_way: bool  # False: the request is sent; copy the response only


class ProxyGate:
    """Checks the connections of one command against its granted hosts."""

    def __init__(
        self, dial: Dial, granted: Collection[str], on_refused: Callable[[str], None]
    ) -> None:
        """`granted`: hosts, with the port unless it is 80 or 443; see `request.grant_key`.

        `on_refused` is called once per refused host, for at most MAX_NOTED hosts.
        """
        self._dial = dial
        self._granted = frozenset(granted)
        self._on_refused = on_refused
        self._noted: set[str] = set()

    async def admit(self, client: Stream) -> Tunnel | None:
        """Connect the client to its target; None after an error response was sent to the client.

        Raises trio.BrokenResourceError when the client has disconnected.
        Cancellation: the upstream connection is closed.
        """
        try:
            return await self._admit(client)
        except PalyraError as error:
            status = next((text for kind, text in _STATUS if isinstance(error, kind)), _GATEWAY)
            await client.send_all(_refusal(status, error.message))
            return None

    async def _admit(self, client: Stream) -> Tunnel:
        state = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        with trio.move_on_after(HEAD_S) as scope:
            head = await _next(state, client)
        if scope.cancelled_caught or not isinstance(head, h11.Request):
            raise ProtocolError("a proxy waits for one HTTP request")
        is_tunnel = head.method == b"CONNECT"
        url = _tunnel_target(head) if is_tunnel else _plain_target(head)
        upstream = await self._reach(url)
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(trio.aclose_forcefully, upstream)
            if is_tunnel:
                await client.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await upstream.send_all(state.trailing_data[0])
            else:
                await _forward(state, client, _rewritten(head, url), upstream)
            cleanup.pop_all()
        return Tunnel(upstream, is_tunnel)

    async def _reach(self, url: Url) -> Stream:
        key = grant_key(url)
        if key not in self._granted:
            self._note(key)
            raise EgressRefused(f"{key} is not among the hosts this command was granted")
        try:
            with trio.fail_after(DIAL_S):
                return await self._dial(url.host, url.port)
        except trio.TooSlowError:
            raise Unavailable(f"{key} does not answer") from None
        except EgressRefused:
            self._note(key)
            raise

    def _note(self, key: str) -> None:
        if key not in self._noted and len(self._noted) < MAX_NOTED:
            self._noted.add(key)
            self._on_refused(key)


def _plain_target(head: h11.Request) -> Url:
    url = parse_url(head.target.decode("ascii"))
    if url.scheme != "http":
        raise InvalidParams("https goes through CONNECT")
    return url


def _tunnel_target(head: h11.Request) -> Url:
    """Parse the host:port of a CONNECT with the checks of `parse_url`."""
    target = head.target.decode("ascii")
    if "/" in target or "?" in target or ":" not in target:
        raise InvalidParams("CONNECT takes host:port")
    return parse_url(f"https://{target}")


def _rewritten(head: h11.Request, url: Url) -> h11.Request:
    """Return the request for the server: no hop-by-hop or proxy headers, `connection: close`."""
    headers = [(b"host", url.authority.encode("ascii")), (b"connection", b"close")]
    for name, value in head.headers:
        if name not in _HOP_BY_HOP and not name.startswith(b"proxy-"):
            headers.append((bytes(name), bytes(value)))
    return h11.Request(method=head.method, target=url.target, headers=headers)


async def _forward(
    state: h11.Connection, client: Stream, request: h11.Request, upstream: Stream
) -> None:
    """Send this request and its body upstream; later bytes from the client are not forwarded."""
    onward = h11.Connection(h11.CLIENT)
    event: Event = request
    while isinstance(event, h11.Request | h11.Data):
        await upstream.send_all(onward.send(event) or b"")
        event = await _next(state, client)
    if not isinstance(event, h11.EndOfMessage):
        raise ProtocolError("the request broke off")
    await upstream.send_all(onward.send(event) or b"")


async def _next(state: h11.Connection, client: Stream) -> Event:
    try:
        while (event := state.next_event()) is h11.NEED_DATA:
            state.receive_data(bytes(await client.receive_some(_READ_BYTES)))
    except h11.ProtocolError as error:
        raise ProtocolError(f"this is no HTTP request: {error}") from None
    return event


def _refusal(status: str, why: str) -> bytes:
    body = f"palyra: {why}\n".encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
