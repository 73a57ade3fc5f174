"""One connection: an actor that turns messages into calls, and rows and notices into messages.

Owns: the outbox, the subscriptions and the requests of one client.  Talks to: its transport, and
the daemon through `Backend`.  Never: owns a run; a client that disconnects changes nothing.
Restart: temporary; the client connects again and resumes from its cursors.

There are two nested cancel scopes.  The inner one holds the reader, one task per request, and the
replays of subscriptions; the outer one holds the writer as well.  A connection ends with `hang_up`,
which any of them, the hub or a token's expiry may call:

1. the inner scope is cancelled at once;
2. the writer gets `goodbye_s` for the queued frames, unless the client is too slow to read them;
3. the transport is closed with the code and reason of the first `hang_up`.
"""

import math
from typing import NoReturn

import structlog
import trio

from palyra.config.parts import list_installed
from palyra.core.access import Caller
from palyra.core.journal.changes import TapePage
from palyra.errors import InvalidParams, PalyraError, ProtocolError, TooLarge, Unauthenticated
from palyra.net.api.method import Backend
from palyra.net.api.methods.connect import Connect, identify, welcome
from palyra.net.connection.requests import RequestDispatcher
from palyra.net.delivery.outbox import REPLY, Outbox
from palyra.net.delivery.subscription import PAGE_BYTES, PAGE_ROWS, ClientContext, Subscriptions
from palyra.net.protocol import close_codes, jsonrpc
from palyra.net.protocol.notifications import FEATURES, PROTOCOL, Hello
from palyra.net.protocol.params import convert_params
from palyra.net.server.transport import BadFrame, NoMoreInput, Peer, PeerClosed, Transport

log = structlog.get_logger("palyra.connection")

CONNECT_BYTES = 16_384  # of the first message, whose sender is not authenticated yet
EXPIRY_LOOK_S = 5.0  # delay after which an expiry is noticed on a machine that was suspended
LAST_ANSWERS_S = 10.0  # for requests in progress when the client ends its input
ORDINARY_ENDS = frozenset({close_codes.DONE, close_codes.GOING_AWAY})  # of no interest in the log


async def serve_connection(transport: Transport, peer: Peer, backend: Backend) -> None:
    """Serve one client until either side closes; the transport is closed on return.

    Cancellation: the client gets close code 1001.
    """
    connection = Connection(transport, peer, backend)
    try:
        await connection.serve()
    finally:
        code, reason = connection.farewell
        say = log.debug if code in ORDINARY_ENDS else log.info
        say("connection closed", peer=peer.address, code=code, reason=reason)
        with trio.CancelScope(shield=True):  # the transport bounds the time
            await transport.close(code, close_codes.cut_reason(reason))


