"""Chat completions: the request, the answer, the chunks of a stream.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from typing import Any, Literal

import msgspec

from palyra.net.compat.asking import Extension
from palyra.net.compat.params import Count, Name, Request, Share, Temperature, ToolName
from palyra.net.compat.reading import Finish, ServerCall
from palyra.net.params import Params


class Part(Params, frozen=True, kw_only=True, tag_field="type"):
    """A part of a message."""


class TextPart(Part, frozen=True, kw_only=True, tag="text"):
    """Words."""

    text: str


class RefusalPart(Part, frozen=True, kw_only=True, tag="refusal"):
    """Words with which a model refused."""

    refusal: str


class ImageUrl(Params, frozen=True, kw_only=True):
    """A picture: a `data:` URL."""

    url: str
    detail: Literal["auto", "low", "high"] = "auto"


class ImagePart(Part, frozen=True, kw_only=True, tag="image_url"):
    """A picture."""

    image_url: ImageUrl


class FunctionCall(Params, frozen=True, kw_only=True):
    """Which function, and its arguments as JSON in a text."""

    name: str
    arguments: str = "{}"


class ToolCall(Params, frozen=True, kw_only=True):
    """A call that the model made and the client runs."""

    id: Name
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None


class ChatMessage(Params, frozen=True, kw_only=True):
    """One message; which members it has depends on its role."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[TextPart | ImagePart | RefusalPart, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: Name | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # what a model thought before is not shown to it again
    annotations: tuple[Any, ...] | None = None
    audio: None = None
    function_call: None = None
    palyra: dict[str, Any] | None = None  # of an answer that is sent back as it came


class Function(Params, frozen=True, kw_only=True):
    """What the client can run."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Params, frozen=True, kw_only=True):
    """A tool of the client's."""

    function: Function
    type: Literal["function"] = "function"


class NamedFunction(Params, frozen=True, kw_only=True):
    """A choice of one function."""

    name: ToolName


class NamedTool(Params, frozen=True, kw_only=True):
    """A choice of one tool."""

    function: NamedFunction
    type: Literal["function"] = "function"


class ResponseFormat(Params, frozen=True, kw_only=True):
    """What form the answer has."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class StreamOptions(Params, frozen=True, kw_only=True):
    """What a stream has beside its chunks."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Request, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: tuple[ChatMessage, ...]
    stream_options: StreamOptions | None = None
    max_completion_tokens: Count | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    stop: str | tuple[str, ...] | None = None
    response_format: ResponseFormat | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    user: Name | None = None
    n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: tuple[str, ...] | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    functions: tuple[Any, ...] | None = None
    function_call: Any = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    seed: int | None = None
    service_tier: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    palyra: Extension = Extension()


# --- answers -------------------------------------------------------------------------------------


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what is answered: optional members that say nothing are left out."""


class RunNote(Answered, frozen=True, kw_only=True):
    """The member `palyra` of an answer: the run, and what it did on the way."""

    run_id: str
    session_id: str
    model: str = ""  # that spoke last, by its whole name
    tool_calls: list[ServerCall] = []
    partial: str = ""  # why the answer is not whole
    reason: str = ""


class ChunkNote(Answered, frozen=True, kw_only=True):
    """The member `palyra` of a chunk: the run, or a call of a tool that the daemon runs."""

    run_id: str = ""
    session_id: str = ""
    model: str = ""
    tool_calls: list[ServerCall] = []
    partial: str = ""
    reason: str = ""
    tool_call: ServerCall | None = None


class InputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Of the input: what was read from the provider's cache, and what was written to it."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Of the output: what the model thought."""

    reasoning_tokens: int = 0


class ChatUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all turns of the run."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: InputDetails
    completion_tokens_details: OutputDetails


class AnsweredFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Which function, and its arguments as JSON in a text."""

    name: str
    arguments: str


class AnsweredCall(Answered, frozen=True, kw_only=True):
    """A call for the client; `index` in chunks only."""

    id: str
    type: Literal["function"]
    function: AnsweredFunction
    index: int | None = None


class AnsweredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    tool_calls: list[AnsweredCall] | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The one choice there is."""

    message: AnsweredMessage
    finish_reason: Finish
    index: int = 0
    logprobs: None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage
    palyra: RunNote
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: str | None = None


class ChunkDelta(Answered, frozen=True, kw_only=True):
    """What a chunk adds."""

    role: Literal["assistant"] | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType = msgspec.UNSET
    refusal: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[AnsweredCall] | msgspec.UnsetType = msgspec.UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one choice, in a chunk."""

    delta: ChunkDelta
    finish_reason: Finish | None = None
    index: int = 0


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an answer."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: ChatUsage | msgspec.UnsetType | None = msgspec.UNSET
    palyra: ChunkNote | msgspec.UnsetType = msgspec.UNSET
