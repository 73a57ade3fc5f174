"""Dialect of Google's Gemini API (`streamGenerateContent`).

Source: https://ai.google.dev/api/generate-content.  Every event repeats the usage so far; the stream
ends with the connection, after an event with a finish reason.  Calls arrive whole and mostly without
ids, so results are matched by name and order.

Gemini 3 refuses a history whose calls lack the signature of the thought behind them.  They go
back with the calls; calls of other models carry the value that Google documents for that.
"""

import re
from typing import assert_never

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
from palyra.models.chat import NO_SIGNATURE, guidance, instructions
from palyra.models.dialect import (
    NO_JSON,
    Body,
    Dialect,
    Names,
    Shown,
    most_tokens,
    say_returned,
    show,
)
from palyra.models.failures import stream_failure
from palyra.models.turn_builder import TurnBuilder
from palyra.models.wire import decode_event, finish_reason

_SIGNS = re.compile(r"gemini-[12]([^0-9]|$)")  # models that need no signature
_THINKS = re.compile(r"gemini-(2\.5|[3-9]|[1-9][0-9])")


class _Call(msgspec.Struct):
    name: str = ""
    args: msgspec.Raw = NO_JSON


class _Part(msgspec.Struct):
    text: str | None = None
    thought: bool = False
    function_call: _Call | None = msgspec.field(default=None, name="functionCall")
    signature: str | None = msgspec.field(default=None, name="thoughtSignature")


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    response_id: str | None = None
    error: msgspec.Raw = NO_JSON


_EVENT = msgspec.json.Decoder(_Event)


def gemini_headers(key: str) -> dict[str, str]:
    """Authentication: `x-goog-api-key`, so that no key is part of an address."""
    return {"x-goog-api-key": key} if key else {}


