"""A response and its events, of runs that end in every way: no daemon, no socket."""

from typing import cast

import msgspec

from palyra.core.model.messages import ProposedCall
from palyra.core.session.commands import Started
from palyra.net.http.compat.answer import AnswerEnded, AnswerReader, Part, Reasoning, Text
from palyra.net.http.compat.responses import ResponsesRequest, ResponseStream, build_response
from palyra.net.http.compat.run_follower import RunFollower
from palyra.net.http.compat.run_request import CompatAnswer
from tests.rows import every_row


def answer() -> CompatAnswer:
    """The answer of a run that is never followed."""
    started = Started(run_id="run_1", session_id="ses_1", seq=0, disposition="started")
    return CompatAnswer(started, following=cast("RunFollower", None), reading=AnswerReader())


@every_row(
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
    """The reason is the API's own if it has one, else the cause of the run."""
    made = build_response("m", answer(), ended)
    found = None if made.incomplete_details is None else made.incomplete_details.reason
    assert (status, reason, True) == (made.status, found, made.store)


def test_items_keep_the_order_of_their_start() -> None:
    """Reasoning that comes after the first text is the second item, in every event."""
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
