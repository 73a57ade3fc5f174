"""Dialect of OpenAI's chat completions, also spoken by OpenRouter, Ollama, llama.cpp and vLLM.

Source: https://platform.openai.com/docs/api-reference/chat.  Servers differ: every field except
`choices` may be missing, and unknown fields are ignored.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never
from urllib.parse import urlencode

import msgspec

from palyra.core.model.messages import (
    AssistantMessage,
    FinishReason,
    GuidanceMessage,
    Message,
    ModelFailure,
    ModelRequest,
    ToolMessage,
    UserMessage,
)
from palyra.models.dialect import (
    JSON_ONLY,
    NO_JSON,
    Body,
    Dialect,
    Names,
    Shown,
    most_tokens,
    sampled,
    show,
)
from palyra.models.failures import stream_failure
from palyra.models.turn_builder import TurnBuilder

DONE = "[DONE]"
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek, vLLM, llama.cpp
    reasoning: str | None = None  # OpenRouter, Ollama
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class TokenDetails(msgspec.Struct):
    """Breakdown of input or output tokens, as OpenAI's APIs report it."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


NO_DETAILS = TokenDetails()


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek


class _Chunk(msgspec.Struct):
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = NO_JSON


_CHUNK = msgspec.json.Decoder(_Chunk)


def chat_headers(key: str) -> dict[str, str]:
    """Bearer authentication, or no header without a key: local servers need none."""
    return {"authorization": f"Bearer {key}"} if key else {}


