"""Requests and answers of each dialect: order, roles, limits, JSON mode, caches, calls."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.records import Usage
from palyra.core.model.images import Picture
from palyra.core.model.messages import (
    AssistantMessage,
    Delta,
    GuidanceMessage,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    Sampling,
    ToolMessage,
    UserMessage,
)
from palyra.models.anthropic import ANTHROPIC, DEFAULT_MAX_TOKENS
from palyra.models.chat import CHAT, OPENAI_CHAT
from palyra.models.dialect import JSON_ONLY, Body, Dialect
from palyra.models.presets import PRESETS
from palyra.models.providers import dialect_at
from palyra.models.responses import RESPONSES
from palyra.models.turn_builder import MAX_ARGUMENT_BYTES, MAX_CALLS, TurnBuilder
from palyra.models.wire import wire_id
from tests.models.model_kit import CALL, REQUEST, ask, chunk
from tests.models.provider import STREAM, sse
from tests.rows import every_row

NAMES = {"read_file": "read_file", "mcp:files.read": "mcp_files_read"}
ALL: dict[str, Dialect] = {
    "chat": CHAT, "openai": OPENAI_CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC,
}  # fmt: skip


def body(dialect: Dialect, most: int = 0, **changes: Any) -> Body:
    """Return the request body with these changes, as JSON has it."""
    made = dialect.body(msgspec.structs.replace(REQUEST, **changes), "big", NAMES, most)
    read: Body = msgspec.json.decode(msgspec.json.encode(made))
    return read


def said(*messages: Any) -> ModelRequest:
    """A request of only these messages."""
    return msgspec.structs.replace(REQUEST, messages=messages)


# --- what is sent


def test_chat() -> None:
    """Roles in order, the tool's spelling, its status, no limit unless there is one."""
    found = body(CHAT)
    assert ["system", "user", "assistant", "tool", "user"] == [m["role"] for m in found["messages"]]
    assert "[failed]\ngone" == found["messages"][3]["content"]
    assert "[the daemon, not the user:] look twice" == found["messages"][4]["content"]
    assert "mcp_files_read" == found["tools"][1]["function"]["name"]
    call = found["messages"][2]["tool_calls"][0]
    assert (wire_id("call_1"), '{"path":"a"}') == (call["id"], call["function"]["arguments"])
    assert found["messages"][2]["content"] is None  # servers refuse an empty text next to calls
    assert (True, {"include_usage": True}) == (found["stream"], found["stream_options"])
    assert not {"max_tokens", "stop", "temperature", "top_p", "response_format"} & set(found)
    empty = CHAT.body(said(AssistantMessage("")), "big", NAMES, 0)
    assert {"role": "assistant", "content": "(nothing)"} == empty["messages"][1]
    assert "tools" not in CHAT.body(msgspec.structs.replace(REQUEST, tools=()), "big", NAMES, 0)


def test_neighbours_of_one_role_are_one_message() -> None:
    """Adjacent messages of one role are joined; those with calls stay separate."""
    odd = (
        UserMessage("one"), UserMessage("two"), AssistantMessage(""), AssistantMessage("three"),
        AssistantMessage("four", (CALL,)),
        ToolMessage(call_id="call_1", tool="mcp:files.read", status="succeeded", output="5"),
        ToolMessage(call_id="call_2", tool="mcp:files.read", status="succeeded", output="6"),
        UserMessage("seven"), UserMessage("", (PICTURE,)),
    )  # fmt: skip
    made = CHAT.body(msgspec.structs.replace(said(*odd), pictures=PICTURES), "m", NAMES, 0)
    assert ["system", *["user", "assistant", "assistant", "tool", "tool", "user"]] == [
        message["role"] for message in made["messages"]
    ]
    assert ["one\n\ntwo", "three"] == [message["content"] for message in made["messages"][1:3]]
    assert ["text", "image_url"] == [part["type"] for part in made["messages"][-1]["content"]]
    assert odd[0] == UserMessage("one")


