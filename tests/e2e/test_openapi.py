"""The OpenAPI document: valid, whole, and true of what is really answered."""

import json
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from tests.e2e.daemon_process import DaemonProcess

pytestmark = pytest.mark.real


def fetch(daemon: DaemonProcess, path: str, body: Any = None) -> tuple[int, str]:
    """Status and text of one answer."""
    answer = httpx.request(
        "GET" if body is None else "POST",
        f"http://127.0.0.1:{daemon.port}{path}",
        json=body,
        headers={"Authorization": f"Bearer {daemon.token}"},
        timeout=120,
        trust_env=False,
    )
    return answer.status_code, answer.text


@pytest.fixture(scope="module")
def document(daemon: DaemonProcess) -> Any:
    """As the daemon serves it."""
    status, text = fetch(daemon, "/v1/openapi.json")
    assert 200 == status
    return json.loads(text)


def check(document: Any, schema: Any, value: Any) -> None:
    """Raises for a value that is not as the document says."""
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def test_it_is_valid(document: Any) -> None:
    """A foreign validator takes it, and every path of the daemon is in it."""
    validate(document)
    assert {
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/asyncapi.json",
        "/v1/openapi.json",
        "/v1/models",
        "/v1/models/{id}",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/responses/{id}",
        "/v1/messages",
        "/v1/embeddings",
    } <= document["paths"].keys()


def test_pages_without_a_token(daemon: DaemonProcess, document: Any) -> None:
    """Each page that is documented as open needs no token, and no other."""
    for path, page in document["paths"].items():
        if "get" not in page or "{id}" in path or path == "/v1/ws":
            continue
        answer = httpx.get(f"http://127.0.0.1:{daemon.port}{path}", timeout=120, trust_env=False)
        is_open = page["get"].get("security") == []
        assert is_open == (answer.status_code != httpx.codes.UNAUTHORIZED), path


TEXT = '/say x\n/call read_file {"path": "none"}\n/then\n/say y'
TURN = [{"role": "user", "content": TEXT}]
TOOL = {"name": "weather", "parameters": {"type": "object"}}
CALL = [{"role": "user", "content": "/call weather {}"}]
ASKED: list[tuple[str, Any]] = [
    ("/v1/chat/completions", {"model": "scripted", "messages": TURN}),
    (
        "/v1/chat/completions",
        {"model": "scripted", "messages": CALL, "tools": [{"type": "function", "function": TOOL}]},
    ),
    ("/v1/responses", {"model": "scripted", "input": TEXT}),
    (
        "/v1/responses",
        {"model": "scripted", "input": CALL, "tools": [{"type": "function", **TOOL}]},
    ),
    ("/v1/messages", {"model": "scripted", "max_tokens": 99, "messages": TURN}),
    ("/v1/embeddings", {"model": "embedded/lexical-1", "input": ["x", "y"]}),
]


@pytest.mark.parametrize(("path", "body"), ASKED)
def test_answers_are_as_it_says(daemon: DaemonProcess, document: Any, path: str, body: Any) -> None:
    """The request, the whole answer, each piece of a stream, and an error."""
    operation = document["paths"][path]["post"]
    check(document, operation["requestBody"]["content"]["application/json"]["schema"], body)
    status, text = fetch(daemon, path, body)
    assert 200 == status, text
    good = operation["responses"]["200"]["content"]
    check(document, good["application/json"]["schema"], json.loads(text))
    if "text/event-stream" in good:
        _, text = fetch(daemon, path, {**body, "stream": True})
        lines = [line for line in text.splitlines() if line.startswith("data: ")]
        pieces = [line.removeprefix("data: ") for line in lines if line != "data: [DONE]"]
        assert pieces
        for piece in pieces:
            check(document, good["text/event-stream"]["x-palyra-data"], json.loads(piece))
    status, text = fetch(daemon, path, {**body, "model": "none"})
    bad = operation["responses"]["default"]["content"]["application/json"]["schema"]
    assert 404 == status
    check(document, bad, json.loads(text))


def test_a_wrong_answer_would_be_found(document: Any) -> None:
    """The check can fail."""
    schema = document["paths"]["/v1/models"]["get"]["responses"]["200"]["content"]
    with pytest.raises(Exception, match="required property"):
        check(document, schema["application/json"]["schema"], {"object": "list"})


def test_models_are_as_it_says(daemon: DaemonProcess, document: Any) -> None:
    """The list too."""
    schema = document["paths"]["/v1/models"]["get"]["responses"]["200"]["content"]
    _, text = fetch(daemon, "/v1/models")
    check(document, schema["application/json"]["schema"], json.loads(text))
