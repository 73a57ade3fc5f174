"""The headers of a request: its token, and options of its run."""

import hashlib
from typing import Any

import msgspec

from palyra.actors.kernel.threads import run_sync
from palyra.core.access import Caller
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.errors import InvalidParams, Unauthenticated
from palyra.net.api.method import MAX_KEY_CHARS
from palyra.net.http.compat.http_exchange import INLINE_BYTES, HttpExchange
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.protocol.params import Params
from palyra.net.server.request_head import RequestHead, find_bearer

# Headers with one value.  If one is repeated, programs differ in which value counts.
_SINGLE = frozenset({
    b"authorization", b"x-api-key", b"content-type", b"content-encoding", b"idempotency-key",
})  # fmt: skip
_OWN_PREFIX = b"x-palyra-"
_SWITCH = {"true": True, "1": True, "false": False, "0": False}


def check_headers(head: RequestHead) -> None:
    """Raise InvalidParams if headers contradict each other, or may: a repeated one, two tokens."""
    names = [name for name, _ in head.headers]
    for name in set(names):
        if names.count(name) > 1 and (name in _SINGLE or name.startswith(_OWN_PREFIX)):
            text = name.decode("ascii")
            raise InvalidParams(f"{text}: more than one such header", field=text)
    bearer, key = _bearer_bytes(head), b"".join(head.values(b"x-api-key"))
    if bearer and key and bearer != key:
        raise InvalidParams(
            "x-api-key: differs from the token in `Authorization`", field="x-api-key"
        )


def _bearer_bytes(head: RequestHead) -> bytes:
    """Return the bearer token, also one that is not ASCII; empty if there is none."""
    scheme, _, token = b"".join(head.values(b"authorization")).partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def find_token(exchange: HttpExchange) -> str:
    """Return the token of a request with checked headers.  Raises Unauthenticated."""
    token = find_bearer(exchange.head) or exchange.header(b"x-api-key")
    if not token:
        raise Unauthenticated("a token is needed: `Authorization: Bearer TOKEN`")
    return token


def with_headers(request: Any, exchange: HttpExchange) -> Any:  # noqa: ANN401 - any request
    """Return the request with the options of its headers; the body's `palyra` member wins."""
    changes: dict[str, Any] = {}
    options = request.palyra
    mode = _find(exchange, "x-palyra-approval-mode")
    if mode is not None and options.approval_mode is None:
        if mode not in {"ask", "deny"}:
            raise InvalidParams("x-palyra-approval-mode: ask or deny", field="approval_mode")
        changes["approval_mode"] = mode
    cancel = _find(exchange, "x-palyra-cancel-on-disconnect")
    if cancel is not None and options.cancel_on_disconnect is None:
        if (wanted := _SWITCH.get(cancel.lower())) is None:
            raise InvalidParams(
                "x-palyra-cancel-on-disconnect: true or false", field="cancel_on_disconnect"
            )
        changes["cancel_on_disconnect"] = wanted
    if not changes:
        return request
    return msgspec.structs.replace(request, palyra=msgspec.structs.replace(options, **changes))


def _find(exchange: HttpExchange, name: str) -> str | None:
    """Return the header, None if missing.  Raises InvalidParams if it is not ASCII."""
    text = exchange.header(name.lower().encode())
    if text is None and exchange.head.values(name.lower().encode()):
        raise InvalidParams(f"{name}: headers are limited to ASCII", field=name.lower())
    return text


async def find_key(
    exchange: HttpExchange, caller: Caller, request: Params, size_bytes: int, redact: Redact
) -> IdempotencyKey | None:
    """Return the idempotency key with the digest of the request, whose body has that size.

    Raises InvalidParams.
    """
    key = _find(exchange, "Idempotency-Key")
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY_CHARS or redact(key.encode())[1]:
        raise InvalidParams(
            f"Idempotency-Key: 1 to {MAX_KEY_CHARS} characters, and no secret",
            field="idempotency_key",
        )
    if size_bytes <= INLINE_BYTES:
        digest = _digest(exchange.path, request)
    else:
        digest = await run_sync(_digest, exchange.path, request)
    return IdempotencyKey(principal=caller.principal, key=key, body_sha256=digest)


def _digest(path: str, request: Params) -> str:
    """Digest the request without the options of its delivery."""
    value = msgspec.to_builtins(request)
    for name in ("stream", "stream_options"):
        value.pop(name, None)
    text = msgspec.json.encode([path, value], order="deterministic")
    return hashlib.sha256(text).hexdigest()
