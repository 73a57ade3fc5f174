"""Anthropic's Messages: the request, its blocks, the answer.

Source: https://docs.anthropic.com/en/api/messages.
"""

from typing import Any, Literal

import msgspec

from palyra.net.compat.asking import Extension
from palyra.net.compat.chat_schema import RunNote
from palyra.net.compat.params import Count, Name, Request, Share, ToolName
from palyra.net.params import Params


class Source(Params, frozen=True, kw_only=True):
    """Where a picture is: in here."""

    type: Literal["base64", "url"]
    media_type: str = ""
    data: str = ""
    url: str = ""


class Block(Params, frozen=True, kw_only=True):
    """A part of a message; which members it has depends on its type."""

    type: Literal["text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"]
    text: str | None = None
    source: Source | None = None
    id: Name | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: Name | None = None
    content: str | tuple["Block", ...] | None = None
    is_error: bool | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    citations: Any = None
    caller: Any = None
    cache_control: dict[str, Any] | None = None


class InputMessage(Params, frozen=True, kw_only=True):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | tuple[Block, ...]


class InputTool(Params, frozen=True, kw_only=True):
    """A tool of the client's."""

    name: ToolName
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: dict[str, Any] | None = None


class ToolChoice(Params, frozen=True, kw_only=True):
    """Whether the client's tools are to be called."""

    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(Params, frozen=True, kw_only=True):
    """What form the answer has."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Params, frozen=True, kw_only=True):
    """How the answer is to be."""

    format: OutputFormat | None = None
    effort: str | None = None


class Metadata(Params, frozen=True, kw_only=True):
    """Whose request it is."""

    user_id: Name | None = None


class MessagesRequest(Request, frozen=True, kw_only=True):
    """`POST /v1/messages`."""

    messages: tuple[InputMessage, ...]
    max_tokens: Count
    system: str | tuple[Block, ...] | None = None
    temperature: Share | None = None
    top_p: Share | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] | None = None
    tools: tuple[InputTool, ...] | None = None
    tool_choice: ToolChoice | None = None
    metadata: Metadata | None = None
    thinking: dict[str, Any] | None = None
    service_tier: str | None = None
    container: Any = None
    mcp_servers: tuple[Any, ...] | None = None
    output_config: OutputConfig | None = None
    cache_control: dict[str, Any] | None = None
    thread: Any = None
    palyra: Extension = Extension()


class CountRequest(Params, frozen=True, kw_only=True):
    """`POST /v1/messages/count_tokens`: what a message would say, without its limits."""

    model: Name
    messages: tuple[InputMessage, ...]
    system: str | tuple[Block, ...] | None = None
    tools: tuple[InputTool, ...] | None = None
    tool_choice: ToolChoice | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    cache_control: dict[str, Any] | None = None
    palyra: Extension = Extension()


# --- answers -------------------------------------------------------------------------------------


class TextBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Words."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call for the client."""

    id: str
    name: str
    input: Any


StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal"]


class StopDetails(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="refusal"):
    """Why there is no answer in the model's own words."""

    explanation: str
    category: None = None


class ThinkingDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Of the output: what the model thought."""

    thinking_tokens: int = 0


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all turns of the run; the three kinds of input make its sum."""

    input_tokens: int = 0  # neither from the provider's cache nor into it
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: ThinkingDetails = ThinkingDetails()


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a request would take, estimated."""

    input_tokens: int


class MessageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, whole or at its beginning."""

    id: str
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: StopReason | None
    usage: MessageUsage
    palyra: RunNote
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None
