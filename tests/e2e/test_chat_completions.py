"""OpenAI's own SDK as a client of `/v1/chat/completions`: it must find nothing odd."""

import json
from collections.abc import Callable, Generator
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import openai
import pydantic
import pytest
import trio
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessageCustomToolCall,
)

from palyra.client import Inbox, TapeEvent
from palyra.core.model.messages import AssistantMessage, Sampling, UserMessage
from palyra.core.model.request_options import RequestOptions
from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.tapes import check_tape, read_whole

E = TypeVar("E", bound=ev.Event)

pytestmark = pytest.mark.real

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "What the sky does.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASKED = "approval.requested"
ASK_WEATHER = '/say let me see\n/call weather {"city": "Oslo"}\n/then\n/say it rains'


def call_of(name: str) -> Any:
    """The choice of one tool."""
    return {"type": "function", "function": {"name": name}}


@pytest.fixture(scope="module")
def sdk(daemon: DaemonProcess) -> Generator[openai.OpenAI]:
    """The official client, pointed at the daemon."""
    url = f"http://127.0.0.1:{daemon.port}/v1"
    with openai.OpenAI(base_url=url, api_key=daemon.token, max_retries=0) as client:
        yield client


def ask(sdk: openai.OpenAI, *texts: str, **more: Any) -> ChatCompletion:
    """A conversation whose odd messages are the user's."""
    roles = ("user", "assistant")
    messages: Any = [
        {"role": roles[index % 2], "content": text} for index, text in enumerate(texts)
    ]
    made: ChatCompletion = sdk.chat.completions.create(model="scripted", messages=messages, **more)
    return made


def stream(sdk: openai.OpenAI, text: str, **more: Any) -> list[ChatCompletionChunk]:
    messages: Any = [{"role": "user", "content": text}]
    chunks = sdk.chat.completions.create(model="scripted", messages=messages, stream=True, **more)
    return list(chunks)


