"""OpenAI's responses, `POST /v1/responses`: request, answer as output items, stream of typed events.

Source: https://platform.openai.com/docs/api-reference/responses.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from palyra.core.access import Caller
from palyra.core.journal.records import Usage
from palyra.core.model.messages import ProposedCall, Sampling
from palyra.core.model.request_options import ANY_TOOL, ClientTool
from palyra.core.session.commands import RunView
from palyra.errors import InvalidParams, PalyraError
from palyra.net.http.compat import http_exchange
from palyra.net.http.compat.answer import (
    AnswerEnded,
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
from palyra.net.http.compat.errors import RunEnded, Unsupported, code_of, error_body
from palyra.net.http.compat.estimate import estimate_input
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
    refuse_unless_neutral,
    without_unknown,
)
from palyra.net.http.compat.run_request import CompatAnswer, Extension, RunRequest, check_tools
from palyra.net.http.compat.sources import CompatSources
from palyra.net.protocol.params import Params, convert_params


class InputPart(Params, frozen=True, kw_only=True):
    """A part of a message; which members it has depends on its type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_data: str | None = None
    filename: str | None = None
    annotations: Any = None
    logprobs: Any = None


class InputItem(Params, frozen=True, kw_only=True):
    """A message, a call, a call's result, declared tools, or an item that is left out."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Any = None  # of a message: text or parts
    call_id: Name | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: Any = None  # of a call: text or parts
    id: str | None = None
    status: str | None = None
    summary: Any = None
    encrypted_content: str | None = None
    phase: str | None = None
    namespace: str | None = None
    tools: "tuple[ResponsesTool, ...] | None" = None


class Parts(Params, frozen=True, kw_only=True):
    """The content of a message or the output of a call."""

    parts: str | tuple[InputPart, ...] | None


class ResponsesTool(Params, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that the client runs, a namespace of them, or (left out) one of OpenAI's own."""

    type: str
    name: ToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None  # of the input of a custom tool
    tools: "tuple[ResponsesTool, ...] | None" = None


class TextFormat(Params, frozen=True, kw_only=True):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(Params, frozen=True, kw_only=True):
    """Options of the answer's text."""

    format: TextFormat = TextFormat()
    verbosity: str | None = None


class NamedChoice(Params, frozen=True, kw_only=True, omit_defaults=True):
    """A choice of one tool, or of several."""

    type: str
    name: str = ""
    namespace: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: "tuple[NamedChoice, ...]" = ()


class ResponsesRequest(CompatRequest, frozen=True, kw_only=True):
    """`POST /v1/responses`."""

    input: str | tuple[InputItem, ...]
    instructions: str | None = None
    previous_response_id: Name | None = None
    max_output_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    text: TextOptions | None = None
    tools: tuple[ResponsesTool, ...] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    user: Name | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    top_logprobs: int | None = None
    truncation: str | None = None
    include: tuple[str, ...] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    reasoning: Any = None
    service_tier: str | None = None
    stream_options: Any = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    palyra: Extension = Extension()

    @property
    def has_answer_schema(self) -> bool:
        """True if the request has a JSON Schema for the answer."""
        return self.text is not None and self.text.format.type == "json_schema"


# --- answers -------------------------------------------------------------------------------------


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """Text of a message."""

    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputRefusal(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="refusal"):
    """The reason for a refusal."""

    refusal: str


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    content: list[OutputText | OutputRefusal]
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"] = "assistant"


class ReasoningText(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"
):
    """Reasoning of the model."""

    text: str


