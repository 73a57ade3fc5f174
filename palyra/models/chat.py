"""Dialect of OpenAI's chat completions, also spoken by OpenRouter, Ollama, llama.cpp and vLLM.

Source: https://platform.openai.com/docs/api-reference/chat.  Servers differ: every field except
`choices` may be missing, and unknown fields are ignored.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never
from urllib.parse import urlencode

import msgspec

from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ModelRequest,
    ToolMessage,
    UserMessage,
    thought_of,
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
    say_returned,
    show,
)
from palyra.models.failures import stream_failure
from palyra.models.turn_builder import TurnBuilder
from palyra.models.wire import argument_text, decode_event, finish_reason, read_text, wire_id

DONE = "[DONE]"
NOTHING = "(nothing)"  # sent in place of an empty text, which some servers refuse
NO_SIGNATURE = "skip_thought_signature_validator"  # Google's, for histories from elsewhere
_NEEDS_SIGNATURE = re.compile(r"(^|/)gemini-([3-9]|[1-9][0-9])")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None  # a text; some servers send an object


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, Any] | None = None  # Google: the signature of the thought


class _Delta(msgspec.Struct):
    content: Any = None  # a text; some servers send a list of parts
    refusal: str | None = None
    reasoning_content: Any = None  # DeepSeek, vLLM, llama.cpp
    reasoning: Any = None  # OpenRouter, Ollama
    reasoning_details: list[dict[str, Any]] | None = None  # OpenRouter
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


class _Groq(msgspec.Struct):
    usage: _Usage | None = None


class _Chunk(msgspec.Struct):
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _Groq | None = None
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
        self._ids: list[_Begun] = []  # of all calls, in order
        self._slots: dict[int | None, _Begun] = {}  # the last call of each number; None: of all

    @property
    def is_whole(self) -> bool:
        """True once a finish reason has arrived: a server may omit `[DONE]`, but not the reason."""
        return self._builder.finish_reason is not None

    def take(self, data: str) -> bool:
        """Apply one chunk."""
        if data.strip() == DONE:
            return True
        chunk = decode_event(_CHUNK, data)
        if bytes(chunk.error) != b"null":
            raise stream_failure(bytes(chunk.error))
        builder = self._builder
        builder.trace_ref = builder.trace_ref or chunk.id
        if chunk.usage is not None:
            self._count(chunk.usage)
        elif chunk.x_groq is not None and chunk.x_groq.usage is not None:
            self._count(chunk.x_groq.usage)
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
            self._take_text(delta.reasoning_content or delta.reasoning, is_thought=True)
            self._take_text(delta.content or delta.refusal, is_thought=False)
            if isinstance(delta.reasoning_content, str) and delta.reasoning_content:
                kept = self._builder.keep("")
                said = kept.get("reasoning_content", "")
                kept["reasoning_content"] = said + delta.reasoning_content
            for detail in delta.reasoning_details or ():
                self._keep_detail(detail)
            for call in delta.tool_calls or ():
                self._take_call(call)
        if choice.finish_reason:
            self._builder.finish_reason = finish_reason(choice.finish_reason)

    def _keep_detail(self, detail: dict[str, Any]) -> None:
        """Keep a piece of OpenRouter's reasoning; pieces of one block are joined."""
        kept = self._builder.keep(("detail", detail.get("index"), detail.get("type")))
        known = kept.setdefault("detail", {})
        for name, value in detail.items():
            is_more = name in {"text", "summary", "data"} and isinstance(value, str)
            if value is not None:
                known[name] = known.get(name, "") + value if is_more else value

    def _take_text(self, value: object, *, is_thought: bool) -> None:
        for thought, text in read_text(value, is_thought=is_thought):
            add = self._builder.add_reasoning if thought else self._builder.add_text
            add(text)

    def _take_call(self, call: _ToolCall) -> None:
        """Append a fragment to its call, or begin a call."""
        function = call.function or _Function()
        name = function.name or ""
        begun = self._find_begun(call, name)
        if begun is None:
            begun = self._slots[call.index] = _Begun(len(self._ids), call.id or "")
            self._ids.append(begun)
        self._slots[None] = begun  # fragments without an index belong to the last call
        begun.id = begun.id or call.id or ""
        self._builder.open_call(begun.key, name)
        if call.extra_content:
            self._builder.keep(begun.key)["extra_content"] = call.extra_content
            self._builder.keep(begun.key)["call"] = begun.key
        if function.arguments is not None:
            self._builder.add_arguments(begun.key, argument_text(function.arguments))

    def _find_begun(self, call: _ToolCall, name: str) -> "_Begun | None":
        """Return the call that a fragment belongs to; None for the first one of a call.

        Servers number calls, repeat their ids, or neither.  A name with another id begins a call, and
        so does a name after complete arguments, whatever the number says.
        """
        if call.id:
            known = next((each for each in self._ids if each.id == call.id), None)
            if known is not None and not (name and self._builder.is_complete(known.key)):
                return known
        begun = self._slots.get(call.index)
        if begun is None or not name:
            return begun
        has_other_id = bool(call.id and begun.id and call.id != begun.id)
        return None if has_other_id or self._builder.is_complete(begun.key) else begun


