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
from typing import Any, cast

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
    "model_not_found": "unknown_model",
    "DeploymentNotFound": "unknown_model",
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
# What a message says decides where the status does not: providers give one status to many faults,
# and one fault many statuses.  The first that matches decides.
_WORDS: tuple[tuple[FailureClass, re.Pattern[str]], ...] = tuple(
    (cast("FailureClass", failure_class), re.compile(words, re.IGNORECASE))
    for failure_class, words in {
        "auth": r"api[ _-]?key (is )?(not valid|not found|invalid|expired|missing|revoked)"
        r"|(invalid|incorrect|wrong|missing|expired|no) api[ _-]?key|invalid authentication"
        r"|invalid (access )?token\b|authentication (failed|error|required)|not authenticated",
        "quota": r"insufficient[_ ](quota|balance|funds|credits?|user quota)|billing|credit balance"
        r"|exceeded your current quota|out of credits?|arrear|payment required|requires more credits"
        r"|spend(ing)? limit|usage limit (reached|exceeded)|account balance",
        "rate_limited": r"(tokens?|requests?|queries) (per|/) ?(second|minute|hour|day)|\b[TR]P[MD]\b"
        r"|rate[ _-]?limit|too many requests|rate exceeded",
        "context_overflow": r"context[ _](length|window|size|limit)|maximum (allowed )?context|max_model_len"
        r"|exceeds? the (available )?context|n_ctx|too many (input |prompt )?tokens"
        r"|(prompt|input|request|conversation|messages?|query|text|content) (\w+ ){0,3}(is |are |was )?"
        r"(too (long|large)|longer than|larger than)"
        r"|(reduce|shorten|decrease) (\w+ ){0,3}(length|size|messages|prompt|input|tokens)"
        r"|exceed\w* (\w+ ){0,6}(token|input|prompt)[ _]?(limit|length|count|size)"
        r"|(input|prompt|request|model|sequence) (\w+ ){0,2}token (count|limit)"
        r"|token (limit|count|length) (\w+ ){0,3}exceed|input length and"
        r"|(prompt|input)[ _]tokens?\b.{0,60}(exceed|limit|maximum|more than|less than|at most)"
        r"|range of input length|maximum (number of |input |sequence |prompt )+(tokens|length)"
        r"|(input|prompt|sequence|token)s? (\w+ ){0,2}length.{0,40}(exceed|limit|maximum|longer|greater)"
        r"|tokens.{0,40}(exceed|greater than|more than|larger than|over) .{0,40}(limit|max|support|allow|window)"
        r"|maximum model length|total number of tokens|token budget|inputs?`? tokens \+"
        r"|exceed.{0,40}\bmax(imum)? .{0,20}tokens|(must|should) have (less|fewer) than \d+ tokens"
        r"|context (is )?(full|overflow|exhausted)|does not fit .{0,20}context|kv cache",
        "content_policy": r"content[ _](policy|filter|management|moderation|violation)|safety (system|polic|filter)"
        r"|flagged|moderation|inappropriate content|data_inspection|prohibited content|usage policies"
        r"|(acceptable use|usage|content) polic|violat\w+ (\w+ ){0,3}polic|sensitive (words?|content)"
        r"|high[- ]risk|responsible ai",
        "unavailable": r"overloaded|at capacity|no (available|healthy) (server|channel|upstream|provider)"
        r"|currently loading|model is loading|temporarily unavailable|service unavailable",
    }.items()
)
# A limit of the answer, not of the prompt: a smaller prompt would change nothing.
_ANSWER_LIMIT = re.compile(
    r"max_(completion_|output_)?tokens['\"`]?:? .{0,40}(is )?(too (large|high|big)|must be|less than or equal)"
    r"|at most \d+ (completion|output) tokens",
    re.IGNORECASE,
)
# Names of a model that is not there, in the words of providers.
_NO_MODEL = re.compile(
    r"\b(model|deployment)s?\b[^.\n]{0,200}\b(not found|not exist|doesn't exist|is not (available|found|a valid)|not a valid"
    r"|no longer (available|supported)|(has been|was|is) (deprecated|removed|retired|decommissioned)|is invalid"
    r"|unknown|invalid)\b|(unknown|invalid|no such|unsupported|missing) (model|deployment)\b|not a valid model"
    r"|^model: \S+$|no endpoints found for|no (model|deployment) (found|named|called|matching)",
    re.IGNORECASE,
)
# Parts of a request that share these words with a missing model.
_OF_REQUEST = re.compile(
    r"image|picture|vision|tool|function|schema|parameter|max_tokens|temperature|context|token|stream|format"
    r"|header|version|reasoning|thinking|role|message",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\([^()]*\)")
_ASKED = frozenset({400, 403, 404, 413, 422, 424, 500, 502, 503, 520})  # whose words say more


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
    said = truncate_safely(message, MAX_DETAIL_CHARS)
    named = f"HTTP {status}"  # which pages of proxies say themselves
    text = f"{named}: {said.removeprefix(named).lstrip(' :')}".removesuffix(": ")
    return ModelFailure(
        failure_class, f"{named} without an explanation" if text == named else text, wait_ms
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
    misses_model = by_code != "auth" and _misses_model(status, by_code, message)
    by_words = "unknown_model" if misses_model else _by_words(message)
    if status == 429:  # noqa: PLR2004 - two things share it
        return "quota" if "quota" in {by_code, by_words} else "rate_limited"
    if status in _ASKED and by_words is not None:
        return by_words
    if status == 413:  # noqa: PLR2004 - Groq: also the tokens of a minute
        return "rate_limited" if by_code == "rate_limited" else "context_overflow"
    if status == 400:  # noqa: PLR2004 - many things share it
        return by_code or "invalid_request"
    by_status = _STATUS.get(status)
    if by_status is not None:
        return by_status
    return "transient" if status >= 500 else by_code or "invalid_request"  # noqa: PLR2004 - 5xx


def _misses_model(status: int, by_code: FailureClass | None, message: str) -> bool:
    """True if the failure says that the provider does not have the model."""
    if by_code == "unknown_model":
        return True
    is_likely = status == 404 or not _OF_REQUEST.search(message)  # noqa: PLR2004 - not found
    return is_likely and status < 500 and _NO_MODEL.search(message) is not None  # noqa: PLR2004 - 5xx


def _by_code(codes: tuple[str, ...]) -> FailureClass | None:
    """Class of the first known code; some providers send an HTTP status as the code."""
    for code in codes:
        known = _CODES.get(code) or (_STATUS.get(int(code)) if _NUMBER.fullmatch(code) else None)
        if known is not None:
            return known
    return None


def _by_words(message: str) -> FailureClass | None:
    plain = " ".join(_ASIDE.sub(" ", message).split())  # "the prompt (9 tokens) is too long"
    found = next(
        (each for each, words in _WORDS if words.search(message) or words.search(plain)), None
    )
    is_of_answer = found == "context_overflow" and _ANSWER_LIMIT.search(message)
    return None if is_of_answer and "context" not in message.lower() else found


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
