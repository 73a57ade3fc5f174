"""OpenAI's own SDK as a client of `/v1/responses`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import openai
import pytest
import trio
from openai.types.responses import Response, ResponseFunctionToolCall

from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import make_token
from tests.e2e.tapes import check_tape, read_whole

pytestmark = pytest.mark.real

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "What the sky does.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
ASK_WEATHER = '/say let me see\n/call weather {"city": "Oslo"}\n/then\n/say it rains'


@pytest.fixture(scope="module")
def sdk(daemon: DaemonProcess) -> Iterator[openai.OpenAI]:
    """The official client, pointed at the daemon."""
    url = f"http://127.0.0.1:{daemon.port}/v1"
    with openai.OpenAI(base_url=url, api_key=daemon.token, max_retries=0) as client:
        yield client


def ask(sdk: openai.OpenAI, asked: Any, **more: Any) -> Response:
    made: Response = sdk.responses.create(model="scripted", input=asked, **more)
    return made


def stream(sdk: openai.OpenAI, asked: Any, **more: Any) -> list[Any]:
    return list(sdk.responses.create(model="scripted", input=asked, stream=True, **more))


def note(answer: Any) -> dict[str, Any]:
    """The member `palyra`."""
    found: dict[str, Any] = answer.model_extra["palyra"]
    return found


def test_a_response_is_a_run(sdk: openai.OpenAI) -> None:
    """Text, usage and state are where the SDK looks; it can be fetched again by its id."""
    made = ask(sdk, "/say hello", instructions="Be brief.", metadata={"a": "b"})
    assert ("completed", "hello", "Be brief.") == (made.status, made.output_text, made.instructions)
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    again = sdk.responses.retrieve(made.id)
    assert (made.id, "hello", made.usage) == (again.id, again.output_text, again.usage)


def test_json_is_fetched_again_as_it_was_answered(sdk: openai.OpenAI) -> None:
    """Without the turns that were none."""
    text = '/say no json\n/then\n/say {"a": 1}'
    made = ask(sdk, text, text={"format": {"type": "json_object"}})
    assert '{"a": 1}' == made.output_text == sdk.responses.retrieve(made.id).output_text


def test_events_are_typed_and_in_order(sdk: openai.OpenAI) -> None:
    """From created to completed, each with its number; deltas make the text."""
    events = stream(sdk, '/say one\n/call read_file {"path": "none"}\n/then\n/say two')
    assert list(range(len(events))) == [event.sequence_number for event in events]
    kinds = [event.type for event in events if event.type != "palyra.tool_call"]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * len(deltas),
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ] == kinds
    last = events[-1].response
    assert "one\n\ntwo" == "".join(deltas) == last.output_text
    assert ["failed"] == [call["status"] for call in note(last)["tool_calls"]]


def test_the_sdks_own_accumulator_agrees(sdk: openai.OpenAI) -> None:
    """Its helper puts the stream together, which it refuses for events out of order."""
    with sdk.responses.stream(model="scripted", input=ASK_WEATHER, tools=[WEATHER]) as events:
        for _ in events:
            pass
        made = events.get_final_response()
    assert ["message", "function_call"] == [item.type for item in made.output]


@pytest.mark.parametrize("form", ["whole", "stream"])
def test_calls_go_to_the_client_and_come_back(sdk: openai.OpenAI, form: str) -> None:
    """Only the result is sent: the session has the conversation."""
    if form == "stream":
        made = stream(sdk, ASK_WEATHER, tools=[WEATHER])[-1].response
    else:
        made = ask(sdk, ASK_WEATHER, tools=[WEATHER])
    (call,) = [item for item in made.output if isinstance(item, ResponseFunctionToolCall)]
    assert ("weather", '{"city":"Oslo"}') == (call.name, call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    after = ask(sdk, [result], previous_response_id=made.id, tools=[WEATHER])
    assert "it rains" == after.output_text
    assert note(made)["session_id"] == note(after)["session_id"]


def test_a_call_can_be_asked_for(sdk: openai.OpenAI) -> None:
    """Of a tool by its name, or of any; the answer repeats the choice."""
    for choice in ("required", {"type": "function", "name": "weather"}):
        made = ask(sdk, "hello", tools=[WEATHER], tool_choice=choice)
        (call,) = made.output
        assert isinstance(call, ResponseFunctionToolCall)
        assert ("weather", choice) == (
            call.name,
            made.model_dump(mode="json", exclude_unset=True)["tool_choice"],
        )
    with pytest.raises(openai.BadRequestError) as refused:
        ask(sdk, "hello", tools=[WEATHER], tool_choice={"type": "function", "name": "clock"})
    assert ("invalid_params", "tool_choice") == (refused.value.code, refused.value.param)


def test_a_reply_may_have_one_call_at_most(sdk: openai.OpenAI) -> None:
    """It has the first of two, also in its events; the session continues from it alone."""
    two = '/call weather {"city": "Oslo"}\n/call weather\n/then\n/say it rains'
    made = ask(sdk, two, tools=[WEATHER], parallel_tool_calls=False)
    (call,) = made.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert ('{"city":"Oslo"}', False) == (call.arguments, made.parallel_tool_calls)
    assert ask(sdk, two, tools=[WEATHER]).parallel_tool_calls
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    last = ask(sdk, [result], previous_response_id=made.id, tools=[WEATHER])
    assert "it rains" == last.output_text


def test_a_finished_response_streams_again(sdk: openai.OpenAI) -> None:
    """From its tape, to the same end."""
    made = ask(sdk, "/say hello")
    events = list(sdk.responses.retrieve(made.id, stream=True))
    assert ("response.created", "response.completed") == (events[0].type, events[-1].type)
    (last,) = [event.response for event in events if event.type == "response.completed"]
    assert ("hello", made.id) == (last.output_text, last.id)
    assert "hello" == sdk.responses.retrieve(made.id, stream=False).output_text


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/responses/compact"), ("GET", "/responses/resp_1/input_items")],
)
def test_paths_that_are_not_supported_say_so(sdk: openai.OpenAI, method: str, path: str) -> None:
    """By name; they are no ids of responses."""
    with pytest.raises(openai.BadRequestError, match="not supported") as refused:
        (sdk.post if method == "POST" else sdk.get)(path, cast_to=object)
    assert "unsupported_parameter" == refused.value.code


def test_tokens_are_counted_without_a_run(sdk: openai.OpenAI) -> None:
    """About those that the run then reports."""
    counted = sdk.responses.input_tokens.count(model="scripted", input="/say hello")
    made = ask(sdk, "/say hello")
    assert made.usage is not None
    assert made.usage.input_tokens == pytest.approx(counted.input_tokens, abs=3)


def test_tools_of_every_type(sdk: openai.OpenAI) -> None:
    """A custom tool and one in a namespace are called as they were declared; the provider's own is left out."""
    tools: Any = [
        {"type": "custom", "name": "patch", "description": "Apply it."},
        {
            "type": "namespace",
            "name": "team",
            "description": "Others.",
            "tools": [{"type": "function", "name": "ask", "parameters": {"type": "object"}}],
        },
        {"type": "web_search"},
    ]
    text = '/call patch {"input": "+ line"}\n/call team.ask {}\n/then\n/say both'
    for made in (ask(sdk, text, tools=tools), stream(sdk, text, tools=tools)[-1].response):
        items = [item.model_dump(exclude_unset=True) for item in made.output]
        assert [
            ("custom_tool_call", "patch", None, "+ line"),
            ("function_call", "ask", "team", None),
        ] == [
            (item["type"], item["name"], item.get("namespace"), item.get("input")) for item in items
        ]
        assert ["tools.web_search"] == note(made)["ignored"]
        history = [{"role": "user", "content": text}, *items]
        history += [
            {"type": f"{kind}_output", "call_id": item["call_id"], "output": "done"}
            for kind, item in zip(("custom_tool_call", "function_call"), items, strict=True)
        ]
        assert "both" == ask(sdk, history, tools=tools).output_text


