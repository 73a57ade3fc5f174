"""Damage mark: what readers of a tape get in the place of a payload that is no JSON.

The stored bytes stay as they are, and verification reads those.  The mark names the SHA-256 and the
size of the payload, so that two readings can be compared.
"""

from hashlib import sha256

import msgspec

PREFIX = b'{"damaged":{'  # no event has a first field of this name
_PAYLOAD = msgspec.json.Decoder(msgspec.Raw)


class _DamagedPayload(msgspec.Struct, frozen=True, gc=False):
    sha256: str  # hex, of the payload
    size_bytes: int  # of the payload


class _Mark(msgspec.Struct, frozen=True, gc=False):
    damaged: _DamagedPayload


def is_json(data: bytes) -> bool:
    """True for a payload that a client can read."""
    try:
        _PAYLOAD.decode(data)
        data.decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def make_mark(data: bytes) -> bytes:
    """Return the mark of a damaged payload."""
    return msgspec.json.encode(_Mark(_DamagedPayload(sha256(data).hexdigest(), len(data))))
