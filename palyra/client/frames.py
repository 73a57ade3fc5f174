"""Frames as a client reads and writes them, and errors as exceptions again.

Unknown members are ignored, so that a newer daemon can say more than this client knows.
"""

from typing import Any

import msgspec

from palyra import errors
from palyra.errors import PalyraError

NOTHING = msgspec.Raw(b"{}")


class WireFault(msgspec.Struct, frozen=True, kw_only=True):
    """`error.data`: the part of an error reply that programs act on."""

    code: str = "internal"
    message: str = ""
    retry_after_ms: int | None = None
    field: str | None = None
    details: dict[str, Any] | None = None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The `error` member of a reply."""

    code: int
    message: str = ""
    data: WireFault | None = None


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A reply (has an id) or a notification (has a method)."""

    id: int | None = None
    method: str | None = None
    params: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    error: ErrorBody | None = None


_ONE = msgspec.json.Decoder(Frame)
_MANY = msgspec.json.Decoder(list[Frame])

# Wire code -> the class a caller catches.  Where several classes share a code on the daemon's
# side, the one a client can act on stands here.
ERRORS: dict[str, type[PalyraError]] = {
    cls.code: cls
    for cls in (
        errors.ProtocolError,
        errors.InvalidParams,
        errors.NotFound,
        errors.Forbidden,
        errors.Unauthenticated,
        errors.IllegalState,
        errors.Conflict,
        errors.IdempotencyConflict,
        errors.DigestMismatch,
        errors.TooLarge,
        errors.Overloaded,
        errors.RateLimited,
        errors.Draining,
        errors.Unavailable,
        errors.TooSlow,
    )
}
ERRORS |= {
    "parse_error": errors.ProtocolError,
    "invalid_request": errors.ProtocolError,
    "unknown_method": errors.NotFound,
}
# JSON-RPC's own numbers, for replies without `data`.
_BY_NUMBER: dict[int, str] = {
    -32700: "protocol_error",
    -32600: "protocol_error",
    -32601: "not_found",
    -32602: "invalid_params",
}


def parse_frames(text: str | bytes) -> list[Frame]:
    """The frames of one message.  Raises msgspec.DecodeError for what is no JSON-RPC."""
    if text[:1] in {"[", b"["}:
        return _MANY.decode(text)
    return [_ONE.decode(text)]


def render_request(request_id: int, method: str, params: dict[str, Any]) -> str:
    """The request as text; members that are None are left out.

    Raises InvalidParams for what no JSON can carry.
    """
    given = {name: value for name, value in params.items() if value is not None}
    body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": given}
    try:
        return msgspec.json.encode(body).decode()
    except UnicodeEncodeError as error:
        char = f"\\u{ord(error.object[error.start]):04x}"
        raise errors.InvalidParams(
            f"{method}: a text holds {char}, which is no character: give it as UTF-8"
        ) from None


def to_exception(error: ErrorBody) -> PalyraError:
    """The exception the daemon meant; PalyraError itself for a code this client lacks."""
    fault = error.data or WireFault(code=_BY_NUMBER.get(error.code, "internal"))
    message = fault.message or error.message
    cls = ERRORS.get(fault.code)
    if cls is None:
        return PalyraError(f"{fault.code}: {message}", field=fault.field)
    if issubclass(cls, errors.Overloaded):
        return cls(message, retry_after_ms=fault.retry_after_ms or 250)
    refusal = cls(message, field=fault.field, details=fault.details)
    if isinstance(refusal, errors.Unavailable):
        refusal.retry_after_ms = fault.retry_after_ms
    return refusal
