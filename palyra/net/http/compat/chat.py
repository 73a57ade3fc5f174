"""OpenAI's chat completions, `POST /v1/chat/completions`: request, answer, and chunks of a stream.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import Usage
from palyra.core.model.messages import ProposedCall, Sampling
from palyra.core.model.request_options import ANY_TOOL, ClientTool
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
    ChatInput,
    Content,
    Conversation,
    parse_arguments,
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
    custom_call,
    custom_input,
    custom_tool,
    name_hints,
    read_schema,
    read_stop,
    refuse_unless_neutral,
)
from palyra.net.http.compat.run_request import CompatAnswer, Extension, RunRequest, check_tools
from palyra.net.protocol.params import Params


class ImageUrl(Params, frozen=True, kw_only=True):
    """A picture: a `data:` URL."""

    url: str
    detail: str | None = None


class InputFile(Params, frozen=True, kw_only=True):
    """A document: a `data:` URL."""

    file_data: str = ""
    filename: str = "of no name"


class ContentPart(Params, frozen=True, kw_only=True):
    """A part of a message; which members it has depends on its type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None
    file: InputFile | None = None


class FunctionCall(Params, frozen=True, kw_only=True):
    """A function, and its arguments as a JSON string."""

    name: str
    arguments: str = "{}"


class CustomCall(Params, frozen=True, kw_only=True):
    """A custom tool, and its input."""

    name: str
    input: str = ""


class ChatToolCall(Params, frozen=True, kw_only=True):
    """A call that the model made and the client runs."""

    id: Name
    function: FunctionCall | None = None
    custom: CustomCall | None = None
    type: str = "function"
    index: int | None = None


class ChatMessage(Params, frozen=True, kw_only=True):
    """One message; which members it has depends on its role."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | tuple[ContentPart, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ChatToolCall, ...] | None = None
    tool_call_id: Name | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # not sent to the model again
    palyra: Any = None  # of an answer that is sent back


class Function(Params, frozen=True, kw_only=True):
    """A function that the client can run."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomTool(Params, frozen=True, kw_only=True):
    """A tool that takes one text."""

    name: ToolName
    description: str | None = None
    format: dict[str, Any] | None = None


class Tool(Params, frozen=True, kw_only=True):
    """A tool that the client runs; other types are left out."""

    type: str = "function"
    function: Function | None = None
    custom: CustomTool | None = None


class ChatNamed(Params, frozen=True, kw_only=True):
    """A choice of one function or custom tool."""

    name: ToolName


class NamedTool(Params, frozen=True, kw_only=True):
    """A choice of one tool, or of several."""

    type: str = "function"
    function: ChatNamed | None = None
    custom: ChatNamed | None = None
    allowed_tools: "AllowedTools | None" = None

    @property
    def name(self) -> str:
        """The name of the one tool."""
        named = self.function or self.custom
        return "" if named is None else named.name


class AllowedTools(Params, frozen=True, kw_only=True):
    """The tools that the model may call, of those that are declared."""

    tools: tuple[NamedTool, ...]
    mode: Literal["auto", "required"] = "auto"


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
    audio: Any = None
    functions: tuple[Any, ...] | None = None
    function_call: Any = None
    metadata: Any = None
    store: bool | None = None
    service_tier: str | None = None
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
    ignored: list[str] = []
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


class AnsweredInput(msgspec.Struct, frozen=True, kw_only=True):
    """A custom tool, and its input."""

    name: str
    input: str


class AnsweredCall(Answered, frozen=True, kw_only=True):
    """A call for the client; `index` in chunks only."""

    id: str
    type: Literal["function", "custom"]
    function: AnsweredFunction | None = None
    custom: AnsweredInput | None = None
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
# Parameters without which the answer would not be the one that was asked for, and neutral values.
REFUSED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (("text",), ()),
    "audio": (),
    "functions": ((),),
    "function_call": ("none", "auto"),
}
# Parameters that are ignored, and the values with which nothing is.
HINTS: dict[str, tuple[Any, ...]] = {"frequency_penalty": (0,), "presence_penalty": (0,)}

# --- the request ---------------------------------------------------------------------------------


def read_chat(request: ChatRequest, target: ModelTarget, _called: Mapping[str, str]) -> RunRequest:
    """Return the run that is requested.  Raises InvalidParams, Unsupported."""
    refuse_unless_neutral(request, REFUSED)
    conversation = Conversation()
    for hint in name_hints(request, HINTS):
        conversation.ignore(hint)
    choice = request.tool_choice
    tools = () if choice == "none" else _tools(request, conversation)
    must_call = _must_call(choice)
    check_tools(tools, must_call)
    return RunRequest(
        chat=_conversation(request.messages, conversation),
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
        extension=request.palyra,
    )


