"""Dialect of Anthropic's Messages API.

Source: https://docs.anthropic.com/en/api/messages and its page on streaming.  Tool results go into
the next user message, before any text.  The API refuses empty texts, so they are left out.  The
instructions, the tools and the end of the conversation are marked for the provider's prompt cache.
"""

from typing import assert_never

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
from palyra.models.chat import guidance
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
from palyra.models.wire import decode_event, finish_reason, plain_id

VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 8_192  # the API requires a limit
_SIGNED = frozenset({"thinking", "redacted_thinking"})  # blocks that go back with the results
_CACHED = {"cache_control": {"type": "ephemeral"}}
_NOTHING = "(nothing)"  # sent in place of an empty text


class _Output(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _Output | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    usage: _Usage | None = None


class _Block(msgspec.Struct):
    type: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    input: msgspec.Raw = NO_JSON


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = NO_JSON


_EVENT = msgspec.json.Decoder(_Event)


def anthropic_headers(key: str) -> dict[str, str]:
    """Authentication (`x-api-key`) and version headers."""
    return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}


def anthropic_body(request: ModelRequest, model: str, names: Names, max_tokens: int) -> Body:
    """Return the request body with the whole conversation."""
    system = [{"type": "text", "text": request.instructions, **_CACHED}]
    if not request.instructions:
        system = []
    if request.json_mode:
        system.append({"type": "text", "text": JSON_ONLY})
    body: Body = {
        "model": model,
        "max_tokens": most_tokens(request, max_tokens) or DEFAULT_MAX_TOKENS,
        "messages": _messages(request, names),
        "stream": True,
        **sampled(request),
    }
    if request.sampling.stop:
        body["stop_sequences"] = request.sampling.stop
    if system:
        body["system"] = system
    if request.tools:
        body["tools"] = [
            {
                "name": names[tool["name"]],
                "description": tool["description"],
                "input_schema": tool["parameters"],
            }
            for tool in request.tools
        ]
        body["tools"][-1].update(_CACHED)
        _mark_repeated(body["messages"], request)
    if request.must_call or request.one_call:
        body["tool_choice"] = {"type": "any" if request.must_call else "auto"}
    if request.one_call:
        body["tool_choice"]["disable_parallel_tool_use"] = True
    return body


def _mark_repeated(messages: list[Body], request: ModelRequest) -> None:
    """Mark the last block that the next turn repeats; it hits the cache up to there."""
    place = len(messages) - 1
    blocks = request.volatile  # each volatile message is one block
    while place >= 0 and blocks >= len(messages[place]["content"]):
        blocks -= len(messages[place]["content"])
        place -= 1
    if place >= 0:
        messages[place]["content"][-1 - blocks].update(_CACHED)


