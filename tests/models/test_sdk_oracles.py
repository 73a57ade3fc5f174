"""The providers' own SDKs and our adapters read the same answers and send the same kind of request.

Each answer is served twice from memory; text, calls, reason, usage and the class of a failure must
agree.  What we send is checked against the types of the SDKs' parameters.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

import anthropic
import httpx2
import msgspec
import openai
import pydantic
import pytest
from anthropic.types import MessageParam
from anthropic.types import message_create_params as anthropic_params
from openai.types import responses as openai_responses
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params

from palyra.core.model.images import Picture
from palyra.core.model.messages import RETRYABLE, ModelFailure, Sampling, UserMessage
from palyra.models.anthropic import ANTHROPIC
from palyra.models.chat import CHAT, OPENAI_CHAT
from palyra.models.dialect import Body, Dialect
from palyra.models.responses import RESPONSES
from tests.models.model_kit import KEY, REQUEST, ask
from tests.models.provider import STREAM, refusal, sse
from tests.models.sdk_answers import anthropic_answer, chat_answer, responses_answer
from tests.models.test_embeddings import asked as asked_embeddings

URL = "http://provider.test"


class Read(NamedTuple):
    """The fields that a client reads from an answer."""

    text: str
    calls: list[tuple[str, Any]]
    reason: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int


class Answer(NamedTuple):
    """The answer to every request of an SDK."""

    status: int
    kind: str
    body: bytes


def client_of(answer: Answer) -> httpx2.Client:
    def reply(_: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": answer.kind}
        return httpx2.Response(answer.status, headers=headers, content=answer.body)

    return httpx2.Client(transport=httpx2.MockTransport(reply), trust_env=False)


def openai_client(answer: Answer) -> openai.OpenAI:
    http = client_of(answer)
    return openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", http_client=http, max_retries=0)


def anthropic_client(answer: Answer) -> anthropic.Anthropic:
    http = client_of(answer)
    return anthropic.Anthropic(api_key=KEY, base_url=URL, http_client=http, max_retries=0)


def streamed(events: list[Any]) -> Answer:
    """A stream, with the names of events that Anthropic's SDK looks at."""
    named = (f"event: {each['type']}\n" if "type" in each else "" for each in events)
    data = b"".join(name.encode() + sse(each) for name, each in zip(named, events, strict=True))
    return Answer(200, "text/event-stream", data)


# --- the SDKs' reading


def read_chat(answer: Answer) -> Read:
    """The accumulated completion of OpenAI's own streaming helper."""
    with openai_client(answer).chat.completions.stream(
        model="big", messages=[{"role": "user", "content": "hi"}],
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        found = stream.get_final_completion()
    (choice,), usage = found.choices, found.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    calls = [
        (call.function.name, json.loads(call.function.arguments))
        for call in choice.message.tool_calls or ()
    ]
    return Read(
        choice.message.content or "", calls, choice.finish_reason, usage.prompt_tokens,
        usage.prompt_tokens_details.cached_tokens or 0, usage.completion_tokens,
        usage.completion_tokens_details.reasoning_tokens or 0,
    )  # fmt: skip


def read_responses(answer: Answer) -> Read:
    """Return the response in the SDK's last event."""
    *_, last = openai_client(answer).responses.create(model="big", input="hi", stream=True)
    found: openai_responses.Response = last.response  # type: ignore[union-attr]  # the last one has it
    calls = [
        (item.name, json.loads(item.arguments))
        for item in found.output
        if isinstance(item, openai_responses.ResponseFunctionToolCall)
    ]
    usage = found.usage
    assert usage is not None
    reason = {"incomplete": "length"}.get(str(found.status), "tool_calls" if calls else "stop")
    return Read(
        found.output_text, calls, reason, usage.input_tokens,
        usage.input_tokens_details.cached_tokens, usage.output_tokens,
        usage.output_tokens_details.reasoning_tokens,
    )  # fmt: skip


def read_anthropic(answer: Answer) -> Read:
    """The accumulated message of Anthropic's own streaming helper."""
    with anthropic_client(answer).messages.stream(
        model="big", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        found = stream.get_final_message()
    text = "".join(block.text for block in found.content if block.type == "text")
    calls = [(block.name, block.input) for block in found.content if block.type == "tool_use"]
    usage = found.usage
    cached = usage.cache_read_input_tokens or 0
    used = usage.input_tokens + (usage.cache_creation_input_tokens or 0) + cached
    reasons = {"tool_use": "tool_calls", "end_turn": "stop", "max_tokens": "length"}
    thought = (
        0 if usage.output_tokens_details is None else usage.output_tokens_details.thinking_tokens
    )
    return Read(
        text, calls, reasons[str(found.stop_reason)], used, cached, usage.output_tokens, thought
    )


CASES: list[tuple[Dialect, Any, list[Any]]] = [
    (CHAT, read_chat, chat_answer()),
    (CHAT, read_chat, [*chat_answer("stop")[:3], *chat_answer("stop")[-3:]]),
    (RESPONSES, read_responses, responses_answer()),
    (RESPONSES, read_responses, responses_answer("incomplete")),
    (ANTHROPIC, read_anthropic, anthropic_answer()),
    (ANTHROPIC, read_anthropic, anthropic_answer("max_tokens")),
]


@pytest.mark.parametrize(("dialect", "read", "events"), CASES)
async def test_we_read_what_the_sdk_reads(dialect: Dialect, read: Any, events: list[Any]) -> None:
    """Text, calls, why it stopped, and every count."""
    turn = await ask(STREAM, sse(*events), dialect=dialect)
    ours = Read(
        turn.text, [(call.tool, call.arguments) for call in turn.calls], turn.finish_reason,
        turn.usage.input_tokens, turn.usage.cached_tokens, turn.usage.output_tokens,
        turn.usage.reasoning_tokens,
    )  # fmt: skip
    assert "provider" == turn.usage.source
    assert read(streamed(events)) == ours
    assert (17, 4, 5, 1) == ours[3:]


# --- failures

STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)
KINDS = {
    "AuthenticationError": {"auth"},
    "PermissionDeniedError": {"auth"},
    "BadRequestError": {"invalid_request"},
    "NotFoundError": {"invalid_request"},
    "UnprocessableEntityError": {"invalid_request"},
    "ContentTooLargeError": {"context_overflow"},
    "RateLimitError": {"rate_limited"},
    "ConflictError": {"transient"},
    "InternalServerError": {"transient", "unavailable", "timeout"},
    "ServiceUnavailableError": {"unavailable"},
    "RequestTimeoutError": {"timeout"},
    "GatewayTimeoutError": {"timeout"},
    "OverloadedError": {"unavailable"},
    "APIStatusError": {"timeout", "context_overflow"},  # the SDK has no class for 408, and 413
}


def refused(dialect: Dialect, answer: Answer) -> tuple[str, bool]:
    """The SDK's class of the failure, and whether the SDK itself would ask again."""
    read = {CHAT: read_chat, RESPONSES: read_responses, ANTHROPIC: read_anthropic}[dialect]
    client: Any = anthropic_client(answer) if dialect is ANTHROPIC else openai_client(answer)
    try:
        read(answer)
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return type(error).__name__, client._should_retry(error.response)
    raise AssertionError("the SDK read an answer")


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, ANTHROPIC], ids=["chat", "resp", "anthr"])
@pytest.mark.parametrize("status", STATUSES)
async def test_a_failure_is_of_the_sdks_class(dialect: Dialect, status: int) -> None:
    """And asked again where the SDK asks again."""
    told = {"type": "error", "error": {"message": "no", "type": "some_error", "code": None}}
    answer = Answer(status, "application/json", json.dumps(told).encode())
    name, is_retried = refused(dialect, answer)
    with pytest.raises(ModelFailure) as caught:
        await ask(refusal(status, told), dialect=dialect)
    assert caught.value.failure_class in KINDS[name]
    assert is_retried == (caught.value.failure_class in RETRYABLE)


