"""OpenAI's chat completions, `POST /v1/chat/completions`: request, answer, and chunks of a stream.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import Usage
from palyra.core.model.messages import ProposedCall, Sampling
from palyra.core.model.request_options import ANY_TOOL
from palyra.errors import InvalidParams, PalyraError
from palyra.net.http.compat import http_exchange
from palyra.net.http.compat.answer import (
    Answered,
    AnswerEnded,
    Finish,
    InputDetails,
    OutputDetails,
    Part,
    Reasoning,
    RunNote,
    ServerCall,
    Text,
)
from palyra.net.http.compat.conversation import (
    Attachment,
    ChatInput,
    Conversation,
    parse_arguments,
    picture_of_url,
)
from palyra.net.http.compat.errors import Unsupported, error_body
from palyra.net.http.compat.model_names import ModelTarget
from palyra.net.http.compat.params import (
    CompatRequest,
    Count,
    Name,
    Share,
    Temperature,
    ToolName,
    client_tool,
    read_schema,
    read_stop,
    refuse_unless_neutral,
)
from palyra.net.http.compat.run_request import CompatAnswer, Extension, RunRequest, check_tools
from palyra.net.protocol.params import Params


class ContentPart(Params, frozen=True, kw_only=True, tag_field="type"):
    """A part of a message."""


class TextPart(ContentPart, frozen=True, kw_only=True, tag="text"):
    """Text."""

    text: str


class RefusalPart(ContentPart, frozen=True, kw_only=True, tag="refusal"):
    """Text of a refusal."""

    refusal: str


class ImageUrl(Params, frozen=True, kw_only=True):
    """A picture: a `data:` URL."""

    url: str
    detail: Literal["auto", "low", "high"] = "auto"


class ImagePart(ContentPart, frozen=True, kw_only=True, tag="image_url"):
    """A picture."""

    image_url: ImageUrl


class FunctionCall(Params, frozen=True, kw_only=True):
    """A function, and its arguments as a JSON string."""

    name: str
    arguments: str = "{}"


class ChatToolCall(Params, frozen=True, kw_only=True):
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
    tool_calls: tuple[ChatToolCall, ...] | None = None
    tool_call_id: Name | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # not sent to the model again
    annotations: tuple[Any, ...] | None = None
    audio: None = None
    function_call: None = None
    palyra: dict[str, Any] | None = None  # of an answer that is sent back


class Function(Params, frozen=True, kw_only=True):
    """A function that the client can run."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Params, frozen=True, kw_only=True):
    """A tool that the client runs."""

    function: Function
    type: Literal["function"] = "function"


class ChatNamedFunction(Params, frozen=True, kw_only=True):
    """A choice of one function."""

    name: ToolName


class NamedTool(Params, frozen=True, kw_only=True):
    """A choice of one tool."""

    function: ChatNamedFunction
    type: Literal["function"] = "function"


class ResponseFormat(Params, frozen=True, kw_only=True):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class StreamOptions(Params, frozen=True, kw_only=True):
    """Options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(CompatRequest, frozen=True, kw_only=True):
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

    @property
    def has_answer_schema(self) -> bool:
        """True if the request has a JSON Schema for the answer."""
        return self.response_format is not None and self.response_format.type == "json_schema"


# --- answers -------------------------------------------------------------------------------------


class ChunkNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The member `palyra` of a chunk: the run, or a call of a tool that the daemon runs."""

    run_id: str = ""
    session_id: str = ""
    model: str = ""
    tool_calls: list[ServerCall] = []
    partial: str = ""
    reason: str = ""
    tool_call: ServerCall | None = None


class ChatUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all turns of the run."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: InputDetails
    completion_tokens_details: OutputDetails


class AnsweredFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function, and its arguments as a JSON string."""

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
    """The only choice of an answer."""

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
    """The content of a chunk."""

    role: Literal["assistant"] | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType = msgspec.UNSET
    refusal: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[AnsweredCall] | msgspec.UnsetType = msgspec.UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The only choice of a chunk."""

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


ID_PREFIX = "chatcmpl-"
# Parameters that runs do not support, and their neutral values.
NEUTRAL = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (("text",),),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "functions": (),
    "function_call": (),
}

# --- the request ---------------------------------------------------------------------------------


def read_chat(request: ChatRequest, target: ModelTarget, _called: Mapping[str, str]) -> RunRequest:
    """Return the run that is requested.  Raises InvalidParams, Unsupported."""
    refuse_unless_neutral(request, NEUTRAL)
    tools = (
        ()
        if request.tool_choice == "none"
        else tuple(
            client_tool(each.function.name, each.function.description, each.function.parameters)
            for each in request.tools or ()
        )
    )
    must_call = _must_call(request.tool_choice)
    check_tools(tools, must_call)
    return RunRequest(
        chat=_conversation(request.messages),
        target=target,
        tools=tools,
        must_call=must_call,
        one_call=request.parallel_tool_calls is False,
        sampling=Sampling(
            max_output_tokens=request.max_completion_tokens or request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=read_stop(request.stop),
        ),
        json_mode=request.response_format is not None and request.response_format.type != "text",
        answer_schema=_schema(request),
        user=request.user,
        extension=request.palyra,
    )


def _must_call(choice: str | NamedTool | None) -> str:
    if isinstance(choice, NamedTool):
        return choice.function.name
    return ANY_TOOL if choice == "required" else ""


def _schema(request: ChatRequest) -> dict[str, Any] | None:
    wanted = request.response_format
    if wanted is None or wanted.type != "json_schema":
        return None
    return read_schema((wanted.json_schema or {}).get("schema"), "response_format")