HISTORY: list[Any] = [
    {"type": "item_reference", "id": "msg_1"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"type": "compaction", "encrypted_content": "x"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]},
    {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]},
    {"role": "user", "content": [{"type": "input_image", "file_id": "file_2"}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA"}}]},
]


@pytest.mark.parametrize("item", HISTORY, ids=lambda item: item.get("type", "message"))
def test_an_item_of_the_history_costs_itself(sdk: openai.OpenAI, item: Any) -> None:
    """It is left out and named; reasoning is not sent again and not named."""
    made = ask(sdk, [item, {"role": "user", "content": "/say on"}], truncation="auto")
    assert "on" == made.output_text
    left_out = [place for place in note(made)["ignored"] if place != "truncation"]
    assert bool(left_out) == (item.get("type") != "reasoning"), left_out


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ([{"type": 5}], "input[0].content[0].type"),
        ([{"type": "input_text", "text": 5}], "input[0].content[0].text"),
        ([7], "input[0].content[0]"),
        (7, "input[0].content"),
    ],
)
def test_a_wrong_part_is_named(sdk: openai.OpenAI, content: Any, field: str) -> None:
    """With its place, in the same words as everything else."""
    with pytest.raises(openai.BadRequestError, match="expected") as refused:
        ask(sdk, [{"role": "user", "content": content}])
    assert field == refused.value.param


