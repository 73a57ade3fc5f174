"""`POST /v1/messages`: Anthropic's way to ask and to answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from palyra.core.brief import ANY_TOOL, ClientTool
from palyra.core.prompt import ProposedCall
from palyra.core.records import Usage
from palyra.errors import InvalidParams, PalyraError
from palyra.net.compat import sse
from palyra.net.compat.asking import Answer, Ask, check_tools
from palyra.net.compat.chat import run_note
from palyra.net.compat.chat_schema import RunNote
from palyra.net.compat.conversation import Attachment, Conversation, picture
from palyra.net.compat.errors import NoThreads, Unsupported, code_of, error_body
from palyra.net.compat.messages_schema import (
    Block,
    InputMessage,
    MessageAnswer,
    MessagesRequest,
    MessageUsage,
    StopDetails,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ThinkingDetails,
    ToolChoice,
    ToolUseBlock,
)
from palyra.net.compat.names import Target
from palyra.net.compat.params import read_schema, read_stop, refuse_unless_neutral, sampling_of
from palyra.net.compat.reading import Ended, Finish, Part, Reasoning, ServerCall, Text

ID_PREFIX = "msg_"
NEUTRAL: dict[str, tuple[Any, ...]] = {"container": (), "mcp_servers": ((),), "top_k": ()}
_STOP: dict[Finish, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_TYPES = {"server_error": "api_error"}
_OVERLOADED = frozenset({"overloaded", "draining", "unavailable"})

# --- the request ---------------------------------------------------------------------------------


def read_messages(request: MessagesRequest, target: Target, _called: Mapping[str, str]) -> Ask:
    """What is asked.  Raises InvalidParams, Unsupported."""
    refuse_unless_neutral(request, NEUTRAL)
    if request.thread is not None:
        raise NoThreads(
            "thread: send the whole conversation, or what is new to the session of a "
            "metadata.user_id",
            field="thread",
        )
    wanted = None if request.output_config is None else request.output_config.format
    choice = request.tool_choice or ToolChoice(type="auto")
    must_call = _must_call(choice)
    tools = () if choice.type == "none" else _tools(request)
    check_tools(tools, must_call)
    conversation = Conversation()
    conversation.add_system(_text(request.system or "", "system"))
    for index, message in enumerate(request.messages):
        _add(conversation, message, f"messages[{index}]")
    return Ask(
        told=conversation.finish("messages"),
        target=target,
        tools=tools,
        must_call=must_call,
        one_call=bool(choice.disable_parallel_tool_use),
        sampling=sampling_of(
            max_output_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=read_stop(request.stop_sequences, "stop_sequences"),
        ),
        json_mode=wanted is not None,
        answer_schema=None
        if wanted is None
        else read_schema(wanted.schema, "output_config.format"),
        user=None if request.metadata is None else request.metadata.user_id,
        extension=request.palyra,
    )


def _must_call(choice: ToolChoice) -> str:
    if choice.type == "tool":
        return _need(choice.name, "tool_choice", "name")
    return ANY_TOOL if choice.type == "any" else ""


def _tools(request: MessagesRequest) -> tuple[ClientTool, ...]:
    return tuple(
        ClientTool(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
        for tool in request.tools or ()
    )


def _add(conversation: Conversation, message: InputMessage, where: str) -> None:
    content = message.content
    if message.role == "system":
        conversation.add_system(_text(content, where))
    elif message.role == "assistant":
        conversation.add_assistant(_text(content, where), _calls(content, where))
    else:
        _add_user(conversation, content, where)


def _add_user(conversation: Conversation, content: str | tuple[Block, ...], where: str) -> None:
    """Results come first, as the API wants them; then what the person says."""
    blocks = () if isinstance(content, str) else content
    for block in blocks:
        if block.type == "tool_result":
            output = _text(block.content or "", f"{where}.tool_result")
            conversation.add_result(
                _need(block.tool_use_id, where, "tool_use_id"),
                output,
                f"{where}.tool_use_id",
                is_error=bool(block.is_error),
            )
    text, pictures = _text(content, where), tuple(_pictures(blocks, where))
    if text or pictures or not any(block.type == "tool_result" for block in blocks):
        conversation.add_user(text, pictures)


def _text(content: str | tuple[Block, ...], where: str) -> str:
    if isinstance(content, str):
        return content
    if "tool_result" in where and any(block.type == "image" for block in content):
        raise Unsupported(f"{where}: only a user shows pictures", field=where)
    return "\n".join(block.text or "" for block in content if block.type == "text")


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


def _pictures(blocks: tuple[Block, ...], where: str) -> list[Attachment]:
    found: list[Attachment] = []
    for block in blocks:
        if block.type != "image" or block.source is None:
            continue
        if block.source.type != "base64":
            raise Unsupported(
                f"{where}: a picture comes as base64; nothing is fetched for a request",
                field=where,
            )
        found.append(picture(block.source.media_type, block.source.data))
    return found


def _need(value: str | None, where: str, name: str) -> str:
    if not value:
        raise InvalidParams(f"{where}: missing field {name}", field=where)
    return value


# --- the answer ----------------------------------------------------------------------------------


def whole_message(request: MessagesRequest, answer: Answer, ended: Ended) -> MessageAnswer:
    """The whole answer."""
    reading = answer.reading
    content: list[TextBlock | ThinkingBlock | ToolUseBlock] = []
    if reading.reasoning:
        content.append(ThinkingBlock(thinking=reading.reasoning))
    if reading.text:
        content.append(TextBlock(text=reading.text))
    content += [_tool_use(call) for call in ended.calls]
    return MessageAnswer(
        id=ID_PREFIX + answer.run_id,
        model=request.model,
        content=content,
        stop_reason=_stop_reason(ended),
        stop_details=_stop_details(ended),
        usage=_usage(reading.usage),
        palyra=run_note(answer, ended),
    )


def _stop_reason(ended: Ended) -> StopReason:
    return "refusal" if ended.refusal else _STOP[ended.finish]


def _stop_details(ended: Ended) -> StopDetails | None:
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
    """The error in Anthropic's shape, with our typed code; `details` are what its SDK acts on."""
    told = error_body(error)
    kind = _TYPES.get(told["type"], told["type"])
    if code_of(error) in _OVERLOADED:
        kind = "overloaded_error"
    told = {"type": kind, "message": told["message"], "code": told["code"], "param": told["param"]}
    if isinstance(error, NoThreads):
        told["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return {"type": "error", "error": told}


# --- the stream ----------------------------------------------------------------------------------


class MessageStream:
    """An answer as typed events; a block ends where one of another kind begins."""

    def __init__(self, request: MessagesRequest, answer: Answer) -> None:
        self._request = request
        self._answer = answer
        self._index = -1
        self._kind = ""  # of the open block

    def begin(self) -> bytes:
        """The message without content."""
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
        """What one part becomes."""
        match part:
            case Text():
                delta = {"type": "text_delta", "text": part.delta}
                return self._open("text", TextBlock(text="")) + self._delta(delta)
            case Reasoning():
                delta = {"type": "thinking_delta", "thinking": part.delta}
                return self._open("thinking", ThinkingBlock(thinking="")) + self._delta(delta)
            case ServerCall():
                return _event("palyra.tool_call", tool_call=part)
            case Ended():
                return self._end(part)

    @staticmethod
    def fail(error: PalyraError) -> bytes:
        """An error after the beginning."""
        return sse.event(message_error(error), "error")

    def _end(self, ended: Ended) -> bytes:
        calls = b"".join(self._call(_tool_use(call)) for call in ended.calls)
        delta = {
            "stop_reason": _stop_reason(ended),
            "stop_sequence": None,
            "stop_details": _stop_details(ended),
        }
        note = run_note(self._answer, ended)
        usage = _usage(self._answer.reading.usage)
        last = _event("message_delta", delta=delta, usage=usage, palyra=note)
        return calls + self._close() + last + _event("message_stop")

    def _call(self, block: ToolUseBlock) -> bytes:
        empty = msgspec.structs.replace(block, input={})
        text = msgspec.json.encode(block.input).decode()
        begun = self._open(f"tool_use {block.id}", empty)
        return begun + self._delta({"type": "input_json_delta", "partial_json": text})

    def _open(self, kind: str, block: TextBlock | ThinkingBlock | ToolUseBlock) -> bytes:
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
    return sse.event({"type": kind, **members}, kind)
