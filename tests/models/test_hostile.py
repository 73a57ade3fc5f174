"""Hostile providers: every answer is a turn or a failure, in bounded memory."""

import gzip

import pytest
import trio
from trio.testing import MockClock

from palyra.core.model.messages import ModelFailure
from palyra.models.sse import MAX_EVENT_BYTES
from palyra.models.turn_builder import MAX_ARGUMENT_BYTES, MAX_CALLS, MAX_TEXT_CHARS
from tests.models.model_kit import CHAT_EXPECTED, CHAT_TURN, DIALECTS, REQUEST, ask, asked, chunk
from tests.models.provider import STREAM, sse

BODY = sse(*CHAT_TURN)
GO_ON = b": still here\n\n" * 1_000


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    """The beginning of an answer."""
    return "\r\n".join([status, *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b"\n", b"\r\n"),
        BODY.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + BODY,
        BODY.replace(b"data: ", b": comment\nid: 1\nevent: x\nretry: 9\nunknown\ndata:"),
        BODY.replace(b'{"id"', b'{\ndata: "id"'),
        BODY.removesuffix(b"\n\n"),
        BODY.removesuffix(b"data: [DONE]\n\n"),
        BODY.removesuffix(b"\n\n") + b"\n\nnobody reads this",
        BODY.replace(b"data: [DONE]\n\n", GO_ON + b"data: [DONE]\n\n"),
        BODY + sse(chunk(content="after the end")),
    ],
    ids=["crlf", "cr", "bom", "fields", "lines", "open end", "no DONE", "rest", "comments", "more"],
)
async def test_what_means_the_same_is_the_same(body: bytes) -> None:
    """However the stream is written."""
    assert CHAT_EXPECTED == await ask(STREAM, body)


@pytest.mark.parametrize(
    "answer",
    [
        head("content-type: TEXT/Event-Stream;charset=x") + BODY,
        head("content-type: text/event-stream", status="HTTP/1.0 200 OK") + BODY,
        head("content-type: text/event-stream", "transfer-encoding: chunked")
        + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
        head("content-type: text/event-stream", f"content-length: {len(BODY)}") + BODY,
        b"HTTP/1.1 103 Early\r\n\r\n" * 50 + STREAM + BODY,
        head(*(f"x-{number}: {number}" for number in range(500)),
             "content-type: text/event-stream") + BODY,
    ],
    ids=["type", "1.0", "chunked", "length", "informational", "headers"],
)  # fmt: skip
async def test_odd_answers_that_are_right(answer: bytes) -> None:
    """Unusual answers that HTTP allows are read correctly."""
    assert CHAT_EXPECTED == await ask(answer)