class AnthropicReader:
    """Reader of one streamed answer; it ends with `message_stop`."""

    def __init__(self, builder: TurnBuilder) -> None:
        self._builder = builder
        self._counts: dict[str, int] = {}
        self.is_whole = False

    def take(self, data: str) -> bool:
        """Apply one event; ignore pings and unknown events."""
        event = decode_event(_EVENT, data)
        match event.type:
            case "error":
                raise stream_failure(bytes(event.error))
            case "message_start" if event.message is not None:
                self._builder.trace_ref = event.message.id
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                self._begin(event.index, event.content_block)
            case "content_block_delta" if event.delta is not None:
                self._go_on(event.index, event.delta)
            case "message_delta":
                self._end(event)
            case "message_stop":
                self.is_whole = True
            case _:
                pass
        return self.is_whole

    def _begin(self, index: int, block: _Block) -> None:
        if block.type == "redacted_thinking":
            self._builder.keep(index).update(type=block.type, data=block.data)
        elif block.type == "thinking":
            self._builder.keep(index).update(
                type=block.type, thinking=block.thinking, signature=block.signature
            )
            self._builder.add_reasoning(block.thinking)
        elif block.type == "tool_use":
            self._builder.open_call(index, block.name)
            if bytes(block.input) not in {b"{}", b"null"}:
                self._builder.add_arguments(index, bytes(block.input).decode())
        else:
            self._builder.add_text(block.text)
            self._builder.add_reasoning(block.thinking)

    def _go_on(self, index: int, delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self._builder.add_text(delta.text)
            case "thinking_delta":
                self._builder.add_reasoning(delta.thinking)
                kept = self._builder.keep(index)
                kept["type"] = "thinking"
                kept["thinking"] = kept.get("thinking", "") + delta.thinking
            case "signature_delta":
                kept = self._builder.keep(index)
                kept["signature"] = kept.get("signature", "") + delta.signature
            case "input_json_delta" if delta.partial_json:
                self._builder.add_arguments(index, delta.partial_json)
            case _:
                pass  # citations are ignored

    def _end(self, event: _Event) -> None:
        self._count(event.usage)
        if event.delta is not None and event.delta.stop_reason is not None:
            self._builder.finish_reason = finish_reason(event.delta.stop_reason)

    def _count(self, usage: _Usage | None) -> None:
        """Record the running totals of usage; cache reads and writes are input tokens too."""
        if usage is None:
            return
        counts = msgspec.structs.asdict(usage)
        counts["thought"] = (counts.pop("output_tokens_details") or _Output()).thinking_tokens
        self._counts |= {name: count for name, count in counts.items() if count is not None}
        counts = self._counts
        cached = counts.get("cache_read_input_tokens", 0)
        stored = counts.get("cache_creation_input_tokens", 0)
        used = counts.get("input_tokens", 0) + stored + cached
        self._builder.count(
            used if counts else None,
            counts.get("output_tokens"),
            cached=cached,
            stored=stored,
            thought=counts.get("thought"),
        )


# --- the conversation ----------------------------------------------------------------------------


def _messages(request: ModelRequest, names: Names) -> list[Body]:
    """Return alternating user and assistant messages; neighbours with one role are merged."""
    merged: list[Body] = []
    for message in request.messages:
        role, blocks = _blocks(message, names, request)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def _blocks(message: Message, names: Names, request: ModelRequest) -> tuple[str, list[Body]]:
    match message:
        case UserMessage():
            return "user", _said(*show(message, request.pictures))
        case GuidanceMessage(text):
            return "user", [_text(guidance(text))]
        case ToolMessage():
            shown, output = show(message, request.pictures)
            is_error = message.status != "succeeded"
            answer = f"[{message.status}]\n{output}" if is_error else output or _NOTHING
            result: Body = {
                "type": "tool_result",
                "tool_use_id": plain_id(message.call_id),
                "content": [_text(answer), *map(_image, shown)] if shown else answer,
            }
            return "user", [result | ({"is_error": True} if is_error else {})]
        case AssistantMessage(text, calls):
            said = [_text(text)] if text.strip() else []
            used = [
                {
                    "type": "tool_use",
                    "id": plain_id(call.call_id),
                    "name": names.get(call.tool, call.tool),
                    "input": call.arguments if isinstance(call.arguments, dict) else {},
                }
                for call in calls
            ]
            thought = [item for item in thought_of(message, request) if item.get("type") in _SIGNED]
            return "assistant", [*thought, *said, *used] or [_text(_NOTHING)]
        case _:
            assert_never(message)


def _said(shown: list[Shown], text: str) -> list[Body]:
    """Content of a user message: images before their text, as the API's guide recommends."""
    parts = list(map(_image, shown))
    return [*parts, _text(text)] if text.strip() or not parts else parts


def _image(shown: Shown) -> Body:
    source = {"type": "base64", "media_type": shown.media_type, "data": shown.data}
    return {"type": "image", "source": source}


def _text(text: str) -> Body:
    return {"type": "text", "text": text if text.strip() else _NOTHING}


ANTHROPIC = Dialect(
    "/messages", anthropic_headers, anthropic_body, AnthropicReader, DEFAULT_MAX_TOKENS
)
