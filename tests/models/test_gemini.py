"""Gemini's dialect: requests, and answers in the shape that the API streams, over real sockets."""

import json
from typing import Any

import msgspec
import pytest

from palyra.core.journal.records import Usage
from palyra.core.model.images import Picture
from palyra.core.model.messages import (
    AssistantMessage,
    Delta,
    ModelFailure,
    ModelTurn,
    ProposedCall,
    Sampling,
    Thought,
    ToolMessage,
    UserMessage,
)
from palyra.models.chat import NO_SIGNATURE
from palyra.models.gemini import GEMINI
from tests.models.model_kit import CALL, KEY, REQUEST, ask, asked_over_sockets
from tests.models.provider import STREAM, refusal, sse
from tests.rows import every_row

NAMES = {"read_file": "read_file", "mcp:files.read": "mcp_files_read"}


def event(*parts: dict[str, Any], finish: str | None = None, **usage: int) -> dict[str, Any]:
    """One event of a stream, as the API writes it."""
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7, **usage},
        "modelVersion": "gemini-2.5-flash",
        "responseId": "r1",
    }


TURN = (
    event({"text": "hm", "thought": True}, thoughtsTokenCount=3),
    event({"text": "Let me "}, thoughtsTokenCount=3, candidatesTokenCount=1),
    event({"text": "see\u2028."}, thoughtsTokenCount=3, candidatesTokenCount=2),
    event(
        {"functionCall": {"name": "read_file", "args": {"path": "b"}}, "thoughtSignature": "AbC="},
        {"functionCall": {"name": "mcp_files_read"}},
    ),
    {"unheardOf": 1},
    event(
        {"text": ""}, finish="STOP", thoughtsTokenCount=3, candidatesTokenCount=5,
        cachedContentTokenCount=4,
    ),
)  # fmt: skip


def body(model: str = "gemini-2.5-flash", most: int = 0, **changes: Any) -> Any:
    """Return the request body with these changes, as JSON has it."""
    made = GEMINI.body(msgspec.structs.replace(REQUEST, **changes), model, NAMES, most)
    return json.loads(msgspec.json.encode(made))


async def test_a_turn_arrives_over_sockets() -> None:
    """Text, thoughts, calls and usage; the key is in a header and the model in the address."""
    deltas: list[Delta] = []
    async with asked_over_sockets(STREAM, sse(*TURN), dialect=GEMINI) as (served, model):
        turn = await model.stream(REQUEST, deltas.append)
    assert turn == ModelTurn(
        text="Let me see\u2028.",
        calls=(
            ProposedCall(call_id="call_1", tool="read_file", arguments={"path": "b"}),
            ProposedCall(call_id="call_2", tool="mcp:files.read", arguments={}),
        ),
        finish_reason="tool_calls",
        usage=Usage(
            input_tokens=7, output_tokens=8, cached_tokens=4, reasoning_tokens=3, source="provider"
        ),
        trace_ref="r1",
        thought=Thought(model="m", items=({"call": 0, "thoughtSignature": "AbC="},)),
    )
    assert [("reasoning", "hm"), ("text", "Let me "), ("text", "see\u2028.")] == [
        (each.kind, each.text) for each in deltas
    ]
    assert "post /v1/models/big:streamgeneratecontent?alt=sse " in served.heads[0]
    assert f"x-goog-api-key: {KEY}" in served.heads[0]


async def test_every_cut_is_noticed() -> None:
    """An answer without a finish reason is no answer, wherever the connection ends."""
    for kept in range(len(TURN)):
        with pytest.raises(ModelFailure) as caught:
            await ask(STREAM, sse(*TURN[:kept]), dialect=GEMINI)
        assert "transient" == caught.value.failure_class


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"), ("OTHER", "stop"),
        ("NEW_ONE", "stop"),
    ],
)  # fmt: skip
async def test_finish_reasons(finish: str, expected: str) -> None:
    """A reason has its class; an unknown one is an end."""
    turn = await ask(STREAM, sse(event({"text": "x"}, finish=finish)), dialect=GEMINI)
    assert expected == turn.finish_reason


async def test_a_blocked_prompt_is_a_refusal_of_the_content() -> None:
    """The answer has no candidate and a reason."""
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}
    with pytest.raises(ModelFailure, match="SAFETY") as caught:
        await ask(STREAM, sse(blocked), dialect=GEMINI)
    assert "content_policy" == caught.value.failure_class


