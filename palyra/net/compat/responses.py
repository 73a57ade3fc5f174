"""`POST /v1/responses`: the request as a run, the run as output items or typed events."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from palyra.core.brief import ClientTool
from palyra.core.prompt import ProposedCall
from palyra.core.records import Usage
from palyra.errors import InvalidParams, PalyraError
from palyra.net.compat import sse
from palyra.net.compat.asking import Answer, Ask, check_tools
from palyra.net.compat.chat import run_note
from palyra.net.compat.chat_schema import RunNote
from palyra.net.compat.conversation import (
    Attachment,
    Conversation,
    Told,
    arguments_text,
    parse_arguments,
    picture_of_url,
)
from palyra.net.compat.errors import RunEnded, Unsupported, code_of, error_body
from palyra.net.compat.names import Target
from palyra.net.compat.params import NO_SCHEMA, refuse_unless_neutral, sampling_of
from palyra.net.compat.reading import Ended, Part, Reasoning, ServerCall, Text
from palyra.net.compat.responses_schema import (
    FunctionTool,
    Incomplete,
    InputItem,
    InputPart,
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
    Response,
    ResponseError,
    ResponsesRequest,
    ResponseUsage,
    Status,
)

ID_PREFIX, RUN_PREFIX = "resp_", "run_"
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "max_tool_calls": (),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "include": ((), ("reasoning.encrypted_content",)),
    "parallel_tool_calls": (True,),
    "tool_choice": ("auto", "none"),
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
    text = request.text
    if text is not None and text.format.type == "json_schema":
        raise Unsupported(NO_SCHEMA.format("text.format"), field="text.format")
    tools = () if request.tool_choice == "none" else _tools(request.tools or ())
    check_tools(tools)
    return Ask(
        told=_told(request, called),
        target=target,
        tools=tools,
        sampling=sampling_of(
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
        ),
        json_mode=text is not None and text.format.type == "json_object",
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
    if isinstance(content, str):
        return content
    try:
        return msgspec.convert(content or (), tuple[InputPart, ...])
    except msgspec.ValidationError as error:
        raise InvalidParams(f"{where}.content: {error}", field=f"{where}.content") from None


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
    return _with_request(build_response(request.model, answer, ended), request)


def _with_request(response: Response, request: ResponsesRequest) -> Response:
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
        metadata=request.metadata or {},
        user=request.user,
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
    return "incomplete" if ended.finish in {"length", "content_filter"} else "completed"


def _incomplete(ended: Ended | None) -> Incomplete | None:
    if ended is None or ended.failure_class or ended.finish not in {"length", "content_filter"}:
        return None
    is_cut = ended.finish == "length"
    return Incomplete(reason="max_output_tokens" if is_cut else "content_filter")


def _output(answer: Answer, ended: Ended | None) -> Sequence[OutputItem]:
    reading, calls = answer.reading, () if ended is None else ended.calls
    items: list[OutputItem] = []
    if reading.reasoning:
        items.append(_reasoning_item(answer.run_id, reading.reasoning))
    if reading.text or not calls:
        items.append(_message_item(answer.run_id, reading.text))
    return [*items, *map(_call_item, calls)]


def _reasoning_item(run_id: str, text: str) -> OutputReasoning:
    return OutputReasoning(id=_item_id("rs", run_id), content=[ReasoningText(text=text)])


def _message_item(run_id: str, text: str) -> OutputMessage:
    content = [OutputText(text=text)]
    return OutputMessage(id=_item_id("msg", run_id), content=content, status="completed")


def _call_item(call: ProposedCall) -> OutputCall:
    return OutputCall(
        id=f"fc_{call.call_id.removeprefix('call_')}",
        call_id=call.call_id,
        name=call.tool,
        arguments=arguments_text(call.arguments),
    )


def _item_id(prefix: str, run_id: str) -> str:
    return f"{prefix}_{run_id.removeprefix(RUN_PREFIX)}"


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )


# --- the stream ----------------------------------------------------------------------------------


class ResponseStream:
    """An answer as typed events, each with its place in the sequence."""

    def __init__(self, request: ResponsesRequest, answer: Answer) -> None:
        self._request = request
        self._answer = answer
        self._sequence = 0
        self._open: dict[str, int] = {}  # items that are being written, with their index

    def begin(self) -> bytes:
        """The response without an answer yet."""
        empty = self._response(None)
        return self._event("response.created", response=empty) + self._event(
            "response.in_progress", response=empty
        )

    def take(self, part: Part) -> bytes:
        """What one part becomes."""
        match part:
            case Text():
                return self._say(part.delta)
            case Reasoning():
                return self._think(part.delta)
            case ServerCall():
                return self._event("palyra.tool_call", tool_call=part)
            case Ended():
                return self._end(part)

    def fail(self, error: PalyraError) -> bytes:
        """A run that failed is a failed response; anything else is an error of the stream."""
        ended = self._answer.reading.ended
        if isinstance(error, RunEnded) and ended is not None:
            return self._event("response.failed", response=self._response(ended))
        told = error_body(error)
        return self._event(
            "error", code=code_of(error), message=told["message"], param=told["param"]
        )

    def _say(self, delta: str) -> bytes:
        item_id = _item_id("msg", self._answer.run_id)
        begun = b""
        if item_id not in self._open:
            empty = OutputMessage(id=item_id, content=[], status="in_progress")
            begun = self._add(item_id, empty) + self._event(
                "response.content_part.added",
                **self._place(item_id),
                content_index=0,
                part=OutputText(text=""),
            )
        return begun + self._event(
            "response.output_text.delta",
            **self._place(item_id),
            content_index=0,
            delta=delta,
            logprobs=[],
        )

    def _think(self, delta: str) -> bytes:
        item_id = _item_id("rs", self._answer.run_id)
        begun = b""
        if item_id not in self._open:
            begun = self._add(
                item_id, OutputReasoning(id=item_id, content=[], status="in_progress")
            )
        return begun + self._event(
            "response.reasoning_text.delta", **self._place(item_id), content_index=0, delta=delta
        )

    def _end(self, ended: Ended) -> bytes:
        """What is open is closed, calls follow, then the whole response."""
        answer, pieces = self._answer, []
        if not ended.calls and _item_id("msg", answer.run_id) not in self._open:
            pieces.append(self._say(""))
        response = self._response(ended)
        for item in response.output:
            if isinstance(item, OutputCall):
                pieces.append(self._call(item))
            elif isinstance(item, OutputMessage):
                pieces.append(self._close_message(item))
            pieces.append(
                self._event(
                    "response.output_item.done", output_index=self._open[item.id], item=item
                )
            )
        name = "response.incomplete" if response.status == "incomplete" else "response.completed"
        return b"".join([*pieces, self._event(name, response=response)])

    def _close_message(self, item: OutputMessage) -> bytes:
        place, part = self._place(item.id), item.content[0]
        return self._event(
            "response.output_text.done", **place, content_index=0, text=part.text, logprobs=[]
        ) + self._event("response.content_part.done", **place, content_index=0, part=part)

    def _call(self, item: OutputCall) -> bytes:
        empty = msgspec.structs.replace(item, arguments="", status="in_progress")
        added = self._add(item.id, empty)
        place = self._place(item.id)
        delta = self._event("response.function_call_arguments.delta", **place, delta=item.arguments)
        done = self._event(
            "response.function_call_arguments.done",
            **place,
            arguments=item.arguments,
            name=item.name,
        )
        return added + delta + done

    def _add(self, item_id: str, item: OutputItem) -> bytes:
        self._open[item_id] = len(self._open)
        return self._event(
            "response.output_item.added", output_index=self._open[item_id], item=item
        )

    def _place(self, item_id: str) -> dict[str, Any]:
        return {"item_id": item_id, "output_index": self._open[item_id]}

    def _response(self, ended: Ended | None) -> Response:
        """The response; its items in the order in which they were begun."""
        made = build_response(self._request.model, self._answer, ended)
        order = self._open
        output = sorted(made.output, key=lambda item: order.get(item.id, len(order)))
        shown = [] if ended is None else output
        return _with_request(msgspec.structs.replace(made, output=shown), self._request)

    def _event(self, kind: str, /, **members: Any) -> bytes:  # noqa: ANN401 - what the event has
        body = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return sse.event(body, kind)
