"""Errors as an SDK sees them, and its automatic retries."""

from palyra.errors import (
    Draining,
    InvalidParams,
    InvariantBroken,
    Overloaded,
    PalyraError,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from palyra.net.http.compat.errors import RunEnded, error_body, error_headers, status_of
from palyra.net.http.compat.messages import message_error
from tests.rows import every_row

CASES: list[tuple[PalyraError, int, str, str, bool]] = [
    (InvalidParams("x"), 400, "invalid_request_error", "invalid_request_error", False),
    (Unauthenticated("x"), 401, "authentication_error", "authentication_error", False),
    (RateLimited("x"), 429, "rate_limit_error", "rate_limit_error", True),
    (Overloaded("x"), 503, "server_error", "overloaded_error", True),
    (Draining("x"), 503, "server_error", "overloaded_error", True),
    (Unavailable("x"), 503, "server_error", "overloaded_error", True),
    (RunEnded("unavailable", "x", "run_1"), 503, "server_error", "overloaded_error", False),
    (RunEnded("rate_limited", "x", "run_1"), 429, "rate_limit_error", "rate_limit_error", False),
    (RunEnded("auth", "x", "run_1"), 502, "server_error", "api_error", False),
    (InvariantBroken("x"), 500, "server_error", "api_error", False),
]


@every_row(("error", "status", "openai", "anthropic", "again"), CASES)
def test_an_error_in_both_shapes(
    error: PalyraError,
    status: int,
    openai: str,
    anthropic: str,
    again: bool,  # noqa: FBT001 - a case
) -> None:
    """Its status, its family, and that a run is not repeated blindly."""
    told = error_body(error)
    assert (status, openai) == (status_of(error), told["type"])
    assert anthropic == message_error(error)["error"]["type"]
    assert ("true" if again else "false") == error_headers(error)["x-should-retry"]
    assert ("run_1" if isinstance(error, RunEnded) else None) == told["palyra"].get("run_id")


@every_row(
    ("ours", "code", "kind", "status"),
    [
        ("context_overflow", "context_length_exceeded", "invalid_request_error", 400),
        ("context_budget_exhausted", "context_length_exceeded", "invalid_request_error", 400),
        ("content_policy", "content_policy_violation", "invalid_request_error", 400),
        ("quota", "insufficient_quota", "insufficient_quota", 429),
        ("malformed", "malformed", "server_error", 502),
    ],
)
def test_the_codes_that_programs_look_for(ours: str, code: str, kind: str, status: int) -> None:
    """OpenAI's where it has one; ours is beside it."""
    error = RunEnded(ours, "why", "run_1")
    told = error_body(error)
    assert (code, kind, ours) == (told["code"], told["type"], told["palyra"]["code"])
    assert status == status_of(error)


def test_a_prompt_that_is_too_long_is_known_by_its_words() -> None:
    """Programs search the message, each for words of its own API."""
    error = RunEnded("context_overflow", "9 tokens in 8", "run_1")
    assert "maximum context length" in error_body(error)["message"]
    assert message_error(error)["error"]["message"].startswith("prompt is too long: 9 tokens")


def test_a_bug_says_only_that_it_is_one() -> None:
    """Its words are for the log."""
    assert "internal error" == error_body(InvariantBroken("the key of x"))["message"]
    assert "it failed" == error_body(RunEnded("internal", "it failed", "run_1"))["message"]


def test_the_retry_headers() -> None:
    """Whole seconds, rounded up, and milliseconds."""
    for wait_ms, seconds in ((1, "1"), (1_000, "1"), (1_001, "2")):
        headers = error_headers(Overloaded("x", retry_after_ms=wait_ms))
        assert (seconds, str(wait_ms)) == (headers["retry-after"], headers["retry-after-ms"])
