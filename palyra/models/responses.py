"""Dialect of OpenAI's Responses API.

Source: https://platform.openai.com/docs/api-reference/responses and its page on streaming.  Nothing
is stored at the provider: each request sends the whole conversation.
"""

import re
from typing import Any, assert_never

import msgspec

from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ModelFailure,
    ModelRequest,
    ToolMessage,
    UserMessage,
    thought_of,
)
from palyra.models.chat import (
    NO_DETAILS,
    TokenDetails,
    chat_headers,
    guidance,
    instructions,
)
from palyra.models.dialect import NO_JSON, Body, Dialect, Names, Shown, most_tokens, sampled, show
from palyra.models.failures import stream_failure
from palyra.models.turn_builder import TurnBuilder
from palyra.models.wire import argument_text, decode_event

_REASONS = re.compile(r"(^|/)(o[1-9]|gpt-([5-9]|[1-9][0-9])|codex)")  # the others refuse `include`


class _Item(msgspec.Struct):
    type: str = ""
    name: str = ""
    arguments: Any = ""
    summary: list[dict[str, Any]] = []
    encrypted_content: str | None = None


class _Details(msgspec.Struct):
    reason: str = ""


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = NO_JSON
    incomplete_details: _Details | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    delta: Any = None
    arguments: Any = None
    item: _Item | None = None
    response: _Response | None = None


_EVENT = msgspec.json.Decoder(_Event)


def responses_body(request: ModelRequest, model: str, names: Names, max_tokens: int) -> Body:
    """Return the whole conversation as items.  Raises ModelFailure for options this API lacks."""
    if request.sampling.stop:
        raise ModelFailure(
            "invalid_request",
            "the Responses API has no stop sequences; omit `stop`, or use a provider with "
            'api = "chat" or "anthropic"',
            was_asked=False,
        )
    body: Body = {
        "model": model,
        "instructions": instructions(request),
        "input": [item for message in request.messages for item in _items(message, names, request)],
        "stream": True,
        "store": False,
        **sampled(request),
    }
    if _REASONS.search(model):
        body["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        body["tools"] = [
            {"type": "function", **tool, "name": names[tool["name"]], "strict": False}
            for tool in request.tools
        ]
    if request.must_call:
        body["tool_choice"] = "required"
    if request.one_call:
        body["parallel_tool_calls"] = False
    if request.json_mode:
        body["text"] = {"format": {"type": "json_object"}}
    if most := most_tokens(request, max_tokens):
        body["max_output_tokens"] = most
    return body


class ResponsesReader:
    """Reader of one streamed answer; it ends with a completed, incomplete or failed response."""

    def __init__(self, builder: TurnBuilder) -> None:
        self._builder = builder
        self.is_whole = False

    def take(self, data: str) -> bool:
        """Apply one event; ignore unknown ones."""
        event = decode_event(_EVENT, data)
        match event.type:
            case "error":
                raise stream_failure(data.encode("utf-8", "replace"))
            case "response.failed":
                response = event.response or _Response()
                raise stream_failure(bytes(response.error))
            case "response.completed" | "response.incomplete":
                self._end(event)
            case _:
                self._go_on(event)
        return self.is_whole

    def _go_on(self, event: _Event) -> None:
        builder, delta = self._builder, event.delta if isinstance(event.delta, str) else ""
        match event.type:
            case "response.created" if event.response is not None:
                builder.trace_ref = event.response.id
            case "response.output_text.delta" | "response.refusal.delta":
                builder.add_text(delta)
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                builder.add_reasoning(delta)
            case "response.output_item.added" | "response.output_item.done" if event.item:
                self._take_item(event.output_index, event.item)
            case "response.function_call_arguments.delta":
                builder.add_arguments(event.output_index, delta)
            case "response.function_call_arguments.done" if event.arguments is not None:
                builder.set_arguments(event.output_index, argument_text(event.arguments))
            case _:
                pass

    def _take_item(self, index: int, item: _Item) -> None:
        if item.type == "reasoning" and item.encrypted_content:
            self._builder.keep(index).update(
                type=item.type, summary=item.summary, encrypted_content=item.encrypted_content
            )
        if item.type == "function_call":
            self._builder.open_call(index, item.name)
            if item.arguments:
                self._builder.set_arguments(index, argument_text(item.arguments))

    def _end(self, event: _Event) -> None:
        self.is_whole = True
        response = event.response or _Response()
        if response.usage is not None:
            self._count(response.usage)
        if event.type == "response.incomplete":
            details = response.incomplete_details or _Details()
            is_filtered = details.reason == "content_filter"
            self._builder.finish_reason = "content_filter" if is_filtered else "length"
        else:
            self._builder.finish_reason = "stop"

    def _count(self, usage: _Usage) -> None:
        details = usage.input_tokens_details or NO_DETAILS
        self._builder.count(
            usage.input_tokens,
            usage.output_tokens,
            cached=details.cached_tokens,
            stored=details.cache_write_tokens,
            thought=(usage.output_tokens_details or NO_DETAILS).reasoning_tokens,
        )


# --- the conversation ----------------------------------------------------------------------------


def _items(message: Message, names: Names, request: ModelRequest) -> list[Body]:
    match message:
        case UserMessage():
            return [{"role": "user", "content": _content(*show(message, request.pictures))}]
        case GuidanceMessage(text):
            return [{"role": "developer", "content": guidance(text)}]
        case ToolMessage():
            shown, output = show(message, request.pictures)
            said = f"[{message.status}]\n{output}"
            parts = [{"type": "input_text", "text": said}, *map(_image, shown)]
            return [
                {
                    "type": "function_call_output",
                    "call_id": message.call_id,
                    "output": parts if shown else said,
                }
            ]
        case AssistantMessage(text, calls):
            spoken: list[Body] = [{"role": "assistant", "content": text}] if text.strip() else []
            used = [
                {
                    "type": "function_call",
                    "call_id": call.call_id,
                    "name": names.get(call.tool, call.tool),
                    "arguments": call.arguments_text,
                }
                for call in calls
            ]
            thought = [item for item in thought_of(message, request) if item.get("type")]
            return [*thought, *spoken, *used]
        case _:
            assert_never(message)


def _content(shown: list[Shown], text: str) -> str | list[Body]:
    if not shown:
        return text
    parts = list(map(_image, shown))
    return [*parts, {"type": "input_text", "text": text}] if text.strip() else parts


def _image(shown: Shown) -> Body:
    return {"type": "input_image", "image_url": shown.url, "detail": "auto"}


RESPONSES = Dialect(
    "/responses", chat_headers, responses_body, ResponsesReader, embeddings="/embeddings"
)