def test_anthropic() -> None:
    """User and assistant in turn; results before texts; an error is marked; no text is empty."""
    found = body(ANTHROPIC)
    assert ["user", "assistant", "user"] == [m["role"] for m in found["messages"]]
    result, text = found["messages"][2]["content"]
    assert ("tool_result", True, "[failed]\ngone") == (
        result["type"], result["is_error"], result["content"],
    )  # fmt: skip
    assert "text" == text["type"]
    assert {"path": "a"} == found["messages"][1]["content"][0]["input"]
    assert DEFAULT_MAX_TOKENS == found["max_tokens"]
    odd = said(
        UserMessage(" "),
        AssistantMessage("", (ProposedCall(call_id="c", tool="x", arguments="{broken"),)),
        ToolMessage(call_id="c", tool="x", status="succeeded", output=""),
        AssistantMessage(""),
    )
    user, call, done, nothing = ANTHROPIC.body(odd, "big", NAMES, 0)["messages"]
    assert "(nothing)" == user["content"][0]["text"] == nothing["content"][0]["text"]
    assert {} == call["content"][0]["input"]
    assert "(nothing)" == done["content"][0]["content"]
    assert "is_error" not in done["content"][0]
    assert "system" not in body(ANTHROPIC, instructions="")


def test_responses() -> None:
    """Items in order; nothing is stored there."""
    found = body(RESPONSES)
    kinds = [item.get("type", item.get("role")) for item in found["input"]]
    assert ["user", "function_call", "function_call_output", "developer"] == kinds
    assert '{"path":"a"}' == found["input"][1]["arguments"]
    assert (False, "Be brief.") == (found["store"], found["instructions"])
    assert ("mcp_files_read", False) == (found["tools"][1]["name"], found["tools"][1]["strict"])
    broken = AssistantMessage("x", (msgspec.structs.replace(CALL, arguments="{broken"),))
    text, call = RESPONSES.body(said(broken), "big", NAMES, 0)["input"]
    assert ("x", "{broken") == (text["content"], call["arguments"])


def test_what_the_next_turn_does_not_repeat_comes_after_the_mark() -> None:
    """The mark stays on the same block when notes of this turn alone follow, merged or not."""
    plain = body(ANTHROPIC)["messages"]
    place = max(at for at, message in enumerate(plain) if "cache_control" in str(message))
    for notes in (1, 2):
        more = (GuidanceMessage("now"),) * notes
        marked = body(ANTHROPIC, messages=(*REQUEST.messages, *more), volatile=notes)["messages"]
        assert plain[place]["content"][-1] in marked[place]["content"]
        assert 1 == str(marked).count("cache_control")
    only = body(ANTHROPIC, messages=(GuidanceMessage("now"),), volatile=1)["messages"]
    assert "cache_control" not in str(only)


def test_reused_prompt_parts_are_marked_for_the_cache() -> None:
    """Anthropic's request marks instructions, tools and conversation; the others mark nothing."""
    found = body(ANTHROPIC)
    mark = {"type": "ephemeral"}
    assert mark == found["system"][0]["cache_control"]
    assert ["cache_control" in tool for tool in found["tools"]] == [False, True]
    assert mark == found["messages"][-1]["content"][-1]["cache_control"]
    assert 3 == msgspec.json.encode(found).count(b"cache_control")
    alone = body(ANTHROPIC, tools=())
    assert 1 == msgspec.json.encode(alone).count(b"cache_control")  # no next turn is in sight
    for dialect in (CHAT, OPENAI_CHAT, RESPONSES):  # these caches find it by themselves
        assert b"cache" not in msgspec.json.encode(body(dialect))


def test_what_is_sent_does_not_change_the_prompt() -> None:
    """Marks are put on what was made for sending; the same request gives the same bytes."""
    for dialect in ALL.values():
        assert body(dialect, json_mode=True) == body(dialect, json_mode=True)


