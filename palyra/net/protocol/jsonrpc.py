"""Strict JSON-RPC 2.0 as pure functions: bytes to a request, a reply to bytes.

Owns: the definition of a well-formed message, and the error codes of protocol v1.  Never does I/O
and never sees the caller.  The peer may be hostile: every check is bounded by the size of the
message, and each error names the rule that was broken.  Sources: JSON-RPC 2.0; RFC 8259; RFC 7493
(I-JSON: no duplicate names, no lone surrogates, no numbers outside IEEE 754).
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeGuard

import msgspec

from palyra.core.text import validation_errors
from palyra.core.text.canonical_json import MAX_SAFE_INTEGER
from palyra.errors import Overloaded, PalyraError, ProtocolError, TooLarge, Unavailable

RequestId = int | str
Redact = Callable[
    [bytes], tuple[bytes, bool]
]  # redacted JSON or text, and whether it held a secret

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
APPLICATION_ERROR = -32000

MAX_DEPTH = 64  # nesting of arrays and objects; methods need 6, tool arguments about 20
MAX_VALUES = 20_000  # in one message; keeps the time to parse 1 MiB below about 30 ms
MAX_ID_CHARS = 128
show = validation_errors.show  # a bad value, in an error message

_CODES = {"invalid_params": INVALID_PARAMS, "internal": INTERNAL_ERROR}
_MEMBERS = {"jsonrpc", "id", "method", "params"}
_ENCODER = msgspec.json.Encoder()

# Linear: from its first quote on a string always matches, also an unclosed one that ends in a
# backslash, and the possessive quantifiers never give back.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Request(msgspec.Struct, frozen=True):
    """A well-formed request; `params` is not yet typed."""

    id: RequestId
    method: str
    params: dict[str, Any]


class BadMessage(ProtocolError):
    """Malformed request, with its JSON-RPC error code, and its id if that was readable."""

    def __init__(self, rpc_code: int, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.request_id = request_id


class UnknownMethod(PalyraError):
    """No method has this name."""

    code = "unknown_method"


_CODES[UnknownMethod.code] = UNKNOWN_METHOD


def decode(data: bytes, *, max_bytes: int) -> Request:
    """Decode one request.

    Checked in this order: size, UTF-8, number and nesting of values, JSON with its extensions
    refused, duplicate names, lone surrogates, envelope.  Raises TooLarge or BadMessage only.
    """
    if len(data) > max_bytes:
        raise TooLarge(f"message has {len(data)} bytes, the limit is {max_bytes}")
    return _read_envelope(read_json(data))


def read_json(data: bytes) -> object:
    """Decode a JSON value with the checks of `decode` except size.  Raises BadMessage only."""
    text = _decode_text(data)
    _check_shape(data)
    value = _parse(text)
    _check_surrogates(text, value)
    return value


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"invalid UTF-8 at byte {error.start}") from None


def _check_shape(data: bytes) -> None:
    bare = _STRING.sub(b"", data)
    brackets = bare.translate(None, _NOT_BRACKETS)
    if bare.count(b",") + len(brackets) // 2 > MAX_VALUES:
        raise BadMessage(PARSE_ERROR, f"more than {MAX_VALUES} values")
    depth = 0
    for bracket in brackets:
        depth += _STEP[bracket]
        if depth > MAX_DEPTH:
            raise BadMessage(PARSE_ERROR, f"nested deeper than {MAX_DEPTH}")


def _parse(text: str) -> object:
    try:
        return json.loads(
            text,
            object_pairs_hook=_build_object,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
        )
    except json.JSONDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # an integer with more digits than the interpreter converts
        raise BadMessage(PARSE_ERROR, "a number has too many digits") from None


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        twice = _find_twice(name for name, _ in pairs)
        raise BadMessage(PARSE_ERROR, f"name {show(twice)} occurs twice in one object")
    return built


def _find_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _refuse_constant(name: str) -> NoReturn:
    raise BadMessage(PARSE_ERROR, f"{name} is not JSON")


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise BadMessage(PARSE_ERROR, f"number {show(digits)} is out of range")
    return number


def _check_surrogates(text: str, value: object) -> None:
    """Reject lone surrogates: only an escape gets one past UTF-8, and most messages have none."""
    if not _SURROGATE.search(text):
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadMessage(PARSE_ERROR, "a string holds half of a surrogate pair") from None


def _read_envelope(value: object) -> Request:
    if isinstance(value, list):
        raise BadMessage(INVALID_REQUEST, "batches are not accepted: one request per message")
    if not isinstance(value, dict):
        raise BadMessage(INVALID_REQUEST, f"a request is an object, not {show(value)}")
    request_id = value.get("id")
    if not _is_request_id(request_id):
        raise BadMessage(INVALID_REQUEST, _explain_id(value))
    fault = _find_fault(value)
    if fault is not None:
        raise BadMessage(INVALID_REQUEST, fault, request_id)
    params = value.get("params", {})
    if not isinstance(params, dict):
        raise BadMessage(INVALID_PARAMS, "params must be an object (by name)", request_id)
    return Request(request_id, value["method"], params)


def _is_request_id(value: object) -> TypeGuard[RequestId]:
    if isinstance(value, str):
        return len(value) <= MAX_ID_CHARS
    return type(value) is int and abs(value) <= MAX_SAFE_INTEGER


def _explain_id(envelope: dict[str, Any]) -> str:
    """Explain what is wrong with the id: its type or its size."""
    match envelope.get("id"):
        case str(text):
            return f"id may have {MAX_ID_CHARS} characters, got {len(text)}: {show(text)}"
        case int(number) if not isinstance(number, bool):
            return f"id may be an integer up to {MAX_SAFE_INTEGER} either way, got {show(number)}"
        case other:
            given = show(other) if "id" in envelope else "none"
            return f"id must be a string or an integer, got {given}"


def _find_fault(envelope: dict[str, Any]) -> str | None:
    """Return the first fault in the other members of a request, or None."""
    unknown = sorted(envelope.keys() - _MEMBERS)
    if unknown:
        return f"unknown member {show(unknown[0])}"
    if envelope.get("jsonrpc") != "2.0":
        return f'jsonrpc must be "2.0", got {show(envelope.get("jsonrpc"))}'
    if not isinstance(envelope.get("method"), str):
        return f"method must be a string, got {show(envelope.get('method'))}"
    if not isinstance(envelope.get("params", {}), dict | list):
        return f"params must be an object, got {show(envelope['params'])}"
    return None


def encode_result(request_id: RequestId, result: object) -> bytes:
    """Encode a reply with `result`, anything that msgspec encodes, or Raw."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (
        _ENCODER.encode(request_id),
        _ENCODER.encode(result),
    )


