"""Failure classes: each refusal of a provider has one, from real HTTP answers."""

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.circuit_breaker import UNHEALTHY
from palyra.core.model.messages import FAILURE_CLASSES, RETRYABLE, ModelFailure
from palyra.models.failures import (
    MAX_DETAIL_CHARS,
    MAX_RETRY_AFTER_MS,
    http_failure,
    stream_failure,
)
from tests.models.model_kit import ask, chunk
from tests.models.provider import STREAM, refusal, sse
from tests.rows import every_row

ANSWERS = [
    (refusal(401, {"error": {"message": "bad key"}}), "auth"),
    (refusal(401, b""), "auth"),
    (refusal(402, {}), "quota"),
    (refusal(403, {"error": {"type": "permission_error"}}), "auth"),
    (refusal(408, b""), "timeout"),
    (refusal(409, b""), "transient"),
    (refusal(413, {"error": {"type": "request_too_large"}}), "context_overflow"),
    (refusal(422, {"detail": "what?"}), "invalid_request"),
    (refusal(429, {"error": {"code": "rate_limit_exceeded"}}), "rate_limited"),
    (refusal(429, b""), "rate_limited"),
    (refusal(429, {"error": {"code": "insufficient_quota"}}), "quota"),
    (refusal(429, {"error": {"message": "You exceeded your current quota."}}), "quota"),
    (refusal(400, {"error": {"code": "context_length_exceeded"}}), "context_overflow"),
    (refusal(400, {"error": {"message": "prompt is too long: 9"}}), "context_overflow"),
    (refusal(400, {"error": {"code": 400, "type": "exceed_context_size_error", "message":
     "the request exceeds the available context size"}}), "context_overflow"),
    (refusal(400, {"type": "error", "error": {"type": "invalid_request_error",
     "message": "prompt is too long: 9 tokens > 8 maximum"}}), "context_overflow"),
    (refusal(400, {"error": {"code": "content_policy_violation"}}), "content_policy"),
    (refusal(400, {"error": {"message": "Your credit balance is too low"}}), "quota"),
    (refusal(400, {"error": "what?"}), "invalid_request"),
    (refusal(400, b"\xff\xfe"), "invalid_request"),
    (refusal(400, b"[" * 50_000), "invalid_request"),
    (refusal(404, {"error": {"message": "no such model"}}), "unknown_model"),
    (refusal(418, b""), "invalid_request"),
    (refusal(500, b"<html>"), "transient"),
    (refusal(500, {"error": {"type": "invalid_request_error"}}), "transient"),
    (refusal(502, b""), "transient"),
    (refusal(503, b""), "unavailable"),
    (refusal(504, b""), "timeout"),
    (refusal(529, {"error": {"type": "overloaded_error"}}), "unavailable"),
    (refusal(599, b""), "transient"),
    (refusal(200, {"error": {"type": "rate_limit_error"}}), "rate_limited"),
    (refusal(200, {"choices": []}), "malformed"),
    (refusal(204, b""), "invalid_request"),
    (refusal(302, b"", "location: http://elsewhere/"), "invalid_request"),
    (refusal(307, b"", "location: http://elsewhere/"), "invalid_request"),
    (b"", "transient"),
    (b"no http\r\n\r\n", "transient"),
    (STREAM, "transient"),
    (STREAM + sse(chunk(content="a")), "transient"),
    (STREAM + sse("{"), "malformed"),
    (STREAM + sse({"error": {"type": "overloaded_error", "message": "busy"}}), "unavailable"),
    (STREAM + sse({"error": {"code": 429, "message": "slow down"}}), "rate_limited"),
    (STREAM + sse({"error": {"message": "maximum context length"}}), "context_overflow"),
    (STREAM + sse({"error": "?"}), "transient"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "HTTP 502 without an explanation"),
        (b'{"error": {"message": "HTTP 502"}}', "HTTP 502 without an explanation"),
        (b'{"error": {"message": "HTTP 502: bad gateway"}}', "HTTP 502: bad gateway"),
        (b'{"error": {"message": "bad gateway"}}', "HTTP 502: bad gateway"),
    ],
)
def test_a_status_is_named_once(body: bytes, said: str) -> None:
    """Whether or not the answer explains itself, or names the status."""
    assert said == http_failure(502, {}, body, now_ms=0).message


