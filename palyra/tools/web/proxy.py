"""The proxy's side of one connection: who is asked for, whether that is granted, and the way there.

A command in a jail reaches the network through this and nothing else.  It speaks HTTP as a proxy
does (RFC 9110 §9.3.6, §7.1): CONNECT for whatever is encrypted, and requests with a whole URL.  A
host must be granted to the command; everything else is as for http_fetch, down to the dialler.
Never: looks into an encrypted connection, or carries a second request over a plain one.
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

HEAD_S = 10.0  # to say what one wants
DIAL_S = 15.0  # to get there
MAX_NOTED = 32  # refused hosts of one command: the log is not its to fill
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
    """A way that stands: what is to be copied now."""

    upstream: Stream
    is_two_way: bool  # False: the request has gone out, only its answer comes back


class ProxyGate:
    """Admits the connections of one command."""

    def __init__(
        self, dial: Dial, granted: Collection[str], on_refused: Callable[[str], None]
    ) -> None:
        """`granted`: hosts, with their port where it is not 80 or 443; see `request.grant_key`.

        `on_refused` hears of each host once, and of MAX_NOTED at most.
        """
        self._dial = dial
        self._granted = frozenset(granted)
        self._on_refused = on_refused
        self._noted: set[str] = set()

    async def admit(self, client: Stream) -> Tunnel | None:
        """The way the client asked for; None when it was told why there is none.

        Raises trio.BrokenResourceError for a client that has gone.  Cancellation: nothing of ours
        stays open.
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
    """host:port of a CONNECT, read as strictly as any URL."""
    target = head.target.decode("ascii")
    if "/" in target or "?" in target or ":" not in target:
        raise InvalidParams("CONNECT takes host:port")
    return parse_url(f"https://{target}")


def _rewritten(head: h11.Request, url: Url) -> h11.Request:
    """The request as the server gets it: without what was said to the proxy, and the last one."""
    headers = [(b"host", url.authority.encode("ascii")), (b"connection", b"close")]
    for name, value in head.headers:
        if name not in _HOP_BY_HOP and not name.startswith(b"proxy-"):
            headers.append((bytes(name), bytes(value)))
    return h11.Request(method=head.method, target=url.target, headers=headers)


async def _forward(
    state: h11.Connection, client: Stream, request: h11.Request, upstream: Stream
) -> None:
    """Send this one request with its body; what the client says after it goes nowhere."""
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
