"""JSON-RPC frames of the client, and conversion of error replies to exceptions.

Unknown members are ignored, so that a newer daemon can send members this client does not know.
"""

from typing import Any

import msgspec

from palyra import errors
from palyra.errors import PalyraError

NOTHING = msgspec.Raw(b"{}")


class WireFault(msgspec.Struct, frozen=True, kw_only=True):
    """`error.data`: the machine-readable part of an error reply."""

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

# Wire code -> the class a caller catches.  Where several classes of the daemon share a code, this
# is the one that a client can act on.
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
        errors.Suspended,
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
    """Decode the frames of one message.  Raises msgspec.DecodeError if it is not JSON-RPC."""
    if text[:1] in {"[", b"["}:
        return _MANY.decode(text)
    return [_ONE.decode(text)]


def render_request(request_id: int, method: str, params: dict[str, Any]) -> str:
    """Encode a request; params that are None are left out.

    Raises InvalidParams for text that UTF-8 cannot encode.
    """
    given = {name: value for name, value in params.items() if value is not None}
    body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": given}
    try:
        return msgspec.json.encode(body).decode()
    except UnicodeEncodeError as error:
        char = f"\\u{ord(error.object[error.start]):04x}"
        raise errors.InvalidParams(
            f"{method}: a text holds {char}, which is not a character: encode the text as UTF-8"
        ) from None


def to_exception(error: ErrorBody) -> PalyraError:
    """Convert an error reply to its exception; PalyraError itself for an unknown code."""
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
