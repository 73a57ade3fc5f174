"""What servers send in other forms than their dialect has: one field is lost, not the answer."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.messages import AssistantMessage, Delta, ModelFailure, Thought
from palyra.models.anthropic import ANTHROPIC, AnthropicReader
from palyra.models.bedrock import BedrockReader
from palyra.models.chat import CHAT, ChatReader
from palyra.models.gemini import GeminiReader
from palyra.models.responses import RESPONSES, ResponsesReader
from palyra.models.thought_tags import ThoughtTags
from palyra.models.turn_builder import TurnBuilder
from palyra.models.wire import finish_reason, wire_id
from tests.models.model_kit import CALL, REQUEST
from tests.rows import every_row

NAMES = {"read_file": "read_file", "mcp:files.read": "mcp_files_read"}


def read(reader: Any, *events: Any) -> tuple[Any, list[Delta]]:
    """The turn after these events."""
    deltas: list[Delta] = []
    builder = TurnBuilder(deltas.append)
    taken = reader(builder)
    for event in events:
        taken.take(event if isinstance(event, str) else msgspec.json.encode(event).decode())
    ids = iter(range(1, 99))
    return builder.build(REQUEST, {}, lambda _kind: f"call_{next(ids)}"), deltas


def chat(*deltas: Any, end: str = "stop") -> tuple[Any, list[Delta]]:
    """The turn of these deltas of the chat dialect."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return read(ChatReader, *chunks, {"choices": [{"delta": {}, "finish_reason": end}]})


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> Any:
    """A fragment of a call."""
    made = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [{key: value for key, value in made.items() if value is not None}]}


@every_row(
    ("content", "text"),
    [
        ("hi", "hi"),
        ([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}], "hi"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, "hi"], "hi"),
        ({"type": "text", "text": "hi"}, "hi"),
        (7, ""),
        ([None, 3, {"type": "new"}, {"text": "hi"}], "hi"),
    ],
)
def test_content_in_parts_is_text(content: Any, text: str) -> None:
    """Unknown parts are lost alone; thinking is reasoning."""
    assert text == chat({"content": content})[0].text


def test_arguments_may_be_an_object() -> None:
    """They are the same as their text."""
    turn, _ = chat(call(0, "a", "read", {"path": "a.txt"}))
    assert {"path": "a.txt"} == turn.calls[0].arguments


def test_half_a_surrogate_pair_costs_one_character() -> None:
    """The rest of the chunk is read."""
    turn, _ = read(
        ChatReader, r'{"choices":[{"delta":{"content":"x \ud83d y"},"finish_reason":"stop"}]}'
    )
    assert "x ? y" == turn.text


@every_row(
    ("first", "second"),
    [
        ((0, "a"), (0, "b")),
        ((None, ""), (None, "")),
        ((None, "a"), (None, "b")),
        ((0, "a"), (1, "b")),
    ],
)
def test_two_calls_are_two_calls(first: Any, second: Any) -> None:
    """By index, by id, or by a name after whole arguments."""
    turn, _ = chat(
        call(first[0], first[1], "read", '{"p":1}'), call(second[0], second[1], "read", '{"p":2}')
    )
    assert [{"p": 1}, {"p": 2}] == [each.arguments for each in turn.calls]


def test_pieces_of_one_call_are_one_call() -> None:
    """With the id and the name repeated, or neither."""
    for pieces in (((0, "a", "r"), (0, "a", "r")), ((0, "a", "r"), (0, None, None))):
        turn, _ = chat(
            call(pieces[0][0], pieces[0][1], pieces[0][2], '{"p":'),
            call(pieces[1][0], pieces[1][1], pieces[1][2], "1}"),
        )
        assert [{"p": 1}] == [each.arguments for each in turn.calls]


READERS = [ChatReader, AnthropicReader, ResponsesReader, GeminiReader, BedrockReader]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "delta", "content", "choices", "index", "item", "usage", "data", "parts",
                         "candidates", "text", "function", "tool_calls", "message"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(READERS), st.dictionaries(st.sampled_from(["type", "choices", "candidates", "delta",
       "item", "response", "message", "data"]), json_values, max_size=4))  # fmt: skip
def test_no_object_is_worse_than_a_failure(reader: Any, event: dict[str, Any]) -> None:
    """Whatever the forms of the fields, a reader reads on or reports a failure of the provider."""
    with contextlib.suppress(ModelFailure):
        read(reader, event)


