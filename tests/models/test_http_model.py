"""Models behind HTTP: turns that stream in, every cut, silence, keys that stay where they are."""

import msgspec
import outcome
import pytest
import trio
from trio.testing import MockClock

from palyra.core.model.messages import Delta, ModelFailure, ModelTurn, Sampling, Thought
from palyra.errors import Unavailable
from palyra.models import http_model
from palyra.models.anthropic import ANTHROPIC, DEFAULT_MAX_TOKENS
from palyra.models.chat import CHAT
from palyra.models.dialect import Dialect
from palyra.models.http_exchange import HIDDEN, REST_S, open_client
from palyra.models.responses import RESPONSES
from palyra.models.turn_builder import TurnBuilder
from tests.models.model_kit import (
    CHAT_EXPECTED,
    CHAT_TURN,
    DIALECTS,
    KEY,
    REQUEST,
    ask,
    asked,
    asked_over_sockets,
    chunk,
)
from tests.models.provider import STREAM, refusal, sse


def expected_in(name: str, trace_ref: str) -> ModelTurn:
    """The turn, with the reasoning that goes back in the form of the dialect."""
    signed = {"type": "thinking", "thinking": "hm", "signature": "zz"}
    thoughts = {
        "chat": CHAT_EXPECTED.thought,
        "anthropic": Thought(model="m", items=(signed,)),
    }
    return msgspec.structs.replace(CHAT_EXPECTED, trace_ref=trace_ref, thought=thoughts.get(name))


def ignore(_delta: Delta) -> None:
    """Discard the delta."""


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_turn_streams_in(name: str) -> None:
    """Text, reasoning, interleaved calls, broken arguments, usage: the same in every dialect."""
    dialect, events, trace_ref = DIALECTS[name]
    expected = expected_in(name, trace_ref)
    assert expected == await ask(STREAM, sse(*events), dialect=dialect)


@pytest.mark.parametrize("name", DIALECTS)
async def test_the_same_turn_byte_by_byte(name: str) -> None:
    """An answer that arrives byte by byte, head included, gives the same turn."""
    dialect, events, trace_ref = DIALECTS[name]
    expected = expected_in(name, trace_ref)
    answer = STREAM + sse(*events)
    pieces = [answer[at : at + 1] for at in range(len(answer))]
    assert expected == await ask(*pieces, dialect=dialect)


async def read(dialect: Dialect, data: bytes) -> TurnBuilder:
    """Return the turn in a body of these bytes, without HTTP."""
    builder, pieces = TurnBuilder(ignore), [data]

    async def take_next() -> bytes | None:
        await trio.lowlevel.checkpoint()
        return pieces.pop() if pieces else None

    await http_model._read(take_next, dialect.parser(), dialect.reader(builder))
    return builder


@pytest.mark.parametrize("name", DIALECTS)
async def test_every_cut_is_the_turn_or_a_failure(name: str) -> None:
    """A connection that ends after any byte never passes for a whole answer."""
    dialect, events, _ = DIALECTS[name]
    stream = sse(*events)
    whole = []
    for at in range(len(stream) + 1):
        found = await outcome.acapture(read, dialect, stream[:at])
        if isinstance(found, outcome.Error):
            assert found.error.failure_class == "transient", at  # type: ignore[attr-defined]  # a ModelFailure
        else:
            turn = found.value.build(REQUEST, {}, lambda _: "")
            assert (CHAT_EXPECTED.text, 2) == (turn.text, len(turn.calls))
            whole.append(at)
    assert whole == list(range(whole[0], len(stream) + 1))  # once it is whole, it stays so
    needed = {"chat": b'"finish_reason": "tool_calls"', "anthropic": b'"message_stop"',
              "responses": b'"response.completed"'}  # fmt: skip
    assert needed[name] in stream[: whole[0]]