def _tools(request: ChatRequest, conversation: Conversation) -> tuple[ClientTool, ...]:
    """Return the tools that the client runs; those of a provider are left out."""
    tools: list[ClientTool] = []
    for index, tool in enumerate(request.tools or ()):
        if (function := tool.function) is not None:
            tools.append(client_tool(function.name, function.description, function.parameters))
        elif (custom := tool.custom) is not None:
            tools.append(custom_tool(custom.name, custom.description, custom.format))
        elif tool.type in {"function", "custom"}:
            raise InvalidParams(f"tools[{index}]: missing field {tool.type}", field="tools")
        else:
            conversation.ignore(f"tools.{tool.type}")
    choice = request.tool_choice
    if not isinstance(choice, NamedTool) or choice.allowed_tools is None:
        return tuple(tools)
    allowed = {each.name for each in choice.allowed_tools.tools}
    return tuple(tool for tool in tools if tool.name in allowed)


def _must_call(choice: str | NamedTool | None) -> str:
    if isinstance(choice, NamedTool) and choice.allowed_tools is not None:
        choice = choice.allowed_tools.mode
    if isinstance(choice, NamedTool):
        if not choice.name:
            raise Unsupported(f"tool_choice: no tool of the client: {choice.type!r}")
        return choice.name
    return ANY_TOOL if choice == "required" else ""


def _schema(request: ChatRequest) -> dict[str, Any] | None:
    wanted = request.response_format
    if wanted is None or wanted.type != "json_schema":
        return None
    return read_schema((wanted.json_schema or {}).get("schema"), "response_format")


def _conversation(messages: Sequence[ChatMessage], conversation: Conversation) -> ChatInput:
    for index, message in enumerate(messages):
        _add(conversation, message, f"messages[{index}]")
    return conversation.finish("messages")


def _add(conversation: Conversation, message: ChatMessage, where: str) -> None:
    content = _content(conversation, message)
    match message.role:
        case "system" | "developer":
            conversation.add_system(content.text)
        case "user":
            conversation.add_user(content.text, content.pictures)
        case "assistant":
            conversation.add_assistant(content.text, tuple(_calls(message, where)))
        case "function":  # of the API before tools: its call has no id
            conversation.ignore("messages[].function")
        case "tool":
            if message.tool_call_id is None:
                raise InvalidParams(f"{where}: missing field tool_call_id", field=where)
            conversation.add_result(
                message.tool_call_id,
                content.text,
                f"{where}.tool_call_id",
                attachments=content.pictures,
            )


def _calls(message: ChatMessage, where: str) -> Iterator[ProposedCall]:
    for call in message.tool_calls or ():
        if call.custom is not None:
            yield custom_call(call.id, call.custom.name, call.custom.input)
        elif call.function is not None:
            yield ProposedCall(
                call_id=call.id,
                tool=call.function.name,
                arguments=parse_arguments(call.function.arguments),
            )
        else:
            raise InvalidParams(f"{where}: missing field function", field=f"{where}.tool_calls")


def _content(conversation: Conversation, message: ChatMessage) -> Content:
    content = conversation.content()
    given = message.content
    for part in () if given is None or isinstance(given, str) else given:
        place = f"messages[].content[].{part.type}"
        match part:
            case ContentPart(type="text" | "refusal"):
                content.say(part.text or part.refusal)
            case ContentPart(image_url=ImageUrl(url=url) | str(url)):
                content.show_url(url, place)
            case ContentPart(file=InputFile() as file):
                content.read_file_url(file.file_data, file.filename, place)
            case _:
                content.leave_out(place, f"a part of the type {part.type}")
    if isinstance(given, str):
        content.say(given)
    elif not content.text:
        content.say(message.refusal)
    return content


# --- the answer ----------------------------------------------------------------------------------


def whole_chat(request: ChatRequest, answer: CompatAnswer, ended: AnswerEnded) -> ChatCompletion:
    """Return the whole answer."""
    reading = answer.reading
    custom = _custom_names(request)
    calls = [_answered_call(call, custom) for call in ended.calls]
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


def _custom_names(request: ChatRequest) -> frozenset[str]:
    return frozenset(tool.custom.name for tool in request.tools or () if tool.custom is not None)


def _answered_call(
    call: ProposedCall, custom: frozenset[str], index: int | None = None
) -> AnsweredCall:
    if call.tool in custom:
        given = AnsweredInput(name=call.tool, input=custom_input(call))
        return AnsweredCall(id=call.call_id, type="custom", custom=given, index=index)
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
        custom = _custom_names(self._request)
        calls = [_answered_call(call, custom, index) for index, call in enumerate(ended.calls)]
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
