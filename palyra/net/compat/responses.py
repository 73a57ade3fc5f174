"""`POST /v1/responses`: the request as a run, the run as output items or typed events."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from palyra.core.brief import ANY_TOOL, ClientTool
from palyra.core.prompt import ProposedCall
from palyra.core.records import RunRecord, Usage
from palyra.errors import InvalidParams
from palyra.net.compat.asking import Answer, Ask, check_tools
from palyra.net.compat.chat import input_details, run_note
from palyra.net.compat.chat_schema import OutputDetails, RunNote
from palyra.net.compat.conversation import (
    Attachment,
    Conversation,
    Told,
    arguments_text,
    parse_arguments,
    picture_of_url,
)
from palyra.net.compat.errors import Unsupported
from palyra.net.compat.names import Target
from palyra.net.compat.params import read_schema, refuse_unless_neutral, sampling_of
from palyra.net.compat.reading import Ended
from palyra.net.compat.responses_schema import (
    FunctionTool,
    Incomplete,
    InputItem,
    InputPart,
    MessageContent,
    NamedFunction,
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputRefusal,
    OutputText,
    ReasoningText,
    Response,
    ResponseError,
    ResponsesRequest,
    ResponseUsage,
    Status,
    TextFormat,
)
from palyra.net.params import convert_params

ID_PREFIX, RUN_PREFIX = "resp_", "run_"
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "max_tool_calls": (),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "include": ((), ("reasoning.encrypted_content",)),
}


def response_id(run_id: str) -> str:
    """The response that a run is."""
    return ID_PREFIX + run_id.removeprefix(RUN_PREFIX)


def run_id_of(given: str) -> str:
    """The run that a response is."""
    return RUN_PREFIX + given.removeprefix(ID_PREFIX)


# --- the request ---------------------------------------------------------------------------------


def read_responses(request: ResponsesRequest, target: Target, called: Mapping[str, str]) -> Ask:
    """What is asked; `called` are the tools of earlier calls, by the call's id.

    Raises InvalidParams, Unsupported.
    """
    refuse_unless_neutral(request, NEUTRAL)
    wanted = TextFormat() if request.text is None else request.text.format
    is_formed = wanted.type == "json_schema"
    choice = request.tool_choice
    tools = () if choice == "none" else _tools(request.tools or ())
    must_call = choice.name if isinstance(choice, NamedFunction) else ""
    must_call = ANY_TOOL if choice == "required" else must_call
    check_tools(tools, must_call)
    return Ask(
        told=_told(request, called),
        target=target,
        tools=tools,
        must_call=must_call,
        one_call=request.parallel_tool_calls is False,
        sampling=sampling_of(
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
        ),
        json_mode=wanted.type != "text",
        answer_schema=read_schema(wanted.schema, "text.format") if is_formed else None,
        user=request.user,
        extension=request.palyra,
    )


def _tools(tools: Sequence[FunctionTool]) -> tuple[ClientTool, ...]:
    return tuple(
        ClientTool(
            name=tool.name,
            description=tool.description or "",
            parameters=tool.parameters or {"type": "object", "properties": {}},
        )
        for tool in tools
    )


def _told(request: ResponsesRequest, called: Mapping[str, str]) -> Told:
    conversation = Conversation(called)
    conversation.add_system(request.instructions or "")
    if isinstance(request.input, str):
        conversation.add_user(request.input)
    else:
        for index, item in enumerate(request.input):
            _add(conversation, item, f"input[{index}]")
    return conversation.finish("input")


def _add(conversation: Conversation, item: InputItem, where: str) -> None:
    match item.type:
        case "message":
            _add_message(conversation, item, where)
        case "function_call":
            name, call_id = _need(item, "name", where), _need(item, "call_id", where)
            arguments = parse_arguments(item.arguments or "")
            call = ProposedCall(call_id=call_id, tool=name, arguments=arguments)
            conversation.add_assistant("", (call,))
        case "function_call_output":
            output = _text(item.output, f"{where}.output")
            conversation.add_result(_need(item, "call_id", where), output, f"{where}.call_id")
        case "reasoning":
            pass  # not shown to a model again


def _need(item: InputItem, name: str, where: str) -> str:
    value: str | None = getattr(item, name)
    if not value:
        raise InvalidParams(f"{where}: missing field {name}", field=where)
    return value


def _add_message(conversation: Conversation, item: InputItem, where: str) -> None:
    content = _parts(item.content, where)
    text = _text(content, where)
    match item.role:
        case "system" | "developer":
            conversation.add_system(text)
        case "user":
            conversation.add_user(text, _pictures(content, where))
        case "assistant":
            conversation.add_assistant(text)
        case None:
            raise InvalidParams(f"{where}: missing field role", field=where)


def _parts(content: Any, where: str) -> str | tuple[InputPart, ...]:  # noqa: ANN401 - see InputItem
    try:
        return convert_params(MessageContent, {"content": content}).content or ()
    except InvalidParams as error:
        raise InvalidParams(f"{where}: {error.message}", field=f"{where}.{error.field}") from None


def _text(content: str | tuple[InputPart, ...] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for part in content:
        if part.type == "input_image" and "output" in where:
            raise Unsupported(f"{where}: only a user shows pictures", field=where)
        texts.append(part.text or part.refusal or "")
    return "\n".join(filter(None, texts))


def _pictures(content: str | tuple[InputPart, ...], where: str) -> tuple[Attachment, ...]:
    if isinstance(content, str):
        return ()
    images = [part for part in content if part.type == "input_image"]
    return tuple(picture_of_url(part.image_url or "", where) for part in images)


# --- the answer ----------------------------------------------------------------------------------


def whole_response(request: ResponsesRequest, answer: Answer, ended: Ended) -> Response:
    """The whole answer."""
    return with_request(build_response(request.model, answer, ended), request)


def with_request(response: Response, request: ResponsesRequest) -> Response:
    """The answer with what was asked."""
    return msgspec.structs.replace(
        response,
        instructions=request.instructions,
        previous_response_id=request.previous_response_id,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        tools=list(request.tools or ()),
        tool_choice=request.tool_choice or "auto",
        parallel_tool_calls=request.parallel_tool_calls is not False,
        metadata=request.metadata or {},
        user=request.user,
    )


def response_under_way(record: RunRecord) -> Response:
    """What is known of a run that has not ended: nothing of its answer."""
    return Response(
        id=response_id(record.run_id),
        created_at=record.created_ms // 1000,
        model=record.model,
        status="in_progress",
        output=[],
        palyra=RunNote(run_id=record.run_id, session_id=record.session_id),
    )


def build_response(model: str, answer: Answer, ended: Ended | None) -> Response:
    """The answer as far as it is known."""
    reading = answer.reading
    status: Status = "in_progress"
    note = RunNote(run_id=answer.run_id, session_id=answer.session_id)
    if ended is not None:
        status = _status(ended)
        note = run_note(answer, ended)
    failed = ended is not None and bool(ended.failure_class)
    return Response(
        id=response_id(answer.run_id),
        created_at=reading.created_ms // 1000,
        model=model,
        status=status,
        output=list(_output(answer, ended)),
        palyra=note,
        usage=None if ended is None else _usage(reading.usage),
        error=ResponseError(code=ended.failure_class, message=ended.reason)
        if ended is not None and failed
        else None,
        incomplete_details=_incomplete(ended),
    )


def _status(ended: Ended) -> Status:
    if ended.failure_class:
        return "cancelled" if ended.failure_class == "run_cancelled" else "failed"
    return "incomplete" if ended.partial else "completed"


def _incomplete(ended: Ended | None) -> Incomplete | None:
    if ended is None or ended.failure_class or not ended.partial:
        return None
    known = {"length": "max_output_tokens", "content_filter": "content_filter"}
    return Incomplete(reason=known.get(ended.finish, ended.partial))


def _output(answer: Answer, ended: Ended | None) -> Sequence[OutputItem]:
    reading, calls = answer.reading, () if ended is None else ended.calls
    items: list[OutputItem] = []
    if reading.reasoning:
        items.append(_reasoning_item(answer.run_id, reading.reasoning))
    if reading.text or not calls:
        refusal = "" if ended is None else ended.refusal
        items.append(_message_item(answer.run_id, reading.text, refusal))
    return [*items, *map(_call_item, calls)]


def _reasoning_item(run_id: str, text: str) -> OutputReasoning:
    return OutputReasoning(id=item_name("rs", run_id), content=[ReasoningText(text=text)])


def _message_item(run_id: str, text: str, refusal: str) -> OutputMessage:
    content: list[OutputText | OutputRefusal] = []
    if text or not refusal:
        content.append(OutputText(text=text))
    if refusal:
        content.append(OutputRefusal(refusal=refusal))
    return OutputMessage(id=item_name("msg", run_id), content=content, status="completed")


def _call_item(call: ProposedCall) -> OutputCall:
    return OutputCall(
        id=f"fc_{call.call_id.removeprefix('call_')}",
        call_id=call.call_id,
        name=call.tool,
        arguments=arguments_text(call.arguments),
    )


def item_name(prefix: str, run_id: str) -> str:
    """The id of one of the output items."""
    return f"{prefix}_{run_id.removeprefix(RUN_PREFIX)}"


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens_details=input_details(usage),
        output_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
    )
