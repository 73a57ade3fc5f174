"""Requests of each API as pure functions, so that every member is tested."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from palyra.core.model.messages import AssistantMessage, Sampling, UserMessage
from palyra.errors import InvalidParams
from palyra.net.http.compat.chat import ChatRequest, read_chat
from palyra.net.http.compat.errors import Unsupported
from palyra.net.http.compat.messages import MessagesRequest, read_messages
from palyra.net.http.compat.model_names import ModelTarget
from palyra.net.http.compat.params import MAX_SCHEMA_BYTES, CompatRequest
from palyra.net.http.compat.responses import ResponsesRequest, read_responses
from palyra.net.http.compat.run_request import RunRequest
from palyra.net.protocol.params import convert_params
from tests.net.http.compat.test_conversation import PIXEL
from tests.rows import every_row

TARGET = ModelTarget(None, "scripted")
SAID = [{"role": "user", "content": "hello"}]
PNG = {"type": "base64", "media_type": "image/png", "data": PIXEL}


def chat(**more: Any) -> RunRequest:
    given = {"model": "scripted", "messages": SAID, **more}
    return read_chat(convert_params(ChatRequest, given), TARGET, {})


def responses(**more: Any) -> RunRequest:
    given = {"model": "scripted", "input": "hello", **more}
    return read_responses(convert_params(ResponsesRequest, given), TARGET, {})


def messages(**more: Any) -> RunRequest:
    given = {"model": "scripted", "messages": SAID, "max_tokens": 9, **more}
    return read_messages(convert_params(MessagesRequest, given), TARGET, {})


ALL: list[Callable[..., RunRequest]] = [chat, responses, messages]


@every_row("read", ALL)
def test_how_an_answer_is_picked(read: Callable[..., RunRequest]) -> None:
    """Each knob is the model's, as far as the API has it."""
    limit = "max_output_tokens" if read is responses else "max_tokens"
    asked = read(**{limit: 7, "temperature": 0.5, "top_p": 0.25})
    assert Sampling(max_output_tokens=7, temperature=0.5, top_p=0.25) == asked.sampling
    with pytest.raises(InvalidParams, match="top_p"):
        read(top_p=1.5)
    too_hot = 1.5 if read is messages else 2.5
    with pytest.raises(InvalidParams, match="temperature"):
        read(temperature=too_hot)


def test_the_new_name_of_the_limit_counts() -> None:
    """Where both are given."""
    assert 3 == chat(max_tokens=7, max_completion_tokens=3).sampling.max_output_tokens


@pytest.mark.parametrize(("read", "name"), [(chat, "stop"), (messages, "stop_sequences")])
def test_where_an_answer_stops(read: Callable[..., RunRequest], name: str) -> None:
    """At one of four texts at most, none of them empty."""
    assert ("a", "b", "c", "d") == read(**{name: list("abcd")}).sampling.stop
    for wrong in (list("abcde"), ["a", ""]):
        with pytest.raises(InvalidParams, match=name):
            read(**{name: wrong})


def test_a_schema_has_a_size_limit() -> None:
    """It is part of every prompt."""
    for size, is_taken in ((MAX_SCHEMA_BYTES - 99, True), (MAX_SCHEMA_BYTES, False)):
        schema = {"type": "object", "description": "x" * size}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        if is_taken:
            assert schema == chat(response_format=form).answer_schema
            continue
        with pytest.raises(Unsupported, match="bytes"):
            chat(response_format=form)


def test_a_refusal_in_the_conversation_is_the_models_text() -> None:
    """It is a part, or the member next to an empty content."""
    part = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    member = {"role": "assistant", "content": None, "refusal": "no"}
    for said in (part, member):
        made = chat(messages=[*SAID, said, *SAID]).chat
        assert (UserMessage("hello"), AssistantMessage("no")) == made.before


@every_row("is_error", [True, False, None])
def test_a_failed_tool_result(*, is_error: bool | None) -> None:
    """The result is marked as a failure; it may have a picture without text."""
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "x", "is_error": is_error}
    said = [*SAID, {"role": "assistant", "content": [call]}]
    made = messages(messages=[*said, {"role": "user", "content": [result]}]).chat
    assert ["failed" if is_error else "succeeded"] == [each.status for each in made.results]
    shown = {"role": "user", "content": [result, {"type": "image", "source": PNG}]}
    made = messages(messages=[*said, shown]).chat
    assert (1, 1, "") == (len(made.results), len(made.pictures), made.text)


@every_row("read", ALL)
def test_one_call_at_most(read: Callable[..., RunRequest]) -> None:
    """In the words of each API; otherwise as many as the model likes."""

    def wish(value: bool | None) -> dict[str, Any]:  # noqa: FBT001 - a value
        if read is messages:
            wanted = None if value is None else not value
            return {"tool_choice": {"type": "auto", "disable_parallel_tool_use": wanted}}
        return {"parallel_tool_calls": value}

    found = [read(**wish(value)).one_call for value in (False, True, None)]
    assert [True, False, False] == found
    assert not read().one_call


SCHEMA = {"type": "object"}
SAID_AS = {"model": "agent/default", "messages": [{"role": "user", "content": "hello"}]}


@every_row(
    ("kind", "plain", "formed"),
    [
        (
            ChatRequest,
            SAID_AS,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        ),
        (
            ResponsesRequest,
            {"model": "agent/default", "input": "hello"},
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
        ),
        (
            MessagesRequest,
            {**SAID_AS, "max_tokens": 9},
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        ),
    ],
)
def test_a_schema_is_compiled_in_a_thread(
    kind: type[CompatRequest], plain: dict[str, Any], formed: dict[str, Any]
) -> None:
    """A request says that it has a schema, so that it is read off the event loop however short."""
    assert not msgspec.convert(plain, kind).has_answer_schema
    assert msgspec.convert({**plain, **formed}, kind).has_answer_schema
