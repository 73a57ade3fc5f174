"""Models behind HTTP: real sockets, every cut, every refusal, keys that stay where they are."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import outcome
import pytest
import trio

from palyra.core.prompt import (
    AssistantMessage,
    Delta,
    GuidanceMessage,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.records import Usage
from palyra.models.anthropic import ANTHROPIC
from palyra.models.chat import CHAT
from palyra.models.dialect import Dialect
from palyra.models.exchange import Endpoint, open_client
from palyra.models.http_model import HttpModel
from palyra.models.responses import RESPONSES
from tests.models.provider import STREAM, Piece, Provider, provider, refusal, sse

pytestmark = pytest.mark.real
KEY = "sk-test-0123456789abcdef"
READ = {
    "name": "read_file",
    "description": "Read.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
FOREIGN = {"name": "mcp:files.read", "description": "Read.", "parameters": {"type": "object"}}
CALL = ProposedCall(call_id="call_1", tool="mcp:files.read", arguments={"path": "a"})
REQUEST = ModelRequest(
    run_id="run_1",
    turn=2,
    attempt=1,
    model="m",
    instructions="Be brief.",
    messages=(
        UserMessage("hello"),
        AssistantMessage("", (CALL,)),
        ToolMessage(call_id="call_1", tool="mcp:files.read", status="failed", output="gone"),
        GuidanceMessage("look twice"),
    ),
    tools=(READ, FOREIGN),
)


@asynccontextmanager
async def asked(
    *pieces: Piece, dialect: Dialect = CHAT, stall_s: float = 5.0
) -> AsyncGenerator[tuple[Provider, HttpModel]]:
    """A provider that will answer so, and a model in front of it."""

    async def find_key() -> str:
        await trio.lowlevel.checkpoint()
        return KEY

    numbers = count(1)
    async with provider(pieces) as served, open_client() as client:
        endpoint = Endpoint(
            provider="test", base_url=served.url, dialect=dialect, model="big", stall_s=stall_s
        )
        yield (
            served,
            HttpModel(
                "m", endpoint, client, find_key,
                new_id=lambda prefix: f"{prefix}_{next(numbers)}", now_ms=lambda: 0,
            ),
        )  # fmt: skip


async def ask(*pieces: Piece, dialect: Dialect = CHAT, stall_s: float = 5.0) -> ModelTurn:
    """The turn; what was streamed is checked against it."""
    deltas: list[Delta] = []
    async with asked(*pieces, dialect=dialect, stall_s=stall_s) as (_, model):
        turn = await model.stream(REQUEST, deltas.append)
    assert turn.text == "".join(delta.text for delta in deltas if delta.kind == "text")
    return turn


def chunk(**delta: Any) -> dict[str, Any]:
    """One chunk of a chat completion."""
    return {"id": "c1", "choices": [{"index": 0, "delta": delta}]}


CHAT_TURN = (
    chunk(role="assistant", content=""),
    chunk(reasoning_content="hm"),
    chunk(content="Let me "),
    chunk(content="see\u2028."),
    chunk(tool_calls=[{"index": 0, "id": "x", "function": {"name": "read_file", "arguments": ""}}]),
    chunk(tool_calls=[{"index": 1, "id": "y", "function": {"name": "mcp_files_read"}}]),
    chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"pa'}}]),
    chunk(tool_calls=[{"index": 1, "function": {"arguments": "{broken"}}]),
    chunk(tool_calls=[{"index": 0, "function": {"arguments": 'th": "b"}'}}]),
    {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"id": "c1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}},
    {"id": "c1", "unheard_of": True},
    "[DONE]",
)
CHAT_EXPECTED = ModelTurn(
    text="Let me see\u2028.",
    calls=(
        ProposedCall(call_id="call_1", tool="read_file", arguments={"path": "b"}),
        ProposedCall(call_id="call_2", tool="mcp:files.read", arguments="{broken"),
    ),
    finish_reason="tool_calls",
    usage=Usage(input_tokens=7, output_tokens=5, source="provider"),
    trace_ref="c1",
)
ANTHROPIC_TURN = (
    {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 3,
     "cache_read_input_tokens": 4, "output_tokens": 1}}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking",
     "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta",
     "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta",
     "signature": "zz"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta",
     "text": "Let me "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta",
     "text": "see\u2028."}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use",
     "id": "toolu_1", "name": "read_file", "input": {}}},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use",
     "id": "toolu_2", "name": "mcp_files_read", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta",
     "partial_json": '{"pa'}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta",
     "partial_json": "{broken"}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta",
     "partial_json": 'th": "b"}'}},
    {"type": "unheard_of"},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
)  # fmt: skip
RESPONSES_TURN = (
    {"type": "response.created", "response": {"id": "r1"}},
    {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Let me "},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "see\u2028."},
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "function_call",
     "name": "read_file", "arguments": ""}},
    {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call",
     "name": "mcp_files_read", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"pa'},
    {"type": "response.function_call_arguments.done", "output_index": 1,
     "arguments": '{"path": "b"}'},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{broken"},
    {"type": "response.unheard_of", "delta": {"x": 1}},
    {"type": "response.completed", "response": {"id": "r1", "usage": {"input_tokens": 7,
     "output_tokens": 5}}},
)  # fmt: skip
DIALECTS = {
    "chat": (CHAT, CHAT_TURN, "c1"),
    "anthropic": (ANTHROPIC, ANTHROPIC_TURN, "m1"),
    "responses": (RESPONSES, RESPONSES_TURN, "r1"),
}


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_turn_streams_in(name: str) -> None:
    """Text, reasoning, interleaved calls, broken arguments, usage: the same in every dialect."""
    dialect, events, trace_ref = DIALECTS[name]
    expected = msgspec.structs.replace(CHAT_EXPECTED, trace_ref=trace_ref)
    assert expected == await ask(STREAM, sse(*events), dialect=dialect)


@pytest.mark.parametrize("name", DIALECTS)
async def test_every_cut_is_the_turn_or_a_failure(name: str) -> None:
    """A connection that ends after any byte never passes for a whole answer."""
    dialect, events, _ = DIALECTS[name]
    stream = sse(*events)
    whole = 0
    for at in (*range(0, len(stream), 19), len(stream)):
        found = await outcome.acapture(ask, STREAM, stream[:at], dialect=dialect)
        if isinstance(found, outcome.Error):
            assert found.error.failure_class == "transient", at  # type: ignore[attr-defined]  # a ModelFailure
        else:
            assert found.value.text == CHAT_EXPECTED.text
            assert len(found.value.calls) == len(CHAT_EXPECTED.calls)
            whole += 1
    assert whole


async def test_the_first_delta_comes_before_the_last_byte() -> None:
    """Streaming is real: the provider goes on only once the delta was seen."""
    seen = trio.Event()

    async with asked(STREAM, sse(chunk(content="a")), seen.wait, sse(*CHAT_TURN)) as (_, model):
        with trio.fail_after(10):
            turn = await model.stream(REQUEST, lambda _delta: seen.set())
    assert turn.text.startswith("aLet")


def test_bodies() -> None:
    """What each dialect sends: order, roles, spelling of tools, no empty text."""
    names = {"read_file": "read_file", "mcp:files.read": "mcp_files_read"}
    chat = CHAT.body(REQUEST, "big", names, 0)
    assert ["system", "user", "assistant", "tool", "user"] == [m["role"] for m in chat["messages"]]
    assert "[failed]\ngone" == chat["messages"][3]["content"]
    assert "mcp_files_read" == chat["tools"][1]["function"]["name"]
    assert "max_tokens" not in chat
    claude = ANTHROPIC.body(REQUEST, "big", names, 9)
    assert ["user", "assistant", "user"] == [m["role"] for m in claude["messages"]]
    assert ["tool_result", "text"] == [part["type"] for part in claude["messages"][2]["content"]]
    assert claude["messages"][1]["content"][0]["input"] == {"path": "a"}
    assert claude["max_tokens"] == 9
    items = RESPONSES.body(REQUEST, "big", names, 9)["input"]
    assert ["function_call", "function_call_output"] == [item["type"] for item in items[1:3]]
    assert items[1]["arguments"] == '{"path":"a"}'


async def test_the_key_goes_to_the_provider_and_nowhere_else() -> None:
    """It is in the header that the dialect wants, and not in an error."""
    for dialect, header in ((CHAT, f"authorization: bearer {KEY}"), (ANTHROPIC, "x-api-key")):
        async with asked(refusal(401, {"error": "no"}), dialect=dialect) as (served, model):
            with pytest.raises(ModelFailure) as caught:
                await model.stream(REQUEST, lambda _delta: None)
        assert header in served.heads[0]
        assert KEY not in repr(caught.value)
        assert served.bodies[0]["model"] == "big"


@pytest.mark.parametrize(
    ("answer", "failure_class"),
    [
        (refusal(401, {"error": {"message": "bad key"}}), "auth"),
        (refusal(402, {}), "quota"),
        (refusal(403, {"error": {"type": "permission_error"}}), "auth"),
        (refusal(429, {"error": {"code": "rate_limit_exceeded"}}), "rate_limited"),
        (refusal(429, {"error": {"code": "insufficient_quota"}}), "quota"),
        (refusal(400, {"error": {"code": "context_length_exceeded"}}), "context_overflow"),
        (refusal(400, {"error": {"message": "prompt is too long: 9"}}), "context_overflow"),
        (refusal(400, {"error": {"code": "content_policy_violation"}}), "content_policy"),
        (refusal(400, {"error": "what?"}), "invalid_request"),
        (refusal(404, {"error": {"message": "no such model"}}), "invalid_request"),
        (refusal(500, b"<html>"), "transient"),
        (refusal(502, b""), "transient"),
        (refusal(503, b""), "unavailable"),
        (refusal(529, {"error": {"type": "overloaded_error"}}), "unavailable"),
        (refusal(200, {"error": {"type": "rate_limit_error"}}), "rate_limited"),
        (refusal(200, {"choices": []}), "malformed"),
        (refusal(302, b"", "location: http://elsewhere/"), "invalid_request"),
        (b"", "transient"),
        (b"no http\r\n\r\n", "transient"),
        (STREAM, "transient"),
        (STREAM + sse("{"), "malformed"),
        (STREAM + sse({"error": {"type": "overloaded_error", "message": "busy"}}), "unavailable"),
        (STREAM + b"data: " + b"x" * 300_000 + b"\n\n", "malformed"),
        (STREAM + sse(*[chunk(tool_calls=[{"index": 0, "function": {"arguments": "x" * 200_000}}])]
                      * 3), "malformed"),
    ],
)  # fmt: skip
async def test_every_refusal_has_its_class(answer: bytes, failure_class: str) -> None:
    """From real answers, whatever else they hold."""
    with pytest.raises(ModelFailure) as caught:
        await ask(answer)
    assert caught.value.failure_class == failure_class


async def test_when_to_come_back_is_heard() -> None:
    """Retry-After, in seconds."""
    with pytest.raises(ModelFailure) as caught:
        await ask(refusal(429, {}, "Retry-After: 7"))
    assert 7_000 == caught.value.retry_after_ms


async def test_nobody_is_there() -> None:
    """A port where nobody listens."""
    async with asked() as (served, model):
        pass
    async with open_client() as client:
        model._exchange._client = client
        with pytest.raises(ModelFailure, match="cannot be reached"):
            await model.stream(REQUEST, lambda _delta: None)
    assert served.heads == []


@pytest.mark.parametrize("before", [b"", STREAM, STREAM + sse(chunk(content="a"))])
async def test_silence_ends_the_turn(before: bytes) -> None:
    """Before the answer, before the first event, between two."""
    with pytest.raises(ModelFailure, match=r"silent for 0.1 s") as caught:
        await ask(before, trio.sleep_forever, stall_s=0.1)
    assert caught.value.failure_class == "timeout"


async def test_a_cancelled_turn_leaves_the_provider() -> None:
    """The connection is closed at once."""
    left = trio.Event()
    many = [sse(chunk(content="x" * 1_000)) * 1_000] * 100
    async with asked(STREAM, *many) as (served, model), trio.open_nursery() as nursery:

        def leave(_delta: Delta) -> None:
            nursery.cancel_scope.cancel()
            left.set()

        nursery.start_soon(model.stream, REQUEST, leave)
    assert left.is_set()
    with trio.fail_after(10):
        while not served.gone:
            await trio.lowlevel.checkpoint()


async def test_usage_that_nobody_told_is_an_estimate() -> None:
    """And says so."""
    turn = await ask(STREAM, sse(chunk(content="hello"), {"choices": [{"finish_reason": "stop"}]}))
    assert ("estimate", "stop") == (turn.usage.source, turn.finish_reason)
    assert turn.usage.input_tokens > turn.usage.output_tokens > 0
