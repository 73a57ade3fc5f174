"""Anthropic's Messages, `POST /v1/messages`: request, answer, stream, and the count of tokens.

Source: https://docs.anthropic.com/en/api/messages.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from palyra.core.access import Caller
from palyra.core.journal.records import Usage
from palyra.core.model.messages import ProposedCall, Sampling
from palyra.core.model.request_options import ANY_TOOL, ClientTool
from palyra.errors import InvalidParams, PalyraError
from palyra.net.http.compat import http_exchange
from palyra.net.http.compat.answer import (
    AnswerEnded,
    Finish,
    Part,
    Reasoning,
    RunNote,
    ServerCall,
    Text,
)
from palyra.net.http.compat.conversation import Content, Conversation
from palyra.net.http.compat.errors import (
    MESSAGES_LENGTH_WORDS,
    TOO_LONG,
    NoThreads,
    code_of,
    error_body,
)
from palyra.net.http.compat.estimate import estimate_input
from palyra.net.http.compat.model_names import ModelTarget
from palyra.net.http.compat.params import (
    CompatRequest,
    Count,
    Name,
    Share,
    ToolName,
    client_tool,
    read_schema,
    read_stop,
)
from palyra.net.http.compat.run_request import (
    CompatAnswer,
    Extension,
    RunRequest,
    check_tools,
)
from palyra.net.http.compat.sources import CompatSources
from palyra.net.protocol.params import Params


class Source(Params, frozen=True, kw_only=True):
    """A picture or document; what is not in the request is not fetched."""

    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    content: "str | tuple[Block, ...]" = ()


class Block(Params, frozen=True, kw_only=True):
    """A part of a message; which members it has depends on its type."""

    type: str
    text: str | None = None
    source: Source | str | None = None  # of a search result: its address
    title: str | None = None
    id: Name | None = None
    name: str | None = None
    tool_name: str | None = None
    input: Any = None
    tool_use_id: Name | None = None
    content: "str | tuple[Block, ...] | Block | None" = None
    is_error: bool | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    citations: Any = None
    context: str | None = None
    caller: Any = None
    cache_control: Any = None


class InputMessage(Params, frozen=True, kw_only=True):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | tuple[Block, ...]


class InputTool(Params, frozen=True, kw_only=True):
    """A tool: one that the client runs, or (left out) one that runs at the provider."""

    name: ToolName | None = None
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    type: str | None = None
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: Any = None


class ToolChoice(Params, frozen=True, kw_only=True):
    """The tools that the model may or must call."""

    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(Params, frozen=True, kw_only=True):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Params, frozen=True, kw_only=True):
    """Options of the answer."""

    format: OutputFormat | None = None
    effort: str | None = None


class Metadata(Params, frozen=True, kw_only=True):
    """A label of the request."""

    user_id: str | None = None


class MessagesRequest(CompatRequest, frozen=True, kw_only=True):
    """`POST /v1/messages`."""

    messages: tuple[InputMessage, ...]
    max_tokens: Count
    system: str | tuple[Block, ...] | None = None
    temperature: Share | None = None
    top_p: Share | None = None
    stop_sequences: tuple[str, ...] | None = None
    tools: tuple[InputTool, ...] | None = None
    tool_choice: ToolChoice | None = None
    metadata: Metadata | None = None
    thinking: dict[str, Any] | None = None
    service_tier: str | None = None
    output_config: OutputConfig | None = None
    cache_control: dict[str, Any] | None = None
    thread: Any = None
    palyra: Extension = Extension()

    @property
    def has_answer_schema(self) -> bool:
        """True if the request has a JSON Schema for the answer."""
        return self.output_config is not None and self.output_config.format is not None


class CountRequest(Params, frozen=True, kw_only=True):
    """`POST /v1/messages/count_tokens`."""

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


class TextPart(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """Reasoning of the model."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call for the client."""

    id: str
    name: str
    input: Any


StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal"]


class StopDetails(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="refusal"):
    """The reason for a refusal."""

    explanation: str
    category: None = None


class ThinkingDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Output tokens of the model's reasoning."""

    thinking_tokens: int = 0


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all turns of the run; the three kinds of input make its sum."""

    input_tokens: int = 0  # neither from the provider's cache nor into it
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: ThinkingDetails = ThinkingDetails()


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated tokens of a request."""

    input_tokens: int


class MessageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, whole or at the start of a stream."""

    id: str
    model: str
    content: list[TextPart | ThinkingBlock | ToolUseBlock]
    stop_reason: StopReason | None
    usage: MessageUsage
    palyra: RunNote
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None


ID_PREFIX = "msg_"
# Tools of Anthropic's that the client runs, which a request names by their type alone: the type's
# start, a description, and the arguments.  Source: https://docs.anthropic.com/en/docs/agents-and-tools.
KNOWN_TOOLS: dict[str, tuple[str, dict[str, str]]] = {
    "bash_": (
        "Run a command in a lasting shell.",
        {"command": "string", "restart": "boolean"},
    ),
    "text_editor_": (
        "View and edit text files: the commands are view, create, str_replace and insert.",
        {
            "command": "string",
            "path": "string",
            "file_text": "string",
            "old_str": "string",
            "new_str": "string",
            "insert_line": "integer",
            "insert_text": "string",
            "view_range": "array",
        },
    ),
    "memory_": (
        "Keep notes in files: view, create, str_replace, insert, delete and rename.",
        {
            "command": "string",
            "path": "string",
            "file_text": "string",
            "old_str": "string",
            "new_str": "string",
            "insert_line": "integer",
            "insert_text": "string",
            "old_path": "string",
            "new_path": "string",
            "view_range": "array",
        },
    ),
}
CUSTOM = "custom"  # the type of a tool with a schema of its own
_STOP: dict[Finish, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_TYPES = {"server_error": "api_error", "insufficient_quota": "rate_limit_error"}
_OVERLOADED = frozenset({"overloaded", "draining", "unavailable"})

# --- the request ---------------------------------------------------------------------------------


def read_messages(
    request: MessagesRequest, target: ModelTarget, _called: Mapping[str, str]
) -> RunRequest:
    """Return the run that is requested.  Raises InvalidParams, Unsupported."""
    if request.thread is not None:
        raise NoThreads(
            "thread: send the whole conversation, or what is new to the session of a "
            "palyra.session_key",
            field="thread",
        )
    wanted = None if request.output_config is None else request.output_config.format
    choice = request.tool_choice or ToolChoice(type="auto")
    must_call = _must_call(choice)
    conversation = Conversation()
    tools = () if choice.type == "none" else tuple(_tools(request.tools or (), conversation))
    check_tools(tools, must_call)
    conversation.add_system(_content(conversation, request.system or "", "system").text)
    for index, message in enumerate(request.messages):
        _add(conversation, message, f"messages[{index}]")
    return RunRequest(
        chat=conversation.finish("messages"),
        target=target,
        tools=tools,
        must_call=must_call,
        one_call=bool(choice.disable_parallel_tool_use),
        sampling=Sampling(
            max_output_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=read_stop(request.stop_sequences, "stop_sequences"),
        ),
        json_mode=wanted is not None,
        answer_schema=None
        if wanted is None
        else read_schema(wanted.schema, "output_config.format"),
        extension=request.palyra,
    )


def _must_call(choice: ToolChoice) -> str:
    if choice.type == "tool":
        return _need(choice.name, "tool_choice", "name")
    return ANY_TOOL if choice.type == "any" else ""


def _tools(given: tuple[InputTool, ...], conversation: Conversation) -> Iterator[ClientTool]:
    """Return the tools that the client runs; those of the provider are left out."""
    for index, tool in enumerate(given):
        kind, place = tool.type or CUSTOM, f"tools[{index}]"
        if kind == CUSTOM:
            if tool.input_schema is None:
                raise InvalidParams(f"{place}: missing field input_schema", field=place)
            yield client_tool(_need(tool.name, place, "name"), tool.description, tool.input_schema)
        elif (start := next(filter(kind.startswith, KNOWN_TOOLS), None)) is not None:
            description, types = KNOWN_TOOLS[start]
            yield client_tool(_need(tool.name, place, "name"), description, _known_schema(types))
        else:
            conversation.ignore(f"tools.{kind}")


def _known_schema(types: Mapping[str, str]) -> dict[str, Any]:
    members = {name: {"type": kind} for name, kind in types.items()}
    return {"type": "object", "properties": members, "required": ["command"]}


def _add(conversation: Conversation, message: InputMessage, where: str) -> None:
    content = message.content
    if message.role == "user":
        _add_user(conversation, content, where)
        return
    said = _content(conversation, content, "messages[].content[]")
    if message.role == "system":
        conversation.add_system(said.text)
    else:
        conversation.add_assistant(said.text, _calls(content, where))


def _add_user(conversation: Conversation, content: str | tuple[Block, ...], where: str) -> None:
    """Add results first, in the order of the API, then the user's message."""
    blocks = () if isinstance(content, str) else content
    results = [block for block in blocks if block.type == "tool_result"]
    for block in results:
        output = _content(conversation, block.content, "messages[].content[].content[]")
        conversation.add_result(
            _need(block.tool_use_id, where, "tool_use_id"),
            output.text,
            f"{where}.tool_use_id",
            attachments=output.pictures,
            is_error=bool(block.is_error),
        )
    said = _content(conversation, content, "messages[].content[]")
    if said.text or said.pictures or not results:
        conversation.add_user(said.text, said.pictures)


