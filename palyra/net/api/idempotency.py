"""Receipts: the same idempotency key and body get the first answer, never a second effect.

Owns: the keys whose request is under way right now; everything older is in the journal.  Where
the effect is an event, the receipt is committed in the same transaction by whoever makes it
(`is_kept_by_effect`), so no crash can separate the two.

Whoever comes next with a key waits for the commit under way and finds its receipt: what is being
committed is waited for although its sender hangs up, here as in the effects that keep their own.
Before that a cancel leaves nothing behind.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import trio

from palyra.core.journal.changes import Change
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import IdempotencyRecord
from palyra.core.ports import Journal, NowMs
from palyra.errors import IdempotencyConflict
from palyra.net.protocol.params import Params

R = TypeVar("R", bound=msgspec.Struct)
Effect = Callable[[], Awaitable[R]]


def digest_body(method: str, params: Params) -> str:
    """SHA-256 of what the request asks for, whatever the order of its fields and its key."""
    body = msgspec.to_builtins(params)
    body.pop("idempotency_key", None)
    text = msgspec.json.encode([method, body], order="deterministic")
    return hashlib.sha256(text).hexdigest()


@dataclass(frozen=True, slots=True)
class _Flight:
    body_sha256: str
    landed: trio.Event = field(default_factory=trio.Event)


class IdempotencyStore:
    """Shared by all connections of the daemon."""

    def __init__(self, journal: Journal, now_ms: NowMs) -> None:
        self._journal = journal
        self._now_ms = now_ms
        self._flights: dict[tuple[str, str], _Flight] = {}

    async def once(
        self, key: IdempotencyKey, kind: type[R], effect: Effect[R], *, is_kept_by_effect: bool
    ) -> R:
        """The effect's result, or that of the first request with this key.

        Raises IdempotencyConflict when the key came with another body.  Cancellation: the effect
        may have happened; the same key tells.
        """
        name = (key.principal, key.key)
        while flight := self._flights.get(name):
            _compare(key, flight.body_sha256)
            await flight.landed.wait()
        flight = self._flights[name] = _Flight(key.body_sha256)
        try:
            found = await self._find(key)
            return (
                _open(key, kind, found)
                if found
                else await self._perform(key, effect, is_kept_by_effect=is_kept_by_effect)
            )
        finally:
            del self._flights[name]
            flight.landed.set()

    async def _find(self, key: IdempotencyKey) -> IdempotencyRecord | None:
        now_ms = self._now_ms()
        return await self._journal.find(
            lambda store: store.find_receipt(key.principal, key.key, now_ms=now_ms)
        )

    async def _perform(
        self, key: IdempotencyKey, effect: Effect[R], *, is_kept_by_effect: bool
    ) -> R:
        result = await effect()
        if not is_kept_by_effect:
            receipt = IdempotencyRecord(
                principal=key.principal,
                key=key.key,
                body_sha256=key.body_sha256,
                result=msgspec.Raw(msgspec.json.encode(result)),
                created_ms=self._now_ms(),
            )
            with trio.CancelScope(shield=True):  # see the top; bounded by the disk
                await self._journal.commit(Change(records=(receipt,)))
        return result


def _open(key: IdempotencyKey, kind: type[R], receipt: IdempotencyRecord) -> R:
    _compare(key, receipt.body_sha256)
    return msgspec.json.decode(receipt.result, type=kind)


def _compare(key: IdempotencyKey, body_sha256: str) -> None:
    if key.body_sha256 != body_sha256:
        raise IdempotencyConflict(
            f"idempotency key {key.key[:64]!r} was used before with another request"
        )
