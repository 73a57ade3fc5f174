"""Idempotency keys of requests."""

import msgspec

from palyra.core.journal.records import IdempotencyRecord


class IdempotencyKey(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key and the digest of its request body."""

    principal: str
    key: str
    body_sha256: str


def receipt_for(key: IdempotencyKey, result: msgspec.Struct, now_ms: int) -> IdempotencyRecord:
    """Return the record that answers a repeated request with `result`."""
    return IdempotencyRecord(
        principal=key.principal,
        key=key.key,
        body_sha256=key.body_sha256,
        result=msgspec.Raw(msgspec.json.encode(result)),
        created_ms=now_ms,
    )
