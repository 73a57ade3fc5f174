"""Canonical JSON (RFC 8785): one text per value, so a digest identifies a value.

`rfc8785` defines the bytes.  Nearly all values have no floats and only ASCII keys; for them a
shorter path gives the same bytes, because sorting keys by code point equals sorting them by UTF-16,
and msgspec escapes strings exactly as the RFC requires.  `tests/core/text/test_canonical_json.py`
compares the two paths.
"""

import hashlib
from typing import Any, cast

import msgspec
import rfc8785

from palyra.errors import Rejected

MAX_SAFE_INTEGER = 2**53 - 1  # RFC 7493: beyond it a JSON number is no longer exact

# Deepest nesting of arrays and objects.  Fixed here, because the interpreter's own limit differs
# between versions, and a digest must not.
MAX_DEPTH = 256

_TOO_DEEP = f"no canonical JSON: the value is nested deeper than {MAX_DEPTH}"
_ENCODER = msgspec.json.Encoder(order="sorted")


class NotCanonical(Rejected):
    """The value has no canonical JSON: not JSON at all, an unsafe number, a lone surrogate."""

    code = "invalid_params"


def canonical_json(value: object) -> bytes:
    """Return the canonical text of a JSON value.  Raises NotCanonical."""
    try:
        text = _ENCODER.encode(value) if _is_plain(value) else rfc8785.dumps(cast("Any", value))
    except ValueError as error:  # rfc8785's own errors, lone surrogates, integers too long to print
        raise NotCanonical(f"no canonical JSON: {str(error)[:200]}") from None
    except RecursionError:  # the interpreter's limit is above MAX_DEPTH
        raise NotCanonical(_TOO_DEEP) from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_nested_deeper(value):
        raise NotCanonical(_TOO_DEEP)
    return text


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: object) -> str:
    """Return the SHA-256 of the canonical text.  Raises NotCanonical."""
    return sha256_hex(canonical_json(value))


def digest_of_any(value: object) -> str:
    """Return the digest of any value: even a malformed proposal must be attested.

    A value with canonical JSON has the digest of `digest_of`.  Any other value is digested from a
    description that cannot collide with a canonical text, because it starts with a NUL.
    """
    try:
        return digest_of(value)
    except NotCanonical:
        return sha256_hex(b"\0" + _describe(value))


def is_nested_deeper(value: object, limit: int = MAX_DEPTH) -> bool:
    """True if arrays and objects of the value nest deeper than `limit`; needs no recursion."""
    level: list[Any] = [value]
    for _ in range(limit + 1):
        level = [item for item in level if isinstance(item, dict | list | tuple)]
        if not level:
            return False
        level = [
            below for item in level for below in (item.values() if isinstance(item, dict) else item)
        ]
    return True


def _is_plain(value: object) -> bool:
    """True if the short path gives the RFC's bytes."""
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        if kind is int:
            if not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                return False
        elif kind is list or kind is tuple:
            pending.extend(item)
        elif kind is dict and all(type(key) is str and key.isascii() for key in item):
            pending.extend(item.values())
        else:
            return False
    return True


def _describe(value: object) -> bytes:
    """Encode type and content of every node, length-prefixed; no recursion, never raises."""
    pieces: list[bytes] = []
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        name = type(item).__name__
        if isinstance(item, dict):
            pending.extend(part for pair in item.items() for part in pair)
            text = str(len(item))
        elif isinstance(item, list | tuple):
            pending.extend(item)
            text = str(len(item))
        else:
            text = item if isinstance(item, str) else _scalar_text(item)
        body = text.encode("utf-8", "surrogatepass")
        pieces.append(f"{name}:{len(body)}:".encode() + body)
    return b"".join(pieces)


def _scalar_text(item: object) -> str:
    return hex(item) if isinstance(item, int) else repr(item)  # printing a huge integer raises
