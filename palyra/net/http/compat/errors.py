"""Errors as the SDKs of OpenAI and Anthropic expect them: a status, a type, and a code.

Where the original API has a code of its own for an error, programs look for that one: to compact a
conversation that is too long, or to stop when an account is empty.  Palyra's code is beside it, in the
member `palyra`.

The header `x-should-retry` controls the SDKs' automatic retries.  A request that has started a run
must not be retried automatically: the run may have had effects.
"""

from http import HTTPStatus
from typing import Any

from palyra.core.model.messages import ModelFailure
from palyra.errors import Overloaded, PalyraError, Rejected, Unavailable
from palyra.net.protocol.jsonrpc import BadMessage

_BAD = HTTPStatus.BAD_REQUEST
STATUSES: dict[str, HTTPStatus] = {
    "unauthenticated": HTTPStatus.UNAUTHORIZED,
    "forbidden": HTTPStatus.FORBIDDEN,
    "not_found": HTTPStatus.NOT_FOUND,
    "model_not_found": HTTPStatus.NOT_FOUND,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "conflict": HTTPStatus.CONFLICT,
    "idempotency_conflict": HTTPStatus.CONFLICT,
    "illegal_state": HTTPStatus.CONFLICT,
    "run_cancelled": HTTPStatus.CONFLICT,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unsupported_encoding": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "overloaded": HTTPStatus.SERVICE_UNAVAILABLE,
    "draining": HTTPStatus.SERVICE_UNAVAILABLE,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "budget_exceeded": HTTPStatus.TOO_MANY_REQUESTS,
    "budget_unpriced": HTTPStatus.TOO_MANY_REQUESTS,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    # Failure classes of runs.  If a provider refuses the daemon's key, that is no error of the caller.
    "auth": HTTPStatus.BAD_GATEWAY,
    "quota": HTTPStatus.TOO_MANY_REQUESTS,
    "malformed": HTTPStatus.BAD_GATEWAY,
    "transient": HTTPStatus.BAD_GATEWAY,
    "context_overflow": _BAD,
    "context_budget_exhausted": _BAD,
    "content_policy": _BAD,
    "invalid_request": _BAD,
    "unknown_model": _BAD,
    "wall_clock": HTTPStatus.GATEWAY_TIMEOUT,
}
_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "invalid_request_error",
}


# OpenAI's code where it has one, and what its messages and Anthropic's say, for which programs look.
# Source: https://platform.openai.com/docs/guides/error-codes, and the error classes of LangChain and
# LiteLLM.
CODES = {
    "unauthenticated": "invalid_api_key",
    "rate_limited": "rate_limit_exceeded",
    "quota": "insufficient_quota",
    "context_overflow": "context_length_exceeded",
    "context_budget_exhausted": "context_length_exceeded",
    "content_policy": "content_policy_violation",
}
TOO_LONG = frozenset({"context_overflow", "context_budget_exhausted"})
LENGTH_WORDS = "this model's maximum context length is exceeded"
MESSAGES_LENGTH_WORDS = "prompt is too long"


class ModelNotFound(Rejected):
    """Neither an agent nor a model has that name."""

    code = "model_not_found"


class Unsupported(Rejected):
    """A parameter, or a value of one, that is not supported and would change the answer."""

    code = "unsupported_parameter"


class NoThreads(Unsupported):
    """A conversation kept by the server; the SDK's tool runner then sends the whole conversation."""


class Encoded(Rejected):
    """A compressed body, whose size is unknown until it is unpacked."""

    code = "unsupported_encoding"


class WrongMethod(Rejected):
    """The path has other methods only."""

    code = "method_not_allowed"


class RunEnded(PalyraError):
    """The run ended without an answer; its `failure_class` takes the place of the code."""

    def __init__(self, failure_class: str, reason: str, run_id: str) -> None:
        super().__init__(reason)
        self.failure_class = failure_class
        self.run_id = run_id


def code_of(error: PalyraError) -> str:
    """Return the typed code."""
    if isinstance(error, RunEnded | ModelFailure):
        return error.failure_class
    return "invalid_json" if isinstance(error, BadMessage) else error.code


def status_of(error: PalyraError) -> HTTPStatus:
    """Return the status: 400 for a refusal without one of its own, 500 for any other error."""
    if isinstance(error, BadMessage):
        return _BAD
    known = STATUSES.get(code_of(error))
    if known is not None:
        return known
    return _BAD if isinstance(error, Rejected) else HTTPStatus.INTERNAL_SERVER_ERROR


def type_of(status: HTTPStatus) -> str:
    """Return the error type, from which SDKs choose an exception class."""
    known = _TYPES.get(status)
    if known is not None:
        return known
    return "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"


def error_body(error: PalyraError) -> dict[str, Any]:
    """Return `error` in OpenAI's shape; an internal error has no details."""
    status, code = status_of(error), code_of(error)
    is_bug = status is HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, RunEnded)
    note = {"code": code}
    if isinstance(error, RunEnded):
        note["run_id"] = error.run_id
    message = "internal error" if is_bug else error.message
    return {
        "message": f"{message} ({LENGTH_WORDS})" if code in TOO_LONG else message,
        "type": "insufficient_quota" if code == "quota" else type_of(status),
        "code": CODES.get(code, code),
        "param": error.field,
        "palyra": note,
    }


def error_headers(error: PalyraError) -> dict[str, str]:
    """Return the headers that control retries and authentication."""
    may_retry = error.retryable and not isinstance(error, RunEnded)
    headers = {"x-should-retry": "true" if may_retry else "false"}
    if isinstance(error, Overloaded | Unavailable) and error.retry_after_ms is not None:
        headers["retry-after"] = str(max(1, -(-error.retry_after_ms // 1000)))
        headers["retry-after-ms"] = str(error.retry_after_ms)
    if status_of(error) is HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return headers