def _content(
    conversation: Conversation, given: str | tuple[Block, ...] | Block | None, where: str
) -> Content:
    """Read text and pictures; calls, results and reasoning have no text of their own."""
    content = conversation.content()
    _read_all(content, given, where)
    return content


def _read_all(content: Content, given: str | tuple[Block, ...] | Block | None, where: str) -> None:
    if isinstance(given, str):
        content.say(given)
    elif given is not None:
        for block in (given,) if isinstance(given, Block) else given:
            _read(content, block, f"{where}.{block.type}")


def _read(content: Content, block: Block, place: str) -> None:
    match block.type, block.source:
        case (("text" | "tool_use" | "tool_result" | "thinking" | "redacted_thinking"), _):
            content.say(block.text)
        case "image", Source(type="base64") as source:
            content.show(source.data, place)
        case "image", Source(url=url):
            content.show_url(url, place)
        case "document", Source() as source:
            _read_document(content, block, source, place)
        case "search_result", str(address):
            content.say(f"{block.title or ''} {address}".strip())
            _read_all(content, block.content, place)
        case "tool_reference", _:
            content.say(f"[the tool {block.tool_name}]")
        case "compaction", _:
            _read_all(content, block.content, place)
        case _:
            content.leave_out(place, f"a part of the type {block.type}")


def _read_document(content: Content, block: Block, source: Source, place: str) -> None:
    title = block.title or "of no title"
    if source.type == "text":
        content.say(f"{block.title or ''}\n{source.data}".strip())
    elif source.type == "content":
        _read_all(content, source.content, place)
    else:
        content.read_file(source.media_type, source.data, title, place)


def _calls(content: str | tuple[Block, ...], where: str) -> tuple[ProposedCall, ...]:
    return tuple(
        ProposedCall(
            call_id=_need(block.id, where, "id"),
            tool=_need(block.name, where, "name"),
            arguments=block.input or {},
        )
        for block in content
        if isinstance(block, Block) and block.type == "tool_use"
    )


def _need(value: str | None, where: str, name: str) -> str:
    if not value:
        raise InvalidParams(f"{where}: missing field {name}", field=where)
    return value


# --- the answer ----------------------------------------------------------------------------------


def whole_message(
    request: MessagesRequest, answer: CompatAnswer, ended: AnswerEnded
) -> MessageAnswer:
    """Return the whole answer."""
    reading = answer.reading
    content: list[TextPart | ThinkingBlock | ToolUseBlock] = []
    if reading.reasoning:
        content.append(ThinkingBlock(thinking=reading.reasoning))
    if reading.text:
        content.append(TextPart(text=reading.text))
    content += [_tool_use(call) for call in ended.calls]
    return MessageAnswer(
        id=ID_PREFIX + answer.run_id,
        model=request.model,
        content=content,
        stop_reason=_stop_reason(ended),
        stop_details=_stop_details(ended),
        usage=_usage(reading.usage),
        palyra=answer.note(ended),
    )


def _stop_reason(ended: AnswerEnded) -> StopReason:
    return "refusal" if ended.refusal else _STOP[ended.finish]


def _stop_details(ended: AnswerEnded) -> StopDetails | None:
    return StopDetails(explanation=ended.refusal) if ended.refusal else None


def _tool_use(call: ProposedCall) -> ToolUseBlock:
    return ToolUseBlock(id=call.call_id, name=call.tool, input=call.arguments)


