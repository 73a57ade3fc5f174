"""Tombstone: the payload of a tape row after a purge of its content.

A purge replaces payloads and nothing else: run, seq, time, kind, principal and chain hash stay.  The
replacement names the SHA-256 and the size of the payload that was there, so a copy of it
can still be compared, and `core.tape.purge` proves that the removal was asked for.
"""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

import msgspec

PREFIX = b'{"purged":{'  # no event has a first field of this name
MAX_BYTES = 160
_LAST_MS = 253_402_300_799_000  # of the year 9999


class PurgedPayload(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Facts about a payload that was removed."""

    at_ms: Annotated[int, msgspec.Meta(ge=0, le=_LAST_MS)]
    sha256: str  # hex, of the payload
    size_bytes: int  # of the payload

    @property
    def day(self) -> str:
        """Day of the purge, UTC."""
        return f"{datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%d}"


class _Tombstone(msgspec.Struct, frozen=True, gc=False):
    purged: PurgedPayload


_DECODER = msgspec.json.Decoder(_Tombstone)


def make_tombstone(data: bytes, at_ms: int) -> bytes:
    """Return the tombstone for the payload `data`; a tombstone stays as it is."""
    if data.startswith(PREFIX):
        return data
    purged = PurgedPayload(at_ms=at_ms, sha256=sha256(data).hexdigest(), size_bytes=len(data))
    return msgspec.json.encode(_Tombstone(purged))


def read_tombstone(data: bytes) -> PurgedPayload | None:
    """Return the facts of a replaced payload, None for any other payload."""
    if not data.startswith(PREFIX):
        return None
    try:
        tombstone = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return tombstone.purged if msgspec.json.encode(tombstone) == data else None
