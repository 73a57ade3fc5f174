"""Idempotency: a repeated key with the same body gets the first result, never a second effect.

Owns: the keys with a request in progress.  The result of a completed request is an idempotency
record in the journal, kept for 24 hours.

A request with a key goes through four steps.  First, wait until no other request with that key is
in progress, so that two concurrent requests cannot both miss the record.  Second, look the key up:
if there is a record, compare the digests of the bodies and return the recorded result, or raise
IdempotencyConflict.  Third, perform the effect.  Fourth, commit the record.

An effect that appends events commits the record in the same transaction (`is_kept_by_effect`), so
that a crash cannot separate the two.  For other effects the record is committed here, after the
effect; after a crash in between, a retry repeats the effect.

Cancellation: a commit that has begun is awaited even if the client disconnects, here as in the
effects that commit their own record.  A cancel before the commit leaves no record.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import trio

from palyra.core.journal.changes import Change
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.ports import Journal, NowMs
from palyra.errors import IdempotencyConflict
from palyra.net.protocol.params import Params

R = TypeVar("R", bound=msgspec.Struct)
Effect = Callable[[], Awaitable[R]]


def digest_body(method: str, params: Params) -> str:
    """SHA-256 of method and params; neither the order of members nor the idempotency key counts."""
    body = msgspec.to_builtins(params)
    body.pop("idempotency_key", None)
    text = msgspec.json.encode([method, body], order="deterministic")
    return hashlib.sha256(text).hexdigest()


@dataclass(frozen=True, slots=True)
class _InProgress:
    """A request with that body; `done` is set when it has ended."""

    body_sha256: str
    done: trio.Event = field(default_factory=trio.Event)


class IdempotencyStore:
    """Shared by all connections of the daemon."""

    def __init__(self, journal: Journal, now_ms: NowMs) -> None:
        self._journal = journal
        self._now_ms = now_ms
        self._in_progress: dict[tuple[str, str], _InProgress] = {}

    async def once(
        self, key: IdempotencyKey, kind: type[R], effect: Effect[R], *, is_kept_by_effect: bool
    ) -> R:
        """Return the effect's result, or the recorded one of the first request with this key.

        Raises IdempotencyConflict if the key was used with another body.  Cancellation: the effect
        may have happened; a retry with the same key returns its result.
        """
        name = (key.principal, key.key)
        while other := self._in_progress.get(name):
            _compare(key, other.body_sha256)
            await other.done.wait()
        request = self._in_progress[name] = _InProgress(key.body_sha256)
        try:
            now_ms = self._now_ms()
            found = await self._journal.find(
                lambda store: store.find_receipt(key.principal, key.key, now_ms=now_ms)
            )
            if found is not None:
                _compare(key, found.body_sha256)
                return msgspec.json.decode(found.result, type=kind)
            result = await effect()
            if not is_kept_by_effect:
                record = receipt_for(key, result, self._now_ms())
                with trio.CancelScope(shield=True):  # see the top; bounded by the disk
                    await self._journal.commit(Change(records=(record,)))
            return result
        finally:
            del self._in_progress[name]
            request.done.set()


def _compare(key: IdempotencyKey, body_sha256: str) -> None:
    if key.body_sha256 != body_sha256:
        raise IdempotencyConflict(
            f"idempotency key {key.key[:64]!r} was already used for another request"
        )