@pytest.mark.parametrize("name", DIALECTS)
async def test_cuts_over_http(name: str) -> None:
    """The same where a whole connection ends: with a length, with chunks, with neither."""
    dialect, events, _ = DIALECTS[name]
    body = sse(*events)
    cut = len(body) // 2
    for framing, rest in (
        (f"content-length: {len(body)}", body[:cut]),
        ("transfer-encoding: chunked", b"%x\r\n%s" % (len(body), body[:cut])),
        ("transfer-encoding: chunked", b"%x\r\n%s\r\n" % (cut, body[:cut])),
        ("connection: close", body[:cut]),
    ):
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n"
        with pytest.raises(ModelFailure) as caught:
            await ask(head.encode(), rest, dialect=dialect)
        assert caught.value.failure_class == "transient", framing


async def test_a_head_that_is_cut_is_a_failure() -> None:
    """A response head cut at any position is a transient failure."""
    for at in range(0, len(STREAM), 7):
        with pytest.raises(ModelFailure) as caught:
            await ask(STREAM[:at])
        assert caught.value.failure_class == "transient", at


@pytest.mark.real
async def test_a_turn_over_sockets() -> None:
    """Over real sockets a delta is delivered before the provider sends the rest."""
    seen = trio.Event()
    pieces = STREAM, sse(chunk(content="a")), seen.wait, sse(*CHAT_TURN)
    async with asked_over_sockets(*pieces) as (_, model):
        with trio.fail_after(120):
            turn = await model.stream(REQUEST, lambda _delta: seen.set())
    assert turn.text == f"a{CHAT_EXPECTED.text}"


@pytest.mark.parametrize(
    ("dialect", "header"),
    [
        (CHAT, f"authorization: bearer {KEY}"),
        (RESPONSES, f"authorization: bearer {KEY}"),
        (ANTHROPIC, f"x-api-key: {KEY}"),
    ],
)
async def test_the_key_goes_to_the_provider_and_nowhere_else(dialect: Dialect, header: str) -> None:
    """The key is sent in the dialect's header only and hidden in an error that repeats it."""
    told = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
    async with asked(refusal(401, told), dialect=dialect) as (served, model):
        with pytest.raises(ModelFailure) as caught:
            await model.stream(REQUEST, ignore)
    assert header in served.heads[0]
    assert "accept-encoding: identity\r\n" in served.heads[0]
    assert (dialect is ANTHROPIC) == ("anthropic-version: 2023-06-01" in served.heads[0])
    assert served.heads[0].count(KEY) == 1
    assert KEY not in repr(served.bodies)
    assert f"HTTP 401: Incorrect API key provided: {HIDDEN}." == caught.value.message
    assert caught.value.__cause__ is None


async def test_a_key_inside_a_stream_is_taken_out() -> None:
    """An error in the middle of an answer is no better than one before it."""
    with pytest.raises(ModelFailure) as caught:
        await ask(STREAM, sse({"error": {"message": f"no credit on {KEY}", "code": 402}}))
    assert ("quota", f"no credit on {HIDDEN}") == (
        caught.value.failure_class, caught.value.message,
    )  # fmt: skip


async def test_an_error_without_its_last_line_is_that_error() -> None:
    """An error event without its last newline keeps its class instead of counting as a cut."""
    with pytest.raises(ModelFailure) as caught:
        await ask(STREAM, b'data: {"error": {"message": "no credit", "code": 402}}')
    assert ("quota", "no credit") == (caught.value.failure_class, caught.value.message)


async def test_most_output_is_the_limit_of_the_request() -> None:
    """`most_output` is the limit that the request sends, which budgets reserve."""
    few = msgspec.structs.replace(REQUEST, sampling=Sampling(max_output_tokens=7))
    async with asked(dialect=ANTHROPIC) as (_, model):
        assert (DEFAULT_MAX_TOKENS, 7) == (model.most_output(REQUEST), model.most_output(few))


@pytest.mark.parametrize("key", ["sk-x\n", "sk-ключ", "sk\x00", "a\r\nhost: b"])
async def test_a_key_that_fits_into_no_header(key: str) -> None:
    """A key that fits into no header is an `auth` failure without the key and without a request."""

    async def find_key() -> str:
        await trio.lowlevel.checkpoint()
        return key

    async with asked() as (served, model):
        model._exchange._find_key = find_key
        with pytest.raises(ModelFailure, match="fit into no header") as caught:
            await model.stream(REQUEST, ignore)
    assert ("auth", []) == (caught.value.failure_class, served.heads)
    assert not caught.value.was_asked
    assert key not in caught.value.message