def error(code: int, status: str, message: str, **detail: Any) -> Any:
    """An error as Google words it."""
    return {"error": {"code": code, "message": message, "status": status, "details": [detail]}}


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "20.5s"}
REFUSALS = [
    (400, error(400, "INVALID_ARGUMENT", "API key not valid.", reason="API_KEY_INVALID"), "auth"),
    (400, [error(400, "INVALID_ARGUMENT", "Invalid JSON payload")], "invalid_request"),
    (400, error(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of "
     "tokens allowed (8)."), "context_overflow"),
    (403, error(403, "PERMISSION_DENIED", "no"), "auth"),
    (404, error(404, "NOT_FOUND", "models/x is not found"), "unknown_model"),
    (429, error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota."), "quota"),
    (429, error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", **RETRY),
     "rate_limited"),
    (500, error(500, "INTERNAL", "x"), "transient"),
    (503, error(503, "UNAVAILABLE", "overloaded"), "unavailable"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "answer", "expected"), REFUSALS)
async def test_refusals(status: int, answer: Any, expected: str) -> None:
    """Google's errors have their class; a delay that it names is kept."""
    with pytest.raises(ModelFailure) as caught:
        await ask(refusal(status, answer), dialect=GEMINI)
    assert expected == caught.value.failure_class
    wait_ms = 20_500 if "retryDelay" in json.dumps(answer) else None
    assert wait_ms == caught.value.retry_after_ms


async def test_an_error_inside_the_stream() -> None:
    """It ends the answer with its class."""
    events = sse(TURN[1], error(503, "UNAVAILABLE", "overloaded"))
    with pytest.raises(ModelFailure, match="overloaded") as caught:
        await ask(STREAM, events, dialect=GEMINI)
    assert "unavailable" == caught.value.failure_class


def test_the_conversation() -> None:
    """Results stand alone behind their calls; guidance follows as text of the user."""
    found = body()["contents"]
    assert ["user", "model", "user", "user"] == [each["role"] for each in found]
    call = found[1]["parts"][0]
    assert {"functionCall": {"name": "mcp_files_read", "args": {"path": "a"}}} == call
    response = {"name": "mcp_files_read", "response": {"error": "[failed]\ngone"}}
    assert [{"functionResponse": response}] == found[2]["parts"]
    assert [{"text": "[the daemon, not the user:] look twice"}] == found[3]["parts"]
    assert {"parts": [{"text": "Be brief."}]} == body()["systemInstruction"]
    both = (
        UserMessage("go"),
        AssistantMessage("", (CALL, msgspec.structs.replace(CALL, call_id="call_2"))),
        *(
            ToolMessage(call_id=each, tool="mcp:files.read", status="succeeded", output=each)
            for each in ("call_1", "call_2")
        ),
    )
    results = body(messages=both)["contents"][2]["parts"]
    assert ["call_1", "call_2"] == [
        each["functionResponse"]["response"]["result"] for each in results
    ]


@every_row(
    ("model", "signs", "thinks"),
    [
        ("gemini-2.0-flash", False, False), ("gemini-2.5-pro", False, True),
        ("gemini-3-flash-preview", True, True), ("gemini-10-pro", True, True),
        ("gemma-4-26b-a4b-it", True, False),
    ],
)  # fmt: skip
def test_what_a_model_needs(model: str, signs: bool, thinks: bool) -> None:  # noqa: FBT001 - a row
    """Newer models want a signature at the first call of a turn, and show their thoughts."""
    found = body(model)
    part = found["contents"][1]["parts"][0]
    assert (NO_SIGNATURE if signs else None) == part.get("thoughtSignature")
    thinking = {"includeThoughts": True} if thinks else None
    assert thinking == found["generationConfig"].get("thinkingConfig")


def test_settings() -> None:
    """Limits, sampling, stops, JSON mode and a forced call are sent only if there are any."""
    plain = body("gemini-2.0-flash")
    assert ({}, False) == (plain["generationConfig"], "toolConfig" in plain)
    sampling = Sampling(max_output_tokens=9, temperature=0.5, top_p=0.25, stop=("a", "b"))
    found = body("gemini-2.0-flash", 7, sampling=sampling, tools=(), json_mode=True)
    assert {
        "temperature": 0.5, "topP": 0.25, "stopSequences": ["a", "b"], "maxOutputTokens": 7,
        "responseMimeType": "application/json",
    } == found["generationConfig"]  # fmt: skip
    assert "tools" not in found
    forced = body(must_call=True)
    assert {"functionCallingConfig": {"mode": "ANY"}} == forced["toolConfig"]
    declared = forced["tools"][0]["functionDeclarations"][1]
    assert ("mcp_files_read", {"type": "object"}) == (
        declared["name"], declared["parametersJsonSchema"],
    )  # fmt: skip


def test_pictures() -> None:
    """A picture goes before the text of its message."""
    picture = Picture(artifact="a1", session_id="s", size_bytes=3, media_type="image/png")
    shown = body(messages=(UserMessage("look", (picture,)),), pictures={"a1": "iVBO"})
    data = {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}
    assert [data, {"text": "look"}] == shown["contents"][0]["parts"]