async def test_vectors() -> None:
    """As OpenAI's SDK reads them, usage too."""
    data = [{"object": "embedding", "index": at, "embedding": [at + 0.25, -1.0]} for at in (0, 1)]
    answer = {"object": "list", "model": "big", "data": data,
              "usage": {"prompt_tokens": 9, "total_tokens": 9}}  # fmt: skip
    theirs = openai_client(
        Answer(200, "application/json", json.dumps(answer).encode())
    ).embeddings.create(model="big", input=["a", "b"], encoding_format="float")
    async with asked_embeddings(refusal(200, answer)) as (_, model):
        ours = await model.embed(["a", "b"])
    assert [tuple(each.embedding) for each in theirs.data] == list(ours.vectors)
    assert theirs.usage.prompt_tokens == ours.usage.input_tokens


# --- what we send


PICTURED = msgspec.structs.replace(
    REQUEST,
    messages=(
        *REQUEST.messages,
        UserMessage("see", (Picture(artifact="a", session_id="s", media_type="image/png",
                                    size_bytes=3),)),
    ),
    pictures={"a": "AAAA"},
    json_mode=True,
    must_call=True,
    sampling=Sampling(max_output_tokens=9, temperature=0.5, top_p=0.9),
)  # fmt: skip
NAMES = {"read_file": "read_file", "mcp:files.read": "mcp_files_read"}


def body_of(dialect: Dialect) -> Body:
    body: Body = msgspec.json.decode(msgspec.json.encode(dialect.body(PICTURED, "big", NAMES, 0)))
    return body


def exhaust(value: Any) -> None:
    """Consume the iterables, because Pydantic validates them lazily."""
    if isinstance(value, dict):
        for each in value.values():
            exhaust(each)
    elif isinstance(value, list | Iterator) or type(value).__name__ == "ValidatorIterator":
        for each in value:
            exhaust(each)


def check(kind: Any, value: Any) -> None:
    """The value has the SDK's type."""
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    exhaust(adapter.validate_python(value))


@pytest.mark.parametrize(
    ("dialect", "params", "messages", "key"),
    [
        (CHAT, chat_params.CompletionCreateParamsStreaming, ChatCompletionMessageParam, "messages"),
        (OPENAI_CHAT, chat_params.CompletionCreateParamsStreaming, ChatCompletionMessageParam,
         "messages"),
        (RESPONSES, responses_params.ResponseCreateParamsStreaming,
         openai_responses.ResponseInputItemParam, "input"),
        (ANTHROPIC, anthropic_params.MessageCreateParamsStreaming, MessageParam, "messages"),
    ],
    ids=["chat", "openai", "responses", "anthropic"],
)  # fmt: skip
def test_what_we_send_has_the_sdks_types(
    dialect: Dialect, params: Any, messages: Any, key: str
) -> None:
    """Every parameter is one that the SDK knows, and every message has its shape."""
    body = body_of(dialect)
    # Anthropic's newest models take no sampling options; a request with them names an older one.
    known = {*get_type_hints(params), *(("temperature", "top_p") if dialect is ANTHROPIC else ())}
    assert body.keys() <= known
    check(params, body)
    for message in body[key]:
        check(messages, message)
    with pytest.raises(pydantic.ValidationError):  # the check can fail
        check(messages, {"role": "nobody", "content": 7, "type": "nothing"})
