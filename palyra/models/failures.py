"""Classify a provider's failure from its HTTP answer or its stream.

Providers word their errors differently.  So the status decides first, then the error's code or
type, and last its message.  The message is shown to people: it is truncated, and the redactor
removes secrets before anything is written.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from palyra.core.model.messages import FailureClass, ModelFailure
from palyra.core.text.excerpt import truncate_safely

MAX_DETAIL_CHARS = 300
MAX_RETRY_AFTER_MS = 120_000

_STATUS: dict[int, FailureClass] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "invalid_request",
    408: "timeout",
    409: "transient",
    413: "context_overflow",
    422: "invalid_request",
    429: "rate_limited",
    500: "transient",
    502: "transient",
    503: "unavailable",
    504: "timeout",
    529: "unavailable",  # Anthropic: overloaded
}
_CODES: dict[str, FailureClass] = {
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "permission_error": "auth",
    "insufficient_quota": "quota",
    "billing_error": "quota",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "context_length_exceeded": "context_overflow",
    "request_too_large": "context_overflow",
    "content_policy_violation": "content_policy",
    "content_filter": "content_policy",
    "invalid_request_error": "invalid_request",
    "overloaded_error": "unavailable",
    "server_error": "transient",
    "api_error": "transient",
    "timeout_error": "timeout",
    # Google
    "API_KEY_INVALID": "auth",
    "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "auth",
    "RESOURCE_EXHAUSTED": "rate_limited",
    "UNAVAILABLE": "unavailable",
    "INTERNAL": "transient",
    "DEADLINE_EXCEEDED": "timeout",
    # AWS
    "AccessDeniedException": "auth",
    "ExpiredTokenException": "auth",
    "InvalidSignatureException": "auth",
    "UnrecognizedClientException": "auth",
    "ServiceQuotaExceededException": "quota",
    "ThrottlingException": "rate_limited",
    "ModelNotReadyException": "rate_limited",
    "ModelTimeoutException": "timeout",
    "ModelErrorException": "transient",
    "ModelStreamErrorException": "transient",
    "InternalServerException": "transient",
    "ServiceUnavailableException": "unavailable",
    "ValidationException": "invalid_request",
}
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"([0-9]{1,6}(?:\.[0-9]{1,9})?)s"')
_NUMBER = re.compile(r"[45][0-9]{2}")
_OVERFLOW = re.compile(
    r"context (length|window|size)|maximum context|too many tokens|prompt is too long"
    r"|exceeds? the (available )?context|input is too long|input token count.{0,40}exceeds",
    re.IGNORECASE,
)
_POLICY = re.compile(r"content (policy|filter|management)|safety system|flagged", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient[_ ]quota|billing|credit balance|exceeded your current quota")


def http_failure(
    status: int, headers: Mapping[str, str], body: bytes, *, now_ms: int
) -> ModelFailure:
    """Return the failure behind an HTTP answer that is not a stream."""
    codes, message = _read_error(body)
    # AWS names the error in a header: `ThrottlingException:http://…`.
    named = headers.get("x-amzn-errortype", "").partition(":")[0]
    codes = (named, *codes) if named else codes
    failure_class = _classify(status, codes, message)
    wait_ms = _retry_after_ms(headers, now_ms)
    if status == 429 and wait_ms is None:  # noqa: PLR2004 - Google says it in the body
        wait_ms = _retry_delay_ms(body)
        failure_class = failure_class if wait_ms is None else "rate_limited"
    text = message or f"HTTP {status} without an explanation"
    return ModelFailure(
        failure_class,
        f"HTTP {status}: {truncate_safely(text, MAX_DETAIL_CHARS)}",
        wait_ms,
    )


def stream_failure(error: bytes, code: str = "") -> ModelFailure:
    """Return the failure that a provider reports inside a stream that started normally.

    `code` is the name of the error where the stream has it outside of the error itself.
    """
    codes, message = _read_error(error)
    codes = (code[:1].upper() + code[1:], *codes)
    known = _by_code(codes)
    if known in {None, "invalid_request"}:  # the words say more
        known = _by_words(message) or known
    failure_class = known or "transient"
    text = message or "the provider reported an error without an explanation"
    return ModelFailure(failure_class, truncate_safely(text, MAX_DETAIL_CHARS))


def _classify(status: int, codes: tuple[str, ...], message: str) -> FailureClass:
    by_code = _by_code(codes)
    if status == 429:  # noqa: PLR2004 - two things share it
        return "quota" if by_code == "quota" or _QUOTA.search(message) else "rate_limited"
    if status == 400:  # noqa: PLR2004 - many things share it
        by_words = _by_words(message)
        return by_words or by_code or "invalid_request"
    by_status = _STATUS.get(status)
    if by_status is not None:
        return by_status
    return "transient" if status >= 500 else by_code or "invalid_request"  # noqa: PLR2004 - 5xx


def _by_code(codes: tuple[str, ...]) -> FailureClass | None:
    """Class of the first known code; some providers send an HTTP status as the code."""
    for code in codes:
        known = _CODES.get(code) or (_STATUS.get(int(code)) if _NUMBER.fullmatch(code) else None)
        if known is not None:
            return known
    return None


def _by_words(message: str) -> FailureClass | None:
    if _OVERFLOW.search(message):
        return "context_overflow"
    if _POLICY.search(message):
        return "content_policy"
    return "quota" if _QUOTA.search(message) else None


def _read_error(body: bytes) -> tuple[tuple[str, ...], str]:
    """Return codes and message of an error body in any known shape; empty for an unknown shape."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return (), ""
    if isinstance(found, list) and found:
        found = found[0]  # Google, where no stream was asked for
    inner = found.get("error", found) if isinstance(found, dict) else found
    if isinstance(inner, str):
        return (), inner
    if not isinstance(inner, dict):
        return (), ""
    reasons = (each.get("reason") for each in _details(inner))
    named = (*reasons, *(inner.get(key) for key in ("status", "code", "type")))
    codes = tuple(str(value) for value in named if isinstance(value, str | int))
    texts = (inner.get(key) for key in ("message", "detail"))
    return codes, next((text for text in texts if isinstance(text, str)), "")


def _details(error: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the details of an error of Google; empty for any other."""
    found = error.get("details")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _retry_delay_ms(body: bytes) -> int | None:
    """Delay from Google's `RetryInfo` in milliseconds; capped like `Retry-After`."""
    found = _RETRY_DELAY.search(body)
    return None if found is None else min(round(float(found[1]) * 1_000), MAX_RETRY_AFTER_MS)


def _retry_after_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    """Delay from `Retry-After` (seconds or a date) in milliseconds; capped, never negative."""
    waits_ms = (
        _number(headers.get("retry-after-ms", ""), 1),
        _number(headers.get("retry-after", ""), 1_000),
        _until(headers.get("retry-after", ""), now_ms),
    )
    wanted_ms = next((each for each in waits_ms if each is not None), None)
    return None if wanted_ms is None else round(min(max(wanted_ms, 0), MAX_RETRY_AFTER_MS))


def _number(text: str, scale: int) -> float | None:
    try:
        value = float(text) * scale
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _until(text: str, now_ms: int) -> float | None:
    """Return the time until an HTTP date; a date without a zone is UTC."""
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1_000 - now_ms
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