def said(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def note(answer: Any) -> dict[str, Any]:
    """The member `palyra`."""
    found: dict[str, Any] = answer.model_extra["palyra"]
    return found


def found(tape: list[TapeEvent], kind: type[E]) -> list[E]:
    """The decoded events of one kind."""
    return [item.event for item in tape if isinstance(item.event, kind)]


async def test_an_answer_is_an_ordinary_run(daemon: DaemonProcess, sdk: openai.OpenAI) -> None:
    """It has text, reason and usage; its tape is like any other's."""
    answer = ask(sdk, "/say hello")
    (choice,) = answer.choices
    assert ("hello", "stop") == (choice.message.content, choice.finish_reason)
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    async with daemon.connect() as client:
        tape = await read_whole(client, note(answer)["run_id"])
    check_tape(tape)
    assert tape[0].at_ms // 1000 == answer.created
    assert ["compat"] == [event.origin for event in found(tape, ev.RunAccepted)]


def test_a_stream_equals_the_complete_answer(sdk: openai.OpenAI) -> None:
    """Deltas join to the content, with a blank line between turns; usage only on request."""
    text = '/say one\n/say two\n/call read_file {"path": "none"}\n/then\n/say three'
    chunks = stream(sdk, text, stream_options={"include_usage": True})
    assert "one\ntwo\n\nthree" == said(chunks) == ask(sdk, text).choices[0].message.content
    assert "assistant" == chunks[0].choices[0].delta.role
    assert "stop" == chunks[-2].choices[0].finish_reason
    assert [] == chunks[-1].choices
    assert chunks[-1].usage is not None
    assert not any(chunk.usage for chunk in stream(sdk, text))


def test_the_first_delta_arrives_before_the_last_is_produced(sdk: openai.OpenAI) -> None:
    """A run that never ends on its own has streamed text."""
    messages: Any = [{"role": "user", "content": "/tokens 100\n/delay 3600000\n/say last"}]
    chunks = sdk.chat.completions.create(
        model="scripted",
        messages=messages,
        stream=True,
        extra_headers={"x-palyra-cancel-on-disconnect": "true"},
    )
    assert next(text for c in chunks if (text := c.choices[0].delta.content)).startswith("a b")
    chunks.close()


def test_tools_of_the_daemon_are_reported_with_the_answer(sdk: openai.OpenAI) -> None:
    """They have already run: the reason is `stop`, and `palyra` has their outcomes."""
    text = '/call read_file {"path": "none"}\n/then\n/say done'
    answer = ask(sdk, text)
    assert "stop" == answer.choices[0].finish_reason
    assert answer.choices[0].message.tool_calls is None
    (call,) = note(answer)["tool_calls"]
    assert ("read_file", {"path": "none"}, "failed") == (
        call["tool"],
        call["arguments"],
        call["status"],
    )
    notes = [c.model_extra["palyra"] for c in stream(sdk, text) if c.model_extra]
    seen = [note["tool_call"]["status"] for note in notes if "tool_call" in note]
    assert ["proposed", "failed"] == seen


@pytest.mark.parametrize("form", ["whole", "stream"])
def test_tools_of_the_client_come_back_as_calls(sdk: openai.OpenAI, form: str) -> None:
    """They do not run in the daemon; the request with the result gets the answer."""
    if form == "stream":
        chunks = stream(sdk, ASK_WEATHER, tools=[WEATHER])
        deltas = [c.choices[0].delta.tool_calls for c in chunks]
        (calls,) = [[call.model_dump() for call in calls] for calls in deltas if calls]
        finish = chunks[-1].choices[0].finish_reason
        content = said(chunks)
    else:
        (choice,) = ask(sdk, ASK_WEATHER, tools=[WEATHER]).choices
        calls = [call.model_dump() for call in choice.message.tool_calls or ()]
        finish, content = choice.finish_reason, choice.message.content or ""
    assert ("tool_calls", "let me see") == (finish, content)
    assert [("weather", '{"city":"Oslo"}')] == [
        (call["function"]["name"], call["function"]["arguments"]) for call in calls
    ]
    messages: Any = [
        {"role": "user", "content": ASK_WEATHER},
        {"role": "assistant", "content": content, "tool_calls": calls},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": "rain"},
    ]
    answer = sdk.chat.completions.create(model="scripted", messages=messages, tools=[WEATHER])
    assert "it rains" == answer.choices[0].message.content


async def test_a_clients_ask_user_hides_the_daemons(
    daemon: DaemonProcess, sdk: openai.OpenAI
) -> None:
    """The question comes back as a call, and nobody is asked; undeclared, it waits for a person."""
    asks = '/call ask_user {"question": "Which?"}\n/then\n/say so be it'
    tool: Any = {
        "type": "function",
        "function": {"name": "ask_user", "parameters": {"type": "object"}},
    }
    (choice,) = ask(sdk, asks, tools=[tool]).choices
    calls: Any = choice.message.tool_calls
    (call,) = calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "ask_user")
    messages: Any = [
        {"role": "user", "content": asks},
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "the left one"},
    ]
    more = sdk.chat.completions.create(model="scripted", messages=messages, tools=[tool])
    assert more.choices[0].message.content == "so be it"
    async with daemon.connect() as client:
        tape = await read_whole(client, note(more)["run_id"])
        assert not found(tape, ev.ApprovalRequested)
        answered: list[Any] = []
        async with client.notices() as inbox, trio.open_nursery() as nursery:
            nursery.start_soon(_keep, answered, partial(ask, sdk, asks))
            asked = await client.get_approval(await _hear_question(inbox))
            await client.resolve_approval(asked.approval_id, "allow", asked.digest, answer="left")
    assert answered[0].choices[0].message.content == "so be it"


async def _hear_question(inbox: Inbox) -> str:
    async for notice in inbox:
        if notice.method == ASKED:
            return str(notice.params["approval_id"])
    pytest.fail("nobody was asked")


async def _keep(answered: list[Any], create: Callable[[], Any]) -> None:
    answered.append(await trio.to_thread.run_sync(create))


