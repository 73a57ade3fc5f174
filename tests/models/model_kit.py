"""Shared kit for model tests: a request, a turn in every dialect, and a provider that plays it.

The provider is real HTTP over memory, so time may be virtual and every cut is cheap; a few tests
take `asked_over_sockets`.
"""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpcore
import httpx
import trio

from palyra.core.journal.records import Usage
from palyra.core.model.messages import (
    AssistantMessage,
    Delta,
    GuidanceMessage,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    Thought,
    ToolMessage,
    UserMessage,
)
from palyra.models.anthropic import ANTHROPIC
from palyra.models.chat import CHAT
from palyra.models.dialect import Dialect
from palyra.models.http_exchange import ProviderEndpoint, open_client
from palyra.models.http_model import HttpModel
from palyra.models.responses import RESPONSES
from tests.models.memory_provider import MemoryBackend
from tests.models.provider import Piece, Provider, provider

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


def endpoint(url: str, dialect: Dialect = CHAT, stall_s: float = 5.0) -> ProviderEndpoint:
    """The model `big` there."""
    return ProviderEndpoint(
        provider="test", base_url=url, dialect=dialect, model="big", stall_s=stall_s
    )


async def find_key() -> str:
    """The key, as the keeper of secrets finds it."""
    await trio.lowlevel.checkpoint()
    return KEY


def memory_client(backend: MemoryBackend) -> httpx.AsyncClient:
    """The models' own client, with its sockets replaced and without certificates to load."""
    transport = httpx.AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    transport._pool = httpcore.AsyncConnectionPool(network_backend=backend)
    return open_client(transport)


def http_model(made: ProviderEndpoint, client: httpx.AsyncClient) -> HttpModel:
    """A model there, with ids that count."""
    numbers = count(1)
    return HttpModel(
        "m", made, client, find_key,
        new_id=lambda prefix: f"{prefix}_{next(numbers)}", now_ms=lambda: 0,
    )  # fmt: skip


@asynccontextmanager
async def asked(
    *pieces: Piece, dialect: Dialect = CHAT, stall_s: float = 5.0
) -> AsyncGenerator[tuple[Provider, HttpModel]]:
    """A provider that will answer so, and a model in front of it."""
    served = Provider(url="http://provider.test/v1", answers=[pieces])
    async with memory_client(MemoryBackend(served)) as client:
        yield served, http_model(endpoint(served.url, dialect, stall_s), client)


@asynccontextmanager
async def asked_over_sockets(
    *pieces: Piece, dialect: Dialect = CHAT, stall_s: float = 5.0
) -> AsyncGenerator[tuple[Provider, HttpModel]]:
    """The same, with a listener and a connection."""
    async with provider(pieces) as served, open_client() as client:
        yield served, http_model(endpoint(served.url, dialect, stall_s), client)


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
    {
        "id": "c1",
        "choices": [],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    },
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
    usage=Usage(input_tokens=7, output_tokens=5, source="provider", cached_tokens=4),
    trace_ref="c1",
    thought=Thought(model="m", items=({"reasoning_content": "hm"},)),
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
     "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4}}}},
)  # fmt: skip
DIALECTS = {
    "chat": (CHAT, CHAT_TURN, "c1"),
    "anthropic": (ANTHROPIC, ANTHROPIC_TURN, "m1"),
    "responses": (RESPONSES, RESPONSES_TURN, "r1"),
}
