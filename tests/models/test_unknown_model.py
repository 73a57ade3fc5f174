"""A model that the provider does not have: a class of its own, named, and not to be retried."""

import json
from typing import Any

import pytest

from palyra.core.model.messages import RETRYABLE, ModelFailure
from palyra.core.model.routing import FAILS_OVER
from palyra.models.chat import CHAT
from palyra.models.failures import http_failure
from tests.models.model_kit import ask
from tests.models.provider import refusal
from tests.rows import every_row


def said(status: int, body: Any, **headers: str) -> ModelFailure:
    """The failure behind an answer."""
    return http_failure(status, headers, json.dumps(body).encode(), now_ms=0)


@every_row(
    ("status", "error"),
    [
        (404, {"error": {"message": "The model `gpt-9` does not exist or you do not have access to it.",
                         "type": "invalid_request_error", "code": "model_not_found"}}),
        (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-9"}}),
        (404, {"error": {"code": 404, "status": "NOT_FOUND", "message": "models/gemini-9 is not found for API "
                         "version v1beta, or is not supported for generateContent. Call ListModels to see the list"}}),
        (404, {"error": {"message": 'model "qwen9:8b" not found, try pulling it first', "type": "api_error"}}),
        (404, {"object": "error", "message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404}),
        (400, {"error": {"message": "a/b is not a valid model ID", "code": 400}}),
        (404, {"error": {"message": "No endpoints found for a/b.", "code": 404}}),
        (400, {"message": "The provided model identifier is invalid."}),
        (404, {"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}}),
        (400, {"error": {"message": "The model `m` has been decommissioned and is no longer supported."}}),
        (400, {"object": "error", "message": "Invalid model: m", "type": "invalid_model", "code": "1500"}),
        (400, {"error": {"message": "Model Not Exist", "type": "invalid_request_error", "code": "invalid_request_error"}}),
        (422, {"detail": "unknown model m"}),
    ],
)  # fmt: skip
def test_words_and_codes_of_providers(status: int, error: Any) -> None:
    """Each is known, whatever its status."""
    assert "unknown_model" == said(status, error).failure_class


@every_row(
    ("status", "message", "expected"),
    [
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model", "invalid_request"),
        (400, "this model does not support image input", "invalid_request"),
        (400, "The model does not exist in this context: tool_use ids were not found", "invalid_request"),
        (404, "No endpoints found that support tool use", "invalid_request"),
        (404, "page not found", "invalid_request"),
        (401, "invalid api key for model m", "auth"),
        (503, "the model m is currently loading", "unavailable"),
        (500, "model m not found in cache", "transient"),
        (429, "the model m is not available at this rate", "rate_limited"),
    ],
)  # fmt: skip
def test_other_faults_that_name_a_model(status: int, message: str, expected: str) -> None:
    """They stay what they were."""
    assert expected == said(status, {"error": {"message": message}}).failure_class


async def test_the_model_is_named() -> None:
    """Also where the provider does not name it; it is never retried, and another model takes over."""
    body = {"error": {"code": "DeploymentNotFound", "message": "It does not exist."}}
    with pytest.raises(
        ModelFailure, match="has no model 'big': HTTP 404: It does not exist"
    ) as caught:
        await ask(refusal(404, body), dialect=CHAT)
    assert "unknown_model" == caught.value.failure_class
    assert "unknown_model" in FAILS_OVER - RETRYABLE