@every_row(
    ("name", "key"),
    [
        ("chat", "max_tokens"),
        ("openai", "max_completion_tokens"),
        ("responses", "max_output_tokens"),
        ("anthropic", "max_tokens"),
    ],
)
def test_the_smaller_limit_counts(name: str, key: str) -> None:
    """The smaller of the configured and the requested output limit is sent."""
    for configured, wanted, expected in ((9, None, 9), (9, 7, 7), (7, 9, 7), (0, 9, 9)):
        sampling = Sampling(max_output_tokens=wanted)
        found = body(ALL[name], configured, sampling=sampling)
        request = msgspec.structs.replace(REQUEST, sampling=sampling)
        assert expected == found[key] == ALL[name].most_tokens(request, configured)
        assert 1 == sum("max" in each for each in found)


@every_row("name", ALL)
def test_a_default_output_limit_equals_the_sent_one(name: str) -> None:
    """Without any configured limit, `most_tokens` equals the limit in the request, or 0."""
    found = body(ALL[name])
    sent = {value for key, value in found.items() if "max" in key} or {0}
    assert {ALL[name].most_tokens(REQUEST, 0)} == sent


def test_openai_has_a_dialect_of_its_own() -> None:
    """By its address; what others made of it keeps the old name of the limit."""
    assert dialect_at("chat", PRESETS["openai"].base_url) is OPENAI_CHAT
    assert dialect_at("chat", "http://127.0.0.1:8080/v1") is CHAT
    assert dialect_at("responses", PRESETS["openai"].base_url) is RESPONSES
    assert dialect_at("anthropic", PRESETS["anthropic"].base_url) is ANTHROPIC


def test_presets_of_remote_providers_use_a_key_and_tls() -> None:
    """A remote preset reads its key from the usual variable and uses HTTPS."""
    for name, preset in PRESETS.items():
        is_far = not preset.base_url.startswith("http://127.0.0.1:")
        assert is_far == (preset.base_url.startswith("https://") or name == "azure")
        usual = {"azure": "AZURE_OPENAI_API_KEY", "bedrock": "AWS_BEARER_TOKEN_BEDROCK"}
        variable = usual.get(name, f"{name.upper()}_API_KEY")
        assert (f"env:{variable}" if is_far else "") == preset.key


@every_row(("name", "key"), [("chat", "stop"), ("openai", "stop"),
                                           ("anthropic", "stop_sequences")])  # fmt: skip
def test_where_to_stop(name: str, key: str) -> None:
    """As the provider calls it."""
    assert ["\n\n", "END"] == body(ALL[name], sampling=Sampling(stop=("\n\n", "END")))[key]


def test_stop_sequences_are_refused_by_an_api_without_them() -> None:
    """The Responses API has no stop sequences, so such a request fails before it is sent."""
    with pytest.raises(ModelFailure, match="no stop sequences") as caught:
        body(RESPONSES, sampling=Sampling(stop=("x",)))
    assert ("invalid_request", False) == (caught.value.failure_class, caught.value.was_asked)


@every_row("name", ALL)
def test_only_requested_sampling_options_are_sent(name: str) -> None:
    """A requested temperature of 0 is sent; options that were not requested are left out."""
    found = body(ALL[name], sampling=Sampling(temperature=0.0, top_p=0.5))
    assert (0.0, 0.5) == (found["temperature"], found["top_p"])
    assert not {"temperature", "top_p"} & set(body(ALL[name]))


def test_json_mode() -> None:
    """By the API's own switch where there is one, and in words, which OpenAI wants as well."""
    chat, responses = body(CHAT, json_mode=True), body(RESPONSES, json_mode=True)
    claude = body(ANTHROPIC, json_mode=True)
    assert {"type": "json_object"} == chat["response_format"] == responses["text"]["format"]
    assert f"Be brief.\n\n{JSON_ONLY}" == chat["messages"][0]["content"]
    assert f"Be brief.\n\n{JSON_ONLY}" == responses["instructions"]
    assert JSON_ONLY == claude["system"][-1]["text"]
    assert "cache_control" in claude["system"][0]  # the part that other runs have, too
    assert JSON_ONLY == body(CHAT, json_mode=True, instructions="")["messages"][0]["content"]
    assert JSON_ONLY not in msgspec.json.encode(body(CHAT)).decode()