@pytest.mark.parametrize("choice", ["required", "weather"])
async def test_a_call_can_be_asked_for(
    daemon: DaemonProcess, sdk: openai.OpenAI, choice: str
) -> None:
    """Of any of the client's tools, or of one: the model is shown no other, and words are none."""
    clock = {"type": "function", "function": {"name": "clock"}}
    wanted = choice if choice == "required" else call_of(choice)
    chosen = {"tools": [clock, WEATHER], "tool_choice": wanted}
    name = "clock" if choice == "required" else "weather"
    answer = ask(sdk, "hello", **chosen)
    calls = [call.model_dump()["function"] for call in answer.choices[0].message.tool_calls or ()]
    assert ("tool_calls", [{"name": name, "arguments": "{}"}]) == (
        answer.choices[0].finish_reason, calls,
    )  # fmt: skip
    chunks = stream(sdk, "/say I would rather\n/then\n/say talk", **chosen)
    assert "not_called" == note(chunks[-1])["partial"]
    refusals = [c.choices[0].delta.refusal for c in chunks if c.choices[0].delta.refusal]
    assert ("", [note(chunks[-1])["reason"]]) == (said(chunks), refusals)
    async with daemon.connect() as client:
        tape = await read_whole(client, note(chunks[-1])["run_id"])
    assert ["not_called"] == [event.reason for event in found(tape, ev.AnswerRejected)]
    only = f"what it was to call: {'clock, ' * (choice == 'required')}weather"
    assert note(chunks[-1])["reason"].endswith(only)


TWO_CALLS = '/call weather {"city": "Oslo"}\n/call weather {"city": "Rome"}\n/then\n/say it rains'


@pytest.mark.parametrize("form", ["whole", "stream"])
async def test_a_reply_may_have_one_call_at_most(
    daemon: DaemonProcess, sdk: openai.OpenAI, form: str
) -> None:
    """Of two that the model makes the first one is the client's; the tape says what of the other."""
    wants: Any = {"tools": [WEATHER], "parallel_tool_calls": False, "user": f"one by one, {form}"}
    if form == "stream":
        chunks = stream(sdk, TWO_CALLS, **wants)
        calls = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or ()]
        run_id, finish = note(chunks[-1])["run_id"], chunks[-1].choices[0].finish_reason
    else:
        made = ask(sdk, TWO_CALLS, **wants)
        calls = made.choices[0].message.model_copy().tool_calls or []  # type: ignore[assignment]  # of either form
        run_id, finish = note(made)["run_id"], made.choices[0].finish_reason
    assert ("tool_calls", ['{"city":"Oslo"}']) == (
        finish,
        [call.model_dump()["function"]["arguments"] for call in calls],
    )
    async with daemon.connect() as client:
        tape = await read_whole(client, run_id)
        report = await client.replay_run(run_id, strict=True)
    assert report.matched
    (left,) = found(tape, ev.ToolRejected)
    assert calls[0].id != left.call_id
    assert "one call" in left.reason
    result: Any = [{"role": "tool", "tool_call_id": calls[0].id, "content": "rain"}]
    said: Any = {"role": "assistant", "tool_calls": [calls[0].model_dump()]}
    messages = [{"role": "user", "content": TWO_CALLS}, said, *result]
    last = sdk.chat.completions.create(model="scripted", messages=messages, **wants)
    assert "it rains" == last.choices[0].message.content


async def test_the_requests_conversation_is_on_the_tape(
    daemon: DaemonProcess, sdk: openai.OpenAI
) -> None:
    """System messages are the caller's instructions, in order; the rest is a conversation."""
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"role": "developer", "content": [{"type": "text", "text": "Rhyme."}]},
        {"role": "user", "content": [{"type": "text", "text": "/say x"}]},
    ]
    answer = sdk.chat.completions.create(
        model="scripted", messages=messages, temperature=0.5, stop="END", max_tokens=99
    )
    async with daemon.connect() as client:
        tape = await read_whole(client, note(answer)["run_id"])
    sampling = Sampling(max_output_tokens=99, temperature=0.5, stop=("END",))
    brief = RequestOptions(instructions="Be brief.\n\nRhyme.", sampling=sampling)
    said_before = (UserMessage("hi"), AssistantMessage("ho"))
    assert [brief] == [event.brief for event in found(tape, ev.RunAccepted)]
    assert [said_before] == [event.messages for event in found(tape, ev.ConversationInherited)]
    assert ["/say x"] == [event.text for event in found(tape, ev.MessageReceived)]


def test_json_is_json(sdk: openai.OpenAI) -> None:
    """In JSON mode the content is one JSON value, streamed or not."""
    wanted: Any = {"type": "json_object"}
    assert (
        '{"received":"hello"}'
        == ask(sdk, "hello", response_format=wanted).choices[0].message.content
    )
    chunks = stream(sdk, '/say no json\n/then\n/say {"a": 1}', response_format=wanted)
    assert '{"a": 1}' == said(chunks)