class OutputReasoning(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """Reasoning of the model."""

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
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    status: Literal["in_progress", "completed", "incomplete"] = "completed"


class OutputCustomCall(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="custom_tool_call"
):
    """A call of a custom tool of the client."""

    id: str
    call_id: str
    name: str
    input: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    status: Literal["in_progress", "completed", "incomplete"] = "completed"


OutputItem = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all turns of the run."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails


class ResponseError(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of a run without an answer."""

    code: str
    message: str


class Incomplete(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of an incomplete answer."""

    reason: str  # `max_output_tokens`, `content_filter`, or what `palyra.partial` says


Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated tokens of a request."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, whole or in progress."""

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
    tools: list[ResponsesTool] = []
    tool_choice: str | NamedChoice = "auto"
    parallel_tool_calls: bool = True
    metadata: dict[str, str] = {}
    user: str | None = None
    store: bool = True  # every run has its tape
    object: Literal["response"] = "response"


ID_PREFIX, RUN_PREFIX = "resp_", "run_"
# Parameters without which the answer would not be the one that was asked for, and neutral values.
REFUSED: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "top_logprobs": (0,),
}
# Parameters that are ignored, and the values with which nothing is.
HINTS: dict[str, tuple[Any, ...]] = {
    "truncation": ("disabled",),
    "include": ((), ("reasoning.encrypted_content",)),
}
NAMESPACE_BREAK = "."  # between a namespace and the name of a tool in it, for the model


def response_id(run_id: str) -> str:
    """Return the id of the response of a run."""
    return ID_PREFIX + run_id.removeprefix(RUN_PREFIX)


def run_id_of(given: str) -> str:
    """Return the id of the run of a response."""
    return RUN_PREFIX + given.removeprefix(ID_PREFIX)


# --- the request ---------------------------------------------------------------------------------


def read_responses(
    request: ResponsesRequest, target: ModelTarget, called: Mapping[str, str]
) -> RunRequest:
    """Return the run that is requested; `called` has the tools of earlier calls by call id.

    Raises InvalidParams, Unsupported.
    """
    refuse_unless_neutral(request, REFUSED)
    conversation = Conversation(called)
    for hint in name_hints(request, HINTS):
        conversation.ignore(hint)
    wanted = TextFormat() if request.text is None else request.text.format
    is_formed = wanted.type == "json_schema"
    choice = request.tool_choice
    declared = declared_tools(request, conversation.ignore)
    tools = () if choice == "none" else _allowed(declared, choice)
    must_call = _must_call(choice)
    check_tools(tools, must_call)
    return RunRequest(
        chat=_conversation(request, conversation),
        target=target,
        tools=tools,
        must_call=must_call,
        one_call=request.parallel_tool_calls is False,
        sampling=Sampling(
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
        ),
        json_mode=wanted.type != "text",
        answer_schema=read_schema(wanted.schema, "text.format") if is_formed else None,
        extension=request.palyra,
    )


class Declared(NamedTuple):
    """A tool of the client, and where its declaration has it."""

    tool: ClientTool
    name: str
    namespace: str = ""
    is_custom: bool = False


def declared_tools(
    request: ResponsesRequest, ignore: Callable[[str], None] = lambda _place: None
) -> dict[str, Declared]:
    """Return the tools that the client runs, by their name for the model.

    A tool in a namespace is declared in it, and called with the namespace beside its name.  OpenAI's
    own tools are left out.  Raises InvalidParams.
    """
    given = list(request.tools or ())
    if not isinstance(request.input, str):
        given += [tool for item in request.input for tool in item.tools or ()]
    found: dict[str, Declared] = {}
    for namespace, tool in chain.from_iterable(map(_spread, given)):
        if tool.type not in {"function", "custom"}:
            ignore(f"tools.{tool.type}")
            continue
        if not tool.name:
            raise InvalidParams("tools: missing field name", field="tools")
        known = namespace + NAMESPACE_BREAK + tool.name if namespace else tool.name
        is_custom = tool.type == "custom"
        made = (
            custom_tool(known, tool.description, tool.format)
            if is_custom
            else client_tool(known, tool.description, tool.parameters)
        )
        if known in found:
            raise InvalidParams(f"tools: {known!r} is listed twice", field="tools")
        found[known] = Declared(made, tool.name, namespace, is_custom)
    return found


def _spread(tool: ResponsesTool) -> Iterator[tuple[str, ResponsesTool]]:
    """Return a tool, or each one of a namespace, with the namespace."""
    if tool.type != "namespace":
        yield "", tool
    for inner in tool.tools or ():
        yield tool.name or "", inner


def _allowed(
    declared: Mapping[str, Declared], choice: str | NamedChoice | None
) -> tuple[ClientTool, ...]:
    tools = tuple(each.tool for each in declared.values())
    if not isinstance(choice, NamedChoice) or choice.type != "allowed_tools":
        return tools
    allowed = set(map(_chosen, choice.tools))
    return tuple(tool for tool in tools if tool.name in allowed)


def _chosen(choice: NamedChoice) -> str:
    return choice.namespace + NAMESPACE_BREAK + choice.name if choice.namespace else choice.name


def _must_call(choice: str | NamedChoice | None) -> str:
    if isinstance(choice, NamedChoice) and choice.type == "allowed_tools":
        choice = choice.mode
    if isinstance(choice, NamedChoice):
        if not choice.name:
            raise Unsupported(f"tool_choice: {choice.type} is no tool of the client")
        return _chosen(choice)
    return ANY_TOOL if choice == "required" else ""


def _conversation(request: ResponsesRequest, conversation: Conversation) -> ChatInput:
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
        case "function_call" | "custom_tool_call":
            name, call_id = _need(item, "name", where), _need(item, "call_id", where)
            if item.namespace:
                name = item.namespace + NAMESPACE_BREAK + name
            call = (
                custom_call(call_id, name, item.input)
                if item.type == "custom_tool_call"
                else ProposedCall(
                    call_id=call_id, tool=name, arguments=parse_arguments(item.arguments or "")
                )
            )
            conversation.add_assistant("", (call,))
        case "function_call_output" | "custom_tool_call_output":
            output = _content(conversation, item.output, where, "output")
            conversation.add_result(
                _need(item, "call_id", where),
                output.text,
                f"{where}.call_id",
                attachments=output.pictures,
            )
        case "reasoning" | "additional_tools":
            pass  # not sent to the model again; declared already
        case _:
            conversation.ignore(f"input[].{item.type}")


def _need(item: InputItem, name: str, where: str) -> str:
    value: str | None = getattr(item, name)
    if not value:
        raise InvalidParams(f"{where}: missing field {name}", field=where)
    return value


def _add_message(conversation: Conversation, item: InputItem, where: str) -> None:
    content = _content(conversation, item.content, where, "content")
    match item.role:
        case "system" | "developer":
            conversation.add_system(content.text)
        case "user":
            conversation.add_user(content.text, content.pictures)
        case "assistant":
            conversation.add_assistant(content.text)
        case None:
            raise InvalidParams(f"{where}: missing field role", field=where)


def _content(conversation: Conversation, given: object, where: str, member: str) -> Content:
    content = conversation.content()
    pruned, ignored = without_unknown(Parts, {"parts": given})
    for place in ignored:
        conversation.ignore(place.replace("parts", f"input[].{member}", 1))
    try:
        parts = convert_params(Parts, msgspec.convert(pruned, dict[str, Any])).parts
    except InvalidParams as error:
        field = f"{where}.{(error.field or '').replace('parts', member, 1)}"
        message = error.message.replace("parts", f"{where}.{member}", 1)
        raise InvalidParams(message, field=field) from None
    for part in () if parts is None or isinstance(parts, str) else parts:
        place = f"input[].{member}[].{part.type}"
        match part:
            case InputPart(type="input_text" | "output_text" | "text" | "refusal" | "summary_text"):
                content.say(part.text or part.refusal)
            case InputPart(type="input_image", image_url=str(url)):
                content.show_url(url, place)
            case InputPart(type="input_file", file_data=str(data)):
                content.read_file_url(data, part.filename or "of no name", place)
            case _:
                content.leave_out(place, f"a part of the type {part.type}")
    if isinstance(parts, str):
        content.say(parts)
    return content


# --- the answer ----------------------------------------------------------------------------------


def whole_response(request: ResponsesRequest, answer: CompatAnswer, ended: AnswerEnded) -> Response:
    """Return the whole answer."""
    declared = declared_tools(request)
    return with_request(build_response(request.model, answer, ended, declared), request)


async def count_response(
    sources: CompatSources, caller: Caller, request: ResponsesRequest
) -> ResponseTokens:
    """Estimate the tokens of a request, as `estimate_input` does, without an earlier response."""
    tokens = await estimate_input(
        sources, caller, request, lambda asked, target: read_responses(asked, target, {})
    )
    return ResponseTokens(input_tokens=tokens)


def with_request(response: Response, request: ResponsesRequest) -> Response:
    """Return the answer with the parameters of its request."""
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


def response_in_progress(record: RunView) -> Response:
    """Return the response of a run that has not ended, without its output."""
    return Response(
        id=response_id(record.run_id),
        created_at=record.created_ms // 1000,
        model=record.model,
        status="in_progress",
        output=[],
        palyra=RunNote(run_id=record.run_id, session_id=record.session_id),
    )


def build_response(
    model: str,
    answer: CompatAnswer,
    ended: AnswerEnded | None,
    declared: Mapping[str, Declared] = MappingProxyType({}),
) -> Response:
    """Return the answer, in progress if `ended` is None; `declared` has the tools of its request."""
    reading = answer.reading
    status: Status = "in_progress"
    note = RunNote(run_id=answer.run_id, session_id=answer.session_id)
    if ended is not None:
        status = _status(ended)
        note = answer.note(ended)
    failed = ended is not None and bool(ended.failure_class)
    return Response(
        id=response_id(answer.run_id),
        created_at=reading.created_ms // 1000,
        model=model,
        status=status,
        output=_output(answer, ended, declared),
        palyra=note,
        usage=None if ended is None else _usage(reading.usage),
        error=ResponseError(code=ended.failure_class, message=ended.reason)
        if ended is not None and failed
        else None,
        incomplete_details=_incomplete(ended),
    )


def _status(ended: AnswerEnded) -> Status:
    if ended.failure_class:
        return "cancelled" if ended.failure_class == "run_cancelled" else "failed"
    return "incomplete" if ended.partial else "completed"


def _incomplete(ended: AnswerEnded | None) -> Incomplete | None:
    if ended is None or ended.failure_class or not ended.partial:
        return None
    known = {"length": "max_output_tokens", "content_filter": "content_filter"}
    return Incomplete(reason=known.get(ended.finish, ended.partial))


def _output(
    answer: CompatAnswer, ended: AnswerEnded | None, declared: Mapping[str, Declared]
) -> list[OutputItem]:
    reading, calls = answer.reading, () if ended is None else ended.calls
    items: list[OutputItem] = []
    if reading.reasoning:
        items.append(_reasoning_item(answer.run_id, reading.reasoning))
    if reading.text or not calls:
        refusal = "" if ended is None else ended.refusal
        items.append(_message_item(answer.run_id, reading.text, refusal))
    return [*items, *(_call_item(call, declared.get(call.tool)) for call in calls)]


def _reasoning_item(run_id: str, text: str) -> OutputReasoning:
    return OutputReasoning(id=item_name("rs", run_id), content=[ReasoningText(text=text)])


def _message_item(run_id: str, text: str, refusal: str) -> OutputMessage:
    content: list[OutputText | OutputRefusal] = []
    if text or not refusal:
        content.append(OutputText(text=text))
    if refusal:
        content.append(OutputRefusal(refusal=refusal))
    return OutputMessage(id=item_name("msg", run_id), content=content, status="completed")


def _call_item(call: ProposedCall, declared: Declared | None) -> OutputCall | OutputCustomCall:
    part = call.call_id.removeprefix("call_")
    name = call.tool if declared is None else declared.name
    namespace = declared.namespace if declared is not None and declared.namespace else msgspec.UNSET
    if declared is not None and declared.is_custom:
        return OutputCustomCall(
            id=f"ctc_{part}",
            call_id=call.call_id,
            name=name,
            input=custom_input(call),
            namespace=namespace,
        )
    return OutputCall(
        id=f"fc_{part}",
        call_id=call.call_id,
        name=name,
        arguments=call.arguments_text,
        namespace=namespace,
    )


def item_name(prefix: str, run_id: str) -> str:
    """Return the id of an output item."""
    return f"{prefix}_{run_id.removeprefix(RUN_PREFIX)}"


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
    )