@pytest.mark.parametrize(
    ("answer", "failure_class", "said"),
    [
        (head("content-type: text/event-stream", "content-encoding: gzip") + gzip.compress(BODY),
         "malformed", "in gzip, not text/event-stream"),
        (head("content-type: application/x-ndjson") + BODY, "malformed", "x-ndjson"),
        (head() + BODY, "malformed", "no content type"),
        (head("content-type: text/event-stream", "content-length: 5") + BODY[:5], "transient", ""),
        (head("content-type: text/event-stream", "content-length: x") + BODY, "transient", ""),
        (head("content-type: text/event-stream", "content-length: 5", "content-length: 6"),
         "transient", ""),
        (head("content-type: text/event-stream", "transfer-encoding: chunked") + b"zz\r\n" + BODY,
         "transient", "RemoteProtocolError"),
        (head("content-type: text/event-stream", "transfer-encoding: chunked")
         + b"%x\r\n%s" % (len(BODY) - 30, BODY), "transient", "RemoteProtocolError"),
        (head("content-type: text/event-stream", status="HTTP/1.1 200" + " x" * 200_000) + BODY,
         "transient", "RemoteProtocolError"),
        (head(f"x: {'y' * 1_400_000}", "content-type: text/event-stream") + BODY,
         "transient", "RemoteProtocolError"),
        (head(status="HTTP/1.1 302 Found")[:-2] + b"location: http://169.254.1.1/\r\n\r\n",
         "invalid_request", "302"),
        (STREAM + b"data: " + b"x" * (MAX_EVENT_BYTES + 9) + b"\n\n", "malformed", "1310720 bytes"),
        (STREAM + b"x" * (MAX_EVENT_BYTES + 9), "malformed", "1310720 bytes"),
        (STREAM + b"data: x\n" * (MAX_EVENT_BYTES + 9), "malformed", "1310720 bytes"),
        (STREAM + sse("[" * 100_000), "malformed", "cannot be read"),
        (STREAM + sse('{"choices": 7}'), "transient", ""),
        (STREAM + sse("null"), "malformed", "cannot be read"),
        (STREAM + b"data: \xff\xfe\n\n", "malformed", "cannot be read"),
        (STREAM + sse('{"choices": [{"delta": {"content": "\\ud800"}}]}'), "transient", ""),
        (STREAM + sse(*[chunk(tool_calls=[{"index": 0, "function": {"arguments": "x" * 200_000}}])]
                      * 3), "malformed", f"{MAX_ARGUMENT_BYTES} bytes"),
        (STREAM + sse(*[chunk(content="x" * 250_000)] * (MAX_TEXT_CHARS // 250_000 + 1)),
         "malformed", f"{MAX_TEXT_CHARS} characters"),
        (STREAM + sse(*[chunk(tool_calls=[{"index": number}]) for number in range(MAX_CALLS + 1)]),
         "malformed", f"{MAX_CALLS} tool calls"),
    ],
)  # fmt: skip
async def test_an_unreadable_answer_is_a_failure(
    answer: bytes, failure_class: str, said: str
) -> None:
    """An unreadable answer fails with its reason, and the client can be used afterwards."""
    async with asked(answer) as (served, model):
        with pytest.raises(ModelFailure) as caught:
            await model.stream(REQUEST, lambda _delta: None)
        served.answers.append([STREAM + BODY])
        assert (await model.stream(REQUEST, lambda _delta: None)).text == CHAT_EXPECTED.text
    assert (failure_class, True) == (caught.value.failure_class, said in caught.value.message)


async def test_bytes_after_an_answer_cost_one_call_at_most() -> None:
    """Excess bytes never become the next answer; the failure they cause is transient."""
    async with asked(head("content-type: text/event-stream", "content-length: 5") + BODY) as (
        served,
        model,
    ):
        served.answers += [[STREAM + BODY]] * 2
        for _ in range(2):
            with pytest.raises(ModelFailure) as caught:
                await model.stream(REQUEST, lambda _delta: None)
            assert "transient" == caught.value.failure_class
        assert (await model.stream(REQUEST, lambda _delta: None)).text == CHAT_EXPECTED.text


async def test_a_head_without_end_is_given_up(autojump_clock: MockClock) -> None:
    """A header a second, for ever: the head as a whole must come within the stall time."""

    async def wait() -> None:
        await trio.sleep_until(trio.current_time() + 1)

    pieces = [b"HTTP/1.1 200 OK\r\n"]
    endless = [piece for number in range(99) for piece in (wait, b"x-%d: y\r\n" % number)]
    with pytest.raises(ModelFailure, match="silent for 5 s"):
        await ask(*pieces, *endless, stall_s=5.0)


async def test_an_explanation_without_end_is_cut() -> None:
    """A refusal's body is read only up to the shown length, then the connection is closed."""
    more = [b"x" * 65_536] * 100
    async with asked(head(status="HTTP/1.1 500 x"), *more) as (served, model):
        with pytest.raises(ModelFailure) as caught:
            await model.stream(REQUEST, lambda _delta: None)
    assert ("transient", 1) == (caught.value.failure_class, served.gone)


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_hundred_thousand_tiny_events(name: str) -> None:
    """Are one turn; unknown ones pass by."""
    dialect, events, _ = DIALECTS[name]
    tiny = sse({"type": "x"}) * 100_000
    turn = await ask(STREAM, tiny, sse(*events), dialect=dialect)
    assert turn.text == CHAT_EXPECTED.text


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("data", ["[]", "7", '"x"', "{", "", " ", '{"type": 7}', "\x00"])
async def test_no_event_of_any_shape_passes_for_an_end(name: str, data: str) -> None:
    """A stream of it is malformed or cut, never an empty answer."""
    with pytest.raises(ModelFailure) as caught:
        await ask(STREAM, sse(data), dialect=DIALECTS[name][0])
    assert caught.value.failure_class in {"malformed", "transient"}


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -5, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": 10**12},
        {"prompt_tokens": 10**30, "completion_tokens": 1},
        {
            "prompt_tokens": 5,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": -1},
        },
        {},
        None,
    ],
)
async def test_counts_that_cannot_be_are_estimated(usage: object) -> None:
    """Impossible token counts are replaced by an estimate."""
    events = (*CHAT_TURN[:-3], {"choices": [], "usage": usage}, "[DONE]")
    found = await ask(STREAM, sse(*events))
    assert "estimate" == found.usage.source
    assert 0 < found.usage.output_tokens < found.usage.input_tokens < 1_000


async def test_more_from_the_cache_than_there_was() -> None:
    """Cached input is a part of the input."""
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_cache_hit_tokens": 9}
    found = await ask(STREAM, sse(*CHAT_TURN[:-3], {"choices": [], "usage": usage}, "[DONE]"))
    assert (5, 5) == (found.usage.input_tokens, found.usage.cached_tokens)