async def test_a_key_that_cannot_be_found() -> None:
    """A missing key is an `auth` failure with the reason and without a request."""

    async def find_key() -> str:
        await trio.lowlevel.checkpoint()
        raise Unavailable("$OPENAI_API_KEY is not set")

    async with asked() as (served, model):
        model._exchange._find_key = find_key
        with pytest.raises(ModelFailure, match="OPENAI_API_KEY is not set") as caught:
            await model.stream(REQUEST, ignore)
    assert ("auth", []) == (caught.value.failure_class, served.heads)
    assert not caught.value.was_asked


@pytest.mark.real
async def test_an_unreachable_provider_is_unavailable() -> None:
    """A port without a listener fails the turn as `unavailable`."""
    async with asked_over_sockets() as (served, model):
        pass
    async with open_client() as client:
        model._exchange._client = client
        with pytest.raises(ModelFailure, match="cannot be reached") as caught:
            await model.stream(REQUEST, ignore)
    assert ("unavailable", []) == (caught.value.failure_class, served.heads)


@pytest.mark.parametrize(
    "before", [b"", STREAM[:20], STREAM, STREAM + sse(chunk(content="a")), STREAM + b"data: {"]
)
@pytest.mark.parametrize("stall_s", [5.0, 60.0])
async def test_silence_ends_the_turn(
    before: bytes, stall_s: float, autojump_clock: MockClock
) -> None:
    """Before the answer, in its head, before the first event, between two, inside of one."""
    begun_s = trio.current_time()
    with pytest.raises(ModelFailure, match=rf"silent for {stall_s:g} s") as caught:
        await ask(before, trio.sleep_forever, stall_s=stall_s)
    assert caught.value.failure_class == "timeout"
    assert trio.current_time() - begun_s == pytest.approx(stall_s, abs=0.1)


async def test_a_slow_provider_is_not_a_silent_one(autojump_clock: MockClock) -> None:
    """Each received byte, even of a comment, restarts the timeout."""

    async def almost() -> None:
        await trio.sleep_until(trio.current_time() + 4.9)

    turn = await ask(
        STREAM, almost, b": ping\n\n", almost, sse(chunk(content="a")), almost, sse(*CHAT_TURN)
    )
    assert turn.text.startswith("aLet")


async def test_a_provider_that_does_not_hang_up(autojump_clock: MockClock) -> None:
    """The answer was whole: its end is waited for a little, and silence is no failure any more."""
    begun_s = trio.current_time()
    turn = await ask(STREAM, sse(*CHAT_TURN), trio.sleep_forever, stall_s=0.5)
    assert turn.text == CHAT_EXPECTED.text
    assert trio.current_time() - begun_s == pytest.approx(REST_S, abs=0.1)


@pytest.mark.real
async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy variables are ignored, because a proxy would see the key."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with asked_over_sockets(STREAM, sse(*CHAT_TURN)) as (served, model):
        assert (await model.stream(REQUEST, ignore)).text == CHAT_EXPECTED.text
    assert 1 == len(served.heads)


@pytest.mark.real
async def test_a_cancelled_turn_leaves_the_provider() -> None:
    """The connection is closed at once."""
    left = trio.Event()
    many = [sse(chunk(content="x" * 1_000)) * 1_000] * 100
    async with asked_over_sockets(STREAM, *many) as (served, model):
        async with trio.open_nursery() as nursery:

            def leave(_delta: Delta) -> None:
                nursery.cancel_scope.cancel()
                left.set()

            nursery.start_soon(model.stream, REQUEST, leave)
        assert left.is_set()
        with trio.fail_after(120):
            while not served.gone:
                await trio.lowlevel.checkpoint()


async def test_the_connection_is_used_again() -> None:
    """After a turn that was read to its end; not after one that was left."""
    body = sse(*CHAT_TURN)
    whole = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        + f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    async with asked(whole) as (served, model):
        served.answers += [[whole], [whole]]
        for _ in range(3):
            assert (await model.stream(REQUEST, ignore)).text == CHAT_EXPECTED.text
        pool = model._exchange._client._transport._pool  # type: ignore[attr-defined]  # httpx's own
        assert 1 == len(pool.connections)