class Connection:
    """The state of one connection; reached from its own tasks, and by plain calls of the hub."""

    caller: Caller  # known once the client has connected

    def __init__(self, transport: Transport, peer: Peer, backend: Backend) -> None:
        self._transport = transport
        self._peer = peer
        self._backend = backend
        self._limits = backend.limits
        self._outbox = Outbox(backend.limits.outbox_bytes, self._give_up)
        self._is_batched = False
        self._wrote_s = -math.inf
        self._farewell: tuple[int, str] | None = None
        self._sent: tuple[str, int] | None = None  # run and seq of the last event written
        self._all = trio.CancelScope()
        self._inside = trio.CancelScope()
        self._wait_answered = trio.lowlevel.checkpoint  # returns when no request is in progress

    @property
    def farewell(self) -> tuple[int, str]:
        """Close code and reason."""
        if self._farewell is not None:
            return self._farewell
        is_cancelled = trio.current_effective_deadline() == -math.inf
        return (
            (close_codes.GOING_AWAY, "going away")
            if is_cancelled
            else (close_codes.BUG, "internal error")
        )

    async def serve(self) -> None:
        """Serve the client until `hang_up`."""
        with self._all:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                with self._inside:
                    await self._converse()
                self._outbox.finish()
                self._all.deadline = trio.current_time() + self._limits.goodbye_s

    def hang_up(self, code: int, reason: str) -> None:
        """End the connection; the first code and reason are kept."""
        self._farewell = self._farewell or (code, reason)
        self._inside.cancel(reason)

    def notify(self, message: bytes) -> None:
        """Queue a notice that belongs to no subscription."""
        self._outbox.put(message)

    # --- writing ---

    async def _write(self) -> None:
        with (
            trio.CancelScope() as stall
        ):  # one for all writes: a cancel scope costs as much as a frame
            try:
                while await self._outbox.wait():
                    await self._pace()
                    stall.deadline = trio.current_time() + self._limits.stall_s
                    await self._send()
                    stall.deadline = math.inf
            except PeerClosed:
                self.hang_up(close_codes.DONE, "the connection was closed")
        if stall.cancelled_caught:
            self._give_up()

    async def _pace(self) -> None:
        """Wait for this connection's slot, so that frames gather; a reply does not wait."""
        now_s = trio.current_time()
        due_s = self._backend.pacer.reserve(now_s, self._wrote_s)
        if due_s > now_s:
            with trio.move_on_at(due_s):
                await self._outbox.wait_urgent()
        self._wrote_s = due_s

    async def _send(self) -> None:
        messages = self._outbox.pack(is_batched=self._is_batched)
        last_event = self._outbox.last_event
        if messages:
            await self._transport.send(messages)
        self._sent = last_event

    def _give_up(self) -> None:
        """Close the connection of a slow reader, with the last seq it was sent; write nothing more."""
        run_id, seq = self._sent or ("any run", -1)
        self.hang_up(close_codes.SLOW_CONSUMER, f"slow consumer: last seq {seq} of {run_id}")
        self._all.cancel("slow consumer")

    # --- reading ---

    async def _converse(self) -> None:
        backend = self._backend
        hello = Hello(
            server="palyra",
            version=backend.version,
            instance_id=backend.instance_id,
            protocol=PROTOCOL,
            features=(*FEATURES, *list_installed()),
            limits=self._limits.public,
            state=backend.state(),
        )
        self._outbox.put(jsonrpc.encode_notification("hello", hello))
        with trio.move_on_after(self._limits.connect_timeout_s) as scope:
            caller = await self._open(await self._receive())
        if scope.cancelled_caught:
            text = f"no connect request within {self._limits.connect_timeout_s:g} s"
            await self._end(close_codes.UNAUTHENTICATED, text)
        await self._serve_caller(caller)

    async def _receive(self) -> bytes:
        try:
            return await self._transport.receive()
        except PeerClosed as closed:
            if isinstance(closed, NoMoreInput):
                with trio.move_on_after(LAST_ANSWERS_S):
                    await self._wait_answered()
            await self._end(close_codes.DONE, "closed by the client")
        except BadFrame as bad:
            await self._end(bad.code, bad.reason)

    async def _end(self, code: int, reason: str) -> NoReturn:
        self.hang_up(code, reason)
        await trio.sleep_forever()  # cancelled at once by `hang_up`
        raise AssertionError

    async def _open(self, data: bytes) -> Caller:
        """Authenticate the client; a first message other than a valid `connect` ends the connection."""
        request: jsonrpc.Request | None = None
        try:
            request = jsonrpc.decode(data, max_bytes=CONNECT_BYTES)
            if request.method != "connect":
                raise Unauthenticated("the first request must be connect")
            params = convert_params(Connect, request.params)
            caller = await identify(params, self._peer, self._backend)
        except PalyraError as error:
            unread = error.request_id if isinstance(error, jsonrpc.BadMessage) else None
            request_id = request.id if request else unread
            redact = self._backend.redact
            self._outbox.put(jsonrpc.encode_error(request_id, error, redact), REPLY)
            reason = redact(error.message.encode(errors="replace"))[0].decode()
            await self._end(_close_code(error), reason)
        self._is_batched = "batch" in params.want
        reply = jsonrpc.encode_result(request.id, welcome(caller, params, self._backend))
        self._outbox.put(reply, REPLY)
        return caller

    async def _serve_caller(self, caller: Caller) -> NoReturn:
        log.debug(
            "connected", peer=self._peer.address, principal=caller.principal, role=caller.role
        )
        self.caller = caller
        async with trio.open_nursery() as nursery:
            client = ClientContext(
                caller=caller,
                hub=self._backend.hub,
                sink=self._outbox,
                read_page=self._read_page,
                new_id=self._backend.new_id,
                spawn=nursery.start_soon,
                bulk=trio.Lock(),
            )
            nursery.start_soon(self._expire)
            subscriptions = Subscriptions(client, self._limits.max_subscriptions)
            requests = RequestDispatcher(
                client, self._outbox, self._backend, subscriptions, self.hang_up
            )
            self._wait_answered = requests.wait_idle
            self._backend.hub.attach(self)
            try:
                while True:
                    requests.accept(await self._receive())
            finally:  # before the nursery closes, because the hub spawns tasks in it
                self._backend.hub.detach(self)
                subscriptions.close_all()

    async def _read_page(self, run_id: str, after_seq: int) -> TapePage:
        return await self._backend.journal.read(
            lambda store: store.read_tape(
                run_id, after_seq=after_seq, limit=PAGE_ROWS, max_bytes=PAGE_BYTES
            )
        )

    async def _expire(self) -> None:
        """End the connection when its token expires; a login is in use while it is connected."""
        expires_ms = await self._extend(self.caller.expires_ms)
        while expires_ms is not None:
            before_ms = expires_ms
            if self.caller.slide_ms:
                await self._wait_until(before_ms - self.caller.slide_ms // 2)
                expires_ms = await self._extend(before_ms)
            if expires_ms == before_ms:
                await self._wait_until(expires_ms)
                self.hang_up(close_codes.REVOKED, "token expired")
                return

    async def _extend(self, expires_ms: int | None) -> int | None:
        """Return when the login expires; while the journal refuses, try again until it has expired."""
        while True:
            try:
                return await self._backend.logins.extend(self.caller)
            except PalyraError:
                if expires_ms is None or expires_ms <= self._backend.now_ms():
                    return expires_ms
            await trio.sleep(EXPIRY_LOOK_S)

    async def _wait_until(self, at_ms: int) -> None:
        """Wait for a time of the wall clock: the loop's clock does not count suspended time."""
        left_s = (at_ms - self._backend.now_ms()) / 1000
        while left_s > 0:
            await trio.sleep(min(left_s, EXPIRY_LOOK_S))
            wall_s = (at_ms - self._backend.now_ms()) / 1000
            left_s = min(left_s - EXPIRY_LOOK_S, wall_s)


def _close_code(error: PalyraError) -> int:
    match error:
        case Unauthenticated():
            return close_codes.UNAUTHENTICATED
        case TooLarge():
            return close_codes.TOO_BIG
        case ProtocolError() | InvalidParams():
            return close_codes.PROTOCOL_ERROR
        case _:
            return close_codes.BUG