def _conversation(messages: Sequence[ChatMessage]) -> ChatInput:
    conversation = Conversation()
    for index, message in enumerate(messages):
        _add(conversation, message, f"messages[{index}]")
    return conversation.finish("messages")


def _add(conversation: Conversation, message: ChatMessage, where: str) -> None:
    text = _text(message, where)
    match message.role:
        case "system" | "developer":
            conversation.add_system(text)
        case "user":
            conversation.add_user(text, _pictures(message, where))
        case "assistant":
            conversation.add_assistant(text, _calls(message))
        case "tool":
            if message.tool_call_id is None:
                raise InvalidParams(f"{where}: missing field tool_call_id", field=where)
            conversation.add_result(message.tool_call_id, text, f"{where}.tool_call_id")


def _calls(message: ChatMessage) -> tuple[ProposedCall, ...]:
    return tuple(
        ProposedCall(
            call_id=call.id,
            tool=call.function.name,
            arguments=parse_arguments(call.function.arguments),
        )
        for call in message.tool_calls or ()
    )


def _text(message: ChatMessage, where: str) -> str:
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for part in message.content or ():
        match part:
            case TextPart():
                texts.append(part.text)
            case RefusalPart():
                texts.append(part.refusal)
            case ImagePart() if message.role != "user":
                raise Unsupported(
                    f"{where}.content: images are accepted in user messages only", field=where
                )
            case ImagePart():
                pass
    return "\n".join(texts) or message.refusal or ""


def _pictures(message: ChatMessage, where: str) -> tuple[Attachment, ...]:
    if message.content is None or isinstance(message.content, str):
        return ()
    urls = [part.image_url.url for part in message.content if isinstance(part, ImagePart)]
    return tuple(picture_of_url(url, f"{where}.content") for url in urls)


# --- the answer ----------------------------------------------------------------------------------


def whole_chat(request: ChatRequest, answer: CompatAnswer, ended: AnswerEnded) -> ChatCompletion:
    """Return the whole answer."""
    reading = answer.reading
    calls = [_answered_call(call) for call in ended.calls]
    message = AnsweredMessage(
        role="assistant",
        content=None if ended.refusal else reading.text or (None if calls else ""),
        refusal=ended.refusal or None,
        tool_calls=calls or msgspec.UNSET,
        reasoning_content=reading.reasoning or msgspec.UNSET,
    )
    return ChatCompletion(
        id=ID_PREFIX + answer.run_id,
        created=reading.created_ms // 1000,
        model=request.model,
        choices=[Choice(message=message, finish_reason=ended.finish)],
        usage=_usage(reading.usage),
        palyra=answer.note(ended),
    )


def _answered_call(call: ProposedCall, index: int | None = None) -> AnsweredCall:
    function = AnsweredFunction(name=call.tool, arguments=call.arguments_text)
    return AnsweredCall(id=call.call_id, type="function", function=function, index=index)


def _usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=InputDetails(
            cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        completion_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
    )


# --- the stream ----------------------------------------------------------------------------------


class ChatStream:
    """An answer in chunks; the member `palyra` has what a delta cannot express."""

    def __init__(self, request: ChatRequest, answer: CompatAnswer) -> None:
        self._request = request
        self._answer = answer
        options = request.stream_options
        self._wants_usage = options is not None and bool(options.include_usage)

    def begin(self) -> bytes:
        """Return the role and the ids of the run."""
        note = ChunkNote(run_id=self._answer.run_id, session_id=self._answer.session_id)
        return self._chunk(ChunkDelta(role="assistant", content=""), palyra=note)

    def take(self, part: Part) -> bytes:
        """Return the chunk of one part."""
        match part:
            case Text():
                return self._chunk(ChunkDelta(content=part.delta))
            case Reasoning():
                return self._chunk(ChunkDelta(reasoning_content=part.delta))
            case ServerCall():
                return self._chunk(ChunkDelta(), palyra=ChunkNote(tool_call=part))
            case AnswerEnded():
                return self._end(part)

    @staticmethod
    def fail(error: PalyraError) -> bytes:
        """Return an error after the start of the stream; no `[DONE]` follows."""
        return http_exchange.event({"error": error_body(error)})

    def _end(self, ended: AnswerEnded) -> bytes:
        calls = [_answered_call(call, index) for index, call in enumerate(ended.calls)]
        content = self._chunk(ChunkDelta(tool_calls=calls)) if calls else b""
        if ended.refusal:
            content += self._chunk(ChunkDelta(refusal=ended.refusal))
        note = ChunkNote(**msgspec.structs.asdict(self._answer.note(ended)))
        last = self._encode([ChunkChoice(delta=ChunkDelta(), finish_reason=ended.finish)], note)
        usage = b""
        if self._wants_usage:
            usage = self._encode([], usage=_usage(self._answer.reading.usage))
        return content + last + usage + http_exchange.DONE

    def _chunk(
        self,
        delta: ChunkDelta,
        palyra: ChunkNote | msgspec.UnsetType = msgspec.UNSET,
    ) -> bytes:
        return self._encode([ChunkChoice(delta=delta)], palyra)

    def _encode(
        self,
        choices: list[ChunkChoice],
        palyra: ChunkNote | msgspec.UnsetType = msgspec.UNSET,
        usage: ChatUsage | None = None,
    ) -> bytes:
        chunk = ChatChunk(
            id=ID_PREFIX + self._answer.run_id,
            created=self._answer.reading.created_ms // 1000,
            model=self._request.model,
            choices=choices,
            usage=usage if self._wants_usage else msgspec.UNSET,
            palyra=palyra,
        )
        return http_exchange.event(chunk)