def test_a_conversation_is_continued(sdk: openai.OpenAI) -> None:
    """Each response follows the one before in one session."""
    first = ask(sdk, "/say one")
    second = ask(sdk, "/say two", previous_response_id=first.id)
    third = ask(sdk, "/say three", previous_response_id=second.id)
    assert 1 == len({note(made)["session_id"] for made in (first, second, third)})
    sizes = [made.usage.input_tokens for made in (first, second, third) if made.usage]
    assert sorted(sizes) == sizes
    assert 3 == len(set(sizes))


def test_an_older_response_can_be_branched(sdk: openai.OpenAI) -> None:
    """Later messages are not seen; the branch is a session of its own."""
    first = ask(sdk, "/say one")
    ask(sdk, f"/say {'two ' * 200}", previous_response_id=first.id)
    branch = ask(sdk, "/say three", previous_response_id=first.id)
    assert note(branch)["session_id"] != note(first)["session_id"]
    assert first.usage is not None
    assert branch.usage is not None
    assert 0 < branch.usage.input_tokens - first.usage.input_tokens < 100


def test_concurrent_continuations_are_separate(sdk: openai.OpenAI) -> None:
    """The first continues the session, the others branch: none sees another's messages."""
    first = ask(sdk, "/say one")
    with ThreadPoolExecutor(6) as pool:
        made = list(
            pool.map(lambda n: ask(sdk, f"/say two {n}", previous_response_id=first.id), range(6))
        )
    assert 6 == len({note(each)["session_id"] for each in made})
    assert note(first)["session_id"] in {note(each)["session_id"] for each in made}
    assert 1 == len({each.usage.input_tokens for each in made if each.usage})


def test_a_purged_response_is_not_continued(sdk: openai.OpenAI, daemon: DaemonProcess) -> None:
    """The request is refused, and names the field: it starts no run with an empty conversation."""
    first = ask(sdk, "/say one")

    async def purge() -> None:
        async with daemon.connect() as client:
            await client.purge_session(note(first)["session_id"])

    trio.run(purge)
    with pytest.raises(openai.NotFoundError, match="purged") as refused:
        ask(sdk, "/say two", previous_response_id=first.id)
    assert "previous_response_id" == refused.value.param


def test_an_invalid_continuation_is_refused(sdk: openai.OpenAI) -> None:
    """An unknown response, and a result without a call; both name the field."""
    with pytest.raises(openai.NotFoundError) as unknown:
        ask(sdk, "hello", previous_response_id="resp_none")
    assert "previous_response_id" == unknown.value.param
    with pytest.raises(openai.BadRequestError) as orphan:
        ask(sdk, [{"type": "function_call_output", "call_id": "c", "output": "x"}])
    assert "input[0].call_id" == orphan.value.param
    with pytest.raises(openai.BadRequestError):
        sdk.responses.delete(ask(sdk, "/say x").id)


