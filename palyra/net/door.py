"""The door: what happens to one accepted socket, from its first byte to its last.

Owns: one socket.  Used by: the listener, as the start function of `connection:<n>`.
Reads the request's head, checks who is asked for and by whom, and hands the socket to the
WebSocket transport or to the HTTP server.  Never: reads past the head before the checks.
Restart: temporary; a crash here costs this connection alone.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import trio

from palyra.net.engine import WebSocketLimits
from palyra.net.replay import ReplayStream
from palyra.net.rpc import Redact
from palyra.net.services import Peer
from palyra.net.sniff import (
    BadHead,
    Head,
    HeadParser,
    Refusal,
    read_head,
    replay_all,
    replay_rest,
)
from palyra.net.tally import Tally
from palyra.net.transport import Transport
from palyra.net.upgrade import WEBSOCKET_PATH, Names, judge_request, judge_upgrade
from palyra.net.websocket import WebSocketTransport, serve_websocket

REFUSE_WITHIN_S = 2.0
REFUSE_DROP_BYTES = 65_536  # of a body that nobody will read

Serve = Callable[[Transport, Peer], Awaitable[None]]


class HttpServer(Protocol):
    """Serves plain HTTP on a stream that begins with a request."""

    async def serve(self, stream: ReplayStream) -> None:
        """Serve the connection to its end.  Cancellation: the socket is closed at once."""


@dataclass(frozen=True, slots=True)
class Door:
    """What every connection of one listener shares."""

    names: Callable[[], Names]
    serve: Serve
    http: HttpServer
    tally: Tally
    limits: WebSocketLimits
    head_timeout_s: float
    redact: Redact

    async def pass_through(self, stream: trio.SocketStream, address: str) -> None:
        """Serve one accepted socket to its end; it is closed afterwards, come what may."""
        try:
            await self._pass_through(stream, address)
        finally:
            stream.socket.close()

    async def _pass_through(self, stream: trio.SocketStream, address: str) -> None:
        try:
            head, parser = await read_head(stream, timeout_s=self.head_timeout_s)
        except EOFError:
            self.tally.silent += 1
        except BadHead as bad:
            await self._refuse(ReplayStream(stream), bad.refusal)
        else:
            await self._hand_over(stream, address, head, parser)

    async def _hand_over(
        self, stream: trio.SocketStream, address: str, head: Head, parser: HeadParser
    ) -> None:
        if head.is_websocket and head.path == WEBSOCKET_PATH:
            await self._open_websocket(replay_rest(stream, parser), address, head)
        elif refusal := judge_request(head, self.names()) or _judge_upgrade_elsewhere(head):
            await self._refuse(ReplayStream(stream), refusal)
        else:
            self.tally.http_connections += 1
            await self.http.serve(replay_all(stream, parser))

    async def _open_websocket(self, stream: ReplayStream, address: str, head: Head) -> None:
        admission = judge_upgrade(head, self.names())
        if isinstance(admission, Refusal):
            await self._refuse(stream, admission)
            return
        self.tally.websockets += 1

        async def serve(transport: WebSocketTransport) -> None:
            await self.serve(transport, Peer(address, admission.bearer))

        name = f"ws:{address}"
        await serve_websocket(stream, head, admission, self.limits, serve, name=name)

    async def _refuse(self, stream: ReplayStream, refusal: Refusal) -> None:
        """Answer and close, bounded in time."""
        self.tally.refused[refusal.status.value] += 1
        with trio.move_on_after(REFUSE_WITHIN_S):
            try:
                await stream.send_all(refusal.render(self.redact))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return  # it did not wait for the answer
            await stream.linger(max_bytes=REFUSE_DROP_BYTES)


def _judge_upgrade_elsewhere(head: Head) -> Refusal | None:
    """Only one path speaks WebSocket, and nothing here speaks another protocol."""
    if not head.values(b"upgrade"):
        return None
    place = WEBSOCKET_PATH.decode()
    return Refusal(HTTPStatus.BAD_REQUEST, f"the only upgrade is to websocket, at {place}")