@every_row("name", ALL)
def test_a_required_call_is_sent_in_the_dialects_form(name: str) -> None:
    """`must_call` sets the dialect's tool choice; otherwise the request has none."""
    wanted = {"type": "any"} if name == "anthropic" else "required"
    assert wanted == body(ALL[name], must_call=True)["tool_choice"]
    assert "tool_choice" not in body(ALL[name])


@every_row("name", ALL)
def test_one_call_at_most(name: str) -> None:
    """`one_call` forbids parallel calls in the dialect's form, also together with `must_call`."""
    one, forced = body(ALL[name], one_call=True), body(ALL[name], one_call=True, must_call=True)
    if name == "anthropic":
        assert {"type": "auto", "disable_parallel_tool_use": True} == one["tool_choice"]
        assert {"type": "any", "disable_parallel_tool_use": True} == forced["tool_choice"]
    else:
        assert (False, False) == (one["parallel_tool_calls"], forced["parallel_tool_calls"])
        assert ("required", False) == (forced["tool_choice"], "tool_choice" in one)
    assert "parallel" not in str(body(ALL[name], must_call=True))


# --- pictures


PICTURE = Picture(artifact="ab", session_id="s", media_type="image/png", size_bytes=3)
PICTURES = {"ab": "AAAA"}


def pictured(dialect: Dialect, text: str = "what is it?", *, gone: int = 0) -> list[Body]:
    """The parts of a message with a picture, and with some that are kept no longer."""
    lost = msgspec.structs.replace(PICTURE, artifact="lost")
    message = UserMessage(text, (PICTURE, *[lost] * gone))
    found = body(dialect, messages=(message,), pictures=PICTURES)
    where = found.get("messages") or found["input"]
    parts: list[Body] = where[-1]["content"]
    return parts


def test_pictures_come_before_their_text() -> None:
    """In every dialect's own words; a message without one keeps its plain form."""
    url = "data:image/png;base64,AAAA"
    assert [
        {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what is it?"},
    ] == pictured(CHAT)  # fmt: skip
    assert [
        {"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_text", "text": "what is it?"},
    ] == pictured(RESPONSES)  # fmt: skip
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    claude = pictured(ANTHROPIC)
    assert {"type": "image", "source": source} == claude[0]
    assert ("text", "what is it?") == (claude[1]["type"], claude[1]["text"])
    for dialect in (CHAT, RESPONSES):
        assert (
            "hello"
            == dialect.body(said(UserMessage("hello")), "m", NAMES, 0)[
                "messages" if dialect is CHAT else "input"
            ][-1]["content"]
        )


@every_row("name", ALL)
def test_a_picture_has_no_empty_text_and_missing_ones_are_counted(name: str) -> None:
    """A picture alone is sent without empty text; pictures no longer shown are counted in text."""
    for text in ("", " \n"):
        assert ["text" in part for part in pictured(ALL[name], text)] == [False]
    assert "[2 of its pictures are not shown any more]" in str(pictured(ALL[name], gone=2))
    assert 1 == str(pictured(ALL[name], gone=2)).count("AAAA")


# --- what is read


def test_reasoning_is_apart() -> None:
    """In every spelling; it is shown as reasoning and is no part of the text."""
    for dialect, events in (
        (CHAT, (chunk(reasoning="a"), chunk(reasoning_content="b"), chunk(content="c"), "[DONE]")),
        (ANTHROPIC, (
            {"type": "content_block_start", "content_block": {"type": "thinking",
             "thinking": "a"}},
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "b"}},
            {"type": "content_block_start", "content_block": {"type": "redacted_thinking",
             "data": "zz"}},
            {"type": "content_block_start", "content_block": {"type": "text", "text": "c"}},
            {"type": "message_stop"})),
        (RESPONSES, (
            {"type": "response.reasoning_text.delta", "delta": "a"},
            {"type": "response.reasoning_summary_text.delta", "delta": "b"},
            {"type": "response.output_text.delta", "delta": "c"},
            {"type": "response.completed", "response": {}})),
    ):  # fmt: skip
        deltas: list[Delta] = []
        reader = dialect.reader(builder := TurnBuilder(deltas.append))
        for event in events:
            reader.take(event if isinstance(event, str) else msgspec.json.encode(event).decode())
        turn = builder.build(REQUEST, {}, lambda _: "c")
        kinds = [(delta.kind, delta.text) for delta in deltas]
        assert [("reasoning", "a"), ("reasoning", "b"), ("text", "c")] == kinds
        assert "c" == turn.text


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"),
     ("pause_turn", "stop"), ("model_context_window_exceeded", "length"),
     ("tool_use", "tool_calls"), ("refusal", "content_filter"), ("new_one", "stop")],
)  # fmt: skip
async def test_why_anthropic_stopped(stop_reason: str, expected: str) -> None:
    """In our words."""
    events = (
        {"type": "message_delta", "delta": {"stop_reason": stop_reason}},
        {"type": "message_stop"},
    )
    assert expected == (await ask(STREAM, sse(*events), dialect=ANTHROPIC)).finish_reason