async def test_a_foreign_response_cannot_be_continued(
    daemon: DaemonProcess, sdk: openai.OpenAI
) -> None:
    """Also by an operator that may read it: its text would be in the operator's session."""
    async with daemon.connect() as client:
        token = await make_token(client, "client", "bob")
    bob = sdk.with_options(api_key=token)
    first = ask(bob, "/say mine")
    last = ask(bob, "/say mine, too", previous_response_id=first.id)
    assert "mine" == sdk.responses.retrieve(first.id).output_text
    for made in (first, last):
        with pytest.raises(openai.NotFoundError) as refused:
            ask(sdk, "/say yours", previous_response_id=made.id)
        assert "previous_response_id" == refused.value.param


async def test_a_failed_run_is_a_failed_response(daemon: DaemonProcess, sdk: openai.OpenAI) -> None:
    """In the middle of a stream as an event; before its beginning as a status."""
    text = '/say half\n/call write_file {"path": "x", "content": "y"}\n/then\n/fail auth'
    events = sdk.responses.create(model="scripted", input=text, stream=True)
    seen: list[Any] = []
    async with daemon.connect() as client:
        for event in events:
            seen.append(event)
            call = getattr(event, "tool_call", None) or {}
            if call.get("status") == "awaiting_approval":
                asked = await client.get_approval(call["approval_id"])
                await client.resolve_approval(asked.approval_id, "deny", asked.digest)
    assert "half" == "".join(e.delta for e in seen if e.type == "response.output_text.delta")
    assert ("response.failed", "failed") == (seen[-1].type, seen[-1].response.status)
    assert "auth" == seen[-1].response.error.code
    with pytest.raises(openai.InternalServerError):
        ask(sdk, "/fail transient")


async def test_a_response_in_progress_can_be_cancelled(
    daemon: DaemonProcess, sdk: openai.OpenAI
) -> None:
    """It is returned as it is, then cancelled."""
    async with daemon.connect() as client:
        started = await client.start_run("/delay 3600000\n/say never")
        name = started.run_id.replace("run_", "resp_")
        shown = sdk.responses.retrieve(name)
        assert ("in_progress", "scripted", []) == (shown.status, shown.model, shown.output)
        run = await client.get_run(started.run_id)
        assert run.created_ms // 1000 == shown.created_at
        assert {"run_id": run.run_id, "session_id": run.session_id} == {
            name: note(shown)[name] for name in ("run_id", "session_id")
        }
        assert "cancelled" == sdk.responses.cancel(name).status
        assert "cancelled" == (await client.get_run(started.run_id)).state


SAME, LOOK = ({"palyra": {"session_key": key}} for key in ("again", "look"))


def test_chat_that_is_sent_again_is_not_there_twice(sdk: openai.OpenAI) -> None:
    """A client that sends everything with each request, as most do, in a session that it names."""
    messages: list[Any] = []
    sizes: list[int] = []
    for number in range(4):
        messages.append({"role": "user", "content": f"/say answer {number}"})
        made = sdk.chat.completions.create(model="scripted", messages=messages, extra_body=SAME)
        assert made.usage is not None
        sizes.append(made.usage.prompt_tokens)
        messages.append({"role": "assistant", "content": made.choices[0].message.content})
    steps = {after - before for before, after in pairwise(sizes)}
    assert max(steps) - min(steps) <= 2
    other = sdk.chat.completions.create(
        model="scripted",
        messages=[*messages[:2], {"role": "user", "content": "/say other"}],
        extra_body=SAME,
    )
    assert other.usage is not None
    assert sizes[1] == pytest.approx(other.usage.prompt_tokens, abs=2)


async def test_a_picture_that_is_sent_again_is_not_there_twice(
    daemon: DaemonProcess, sdk: openai.OpenAI
) -> None:
    """The session shows it with the message it came with."""
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    look = {"type": "text", "text": "/say seen"}
    messages: Any = [{"role": "user", "content": [look, picture]}]
    for number in range(2):
        made = sdk.chat.completions.create(model="scripted", messages=messages, extra_body=LOOK)
        messages.append({"role": "assistant", "content": made.choices[0].message.content})
        messages.append({"role": "user", "content": f"/say {number}"})
    async with daemon.connect() as client:
        tape = await read_whole(client, note(made)["run_id"])
    (asked,) = [item.event for item in tape if isinstance(item.event, ev.MessageReceived)]
    assert ("/say 0", ()) == (asked.text, asked.attachments)