def encode_error(request_id: RequestId | None, error: PalyraError, redact: Redact) -> bytes:
    """Encode an error reply: details of an internal error are left out, secrets are redacted."""
    rpc_code = _rpc_code(error)
    message = "internal error" if rpc_code == INTERNAL_ERROR else error.message
    body = {"code": rpc_code, "message": message, "data": _error_data(error, rpc_code, message)}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (
        _ENCODER.encode(request_id),
        redact(_ENCODER.encode(body))[0],
    )


def _rpc_code(error: PalyraError) -> int:
    if isinstance(error, BadMessage):
        return error.rpc_code
    return _CODES.get(error.code, APPLICATION_ERROR)


_NAMES = {
    PARSE_ERROR: "parse_error",
    INVALID_REQUEST: "invalid_request",
    INVALID_PARAMS: "invalid_params",
}


def _error_data(error: PalyraError, rpc_code: int, message: str) -> dict[str, Any]:
    data: dict[str, Any] = {
        "code": _NAMES.get(rpc_code, error.code),
        "message": message,
        "retryable": error.retryable,
    }
    if isinstance(error, Overloaded | Unavailable) and error.retry_after_ms is not None:
        data["retry_after_ms"] = error.retry_after_ms
    if error.field is not None:
        data["field"] = error.field
    if error.details is not None:
        data["details"] = error.details
    return data


def encode_notification(method: str, params: object) -> bytes:
    """Encode a notification."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (
        _ENCODER.encode(method),
        _ENCODER.encode(params),
    )