@pytest.mark.parametrize(
    ("finish_reason", "expected"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"),
     ("function_call", "tool_calls"), ("eos", "stop")],
)  # fmt: skip
async def test_why_a_chat_stopped(finish_reason: str, expected: str) -> None:
    """In our words."""
    event = {"choices": [{"delta": {"content": "x"}, "finish_reason": finish_reason}]}
    assert expected == (await ask(STREAM, sse(event, "[DONE]"))).finish_reason


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "response.completed", "response": {}}, "stop"),
        ({"type": "response.incomplete", "response": {}}, "length"),
        ({"type": "response.incomplete", "response": {"incomplete_details": {"reason":
          "content_filter"}}}, "content_filter"),
    ],
)  # fmt: skip
async def test_why_a_response_stopped(event: Any, expected: str) -> None:
    """In our words."""
    assert expected == (await ask(STREAM, sse(event), dialect=RESPONSES)).finish_reason


async def test_anthropics_counts_are_running_totals() -> None:
    """Anthropic's counts keep values not repeated later; input includes cache reads and writes."""
    first = {"input_tokens": 3, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 4}
    turn = await ask(
        STREAM,
        sse(
            {"type": "message_start", "message": {"id": "m", "usage": first}},
            {"type": "message_delta", "usage": {"output_tokens": 2}},
            {"type": "message_delta", "usage": {"output_tokens_details": {"thinking_tokens": 3}}},
            {"type": "message_delta", "usage": {"input_tokens": 5, "output_tokens": 6}},
            {"type": "message_stop"},
        ),
        dialect=ANTHROPIC,
    )
    assert turn.usage == Usage(
        input_tokens=19,
        output_tokens=6,
        source="provider",
        cached_tokens=4,
        cache_write_tokens=10,
        reasoning_tokens=3,
    )


