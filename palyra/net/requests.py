"""Requests of one connected client: admitted, dispatched by the table, answered.

Owns: the requests under way and the client's rates.  Each request is a task of the connection;
replies come in the order in which they are ready.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import structlog
import trio

from palyra.core.access import Caller
from palyra.core.commands import ReceiptKey
from palyra.errors import (
    InvalidParams,
    InvariantBroken,
    Overloaded,
    PalyraError,
    RateLimited,
    TooLarge,
)
from palyra.net import closing, rpc
from palyra.net.closing import HangUp
from palyra.net.limits import TokenBucket
from palyra.net.methods.method import AnyMethod, Call, Mutation
from palyra.net.methods.table import METHODS
from palyra.net.outbox import REPLY
from palyra.net.params import Params, convert_params
from palyra.net.receipts import digest_body
from palyra.net.redaction import without_secrets
from palyra.net.services import Services
from palyra.net.subscription import Subscriptions, Viewer

log = structlog.get_logger("palyra.connection")

UNIT_BYTES = 16_384  # a request costs one token of its rate per started unit: parsing takes time


class Requests:
    """What one client asks."""

    def __init__(
        self, viewer: Viewer, services: Services, subscriptions: Subscriptions, hang_up: HangUp
    ) -> None:
        self._viewer = viewer
        self._services = services
        self._subscriptions = subscriptions
        self._hang_up = hang_up
        self._inflight: set[rpc.RequestId] = set()
        self._ended = trio.lowlevel.ParkingLot()  # who waits for the end of a request
        limits, now_s = services.limits, trio.current_time()
        flood = limits.requests_per_s * limits.flood_factor
        burst = limits.burst or 2 * limits.requests_per_s
        self._requests = TokenBucket(limits.requests_per_s, burst, now_s)
        self._messages = TokenBucket(flood, flood, now_s)

    def accept(self, data: bytes) -> None:
        """Begin to serve one message, or answer why not.  Never waits."""
        if not self._messages.take(trio.current_time()):
            self._hang_up(closing.FLOOD, "request flood")
            return
        try:
            request = rpc.decode(data, max_bytes=self._services.limits.max_message_bytes)
        except rpc.BadMessage as error:
            self._refuse(error.request_id, error)
        except TooLarge as error:
            self._refuse(None, error)
            self._hang_up(closing.TOO_BIG, error.message)
        else:
            self._admit(request, len(data))

    async def wait_idle(self) -> None:
        """Return when no request is under way."""
        while self._inflight:
            await self._ended.park()

    def _admit(self, request: rpc.Request, size_bytes: int) -> None:
        try:
            self._check(request, size_bytes)
        except PalyraError as error:
            self._refuse(request.id, error)
        else:
            self._inflight.add(request.id)
            self._viewer.spawn(lambda: self._serve(request))

    def _check(self, request: rpc.Request, size_bytes: int) -> None:
        """Raises why the request is not even begun."""
        limits = self._services.limits
        if not self._requests.take(trio.current_time(), 1 + size_bytes // UNIT_BYTES):
            raise RateLimited(
                f"more than {limits.requests_per_s} requests per second",
                retry_after_ms=self._requests.wait_ms,
            )
        if len(self._inflight) >= limits.max_inflight:
            raise Overloaded(f"{limits.max_inflight} requests are under way, the limit")
        if request.id in self._inflight:
            text = f"a request with id {rpc.show(request.id)} is under way"
            raise rpc.BadMessage(rpc.INVALID_REQUEST, text, request.id)

    def _refuse(self, request_id: rpc.RequestId | None, error: PalyraError) -> None:
        reply = rpc.encode_error(request_id, error, self._services.redact)
        self._viewer.outbox.put(reply, REPLY)

    async def _serve(self, request: rpc.Request) -> None:
        try:
            method = METHODS.get(request.method)
            if method is None:
                text = f"no method {rpc.show(request.method)}"
                self._refuse(request.id, rpc.UnknownMethod(text))
            elif method.is_bulk:
                async with self._viewer.bulk:
                    await self._viewer.outbox.wait_room()
                    await self._answer(method, request)
            else:
                await self._answer(method, request)
        finally:
            self._inflight.discard(request.id)
            self._ended.unpark_all()

    async def _answer(self, method: AnyMethod, request: rpc.Request) -> None:
        call = _Pending(self._viewer.caller, self._services, self._subscriptions)
        try:
            reply = await call.perform(method, request)
        except PalyraError as error:
            if isinstance(error, InvariantBroken):
                log.exception("request failed", method=method.name)
            self._refuse(request.id, error)
            return
        self._viewer.outbox.put(reply, REPLY)
        for step in call.afterwards:
            step()


@dataclass(slots=True)
class _Pending:
    """One request while it is served."""

    caller: Caller
    services: Services
    subscriptions: Subscriptions
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    async def perform(self, method: AnyMethod, request: rpc.Request) -> bytes:
        """The encoded reply.  Raises PalyraError."""
        if method.scope is not None:
            self.caller.require(method.scope)
        params = convert_params(method.params, request.params)
        result = await method.serve(self._call(method, params), params)
        reply = rpc.encode_result(request.id, await self._shown(method, result))
        limit_bytes = self.services.limits.outbox_bytes // 2
        if len(reply) > limit_bytes:
            raise TooLarge(
                f"the reply has {len(reply)} bytes, the limit is {limit_bytes}: ask for less"
            )
        return reply

    async def _shown(self, method: AnyMethod, result: object) -> object:
        if method.is_exact:
            return result
        services = self.services
        data = msgspec.json.encode(result)
        return msgspec.Raw(await without_secrets(data, services.redact, services.run_blocking))

    def _call(self, method: AnyMethod, params: Params) -> Call:
        return Call(
            caller=self.caller,
            services=self.services,
            subscriptions=self.subscriptions,
            then=self.afterwards.append,
            key=self._receipt_key(method, params),
        )

    def _receipt_key(self, method: AnyMethod, params: Params) -> ReceiptKey | None:
        if not isinstance(params, Mutation) or params.idempotency_key is None:
            return None
        if self.services.redact(params.idempotency_key.encode())[1]:
            raise InvalidParams("the key holds a secret: choose another", field="idempotency_key")
        return ReceiptKey(
            principal=self.caller.principal,
            key=params.idempotency_key,
            body_sha256=digest_body(method.name, params),
        )
