"""Dialect of Amazon Bedrock (`ConverseStream`), for every model that Bedrock hosts.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
The answer is an AWS event stream.  A request carries a Bedrock API key, or the signature of an
access key (`sigv4`).  The API refuses empty texts, and calls in a history without tools: such a
history shows them as text.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

import msgspec

from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ModelRequest,
    ProposedCall,
    ToolMessage,
    UserMessage,
    thought_of,
)
from palyra.models.chat import chat_headers, guidance, instructions
from palyra.models.dialect import NO_JSON, Body, Dialect, Names, Shown, most_tokens, show
from palyra.models.event_stream import MEDIA_TYPE, EventStreamParser
from palyra.models.failures import stream_failure
from palyra.models.sigv4 import AwsCredentials, SigningScope, sign
from palyra.models.turn_builder import TurnBuilder
from palyra.models.wire import argument_text, decode_event, finish_reason, plain_id

_NOTHING = "(nothing)"  # sent in place of an empty text


class _ToolUse(msgspec.Struct):
    name: str = ""
    input: Any = ""


class _Reasoning(msgspec.Struct, rename="camel"):
    text: str = ""
    signature: str = ""
    redacted_content: str = ""


class _Start(msgspec.Struct):
    tool_use: _ToolUse | None = msgspec.field(default=None, name="toolUse")


class _Delta(msgspec.Struct, rename="camel"):
    text: str = ""
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None


class _Usage(msgspec.Struct, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Data(msgspec.Struct, rename="camel"):
    content_block_index: int = 0
    start: _Start | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    type: str
    data: msgspec.Raw = NO_JSON


_EVENT = msgspec.json.Decoder(_Event)
_DATA = msgspec.json.Decoder(_Data)


def bedrock_body(request: ModelRequest, model: str, names: Names, max_tokens: int) -> Body:  # noqa: ARG001 - the model is part of the path
    """Return the request body with the whole conversation."""
    sampling = request.sampling
    settings: Body = {
        "maxTokens": most_tokens(request, max_tokens) or None,
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "stopSequences": sampling.stop or None,
    }
    body: Body = {
        "messages": _messages(request, names),
        "inferenceConfig": {name: each for name, each in settings.items() if each is not None},
    }
    if said := instructions(request):
        body["system"] = [{"text": said}]
    if request.tools:
        body["toolConfig"] = {"tools": [
            {"toolSpec": {
                "name": names[tool["name"]],
                "description": tool["description"] or tool["name"],
                "inputSchema": {"json": tool["parameters"]},
            }}
            for tool in request.tools
        ]}  # fmt: skip
        if request.must_call:
            body["toolConfig"]["toolChoice"] = {"any": {}}
    return body


class BedrockReader:
    """Reader of one streamed answer; it ends with `metadata`, which has the usage."""

    def __init__(self, builder: TurnBuilder) -> None:
        self._builder = builder

    @property
    def is_whole(self) -> bool:
        """True once a stop reason has arrived: the usage may be missing."""
        return self._builder.finish_reason is not None

    def take(self, data: str) -> bool:
        """Apply one message; unknown ones are ignored."""
        event = decode_event(_EVENT, data)
        is_error = event.type.startswith("exception:")
        found = _Data() if is_error else decode_event(_DATA, bytes(event.data))
        match event.type:
            case "contentBlockStart" if (
                found.start is not None and found.start.tool_use is not None
            ):
                self._builder.open_call(found.content_block_index, found.start.tool_use.name)
            case "contentBlockDelta" if found.delta is not None:
                self._take_delta(found.content_block_index, found.delta)
            case "messageStop":
                self._builder.finish_reason = finish_reason(found.stop_reason or "")
            case "metadata":
                self._count(found.usage)
            case name if name.startswith("exception:"):
                raise stream_failure(bytes(event.data), name.removeprefix("exception:"))
            case _:
                pass
        return event.type == "metadata" and self.is_whole

    def _take_delta(self, index: int, delta: _Delta) -> None:
        self._builder.add_text(delta.text)
        if delta.reasoning_content is not None:
            self._think(index, delta.reasoning_content)
        if delta.tool_use is not None and delta.tool_use.input:
            self._builder.add_arguments(index, argument_text(delta.tool_use.input))

    def _think(self, index: int, piece: _Reasoning) -> None:
        self._builder.add_reasoning(piece.text)
        kept = self._builder.keep(index)
        for name in ("text", "signature", "redacted_content"):
            if more := getattr(piece, name):
                kept[name] = kept.get(name, "") + more

    def _count(self, usage: _Usage | None) -> None:
        """Record the usage; tokens of the cache are input, which `inputTokens` leaves out."""
        if usage is None:
            return
        cached, stored = usage.cache_read_input_tokens or 0, usage.cache_write_input_tokens or 0
        used = None if usage.input_tokens is None else usage.input_tokens + cached + stored
        self._builder.count(used, usage.output_tokens, cached=cached, stored=stored)


# --- the conversation ----------------------------------------------------------------------------


def _messages(request: ModelRequest, names: Names) -> list[Body]:
    """Return alternating user and assistant messages; neighbours with one role are merged."""
    merged: list[Body] = []
    for message in request.messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, names, request)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": role, "content": blocks})
    return merged


def _blocks(message: Message, names: Names, request: ModelRequest) -> list[Body]:
    has_tools = bool(request.tools)
    match message:
        case UserMessage():
            shown, text = show(message, request.pictures)
            images = list(map(_image, shown))
            return [*images, _text(text)] if text.strip() or not images else images
        case GuidanceMessage(text):
            return [_text(guidance(text))]
        case ToolMessage():
            shown, said = show(message, request.pictures)
            images = list(map(_image, shown))
            if message.status != "succeeded":
                said = f"[{message.status}]\n{said}"
            if not has_tools:
                return [_text(f"[{message.tool} returned]\n{said}"), *images]
            content = [_text(said), *images]
            result: Body = {"toolUseId": plain_id(message.call_id), "content": content}
            if message.status != "succeeded":
                result["status"] = "error"
            return [{"toolResult": result}]
        case AssistantMessage(text, calls):
            said_first = [_text(text)] if text.strip() else []
            made = [_call(call, names) if has_tools else _told(call) for call in calls]
            thoughts = map(_thought, thought_of(message, request)) if has_tools else ()
            return [*thoughts, *said_first, *made] or [_text(_NOTHING)]
        case _:
            assert_never(message)


def _image(shown: Shown) -> Body:
    kind = shown.media_type.removeprefix("image/")
    return {"image": {"format": kind, "source": {"bytes": shown.data}}}


def _thought(item: Body) -> Body:
    if "redacted_content" in item:
        return {"reasoningContent": {"redactedContent": item["redacted_content"]}}
    text = {"text": item.get("text", "")}
    signature = {"signature": item["signature"]} if "signature" in item else {}
    return {"reasoningContent": {"reasoningText": text | signature}}


def _call(call: ProposedCall, names: Names) -> Body:
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    name = names.get(call.tool, call.tool)
    return {"toolUse": {"toolUseId": plain_id(call.call_id), "name": name, "input": arguments}}


def _told(call: ProposedCall) -> Body:
    return _text(f"[called {call.tool}] {call.arguments_text}")


def _text(text: str) -> Body:
    return {"text": text if text.strip() else _NOTHING}


BEDROCK = Dialect(
    "/model/{model}/converse-stream",
    chat_headers,  # of a Bedrock API key
    bedrock_body,
    BedrockReader,
    media_type=MEDIA_TYPE,
    parser=EventStreamParser,
)


def signed_bedrock(region: str) -> Dialect:
    """Return the dialect whose requests are signed: its key is `ID SECRET` or `ID SECRET TOKEN`."""

    def sign_request(
        key: str, url: str, headers: Mapping[str, str], body: bytes, now_ms: int
    ) -> dict[str, str]:
        credentials = AwsCredentials(*key.split(" "))
        return sign(
            "POST",
            url,
            {name: headers[name] for name in ("content-type", "accept")},
            body,
            credentials=credentials,
            scope=SigningScope(region, "bedrock"),
            now_ms=now_ms,
        )

    return replace(BEDROCK, headers=lambda _key: {}, sign=sign_request)