@pytest.mark.parametrize("name", ["chat", "responses"])
@pytest.mark.parametrize("told", [True, False])
async def test_openai_counts_include_their_details(name: str, *, told: bool) -> None:
    """Input tokens include cached ones and output tokens include reasoning; both are reported."""
    read, written = {"cached_tokens": 4, "cache_write_tokens": 2}, {"reasoning_tokens": 3}
    whole = (9, 7, read, written) if told else (9, 7, None, None)
    keys = (
        ("prompt_tokens", "completion_tokens")
        if name == "chat"
        else ("input_tokens", "output_tokens")
    )
    usage = dict(zip([*keys, *(f"{key}_details" for key in keys)], whole, strict=True))
    event: Any = {"type": "response.completed", "response": {"usage": usage}}
    if name == "chat":
        event = {**chunk(content="x"), "usage": usage}
    turn = await ask(STREAM, sse(event, "[DONE]"), dialect=ALL[name])
    apart = (4, 2, 3) if told else (0, 0, 0)
    assert (9, 7, *apart) == (
        turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.cached_tokens,
        turn.usage.cache_write_tokens, turn.usage.reasoning_tokens,
    )  # fmt: skip


async def test_deepseek_cache_hits_are_read() -> None:
    """DeepSeek's `prompt_cache_hit_tokens` is read as the number of cached tokens."""
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 5}
    turn = await ask(STREAM, sse({**chunk(content="x"), "usage": usage}, "[DONE]"))
    assert 5 == turn.usage.cached_tokens


async def calls(dialect: Dialect, *events: Any) -> list[tuple[str, Any]]:
    """The calls of a turn."""
    turn: ModelTurn = await ask(STREAM, sse(*events), dialect=dialect)
    return [(call.tool, call.arguments) for call in turn.calls]


async def test_only_the_first_choice_counts() -> None:
    """We ask for one; a server that sends more does not mix them. Its first id is the trace."""
    first, other = ({"index": at, "delta": {"content": text}} for at, text in enumerate("ab"))
    events = {"id": "one", "choices": [first, other]}, {"id": "two", "choices": [first]}
    turn = await ask(STREAM, sse(*events), b"data:  [DONE] \n\n")
    assert ("aa", "one") == (turn.text, turn.trace_ref)


async def test_a_refusal_in_words_is_the_answer() -> None:
    """In both of OpenAI's APIs."""
    chat = await ask(STREAM, sse(chunk(refusal="I will not."), "[DONE]"))
    refused = {"type": "response.refusal.delta", "delta": "I will not."}
    done = {"type": "response.completed", "response": {}}
    response = await ask(STREAM, sse(refused, done), dialect=RESPONSES)
    assert "I will not." == chat.text == response.text


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        (ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error"}}),
        (RESPONSES, {"type": "error", "code": "server_is_overloaded", "message": "busy",
                     "error": {"code": 503}}),
        (RESPONSES, {"type": "response.failed", "response": {"error": {"code": 503}}}),
    ],
)  # fmt: skip
async def test_an_error_in_the_stream_ends_it(dialect: Dialect, event: Any) -> None:
    """An error event in a stream fails the turn with its class, even before a regular end."""
    ends = {"type": "message_stop"}, {"type": "response.completed", "response": {}}
    with pytest.raises(ModelFailure) as caught:
        await ask(STREAM, sse(event, *ends), dialect=dialect)
    assert "unavailable" == caught.value.failure_class


async def test_servers_that_do_not_number_calls() -> None:
    """Fragments belong to the id, or to the call before."""
    events = (
        chunk(tool_calls=[{"id": "a", "function": {"name": "read_file", "arguments": '{"x":'}}]),
        chunk(tool_calls=[{"function": {"arguments": "1}"}}]),
        chunk(tool_calls=[{"id": "b", "function": {"name": "read_file", "arguments": "{}"}}]),
        "[DONE]",
    )
    assert [("read_file", {"x": 1}), ("read_file", {})] == await calls(CHAT, *events)


async def test_a_call_as_a_whole() -> None:
    """Without fragments, or where the whole differs from them: the whole counts."""
    item = {"type": "function_call", "name": "read_file", "arguments": '{"x": 1}'}
    assert [("read_file", {"x": 1})] == await calls(
        RESPONSES,
        {"type": "response.output_item.added", "item": {**item, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "delta": '{"x": 7}'},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {}},
    )
    block = {"type": "tool_use", "name": "read_file", "input": {"x": 1}}
    assert [("read_file", {"x": 1})] == await calls(
        ANTHROPIC, {"type": "content_block_start", "content_block": block}, {"type": "message_stop"}
    )