def chat_body(request: ModelRequest, model: str, names: Names, max_tokens: int) -> Body:
    """Return the request body with the whole conversation; `max_tokens` 0 sends no limit."""
    body: Body = {
        "model": model,
        "messages": [
            {"role": "system", "content": instructions(request)},
            *_messages(request, names),
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        **sampled(request),
    }
    if request.tools:
        body["tools"] = [
            {"type": "function", "function": {**tool, "name": names[tool["name"]]}}
            for tool in request.tools
        ]
    if request.must_call:
        body["tool_choice"] = "required"
    if request.one_call:
        body["parallel_tool_calls"] = False
    if request.json_mode:
        body["response_format"] = {"type": "json_object"}
    if request.sampling.stop:
        body["stop"] = request.sampling.stop
    if most := most_tokens(request, max_tokens):
        body["max_tokens"] = most
    return body


def openai_body(request: ModelRequest, model: str, names: Names, max_tokens: int) -> Body:
    """Body for OpenAI itself: its newer models accept the limit only as `max_completion_tokens`."""
    body = chat_body(request, model, names, max_tokens)
    if "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    return body


class ChatReader:
    """Reader of one streamed answer; it ends with `[DONE]`, and only the first choice is read."""

    def __init__(self, builder: TurnBuilder) -> None:
        self._builder = builder
        self._last_key: object = None

    @property
    def is_whole(self) -> bool:
        """True once a finish reason has arrived: a server may omit `[DONE]`, but not the reason."""
        return self._builder.finish_reason is not None

    def take(self, data: str) -> bool:
        """Apply one chunk."""
        if data.strip() == DONE:
            return True
        try:
            chunk = _CHUNK.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise ModelFailure("malformed", f"a chunk cannot be read: {error}") from None
        if bytes(chunk.error) != b"null":
            raise stream_failure(bytes(chunk.error))
        builder = self._builder
        builder.trace_ref = builder.trace_ref or chunk.id
        if chunk.usage is not None:
            self._count(chunk.usage)
        if chunk.choices:
            self._take_choice(chunk.choices[0])
        return False

    def _count(self, usage: _Usage) -> None:
        details = usage.prompt_tokens_details or NO_DETAILS
        self._builder.count(
            usage.prompt_tokens,
            usage.completion_tokens,
            cached=details.cached_tokens or usage.prompt_cache_hit_tokens,
            stored=details.cache_write_tokens,
            thought=(usage.completion_tokens_details or NO_DETAILS).reasoning_tokens,
        )

    def _take_choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is not None:
            self._builder.add_reasoning(delta.reasoning_content or delta.reasoning or "")
            self._builder.add_text(delta.content or delta.refusal or "")
            for call in delta.tool_calls or ():
                self._take_call(call)
        if choice.finish_reason:
            self._builder.finish_reason = _FINISH.get(choice.finish_reason, "stop")

    def _take_call(self, call: _ToolCall) -> None:
        """Append a fragment to its call.

        Fragments are matched by index; servers without indices repeat or omit the id.
        """
        key: object = call.index if call.index is not None else call.id or self._last_key
        self._last_key = key
        function = call.function or _Function()
        self._builder.open_call(key, function.name or "")
        if function.arguments:
            self._builder.add_arguments(key, function.arguments)


# --- the conversation ----------------------------------------------------------------------------


def instructions(request: ModelRequest) -> str:
    """Return the instructions; OpenAI refuses JSON mode without the added sentence."""
    if not request.json_mode:
        return request.instructions
    return f"{request.instructions}\n\n{JSON_ONLY}".lstrip()


def _messages(request: ModelRequest, names: Names) -> list[Body]:
    """Return the messages, with neighbours of one role merged.

    Templates of local models refuse two messages of one role in a row.
    """
    made: list[Body] = []
    for message in request.messages:
        said = _message(message, names, request.pictures)
        last = made[-1] if made else {}
        if said["role"] != last.get("role") or not (_is_plain(last) and _is_plain(said)):
            made.append(said)
        elif said["content"]:
            made[-1]["content"] = "\n\n".join(filter(None, (last["content"], said["content"])))
    return made


def _is_plain(message: Body) -> bool:
    return isinstance(message["content"], str) and message.keys() == {"role", "content"}


def _message(message: Message, names: Names, pictures: Mapping[str, str]) -> Body:
    match message:
        case UserMessage():
            return {"role": "user", "content": _content(*show(message, pictures))}
        case GuidanceMessage(text):  # many servers accept a system message only at the start
            return {"role": "user", "content": guidance(text)}
        case ToolMessage():
            return {
                "role": "tool",
                "tool_call_id": message.call_id,
                "content": f"[{message.status}]\n{message.output}",
            }
        case AssistantMessage(text, calls):
            said: Body = {"role": "assistant", "content": text or None}
            if calls:
                said["tool_calls"] = [
                    {
                        "id": call.call_id,
                        "type": "function",
                        "function": {
                            "name": names.get(call.tool, call.tool),
                            "arguments": call.arguments_text,
                        },
                    }
                    for call in calls
                ]
            elif not text:
                said["content"] = ""
            return said
        case _:
            assert_never(message)


def _content(shown: list[Shown], text: str) -> str | list[Body]:
    if not shown:
        return text  # every server accepts this form
    parts: list[Body] = [{"type": "image_url", "image_url": {"url": each.url}} for each in shown]
    return [*parts, {"type": "text", "text": text}] if text.strip() else parts


def guidance(text: str) -> str:
    """Wrap a message of the daemon for a position where the provider has no role for it."""
    return f"[the daemon, not the user:] {text}"


CHAT = Dialect("/chat/completions", chat_headers, chat_body, ChatReader, embeddings="/embeddings")
OPENAI_CHAT = replace(CHAT, body=openai_body)


def azure_chat(version: str) -> Dialect:
    """Return OpenAI's chat completions as Azure has them: a deployment's address, `api-key`.

    Source: https://learn.microsoft.com/azure/ai-services/openai/reference.  A model is the name of a
    deployment.
    """
    there = "/openai/deployments/{model}"
    query = urlencode({"api-version": version})
    return replace(
        OPENAI_CHAT,
        path=f"{there}/chat/completions?{query}",
        headers=lambda key: {"api-key": key} if key else {},
        embeddings=f"{there}/embeddings?{query}",
    )