class Weather(pydantic.BaseModel):
    """The schema of the answer."""

    city: str
    degrees: int | None


def test_an_answer_fits_its_schema(sdk: openai.OpenAI) -> None:
    """The SDK's own types: a first answer that does not fit is sent back, the second one does."""
    text = '/say {"city": "Oslo", "degrees": "cold"}\n/then\n/say {"city": "Oslo", "degrees": null}'
    messages: Any = [{"role": "user", "content": text}]
    made = sdk.chat.completions.parse(model="scripted", messages=messages, response_format=Weather)
    assert Weather(city="Oslo", degrees=None) == made.choices[0].message.parsed
    other = sdk.responses.parse(model="scripted", input=text, text_format=Weather)
    assert Weather(city="Oslo", degrees=None) == other.output_parsed


class Train(pydantic.BaseModel):
    """One form of a journey."""

    kind: Literal["train"]
    seats: Annotated[list[str], pydantic.Field(min_length=1, max_length=3)]
    code: Annotated[str, pydantic.Field(pattern=r"^[A-Z]{2}\d+$")]


class Walk(pydantic.BaseModel):
    """The other form."""

    kind: Literal["walk"]
    speed: Annotated[float, pydantic.Field(gt=0, multiple_of=0.5)]
    then: "Walk | None"


class Journey(pydantic.BaseModel):
    """Formats, constants, alternatives, nesting, bounds and recursion."""

    leaves: datetime
    day: date
    ticket: UUID
    price: Decimal
    pace: Literal["slow", "fast"]
    legs: list[Annotated[Train | Walk, pydantic.Field(discriminator="kind")]]


JOURNEY = {
    "leaves": "2024-02-29T12:00:00Z",
    "day": "2024-02-29",
    "ticket": "2eb8aa08-aa98-41ea-b4aa-73b441d16380",
    "price": "12.50",
    "pace": "slow",
    "legs": [
        {"kind": "train", "seats": ["1a"], "code": "IC7"},
        {"kind": "walk", "speed": 4.5, "then": {"kind": "walk", "speed": 3, "then": None}},
    ],
}
WRONG_LEG = {"kind": "walk", "speed": 4.5, "then": {"kind": "walk", "speed": 3.2, "then": None}}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"leaves": "tomorrow"}, 'the answer.leaves: it is not a "date-time" (got "tomorrow")'),
        ({"ticket": "7"}, 'the answer.ticket: it is not a "uuid" (got "7")'),
        ({"pace": "idle"}, "the answer.pace: it is not one of"),
        ({"legs": [WRONG_LEG]}, "the answer.legs[0].then.speed: it is not a multiple of 0.5"),
        ({"legs": [{"kind": "train", "seats": [], "code": "IC7"}]}, "the answer.legs[0].seats"),
    ],
)
def test_types_of_pydantic_are_schemas(
    sdk: openai.OpenAI, wrong: dict[str, Any], said: str
) -> None:
    """Formats, patterns, unions, bounds and recursion are kept, over both APIs."""
    text = f"/say {json.dumps(JOURNEY | wrong)}\n/then\n/say {json.dumps(JOURNEY)}"
    messages: Any = [{"role": "user", "content": text}]
    made = sdk.chat.completions.parse(model="scripted", messages=messages, response_format=Journey)
    assert Journey.model_validate(JOURNEY) == made.choices[0].message.parsed
    other = sdk.responses.parse(model="scripted", input=text, text_format=Journey)
    assert Journey.model_validate(JOURNEY) == other.output_parsed
    schema = {"name": "journey", "schema": Journey.model_json_schema()}
    never = f"/say {json.dumps(JOURNEY | wrong)}\n" * 2
    form: Any = {"type": "json_schema", "json_schema": schema}
    refused = ask(sdk, never.replace("}\n/say", "}\n/then\n/say"), response_format=form)
    assert said in note(refused)["reason"]


