"""Requests of one connected client: admission, dispatch by the method table, reply.

Owns: the requests in progress and the client's rates.  Each request is a task of the connection;
replies are sent in the order in which they are ready.

A message passes these steps: flood limit, JSON-RPC, rate (by size), limit of requests in progress,
unique id, method, scope, parameters.  The first that fails answers with an error; a flood or a
message that is too large also closes the connection.

Replies are redacted without blocking the loop.  A search for secrets costs microseconds; if it finds
a possible one, about a millisecond for each 2,000 bytes, because every string is then searched by
itself.  Large replies are redacted in a thread.
"""

from collections.abc import Callable

import msgspec
import structlog
import trio

from palyra.actors.kernel.threads import run_sync
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.ports import RunBlocking
from palyra.errors import (
    InvalidParams,
    InvariantBroken,
    Overloaded,
    PalyraError,
    RateLimited,
    TooLarge,
)
from palyra.net.api.idempotency import digest_body
from palyra.net.api.method import AnyMethod, Backend, MethodCall, Mutation
from palyra.net.api.methods.table import METHODS
from palyra.net.api.rate_limit import TokenBucket
from palyra.net.delivery.outbox import REPLY, Outbox
from palyra.net.delivery.subscription import ClientContext, Subscriptions
from palyra.net.protocol import close_codes, jsonrpc
from palyra.net.protocol.close_codes import HangUp
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.protocol.params import Params, convert_params

log = structlog.get_logger("palyra.connection")

UNIT_BYTES = 16_384  # a request costs one token of its rate per started unit: parsing takes time


class RequestDispatcher:
    """The requests of one client."""

    def __init__(
        self,
        client: ClientContext,
        outbox: Outbox,
        backend: Backend,
        subscriptions: Subscriptions,
        hang_up: HangUp,
    ) -> None:
        self._client = client
        self._outbox = outbox
        self._backend = backend
        self._subscriptions = subscriptions
        self._hang_up = hang_up
        self._inflight: set[jsonrpc.RequestId] = set()
        self._ended = trio.lowlevel.ParkingLot()  # tasks in `wait_idle`
        limits, now_s = backend.limits, trio.current_time()
        flood = limits.requests_per_s * limits.flood_factor
        burst = limits.burst or 2 * limits.requests_per_s
        self._requests = TokenBucket(limits.requests_per_s, burst, now_s)
        self._messages = TokenBucket(flood, flood, now_s)

    def accept(self, data: bytes) -> None:
        """Start to serve one message, or queue the error.  Never waits."""
        if not self._messages.take(trio.current_time()):
            self._hang_up(close_codes.FLOOD, "request flood")
            return
        request_id: jsonrpc.RequestId | None = None
        try:
            request = jsonrpc.decode(data, max_bytes=self._backend.limits.max_message_bytes)
            request_id = request.id
            self._check(request, len(data))
        except jsonrpc.BadMessage as error:
            self._refuse(error.request_id, error)
        except PalyraError as error:
            self._refuse(request_id, error)
            if isinstance(error, TooLarge):
                self._hang_up(close_codes.TOO_BIG, error.message)
        else:
            self._inflight.add(request.id)
            self._client.spawn(lambda: self._serve(request))

    async def wait_idle(self) -> None:
        """Return when no request is in progress."""
        while self._inflight:
            await self._ended.park()

    def _check(self, request: jsonrpc.Request, size_bytes: int) -> None:
        """Raise the reason for which the request is not started, if there is one."""
        limits = self._backend.limits
        if not self._requests.take(trio.current_time(), 1 + size_bytes // UNIT_BYTES):
            raise RateLimited(
                f"more than {limits.requests_per_s} requests per second",
                retry_after_ms=self._requests.wait_ms,
            )
        if len(self._inflight) >= limits.max_inflight:
            raise Overloaded(f"{limits.max_inflight} requests are in progress, the limit")
        if request.id in self._inflight:
            text = f"a request with id {jsonrpc.show(request.id)} is already in progress"
            raise jsonrpc.BadMessage(jsonrpc.INVALID_REQUEST, text, request.id)

    def _refuse(self, request_id: jsonrpc.RequestId | None, error: PalyraError) -> None:
        reply = jsonrpc.encode_error(request_id, error, self._backend.redact)
        self._outbox.put(reply, REPLY)

    async def _serve(self, request: jsonrpc.Request) -> None:
        try:
            method = METHODS.get(request.method)
            if method is None:
                text = f"no method {jsonrpc.show(request.method)}"
                self._refuse(request.id, jsonrpc.UnknownMethod(text))
            elif method.is_bulk:
                async with self._client.bulk:
                    await self._outbox.wait_room()
                    await self._answer(method, request)
            else:
                await self._answer(method, request)
        finally:
            self._inflight.discard(request.id)
            self._ended.unpark_all()

    async def _answer(self, method: AnyMethod, request: jsonrpc.Request) -> None:
        afterwards: list[Callable[[], None]] = []
        try:
            reply = await self._perform(method, request, afterwards.append)
        except PalyraError as error:
            if isinstance(error, InvariantBroken):
                log.exception("request failed", method=method.name)
            self._refuse(request.id, error)
            return
        self._outbox.put(reply, REPLY)
        for step in afterwards:
            step()

    async def _perform(
        self,
        method: AnyMethod,
        request: jsonrpc.Request,
        then: Callable[[Callable[[], None]], None],
    ) -> bytes:
        """Serve the request and return the encoded reply.  Raises PalyraError."""
        caller, backend = self._client.caller, self._backend
        if method.scope is not None:
            caller.require(method.scope)
        params = convert_params(method.params, request.params)
        key = self._idempotency_key(method, params)
        result: object = await method.serve(
            MethodCall(caller, backend, self._subscriptions, then, key), params
        )
        if not method.is_exact:
            data = msgspec.json.encode(result)
            result = msgspec.Raw(await redact_frame(data, backend.redact, backend.run_blocking))
        reply = jsonrpc.encode_result(request.id, result)
        limit_bytes = backend.limits.outbox_bytes // 2
        if len(reply) > limit_bytes:
            raise TooLarge(
                f"the reply has {len(reply)} bytes, the limit is {limit_bytes}: ask for less"
            )
        return reply

    def _idempotency_key(self, method: AnyMethod, params: Params) -> IdempotencyKey | None:
        if not isinstance(params, Mutation) or params.idempotency_key is None:
            return None
        if self._backend.redact(params.idempotency_key.encode())[1]:
            raise InvalidParams(
                "the key contains a secret: use another key", field="idempotency_key"
            )
        return IdempotencyKey(
            principal=self._client.caller.principal,
            key=params.idempotency_key,
            body_sha256=digest_body(method.name, params),
        )


REDACT_INLINE_BYTES = 1_024  # about a millisecond in the worst text; more goes to a thread


async def redact_frame(data: bytes, redact: Redact, run_blocking: RunBlocking = run_sync) -> bytes:
    """Return the JSON or text redacted.  Cancellation: takes effect when the thread is done."""
    if len(data) <= REDACT_INLINE_BYTES:
        return redact(data)[0]
    return (await run_blocking(redact, data))[0]