class ResponseStream:
    """An answer as typed events, each with a sequence number."""

    def __init__(self, request: ResponsesRequest, answer: CompatAnswer) -> None:
        self._request = request
        self._answer = answer
        self._declared = declared_tools(request)
        self._sequence = 0
        self._open: dict[str, int] = {}  # output index of each started item

    def begin(self) -> bytes:
        """Return the response without output."""
        empty = self._response(None)
        return self._event("response.created", response=empty) + self._event(
            "response.in_progress", response=empty
        )

    def take(self, part: Part) -> bytes:
        """Return the events of one part."""
        match part:
            case Text():
                return self._say(part.delta)
            case Reasoning():
                return self._think(part.delta)
            case ServerCall():
                return self._event("palyra.tool_call", tool_call=part)
            case AnswerEnded():
                return self._end(part)

    def fail(self, error: PalyraError) -> bytes:
        """Return `response.failed` for a failed run, `error` for a failure of the stream."""
        ended = self._answer.reading.ended
        if isinstance(error, RunEnded) and ended is not None:
            return self._event("response.failed", response=self._response(ended))
        body = error_body(error)
        return self._event(
            "error", code=code_of(error), message=body["message"], param=body["param"]
        )

    def _say(self, delta: str) -> bytes:
        item_id = item_name("msg", self._answer.run_id)
        start = b""
        if item_id not in self._open:
            empty = OutputMessage(id=item_id, content=[], status="in_progress")
            start = self._add(item_id, empty) + self._event(
                "response.content_part.added",
                **self._place(item_id),
                content_index=0,
                part=OutputText(text=""),
            )
        return start + self._event(
            "response.output_text.delta",
            **self._place(item_id),
            content_index=0,
            delta=delta,
            logprobs=[],
        )

    def _think(self, delta: str) -> bytes:
        item_id = item_name("rs", self._answer.run_id)
        start = b""
        if item_id not in self._open:
            start = self._add(
                item_id, OutputReasoning(id=item_id, content=[], status="in_progress")
            )
        return start + self._event(
            "response.reasoning_text.delta", **self._place(item_id), content_index=0, delta=delta
        )

    def _end(self, ended: AnswerEnded) -> bytes:
        """Close the started items, add the calls, then the whole response."""
        answer, pieces = self._answer, []
        if ended.refusal:
            pieces.append(self._refuse(ended.refusal))
        elif not ended.calls and item_name("msg", answer.run_id) not in self._open:
            pieces.append(self._say(""))
        response = self._response(ended)
        for item in response.output:
            if isinstance(item, OutputCall | OutputCustomCall):
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

    def _refuse(self, reason: str) -> bytes:
        """Add a refusal, after the text of the message if there is any."""
        item_id = item_name("msg", self._answer.run_id)
        start, index = b"", int(item_id in self._open)
        if not index:
            start = self._add(item_id, OutputMessage(id=item_id, content=[], status="in_progress"))
        place = {**self._place(item_id), "content_index": index}
        added = self._event("response.content_part.added", **place, part=OutputRefusal(refusal=""))
        return start + added + self._event("response.refusal.delta", **place, delta=reason)

    def _close_message(self, item: OutputMessage) -> bytes:
        pieces: list[bytes] = []
        for index, part in enumerate(item.content):
            place = {**self._place(item.id), "content_index": index}
            if isinstance(part, OutputText):
                name, members = "output_text", {"text": part.text, "logprobs": []}
            else:
                name, members = "refusal", {"refusal": part.refusal}
            said = self._event(f"response.{name}.done", **place, **members)
            pieces.append(said + self._event("response.content_part.done", **place, part=part))
        return b"".join(pieces)

    def _call(self, item: OutputCall | OutputCustomCall) -> bytes:
        if isinstance(item, OutputCustomCall):
            empty: OutputItem = msgspec.structs.replace(item, input="", status="in_progress")
            kind, given = "custom_tool_call_input", {"input": item.input}
        else:
            empty = msgspec.structs.replace(item, arguments="", status="in_progress")
            kind, given = "function_call_arguments", {"arguments": item.arguments}
        added = self._add(item.id, empty)
        place = self._place(item.id)
        (delta,) = given.values()
        sent = self._event(f"response.{kind}.delta", **place, delta=delta)
        return added + sent + self._event(f"response.{kind}.done", **place, **given, name=item.name)

    def _add(self, item_id: str, item: OutputItem) -> bytes:
        self._open[item_id] = len(self._open)
        return self._event(
            "response.output_item.added", output_index=self._open[item_id], item=item
        )

    def _place(self, item_id: str) -> dict[str, Any]:
        return {"item_id": item_id, "output_index": self._open[item_id]}

    def _response(self, ended: AnswerEnded | None) -> Response:
        """Return the response, its items in the order of their start."""
        made = build_response(self._request.model, self._answer, ended, self._declared)
        order = self._open
        output = sorted(made.output, key=lambda item: order.get(item.id, len(order)))
        shown = [] if ended is None else output
        return with_request(msgspec.structs.replace(made, output=shown), self._request)

    def _event(self, kind: str, /, **members: Any) -> bytes:  # noqa: ANN401 - what the event has
        body = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return http_exchange.event(body, kind)