def test_an_answer_that_never_fits_says_so(sdk: openai.OpenAI) -> None:
    """It is no whole answer, and `palyra` says why."""
    schema: Any = {"name": "x", "schema": {"type": "object", "required": ["a"]}}
    wanted: Any = {"type": "json_schema", "json_schema": schema}
    made = ask(sdk, "/say {}\n/then\n/say {}", response_format=wanted)
    assert "wrong_form" == note(made)["partial"]
    message = made.choices[0].message
    assert (None, note(made)["reason"]) == (message.content, message.refusal)
    assert '"a" is a required property' in note(made)["reason"]
    chunks = stream(sdk, "/say {}\n/then\n/say {}", response_format=wanted)
    refusals = [c.choices[0].delta.refusal for c in chunks if c.choices[0].delta.refusal]
    assert ("", [message.refusal]) == (said(chunks), refusals)


def test_a_session_by_key(sdk: openai.OpenAI) -> None:
    """Its earlier messages are known without being sent again; a user is a label, which joins nothing."""
    ann: Any = {"extra_body": {"palyra": {"session_key": "ann"}}}
    first = ask(sdk, "/say one", **ann)
    second = ask(sdk, "/say two", **ann)
    labelled = [ask(sdk, "/say one", user="ann") for _ in range(2)]
    sessions = {note(made)["session_id"] for made in (first, *labelled)}
    assert (3, note(first)["session_id"]) == (len(sessions), note(second)["session_id"])
    assert labelled[0].usage == labelled[1].usage
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


FOREIGN: list[Any] = [
    {"role": "assistant", "content": "a", "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "42"},
    {"role": "assistant", "content": "a", "reasoning_details": [{"type": "x"}]},
    {"role": "assistant", "content": "a", "provider_specific_fields": {"x": 1}},
    {"role": "assistant", "content": "a", "audio": {"id": "audio_1"}},
    {"role": "user", "content": [{"type": "file", "file": {"file_id": "file_1"}}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA"}}]},
    {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.org/y"}}]},
]


@pytest.mark.parametrize("message", FOREIGN, ids=range(len(FOREIGN)))
def test_a_message_of_another_provider_costs_itself(sdk: openai.OpenAI, message: Any) -> None:
    """What is not understood is left out, and the answer names it; hints too."""
    messages: Any = [message, {"role": "user", "content": "/say on"}]
    hints: Any = {"presence_penalty": 1, "extra_body": {"top_k": 4, "reasoning": {"effort": "low"}}}
    made = sdk.chat.completions.create(model="scripted", messages=messages, **hints)
    assert "on" == made.choices[0].message.content
    hinted = {"presence_penalty", "top_k", "reasoning"}
    assert hinted < set(note(made)["ignored"])


def test_a_custom_tool_takes_one_text(sdk: openai.OpenAI) -> None:
    """It is called as it was declared, and its call comes back as such."""
    tools: Any = [
        {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}},
        {"type": "mcp", "server_label": "x"},
    ]
    text = '/call patch {"input": "+ line"}\n/then\n/say done'
    made = ask(sdk, text, tools=tools)
    (call,) = made.choices[0].message.tool_calls or []
    assert isinstance(call, ChatCompletionMessageCustomToolCall)
    assert ("patch", "+ line") == (call.custom.name, call.custom.input)
    assert ["tools[].server_label", "tools.mcp"] == note(made)["ignored"]
    messages: Any = [
        {"role": "user", "content": text},
        made.choices[0].message.model_dump(exclude_unset=True),
        {"role": "tool", "tool_call_id": call.id, "content": "ok"},
    ]
    after = sdk.chat.completions.create(model="scripted", messages=messages, tools=tools)
    assert "done" == after.choices[0].message.content


def test_only_allowed_tools_are_offered(sdk: openai.OpenAI) -> None:
    """Of those that are declared."""
    none: Any = {"mode": "required", "tools": [{"type": "function", "function": {"name": "clock"}}]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": none}
    with pytest.raises(openai.BadRequestError, match="no such tool"):
        ask(sdk, "hello", tools=[WEATHER], tool_choice=choice)


def test_the_same_key_is_the_same_run(sdk: openai.OpenAI) -> None:
    """A repeated request gets the first one's answer again; another body is refused."""
    headers = {"Idempotency-Key": "once"}
    first = ask(sdk, "/say one", extra_headers=headers)
    again = ask(sdk, "/say one", extra_headers=headers)
    assert (first.id, "one") == (again.id, again.choices[0].message.content)
    with pytest.raises(openai.ConflictError) as conflict:
        ask(sdk, "/say other", extra_headers=headers)
    assert "idempotency_conflict" == conflict.value.code


def test_models_are_agents_and_models(sdk: openai.OpenAI) -> None:
    """Every entry of the list can be fetched and used."""
    cards = list(sdk.models.list())
    owners = {card.id: card.owned_by for card in cards}
    assert {
        "agent/default": "palyra",
        "agent/plain": "palyra",
        "scripted": "palyra",
        "embedded/lexical-1": "embedded",
    } == owners
    for card in cards:
        assert card == sdk.models.retrieve(card.id)
    messages: Any = [{"role": "user", "content": "/say hello"}]
    for name in ("agent/default", "default", "scripted"):
        answer = sdk.chat.completions.create(model=name, messages=messages)
        assert (name, "hello") == (answer.model, answer.choices[0].message.content)


REFUSED: list[tuple[type[openai.APIStatusError], str, dict[str, Any]]] = [
    (openai.NotFoundError, "model_not_found", {"model": "nobody"}),
    (openai.BadRequestError, "invalid_params", {"messages": []}),
    (openai.BadRequestError, "invalid_params", {"messages": [{"role": "user", "content": " "}]}),
    (openai.BadRequestError, "invalid_params", {"messages": [{"role": "king", "content": "x"}]}),
    (
        openai.BadRequestError,
        "invalid_params",
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
    ),
    (openai.BadRequestError, "invalid_params", {"extra_body": {"palyra": {"colour": "red"}}}),
    (openai.BadRequestError, "invalid_params", {"temperature": 9}),
    (openai.BadRequestError, "unsupported_parameter", {"n": 2}),
    (openai.BadRequestError, "unsupported_parameter", {"logprobs": True}),
    (openai.BadRequestError, "invalid_params", {"tool_choice": "required"}),
    (openai.BadRequestError, "invalid_params", {"tools": [WEATHER], "tool_choice": call_of("x")}),
    (
        openai.BadRequestError,
        "unsupported_parameter",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"pattern": "("}},
            }
        },
    ),
    (openai.BadRequestError, "invalid_params", {"tools": [WEATHER, WEATHER]}),
    (openai.BadRequestError, "context_length_exceeded", {"text": "/fail context_overflow"}),
    (openai.InternalServerError, "auth", {"text": "/fail auth"}),
    (openai.NotFoundError, "not_found", {"extra_body": {"palyra": {"session_id": "ses_x"}}}),
]