# --- the builder


def builder() -> TurnBuilder:
    """Return a turn builder whose deltas are discarded."""
    return TurnBuilder(lambda _: None)


@every_row("text", ["", "  ", "{}", '{"a": 1}', "7", "null", "{broken", "[" * 9_999])
def test_arguments_are_json_or_the_text_they_are(text: str) -> None:
    """None at all are an empty object."""
    made = builder()
    made.open_call(0, "x")
    if text:
        made.add_arguments(0, text)
    (call,) = made.build(REQUEST, {"x": "read_file"}, lambda _: "c").calls
    expected = {"": {}, "  ": {}, "{}": {}, '{"a": 1}': {"a": 1}, "7": 7, "null": None}
    assert ("read_file", expected.get(text, text)) == (call.tool, call.arguments)


def test_bounds_of_a_turn_are_exact() -> None:
    """A turn at a limit passes and one over it fails; arguments are counted in bytes."""
    made = builder()
    made.add_arguments(0, "é" * (MAX_ARGUMENT_BYTES // 2))
    made.set_arguments(0, "x" * MAX_ARGUMENT_BYTES)  # in place of the pieces
    with pytest.raises(ModelFailure, match="arguments"):
        made.add_arguments(0, "x")
    with pytest.raises(ModelFailure, match="arguments"):
        builder().add_arguments(0, "é" * (MAX_ARGUMENT_BYTES // 2 + 1))
    shared = builder()
    shared.add_arguments(0, "x" * (MAX_ARGUMENT_BYTES - 1))
    shared.add_arguments(1, "x")
    with pytest.raises(ModelFailure, match="bytes in one turn"):
        shared.add_arguments(2, "x")
    many = builder()
    for number in range(MAX_CALLS):
        many.open_call(number, "x")
    many.open_call(0, "x")  # known
    with pytest.raises(ModelFailure, match="tool calls"):
        many.open_call(MAX_CALLS, "x")


def test_a_call_keeps_its_first_name() -> None:
    """A name that comes late is taken, another one is not."""
    made = builder()
    made.add_arguments("k", "{}")
    made.open_call("k", "one")
    made.open_call("k", "two")
    assert ["one"] == [call.tool for call in made.build(REQUEST, {}, lambda _: "c").calls]


def test_a_turn_with_calls_stopped_for_them() -> None:
    """Unless it was cut or filtered."""
    for told, expected in ((None, "tool_calls"), ("stop", "tool_calls"), ("length", "length")):
        made = builder()
        made.open_call(0, "x")
        made.finish_reason = told  # type: ignore[assignment]  # the literals above
        assert expected == made.build(REQUEST, {}, lambda _: "c").finish_reason
    assert "stop" == builder().build(REQUEST, {}, lambda _: "c").finish_reason


def test_a_part_is_no_more_than_the_whole() -> None:
    """Cached, stored and reasoning tokens are capped by the totals they are part of."""
    made = builder()
    made.count(10, 4, cached=6, stored=9, thought=5)
    told = made.build(REQUEST, {}, lambda _: "c").usage
    assert (6, 4, 4) == (told.cached_tokens, told.cache_write_tokens, told.reasoning_tokens)


def test_arguments_are_parsed_only_when_they_may_be_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that names the call in each piece costs no more than its last one."""
    parsed: list[str] = []
    monkeypatch.setattr("palyra.models.turn_builder._parse", parsed.append)
    made = builder()
    made.open_call("c", "f")
    for piece in ['{"a', '": "b', " ", "c"]:
        made.add_arguments("c", piece)
        assert not made.is_complete("c")
    assert [] == parsed
    monkeypatch.undo()
    made.add_arguments("c", '"}')
    assert made.is_complete("c")