async def test_such_runs_replay(daemon: DaemonProcess, sdk: openai.OpenAI) -> None:
    """Brief, conversation, calls handed over, their results and a limit: decided again, the same."""
    made = [
        ask(sdk, "/say one", instructions="Be brief.", temperature=0.1),
        ask(sdk, ASK_WEATHER, tools=[WEATHER]),
    ]
    (call,) = [item for item in made[1].output if isinstance(item, ResponseFunctionToolCall)]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    made.append(ask(sdk, [result], previous_response_id=made[1].id, tools=[WEATHER]))
    turns: Any = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    made.append(ask(sdk, [*turns, {"role": "user", "content": "/say c"}]))
    async with daemon.connect() as client:
        for answer in made:
            for strict in (False, True):
                report = await client.replay_run(note(answer)["run_id"], strict=strict)
                assert report.matched, report.first_divergence
        second = await client.get_run(note(made[2])["run_id"])
        forked = await client.fork_run(second.run_id, second.head_seq, "/say after")
        assert "done" == (await client.wait_run(forked.run_id)).state
        tape = await read_whole(client, note(made[1])["run_id"])
    check_tape(tape)


def test_no_answer_is_a_refusal(sdk: openai.OpenAI) -> None:
    """The daemon's text is not shown as the model's; a stream agrees."""
    asked, text = "/say no\n/then\n/say json", {"format": {"type": "json_object"}}
    made = ask(sdk, asked, text=text)
    assert made.incomplete_details is not None
    assert ("incomplete", note(made)["partial"]) == (made.status, made.incomplete_details.reason)
    (item,) = made.output
    assert item.type == "message"
    assert [("refusal", note(made)["reason"])] == [
        (part.type, part.refusal) for part in item.content if part.type == "refusal"
    ]
    assert not made.output_text
    *events, last = stream(sdk, asked, text=text)
    assert "response.incomplete" == last.type
    refused = [event.delta for event in events if event.type == "response.refusal.delta"]
    assert [note(made)["reason"]] == refused
    assert [part.model_dump() for part in item.content] == [
        part.model_dump() for part in last.response.output[0].content
    ]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"session_key": "x"}, "palyra.session_key"),
        ({"session_id": "ses_other"}, "palyra.session_id"),
        ({"session_id": "ses_other", "session_key": "x"}, "palyra.session_key"),
    ],
)
def test_a_session_has_one_name(sdk: openai.OpenAI, more: Any, field: str) -> None:
    """A second name is refused; `user` is a label."""
    first = ask(sdk, "/say one", user="ann")
    after = ask(sdk, "/say two", previous_response_id=first.id, user="bob")
    assert note(first)["session_id"] == note(after)["session_id"]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(sdk, "x", previous_response_id=after.id, extra_body={"palyra": more})
    assert field == refused.value.param


async def test_a_repeated_conversation_is_not_duplicated(
    daemon: DaemonProcess, sdk: openai.OpenAI
) -> None:
    """By the id of the response, and in the request."""
    first = ask(sdk, "/say one")
    ask(sdk, "/say aside", previous_response_id=first.id)
    whole: Any = [
        {"role": "user", "content": "/say one"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "/say two"},
    ]
    branch = ask(sdk, whole, previous_response_id=first.id)
    last = ask(sdk, whole, previous_response_id=ask(sdk, "/say one").id)
    assert branch.usage is not None
    assert last.usage is not None
    assert branch.usage.input_tokens == last.usage.input_tokens
    async with daemon.connect() as client:
        tape = await read_whole(client, note(branch)["run_id"])
    (inherited,) = [e.event for e in tape if isinstance(e.event, ev.ConversationInherited)]
    assert 2 == len(inherited.messages)
