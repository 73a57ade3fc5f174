"""`POST /v1/chat/completions`: the request as a run, the run as an answer or as chunks."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from palyra.core.brief import ANY_TOOL, ClientTool
from palyra.core.prompt import ProposedCall
from palyra.core.records import Usage
from palyra.errors import InvalidParams, PalyraError
from palyra.net.compat import sse
from palyra.net.compat.asking import Answer, Ask, check_tools
from palyra.net.compat.chat_schema import (
    AnsweredCall,
    AnsweredFunction,
    AnsweredMessage,
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    ChatUsage,
    Choice,
    ChunkChoice,
    ChunkDelta,
    ChunkNote,
    ImagePart,
    InputDetails,
    NamedTool,
    OutputDetails,
    RefusalPart,
    RunNote,
    TextPart,
    Tool,
)
from palyra.net.compat.conversation import (
    Attachment,
    Conversation,
    Told,
    arguments_text,
    parse_arguments,
    picture_of_url,
)
from palyra.net.compat.errors import Unsupported, error_body
from palyra.net.compat.names import Target
from palyra.net.compat.params import read_schema, read_stop, refuse_unless_neutral, sampling_of
from palyra.net.compat.reading import Ended, Part, Reasoning, ServerCall, Text

ID_PREFIX = "chatcmpl-"
# Parameters that no run can be asked for, and the values that ask for nothing.
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


def read_chat(request: ChatRequest, target: Target, _called: Mapping[str, str]) -> Ask:
    """What is asked.  Raises InvalidParams, Unsupported."""
    refuse_unless_neutral(request, NEUTRAL)
    tools = () if request.tool_choice == "none" else _tools(request.tools or ())
    must_call = _must_call(request.tool_choice)
    check_tools(tools, must_call)
    return Ask(
        told=_told(request.messages),
        target=target,
        tools=tools,
        must_call=must_call,
        one_call=request.parallel_tool_calls is False,
        sampling=sampling_of(
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


def _tools(tools: Sequence[Tool]) -> tuple[ClientTool, ...]:
    return tuple(
        ClientTool(
            name=tool.function.name,
            description=tool.function.description or "",
            parameters=tool.function.parameters or {"type": "object", "properties": {}},
        )
        for tool in tools
    )


def _told(messages: Sequence[ChatMessage]) -> Told:
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
                raise Unsupported(f"{where}.content: only a user shows pictures", field=where)
            case ImagePart():
                pass
    return "\n".join(texts) or message.refusal or ""


def _pictures(message: ChatMessage, where: str) -> tuple[Attachment, ...]:
    if message.content is None or isinstance(message.content, str):
        return ()
    urls = [part.image_url.url for part in message.content if isinstance(part, ImagePart)]
    return tuple(picture_of_url(url, f"{where}.content") for url in urls)


# --- the answer ----------------------------------------------------------------------------------


def whole_chat(request: ChatRequest, answer: Answer, ended: Ended) -> ChatCompletion:
    """The whole answer."""
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
        palyra=run_note(answer, ended),
    )


def run_note(answer: Answer, ended: Ended) -> RunNote:
    """The run, and what it did on the way."""
    return RunNote(
        run_id=answer.run_id,
        session_id=answer.session_id,
        model=answer.reading.model,
        tool_calls=list(answer.reading.server_calls.values()),
        partial=ended.partial,
        reason=ended.reason,
    )


def _answered_call(call: ProposedCall, index: int | None = None) -> AnsweredCall:
    function = AnsweredFunction(name=call.tool, arguments=arguments_text(call.arguments))
    return AnsweredCall(id=call.call_id, type="function", function=function, index=index)


def _usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=input_details(usage),
        completion_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
    )


def input_details(usage: Usage) -> InputDetails:
    """What of the input came from a cache, or went into it."""
    return InputDetails(
        cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
    )


# --- the stream ----------------------------------------------------------------------------------


class ChatStream:
    """An answer in chunks; `palyra` in them tells what no delta can."""

    def __init__(self, request: ChatRequest, answer: Answer) -> None:
        self._request = request
        self._answer = answer
        options = request.stream_options
        self._wants_usage = options is not None and bool(options.include_usage)

    def begin(self) -> bytes:
        """The role, and which run it is."""
        note = ChunkNote(run_id=self._answer.run_id, session_id=self._answer.session_id)
        return self._chunk(ChunkDelta(role="assistant", content=""), palyra=note)

    def take(self, part: Part) -> bytes:
        """What one part becomes."""
        match part:
            case Text():
                return self._chunk(ChunkDelta(content=part.delta))
            case Reasoning():
                return self._chunk(ChunkDelta(reasoning_content=part.delta))
            case ServerCall():
                return self._chunk(ChunkDelta(), palyra=ChunkNote(tool_call=part))
            case Ended():
                return self._end(part)

    @staticmethod
    def fail(error: PalyraError) -> bytes:
        """An error after the beginning; no `[DONE]` follows."""
        return sse.event({"error": error_body(error)})

    def _end(self, ended: Ended) -> bytes:
        calls = [_answered_call(call, index) for index, call in enumerate(ended.calls)]
        said = self._chunk(ChunkDelta(tool_calls=calls)) if calls else b""
        if ended.refusal:
            said += self._chunk(ChunkDelta(refusal=ended.refusal))
        note = ChunkNote(**msgspec.structs.asdict(run_note(self._answer, ended)))
        last = self._encode([ChunkChoice(delta=ChunkDelta(), finish_reason=ended.finish)], note)
        usage = b""
        if self._wants_usage:
            usage = self._encode([], usage=_usage(self._answer.reading.usage))
        return said + last + usage + sse.DONE

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
        return sse.event(chunk)
