"""Anthropic's own SDK as a client of `/v1/messages`; OpenAI's of `/v1/embeddings`."""

from collections.abc import Generator
from typing import Any, cast

import anthropic
import openai
import pydantic
import pytest
from anthropic.types import Message

from tests.e2e.daemon_process import DaemonProcess

pytestmark = pytest.mark.real

WEATHER: Any = {
    "name": "weather",
    "description": "What the sky does.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASK_WEATHER = '/say let me see\n/call weather {"city": "Oslo"}\n/then\n/say it rains'
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


@pytest.fixture(scope="module")
def sdk(daemon: DaemonProcess) -> Generator[anthropic.Anthropic]:
    """The official client, pointed at the daemon."""
    url = f"http://127.0.0.1:{daemon.port}"
    with anthropic.Anthropic(base_url=url, api_key=daemon.token, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def other(daemon: DaemonProcess) -> Generator[openai.OpenAI]:
    """OpenAI's client."""
    url = f"http://127.0.0.1:{daemon.port}/v1"
    with openai.OpenAI(base_url=url, api_key=daemon.token, max_retries=0) as client:
        yield client


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def ask(sdk: anthropic.Anthropic, *contents: Any, **more: Any) -> Message:
    """A conversation whose odd messages are the user's."""
    roles = ("user", "assistant")
    messages: Any = [
        {"role": roles[index % 2], "content": content} for index, content in enumerate(contents)
    ]
    made: Message = sdk.messages.create(
        model="scripted", max_tokens=1000, messages=messages, **more
    )
    return made


def test_a_message_is_a_run(sdk: anthropic.Anthropic) -> None:
    """Text, reason and usage are where the SDK looks."""
    made = ask(sdk, "hi", "ho", "/say hello", system="Be brief.")
    assert ["hello"] == [block.text for block in made.content if block.type == "text"]
    assert ("end_turn", "assistant") == (made.stop_reason, made.role)
    assert made.usage.output_tokens > 0


def test_the_sdks_own_accumulator_agrees(sdk: anthropic.Anthropic) -> None:
    """Blocks open and close in order, and put together they are the whole answer."""
    messages: Any = [{"role": "user", "content": ASK_WEATHER}]
    with sdk.messages.stream(
        model="scripted", max_tokens=1000, messages=messages, tools=[WEATHER]
    ) as stream:
        text = "".join(stream.text_stream)
        made = stream.get_final_message()
    assert "let me see" == text
    assert ["text", "tool_use"] == [block.type for block in made.content]
    assert "tool_use" == made.stop_reason
    assert made.usage.output_tokens > 0


def test_calls_go_to_the_client_and_come_back(sdk: anthropic.Anthropic) -> None:
    """The request with the result gets the answer."""
    made = ask(sdk, ASK_WEATHER, tools=[WEATHER])
    (call,) = [block for block in made.content if block.type == "tool_use"]
    assert ("weather", {"city": "Oslo"}) == (call.name, call.input)
    said = [
        block.model_dump(include={"type", "text", "id", "name", "input"}) for block in made.content
    ]
    result = [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]
    after = ask(sdk, ASK_WEATHER, said, result, tools=[WEATHER])
    assert ["it rains"] == [block.text for block in after.content if block.type == "text"]


def test_tokens_can_be_counted_before(sdk: anthropic.Anthropic) -> None:
    """About what the answer says was taken; system words, tools and the conversation are in it."""
    said: Any = [{"role": "user", "content": "/say x"}]
    more: Any = {"system": "Be brief. " * 200, "tools": [WEATHER]}
    plain = sdk.messages.count_tokens(model="scripted", messages=said)
    long = sdk.messages.count_tokens(model="agent/default", messages=said, **more)
    taken = ask(sdk, "/say x", **more).usage.input_tokens
    assert 500 < long.input_tokens - plain.input_tokens < 1_000
    assert 0.9 < long.input_tokens / taken < 1.1
    before = sdk.messages.count_tokens(
        model="scripted", messages=[*said, {"role": "assistant", "content": "y" * 4_000}, *said]
    )
    assert 500 < before.input_tokens - plain.input_tokens < 2_000
    image = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    shown: Any = [{"type": "image", "source": image}, {"type": "text", "text": "/say x"}]
    pictured = sdk.messages.count_tokens(
        model="scripted", messages=[{"role": "user", "content": shown}]
    )
    assert 1_600 == pictured.input_tokens - plain.input_tokens
    with pytest.raises(anthropic.NotFoundError) as unknown:
        sdk.messages.count_tokens(model="none", messages=said)
    with pytest.raises(anthropic.BadRequestError):
        sdk.messages.count_tokens(model="scripted", messages=[])
    assert "not_found_error" == cast("Any", unknown.value.body)["error"]["type"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_call_can_be_asked_for(sdk: anthropic.Anthropic, choice: Any) -> None:
    """The answer is the call, without a word."""
    made = ask(sdk, "hello", tools=[WEATHER], tool_choice=choice)
    (call,) = made.content
    assert ("tool_use", "tool_use") == (made.stop_reason, call.type)
    assert "weather" == getattr(call, "name", "")


class Weather(pydantic.BaseModel):
    """The schema of the answer."""

    city: str


def test_an_answer_fits_its_schema(sdk: anthropic.Anthropic) -> None:
    """The SDK's own types: a first answer that does not fit is sent back; one that never does is none."""
    text = '/say {"city": 5}\n/then\n/say {"city": "Oslo"}'
    messages: Any = [{"role": "user", "content": text}]
    made = sdk.messages.parse(
        model="scripted", max_tokens=99, messages=messages, output_format=Weather
    )
    assert Weather(city="Oslo") == made.parsed_output
    form = {"type": "json_schema", "schema": {"type": "object", "required": ["city"]}}
    never = ask(sdk, "/say {}\n/then\n/say {}", output_config={"format": form, "effort": "low"})
    assert ("refusal", []) == (never.stop_reason, never.content)
    for wrong in ({"type": "json_schema", "schema": {"pattern": "("}}, {"type": "json"}):
        with pytest.raises(anthropic.BadRequestError):
            ask(sdk, "hello", output_config={"format": wrong})


def test_models_are_listed(sdk: anthropic.Anthropic) -> None:
    """As its own API shows them."""
    page = sdk.models.list()
    cards = list(page)
    assert {"scripted", "agent/default"} <= {card.id for card in cards}
    assert {("model", True)} == {(card.type, card.display_name == card.id) for card in cards}
    assert (False, cards[0].id, cards[-1].id) == (page.has_more, page.first_id, page.last_id)
    assert cards[0] == sdk.models.retrieve(cards[0].id)
    assert 1970 <= cards[-1].created_at.year


@pytest.mark.parametrize("kind", ["auto", "any"])
def test_a_reply_may_have_one_call_at_most(sdk: anthropic.Anthropic, kind: str) -> None:
    """The first of two; without the wish, both."""
    two, wish = '/call weather {"city": "Oslo"}\n/call weather', {"disable_parallel_tool_use": True}
    for more, wanted in ((wish, [{"city": "Oslo"}]), ({}, [{"city": "Oslo"}, {}])):
        made = ask(sdk, two, tools=[WEATHER], tool_choice={"type": kind, **more})
        assert wanted == [block.input for block in made.content if block.type == "tool_use"]
        assert "tool_use" == made.stop_reason


def test_further_members_of_a_tool(sdk: anthropic.Anthropic) -> None:
    """They are ignored, and the answer names those that the daemon does not know."""
    taken = {"strict": True, "eager_input_streaming": True, "cache_control": {"type": "ephemeral"}}
    assert "end_turn" == ask(sdk, "/say x", tools=[{**WEATHER, **taken}]).stop_reason
    made = ask(sdk, "/say x", tools=[{**WEATHER, "allowed_callers": ["code_execution_20250825"]}])
    assert ["tools[].allowed_callers"] == cast("Any", made).palyra["ignored"]


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
BLOCKS: list[tuple[Any, str]] = [  # a block, and the words of it that the model has
    (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abc"}},
        "",
    ),
    (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
        },
        "messages[].content[].document",
    ),
    (
        {
            "type": "search_result",
            "source": "https://x.org",
            "title": "t",
            "content": [{"type": "text", "text": "x"}],
        },
        "",
    ),
    (
        {"type": "container_upload", "file_id": "f"},
        "messages[].content[].container_upload",
    ),
    (
        {"type": "image", "source": {"type": "url", "url": "https://x.org/y.png"}},
        "messages[].content[].image",
    ),
]


@pytest.mark.parametrize(("block", "place"), BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_costs_itself(sdk: anthropic.Anthropic, block: Any, place: str) -> None:
    """One that runs do not support is left out and named, in a message and in a result."""
    made: Any = ask(sdk, [block, {"type": "text", "text": "/say on"}])
    assert "on" == made.content[0].text
    assert bool(place) == (place in made.palyra.get("ignored", []))
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
    results = [{"type": "tool_result", "tool_use_id": "c1", "content": [block, PICTURE]}]
    messages: Any = [
        {"role": "user", "content": "/call weather {}\n/then\n/say seen"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [*results, {"type": "text", "text": "/say seen"}]},
    ]
    made = sdk.messages.create(model="scripted", max_tokens=9, messages=messages)
    assert "seen" == made.content[0].text


def test_tools_that_are_known_by_their_type(sdk: anthropic.Anthropic) -> None:
    """Those that the client runs are offered; those of the provider are left out and named."""
    tools: Any = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ]
    made: Any = ask(sdk, '/call bash {"command": "ls"}', tools=tools)
    (call,) = [block for block in made.content if block.type == "tool_use"]
    assert ("bash", {"command": "ls"}) == (call.name, call.input)
    assert "tools.web_search_20250305" in made.palyra["ignored"]


def test_errors_of_other_paths_have_the_shape_that_the_client_reads(
    sdk: anthropic.Anthropic,
) -> None:
    """Its SDK names the version of the API."""
    with pytest.raises(anthropic.NotFoundError) as missing:
        sdk.models.retrieve("nothing")
    assert "not_found_error" == cast("Any", missing.value.body)["error"]["type"]


def test_a_conversation_may_be_counted_with_the_answer_last(sdk: anthropic.Anthropic) -> None:
    """As programs do to see how much room is left."""
    said: Any = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    assert sdk.messages.count_tokens(model="scripted", messages=said).input_tokens


def test_a_label_joins_nothing(sdk: anthropic.Anthropic) -> None:
    """Two requests of one user are two sessions."""
    made: list[Any] = [ask(sdk, "/say x", metadata={"user_id": "ann"}) for _ in range(2)]
    assert made[0].palyra["session_id"] != made[1].palyra["session_id"]


def test_pictures_are_taken(sdk: anthropic.Anthropic, other: openai.OpenAI) -> None:
    """In base64, in both APIs; an address is not fetched."""
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
    }
    words = {"type": "text", "text": "/say seen"}
    assert "end_turn" == ask(sdk, [image, words]).stop_reason
    for url, taken in ((f"data:image/png;base64,{PIXEL}", True), ("https://example.com/x", False)):
        content: Any = [{"type": "image_url", "image_url": {"url": url}}, words]
        messages: Any = [{"role": "user", "content": content}]
        made: Any = other.chat.completions.create(model="scripted", messages=messages)
        ignored = [] if taken else ["messages[].content[].image_url"]
        assert ignored == made.palyra.get("ignored", [])


def test_errors_have_the_shape_of_the_api(sdk: anthropic.Anthropic) -> None:
    """Each becomes the SDK's own exception."""
    with pytest.raises(anthropic.NotFoundError) as unknown:
        sdk.messages.create(model="none", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    body: Any = unknown.value.body
    assert ("error", "not_found_error", "model_not_found") == (
        body["type"],
        body["error"]["type"],
        body["error"]["code"],
    )
    with pytest.raises(anthropic.AuthenticationError):
        ask(sdk.with_options(api_key="pal_wrong"), "hello")
    with pytest.raises(anthropic.BadRequestError):
        ask(sdk, "hello", "prefill")
    with pytest.raises(anthropic.BadRequestError):
        ask(sdk, "hello", tools=[WEATHER], tool_choice={"type": "tool", "name": "none"})


def test_embeddings_are_numbers_or_bytes(other: openai.OpenAI) -> None:
    """The SDK asks for base64 by itself; both say the same, in the order of the texts."""
    (name,) = [card.id for card in other.models.list() if "embed" in card.id]
    texts = ["a cat on a mat", "a cat on the mat", "quarterly revenue"]
    packed = other.embeddings.create(model=name, input=texts)
    plain = other.embeddings.create(model=name, input=texts, encoding_format="float")
    for one, same in zip(packed.data, plain.data, strict=True):
        assert same.embedding == pytest.approx(one.embedding, abs=1e-6)
    first, second, third = (card.embedding for card in plain.data)
    assert dot(first, second) > dot(first, third)
    short = other.embeddings.create(model=name, input="x", dimensions=64, encoding_format="float")
    assert 64 == len(short.data[0].embedding)
    assert plain.usage.prompt_tokens > 0


def test_what_cannot_be_embedded_is_refused(other: openai.OpenAI) -> None:
    """An unknown model, no text, numbers of somebody else's tokens."""
    (name,) = [card.id for card in other.models.list() if "embed" in card.id]
    with pytest.raises(openai.NotFoundError):
        other.embeddings.create(model="none", input="x")
    for asked in ("", [], [1, 2, 3]):
        with pytest.raises(openai.BadRequestError):
            other.embeddings.create(model=name, input=asked)


def test_an_answer_goes_back_as_the_sdk_dumps_it(sdk: anthropic.Anthropic) -> None:
    """With a null for every member that its types have and this one does not."""
    made = ask(sdk, ASK_WEATHER, tools=[WEATHER])
    dumped = [block.model_dump() for block in made.content]
    assert any(value is None for block in dumped for value in block.values())
    (call,) = [block for block in made.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    last = ask(sdk, ASK_WEATHER, dumped, [result], tools=[WEATHER])
    assert ["it rains"] == [block.text for block in last.content if block.type == "text"]


def test_the_sdks_own_tool_runner(sdk: anthropic.Anthropic) -> None:
    """It learns that there are no threads, and sends the whole conversation itself."""

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The SDK's example tool."""
        return f"rain in {city}"

    messages: Any = [{"role": "user", "content": ASK_WEATHER}]
    runner = sdk.beta.messages.tool_runner(
        model="scripted", max_tokens=1000, messages=messages, tools=[weather]
    )
    said = [block.text for made in runner for block in made.content if block.type == "text"]
    assert ["let me see", "it rains"] == said
    with pytest.raises(anthropic.BadRequestError, match="thread"):
        ask(sdk, "/say x", extra_body={"thread": {"type": "create"}})