def gemini_body(request: ModelRequest, model: str, names: Names, max_tokens: int) -> Body:
    """Return the request body with the whole conversation."""
    sampling = request.sampling
    settings: Body = {
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "stopSequences": sampling.stop or None,
        "maxOutputTokens": most_tokens(request, max_tokens) or None,
        "responseMimeType": "application/json" if request.json_mode and not request.tools else None,
        "thinkingConfig": {"includeThoughts": True} if _THINKS.match(model) else None,
    }
    body: Body = {
        "contents": _contents(request, names, signs=not _SIGNS.match(model)),
        "generationConfig": {name: each for name, each in settings.items() if each is not None},
    }
    if said := instructions(request):
        body["systemInstruction"] = {"parts": [{"text": said}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [
            {
                "name": names[tool["name"]],
                "description": tool["description"],
                "parametersJsonSchema": tool["parameters"],
            }
            for tool in request.tools
        ]}]  # fmt: skip
    if request.must_call:
        body["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
    return body


class GeminiReader:
    """Reader of one streamed answer; only the first candidate is read."""

    def __init__(self, builder: TurnBuilder) -> None:
        self._builder = builder
        self._calls = 0

    @property
    def is_whole(self) -> bool:
        """True once a finish reason has arrived: the stream has no last event."""
        return self._builder.finish_reason is not None

    def take(self, data: str) -> bool:
        """Apply one event."""
        event = decode_event(_EVENT, data)
        if bytes(event.error) != b"null":
            raise stream_failure(bytes(event.error))
        self._builder.trace_ref = self._builder.trace_ref or event.response_id
        if event.usage_metadata is not None:
            self._count(event.usage_metadata)
        if event.candidates:
            self._take_candidate(event.candidates[0])
        elif event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            reason = event.prompt_feedback.block_reason
            raise ModelFailure("content_policy", f"the provider blocked the prompt: {reason}")
        return False

    def _take_candidate(self, candidate: _Candidate) -> None:
        for part in (candidate.content and candidate.content.parts) or ():
            if part.function_call is not None:
                key, self._calls = self._calls, self._calls + 1
                self._builder.open_call(key, part.function_call.name)
                if part.signature:
                    self._builder.keep(key).update(call=key, thoughtSignature=part.signature)
                if bytes(part.function_call.args) != b"null":
                    self._builder.add_arguments(key, bytes(part.function_call.args).decode())
            elif part.thought:
                self._builder.add_reasoning(part.text or "")
            else:
                self._builder.add_text(part.text or "")
        if candidate.finish_reason:
            self._builder.finish_reason = finish_reason(candidate.finish_reason)

    def _count(self, usage: _Usage) -> None:
        """Record the totals so far; thoughts are output, which the candidates leave out."""
        answered, thought = usage.candidates_token_count, usage.thoughts_token_count
        prompt, results = usage.prompt_token_count, usage.tool_use_prompt_token_count
        self._builder.count(
            None if prompt is None else prompt + (results or 0),
            None if answered is None and thought is None else (answered or 0) + (thought or 0),
            cached=usage.cached_content_token_count,
            thought=thought,
        )


# --- the conversation ----------------------------------------------------------------------------


def _contents(request: ModelRequest, names: Names, *, signs: bool) -> list[Body]:
    """Return the contents; neighbours of one role are merged, but results stay by themselves.

    The API wants as many results behind the calls of a turn as there were calls, and nothing else, so
    their pictures follow in a content of their own.
    """
    merged: list[Body] = []
    last = ""
    pictures: list[Body] = []  # of the results so far, shown behind the last one of the turn

    def add(kind: str, parts: list[Body]) -> None:
        nonlocal last
        if merged and kind == last:
            merged[-1]["parts"] += parts
        elif parts:
            merged.append({"role": "user" if kind == "results" else kind, "parts": parts})
            last = kind

    for message in request.messages:
        is_result = isinstance(message, ToolMessage)
        if not is_result:
            add("user", pictures)
            pictures = []
        add(
            "results" if is_result else _role(message), _parts(message, names, request, signs=signs)
        )
        if isinstance(message, ToolMessage) and (shown := show(message, request.pictures)[0]):
            pictures += [{"text": say_returned(message)}, *map(_image, shown)]
    add("user", pictures)
    return merged


def _image(shown: Shown) -> Body:
    return {"inlineData": {"mimeType": shown.media_type, "data": shown.data}}


def _role(message: Message) -> str:
    return "model" if isinstance(message, AssistantMessage) else "user"


def _parts(message: Message, names: Names, request: ModelRequest, *, signs: bool) -> list[Body]:
    match message:
        case UserMessage():
            shown, text = show(message, request.pictures)
            parts = list(map(_image, shown))
            return [*parts, {"text": text}] if text or not parts else parts
        case GuidanceMessage(text):
            return [{"text": guidance(text)}]
        case ToolMessage():
            is_good = message.status == "succeeded"
            output = show(message, request.pictures)[1]
            said = output if is_good else f"[{message.status}]\n{output}"
            response = {"result" if is_good else "error": said}
            name = names.get(message.tool, message.tool)
            return [{"functionResponse": {"name": name, "response": response}}]
        case AssistantMessage(text, calls):
            made: list[Body] = [
                {
                    "functionCall": {
                        "name": names.get(call.tool, call.tool),
                        "args": call.arguments if isinstance(call.arguments, dict) else {},
                    }
                }
                for call in calls
            ]
            signed = {
                item["call"]: item["thoughtSignature"]
                for item in thought_of(message, request)
                if item.get("thoughtSignature") and item["call"] < len(made)
            }
            for place, signature in signed.items():
                made[place]["thoughtSignature"] = signature
            if made and signs and not signed:
                made[0]["thoughtSignature"] = NO_SIGNATURE
            return [*([{"text": text}] if text or not made else []), *made]
        case _:
            assert_never(message)


GEMINI = Dialect(
    "/models/{model}:streamGenerateContent?alt=sse", gemini_headers, gemini_body, GeminiReader
)