@dataclass(slots=True)
class _Begun:
    """A call that has begun."""

    key: int
    id: str  # of the provider


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
    pictures: list[Body] = []  # of the results so far: only a message of a user can hold one

    def add(said: Body) -> None:
        last = made[-1] if made else {}
        if said["role"] != last.get("role") or not (_is_plain(last) and _is_plain(said)):
            made.append(said)
        elif isinstance(last["content"], list) or isinstance(said["content"], list):
            made[-1]["content"] = [*_as_parts(last["content"]), *_as_parts(said["content"])]
        elif said["content"]:
            texts = (each["content"] for each in (last, said) if each["content"] != NOTHING)
            made[-1]["content"] = "\n\n".join(filter(None, texts)) or NOTHING

    for message in request.messages:
        if pictures and not isinstance(message, ToolMessage):
            add({"role": "user", "content": pictures})
            pictures = []
        add(_message(message, names, request))
        if isinstance(message, ToolMessage) and (shown := show(message, request.pictures)[0]):
            pictures += [_text_part(say_returned(message)), *map(_image, shown)]
    if pictures:
        add({"role": "user", "content": pictures})
    return made


def _is_plain(message: Body) -> bool:
    content = message["content"]
    return isinstance(content, str | list) and message.keys() == {"role", "content"}


def _as_parts(content: str | list[Body]) -> list[Body]:
    if isinstance(content, list):
        return content
    return [_text_part(content)] if content.strip() else []


def _message(message: Message, names: Names, request: ModelRequest) -> Body:
    match message:
        case UserMessage():
            return {"role": "user", "content": _content(*show(message, request.pictures))}
        case GuidanceMessage(text):  # many servers accept a system message only at the start
            return {"role": "user", "content": guidance(text)}
        case ToolMessage():
            return {
                "role": "tool",
                "tool_call_id": wire_id(message.call_id),
                "content": f"[{message.status}]\n{show(message, request.pictures)[1]}",
            }
        case AssistantMessage(text, calls):
            said: Body = {"role": "assistant", "content": text if text.strip() else None}
            if calls:
                said["tool_calls"] = [
                    {
                        "id": wire_id(call.call_id),
                        "type": "function",
                        "function": {
                            "name": names.get(call.tool, call.tool),
                            "arguments": call.arguments_text,
                        },
                    }
                    for call in calls
                ]
                _think(said, thought_of(message, request), request.model)
            elif not text.strip():
                said["content"] = NOTHING
            return said
        case _:
            assert_never(message)


def _think(said: Body, items: Sequence[Body], model: str) -> None:
    """Add the reasoning behind the calls of a message, in the members in which it came."""
    calls, details = said["tool_calls"], list[Body]()
    for item in items:
        if "detail" in item:
            details.append(item["detail"])
        elif "extra_content" in item:
            if item["call"] < len(calls):
                calls[item["call"]]["extra_content"] = item["extra_content"]
        else:
            said |= item
    if details:
        said["reasoning_details"] = details
    if _NEEDS_SIGNATURE.search(model) and not any("extra_content" in call for call in calls):
        calls[0]["extra_content"] = {"google": {"thought_signature": NO_SIGNATURE}}


def _content(shown: list[Shown], text: str) -> str | list[Body]:
    if not shown:
        return text  # every server accepts this form
    parts = list(map(_image, shown))
    return [*parts, _text_part(text)] if text.strip() else parts


def _image(shown: Shown) -> Body:
    return {"type": "image_url", "image_url": {"url": shown.url}}


def _text_part(text: str) -> Body:
    return {"type": "text", "text": text}


def guidance(text: str) -> str:
    """Wrap a message of the daemon for a position where the provider has no role for it."""
    return f"[the daemon, not the user:] {text}"


CHAT = Dialect(
    "/chat/completions", chat_headers, chat_body, ChatReader,
    embeddings="/embeddings", rerank="/rerank",
)  # fmt: skip
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
        rerank="",
    )
