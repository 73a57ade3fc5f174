"""Responses: the request, its items, the answer.

Source: https://platform.openai.com/docs/api-reference/responses.
"""

from typing import Any, Literal

import msgspec

from palyra.net.compat.asking import Extension
from palyra.net.compat.chat_schema import InputDetails, OutputDetails, RunNote
from palyra.net.compat.params import Count, Name, Request, Share, Temperature, ToolName
from palyra.net.params import Params


class InputPart(Params, frozen=True, kw_only=True):
    """A part of a message; which members it has depends on its type."""

    type: Literal["input_text", "output_text", "text", "refusal", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    annotations: tuple[Any, ...] | None = None
    logprobs: tuple[Any, ...] | None = None


class MessageContent(Params, frozen=True, kw_only=True):
    """What a message says."""

    content: str | tuple[InputPart, ...] | None


class InputItem(Params, frozen=True, kw_only=True):
    """A message, a call, a call's result, or what a model thought (which is passed over)."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | tuple[InputPart, ...] | Any | None = None
    call_id: Name | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | tuple[InputPart, ...] | None = None
    id: str | None = None
    status: str | None = None
    summary: Any = None
    encrypted_content: str | None = None
    phase: str | None = None
    namespace: str | None = None


class FunctionTool(Params, frozen=True, kw_only=True):
    """A tool of the client's."""

    name: ToolName
    type: Literal["function"] = "function"
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextFormat(Params, frozen=True, kw_only=True):
    """What form the answer has."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(Params, frozen=True, kw_only=True):
    """How the answer's text is to be."""

    format: TextFormat = TextFormat()
    verbosity: str | None = None


class NamedFunction(Params, frozen=True, kw_only=True):
    """A choice of one tool."""

    name: ToolName
    type: Literal["function"]


class ResponsesRequest(Request, frozen=True, kw_only=True):
    """`POST /v1/responses`."""

    input: str | tuple[InputItem, ...]
    instructions: str | None = None
    previous_response_id: Name | None = None
    max_output_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    text: TextOptions | None = None
    tools: tuple[FunctionTool, ...] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    user: Name | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = None
    truncation: str | None = None
    include: tuple[str, ...] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: str | None = None
    stream_options: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    palyra: Extension = Extension()


# --- answers -------------------------------------------------------------------------------------


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """The words of a message."""

    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputRefusal(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="refusal"):
    """Why there is no answer in the model's own words."""

    refusal: str


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What the model said."""

    id: str
    content: list[OutputText | OutputRefusal]
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"] = "assistant"


class ReasoningText(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"
):
    """What the model thought."""

    text: str


class OutputReasoning(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought."""

    id: str
    content: list[ReasoningText]
    summary: list[Any] = []
    status: Literal["in_progress", "completed", "incomplete"] = "completed"


class OutputCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call for the client."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete"] = "completed"


OutputItem = OutputMessage | OutputReasoning | OutputCall


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all turns of the run."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails


class ResponseError(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: str
    message: str


class Incomplete(msgspec.Struct, frozen=True, kw_only=True):
    """Why the answer is not whole."""

    reason: str  # `max_output_tokens`, `content_filter`, or what `palyra.partial` says


Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, whole or under way."""

    id: str
    created_at: int
    model: str
    status: Status
    output: list[OutputItem]
    palyra: RunNote
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[FunctionTool] = []
    tool_choice: str | NamedFunction = "auto"
    parallel_tool_calls: bool = True
    metadata: dict[str, str] = {}
    user: str | None = None
    store: bool = True  # every run has its tape
    object: Literal["response"] = "response"
