"""A response and its events, of runs that end in every way: no daemon, no socket."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from palyra.core.model.messages import ProposedCall
from palyra.net.http.compat.answer import AnswerEnded, AnswerReader, Part, Reasoning, Text
from palyra.net.http.compat.responses import ResponsesRequest, ResponseStream, build_response


def answer() -> Any:
    return SimpleNamespace(run_id="run_1", session_id="ses_1", reading=AnswerReader())


@pytest.mark.parametrize(
    ("ended", "status", "reason"),
    [
        (AnswerEnded(finish="stop"), "completed", None),
        (AnswerEnded(finish="length", partial="max_tokens"), "incomplete", "max_output_tokens"),
        (AnswerEnded(finish="content_filter", partial="cut_off"), "incomplete", "content_filter"),
        (AnswerEnded(finish="stop", partial="not_called"), "incomplete", "not_called"),
        (AnswerEnded(finish="stop", failure_class="auth", reason="x"), "failed", None),
        (AnswerEnded(finish="stop", failure_class="run_cancelled"), "cancelled", None),
    ],
)
def test_how_a_response_ended(ended: AnswerEnded, status: str, reason: str | None) -> None:
    """In the API's words where it has some, else in ours."""
    made = build_response("m", answer(), ended)
    told = None if made.incomplete_details is None else made.incomplete_details.reason
    assert (status, reason, True) == (made.status, told, made.store)


def test_items_keep_the_places_they_began_at() -> None:
    """Thoughts that come behind the first words are the second item, in every event."""
    shown = answer()
    stream = ResponseStream(ResponsesRequest(model="m", input="x"), shown)
    call = ProposedCall(call_id="call_1", tool="look", arguments={})
    shown.reading.text, shown.reading.reasoning = "words", "thoughts"
    parts: tuple[Part, ...] = (
        Text("words"),
        Reasoning("thoughts"),
        AnswerEnded(finish="tool_calls", calls=(call,)),
    )
    data = b"".join([stream.begin(), *map(stream.take, parts)])
    events = [
        msgspec.json.decode(line.removeprefix(b"data: "))
        for line in data.splitlines()
        if line.startswith(b"data: ")
    ]
    assert list(range(len(events))) == [event["sequence_number"] for event in events]
    added = [e["item"]["type"] for e in events if e["type"] == "response.output_item.added"]
    assert ["message", "reasoning", "function_call"] == added
    done = {e["item"]["type"]: e["output_index"] for e in events if e["type"].endswith("item.done")}
    assert {"message": 0, "reasoning": 1, "function_call": 2} == done
    assert added == [item["type"] for item in events[-1]["response"]["output"]]