@pytest.mark.parametrize(("kind", "code", "change"), REFUSED)
@pytest.mark.parametrize("form", ["whole", "stream"])
def test_refusals_are_typed(
    sdk: openai.OpenAI,
    kind: type[openai.APIStatusError],
    code: str,
    change: dict[str, Any],
    form: str,
) -> None:
    """A status, a type and a code; before the first piece also for a stream."""
    text = change.get("text", "hello")
    asked = {"model": "scripted", "messages": [{"role": "user", "content": text}], **change}
    asked.pop("text", None)
    create: Any = sdk.chat.completions.create
    with pytest.raises(kind) as refused:
        create(stream=form == "stream", **asked)
    assert code == refused.value.code
    assert "false" == refused.value.response.headers["x-should-retry"]


def test_a_wrong_token_is_refused(daemon: DaemonProcess, sdk: openai.OpenAI) -> None:
    """The answer does not repeat it."""
    with pytest.raises(openai.AuthenticationError) as refused:
        ask(sdk.with_options(api_key="pal_wrong"), "hello")
    assert "invalid_api_key" == refused.value.code
    assert "pal_wrong" not in refused.value.response.text


def test_a_failure_in_the_middle_is_an_error_of_the_stream(sdk: openai.OpenAI) -> None:
    """Sent text stays; then the SDK raises, with the daemon's code."""
    chunks: list[Any] = []
    messages: Any = [{"role": "user", "content": "/say half\n/fail transient"}]
    with pytest.raises(openai.APIError) as failed:
        chunks.extend(sdk.chat.completions.create(model="scripted", messages=messages, stream=True))
    assert "transient" == failed.value.code