def _usage(usage: Usage) -> MessageUsage:
    stored, cached = usage.cache_write_tokens, usage.cached_tokens
    return MessageUsage(
        input_tokens=usage.input_tokens - stored - cached,
        cache_creation_input_tokens=stored,
        cache_read_input_tokens=cached,
        output_tokens=usage.output_tokens,
        output_tokens_details=ThinkingDetails(thinking_tokens=usage.reasoning_tokens),
    )


def message_error(error: PalyraError) -> dict[str, Any]:
    """Return the error in Anthropic's shape; its SDK reads `details`, and programs the message."""
    body, code = error_body(error), code_of(error)
    kind = "overloaded_error" if code in _OVERLOADED else _TYPES.get(body["type"], body["type"])
    if code in TOO_LONG:
        body["message"] = f"{MESSAGES_LENGTH_WORDS}: {error.message}"
    body["type"] = kind
    if isinstance(error, NoThreads):
        body["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return {"type": "error", "error": body}


# --- the stream ----------------------------------------------------------------------------------


class MessageStream:
    """An answer as typed events; a block ends when one of another kind starts."""

    def __init__(self, request: MessagesRequest, answer: CompatAnswer) -> None:
        self._request = request
        self._answer = answer
        self._index = -1
        self._kind = ""  # of the open block

    def begin(self) -> bytes:
        """Return the message without content."""
        answer = self._answer
        message = MessageAnswer(
            id=ID_PREFIX + answer.run_id,
            model=self._request.model,
            content=[],
            stop_reason=None,
            usage=MessageUsage(),
            palyra=RunNote(run_id=answer.run_id, session_id=answer.session_id),
        )
        return _event("message_start", message=message)

    def take(self, part: Part) -> bytes:
        """Return the events of one part."""
        match part:
            case Text():
                delta = {"type": "text_delta", "text": part.delta}
                return self._open("text", TextPart(text="")) + self._delta(delta)
            case Reasoning():
                delta = {"type": "thinking_delta", "thinking": part.delta}
                return self._open("thinking", ThinkingBlock(thinking="")) + self._delta(delta)
            case ServerCall():
                return _event("palyra.tool_call", tool_call=part)
            case AnswerEnded():
                return self._end(part)

    @staticmethod
    def fail(error: PalyraError) -> bytes:
        """Return an error after the start of the stream."""
        return http_exchange.event(message_error(error), "error")

    def _end(self, ended: AnswerEnded) -> bytes:
        calls = b"".join(self._call(_tool_use(call)) for call in ended.calls)
        delta = {
            "stop_reason": _stop_reason(ended),
            "stop_sequence": None,
            "stop_details": _stop_details(ended),
        }
        note = self._answer.note(ended)
        usage = _usage(self._answer.reading.usage)
        last = _event("message_delta", delta=delta, usage=usage, palyra=note)
        return calls + self._close() + last + _event("message_stop")

    def _call(self, block: ToolUseBlock) -> bytes:
        empty = msgspec.structs.replace(block, input={})
        text = msgspec.json.encode(block.input).decode()
        start = self._open(f"tool_use {block.id}", empty)
        return start + self._delta({"type": "input_json_delta", "partial_json": text})

    def _open(self, kind: str, block: TextPart | ThinkingBlock | ToolUseBlock) -> bytes:
        if kind == self._kind:
            return b""
        closed = self._close()
        self._kind = kind
        self._index += 1
        return closed + _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if not self._kind:
            return b""
        self._kind = ""
        return _event("content_block_stop", index=self._index)


def _event(kind: str, /, **members: Any) -> bytes:  # noqa: ANN401 - what the event has
    return http_exchange.event({"type": kind, **members}, kind)


async def count_tokens(sources: CompatSources, caller: Caller, request: CountRequest) -> TokenCount:
    """Estimate the tokens of a request, as `estimate_input` does."""
    tokens = await estimate_input(sources, caller, request, _read_counted)
    return TokenCount(input_tokens=tokens)


def _read_counted(request: CountRequest, target: ModelTarget) -> RunRequest:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    if request.messages and request.messages[-1].role == "assistant":  # it may be counted alone
        fields["messages"] = (*request.messages, InputMessage(role="user", content="."))
    return read_messages(MessagesRequest(**fields, max_tokens=1), target, {})