@every_row(
    ("word", "expected"),
    [("eos", "stop"), ("end_turn", "stop"), ("MAX_TOKENS", "length"), ("content-filter", "content_filter"),
     ("tool_use", "tool_calls"), ("IMAGE_SAFETY", "content_filter"), ("model_length", "length")],
)  # fmt: skip
def test_words_for_an_end(word: str, expected: str) -> None:
    """Known by what they say."""
    assert expected == finish_reason(word)


@every_row("word", ["insufficient_system_resource", "error", "MALFORMED_FUNCTION_CALL", "aborted"])
def test_an_end_for_a_fault_is_a_failure(word: str) -> None:
    """It is tried again."""
    with pytest.raises(ModelFailure, match="ended the answer early") as caught:
        finish_reason(word)
    assert "transient" == caught.value.failure_class


def test_ids_on_the_wire_have_the_form_that_all_servers_take() -> None:
    """Nine letters and digits, the same for a call and its result."""
    body = CHAT.body(REQUEST, "m", NAMES, 0)
    ids = {body["messages"][2]["tool_calls"][0]["id"], body["messages"][3]["tool_call_id"]}
    assert {wire_id("call_1")} == ids
    assert all(len(each) == 9 and each.isalnum() for each in ids)


def test_usage_of_groq_is_read() -> None:
    """It stands in a member of its own."""
    turn, _ = read(
        ChatReader,
        {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}],
         "x_groq": {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}},
    )  # fmt: skip
    assert (5, 2, "provider") == (
        turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.source,
    )  # fmt: skip


@given(st.integers(1, 9), st.sampled_from(["think", "thinking", "thought"]))
def test_reasoning_between_tags_is_no_text(size: int, tag: str) -> None:
    """Wherever the pieces are cut, and only at the start of an answer."""
    whole = f"\n<{tag}>a < b</{tag}>\n\nThe <think> tag."
    tags, thought, answer = ThoughtTags(), "", ""
    for at in range(0, len(whole), size):
        piece = whole[at : at + size]
        answer += piece if tags.is_over else tags.take(piece)
        thought, tags.thought = thought + tags.thought, ""
    assert ("a < b", "The <think> tag.") == (thought, answer.lstrip())


# --- reasoning that goes back ----------------------------------------------------------------------


def _sent_back(dialect: Any, turn: Any) -> str:
    message = AssistantMessage("", (CALL,), thought=turn.thought)
    messages = (REQUEST.messages[0], message, *REQUEST.messages[2:])
    request = msgspec.structs.replace(REQUEST, messages=messages)
    return msgspec.json.encode(dialect.body(request, "m", NAMES, 0)).decode()


def test_reasoning_of_the_chat_dialect_goes_back_with_the_results() -> None:
    """In the members in which it came, and to no other model."""
    turn, _ = chat(
        {"reasoning_content": "I should "},
        {"reasoning_content": "read."},
        {"reasoning_details": [{"type": "reasoning.encrypted", "index": 0, "data": "QQ"}]},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "read", "arguments": "{}"},
                         "extra_content": {"google": {"thought_signature": "SIG"}}}]},
    )  # fmt: skip
    sent = _sent_back(CHAT, turn)
    for part in (
        '"reasoning_content":"I should read."',
        '"data":"QQ"',
        '"thought_signature":"SIG"',
    ):
        assert part in sent
    other = msgspec.structs.replace(turn, thought=Thought(model="n", items=turn.thought.items))
    assert "reasoning" not in _sent_back(CHAT, other)


def test_signed_thinking_goes_back_before_the_call() -> None:
    """With its signature, which the provider checks."""
    turn, _ = read(
        AnthropicReader,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "S"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "read"}},
    )  # fmt: skip
    assert '[{"type":"thinking","thinking":"hm","signature":"S"},{"type":"tool_use"' in _sent_back(
        ANTHROPIC, turn
    )


def test_encrypted_reasoning_goes_back() -> None:
    """As an item before the call; nothing is stored at the provider."""
    turn, _ = read(
        ResponsesReader,
        {"type": "response.output_item.done", "output_index": 0,
         "item": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"}},
        {"type": "response.output_item.done", "output_index": 1,
         "item": {"type": "function_call", "name": "read", "arguments": "{}"}},
    )  # fmt: skip
    assert '{"type":"reasoning","summary":[],"encrypted_content":"E"}' in _sent_back(
        RESPONSES, turn
    )