@pytest.mark.parametrize(("answer", "failure_class"), ANSWERS)
async def test_every_refusal_has_its_class(answer: bytes, failure_class: str) -> None:
    """Each real refusal has its class and a short message."""
    with pytest.raises(ModelFailure) as caught:
        await ask(answer)
    assert caught.value.failure_class == failure_class
    assert 0 < len(caught.value.message) <= MAX_DETAIL_CHARS + 20


def test_every_class_is_reached_and_has_its_consequences() -> None:
    """Every class occurs; transient ones are retried, and caller errors spare the breaker."""
    of_providers = set(FAILURE_CLASSES) - {"step_failed"}  # of a procedure: no provider answers it
    assert {name for _, name in ANSWERS} == of_providers
    assert {"rate_limited", "transient", "timeout", "unavailable"} == RETRYABLE
    assert {"malformed"} == UNHEALTHY - RETRYABLE
    assert {"rate_limited"} == RETRYABLE - UNHEALTHY  # a provider that limits rates is healthy


NOW_MS = 1_700_000_000_000
IN_A_MINUTE = formatdate(NOW_MS / 1000 + 60, usegmt=True)


@every_row(
    ("headers", "expected_ms"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7_000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "99999"}, MAX_RETRY_AFTER_MS),
        ({"retry-after": "inf"}, MAX_RETRY_AFTER_MS),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": IN_A_MINUTE}, 60_000),
        ({"retry-after": IN_A_MINUTE.replace("GMT", "-0000")}, 60_000),
        ({"retry-after": formatdate(NOW_MS / 1000 - 60, usegmt=True)}, 0),
        ({"retry-after": formatdate(NOW_MS / 1000 + 9_999, usegmt=True)}, MAX_RETRY_AFTER_MS),
        ({"retry-after": "Mon, 99 Foo 2026 00:00:00 GMT"}, None),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1_500),
        ({"retry-after-ms": "x", "retry-after": "7"}, 7_000),
    ],
)
def test_retry_after_is_read_in_every_form(
    headers: dict[str, str], expected_ms: int | None
) -> None:
    """`retry-after` is read as seconds, milliseconds or an HTTP date, bounded; else ignored."""
    assert expected_ms == http_failure(429, headers, b"", now_ms=NOW_MS).retry_after_ms


def test_a_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date without a zone is read as UTC in any local time zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        headers = {"retry-after": IN_A_MINUTE.replace("GMT", "-0000")}
        assert 60_000 == http_failure(429, headers, b"", now_ms=NOW_MS).retry_after_ms
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_retry_after_is_read_in_any_case() -> None:
    """The header `retry-after` is found in any letter case."""
    with pytest.raises(ModelFailure) as caught:
        await ask(refusal(429, {}, "RETRY-After: 7"))
    assert 7_000 == caught.value.retry_after_ms


@given(st.binary(), st.text(), st.integers(100, 599))
def test_any_refusal_has_a_class_and_a_bounded_wait(body: bytes, header: str, status: int) -> None:
    """Any body and header give one of the classes and a bounded wait."""
    failure = http_failure(status, {"retry-after": header}, body, now_ms=NOW_MS)
    assert failure.failure_class in FAILURE_CLASSES
    assert 0 <= (failure.retry_after_ms or 0) <= MAX_RETRY_AFTER_MS
    assert stream_failure(body).failure_class in FAILURE_CLASSES


def test_a_long_explanation_is_cut() -> None:
    """A long explanation is cut before it reaches users."""
    told = b'{"error": {"message": "' + b"x" * 10_000 + b'"}}'
    for failure in (http_failure(500, {}, told, now_ms=0), stream_failure(told)):
        assert len(failure.message) <= MAX_DETAIL_CHARS + 20
