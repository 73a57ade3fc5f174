"""Bedrock: event streams, signatures, and the Converse dialect over real sockets."""

import json
import struct
import zlib
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.journal.records import Usage
from palyra.core.model.images import Picture
from palyra.core.model.messages import (
    Delta,
    ModelFailure,
    ModelTurn,
    ProposedCall,
    Sampling,
    Thought,
    UserMessage,
)
from palyra.models import sigv4
from palyra.models.bedrock import BEDROCK, signed_bedrock
from palyra.models.event_stream import MEDIA_TYPE, EventStreamParser, read_headers
from palyra.models.sigv4 import AwsCredentials, SigningScope, host_of, sign
from palyra.models.sse import MAX_EVENT_BYTES
from tests.models.model_kit import KEY, REQUEST, ask, asked_over_sockets
from tests.models.provider import refusal
from tests.rows import every_row

NAMES = {"read_file": "read_file", "mcp:files.read": "mcp_files_read"}
HEAD = f"HTTP/1.1 200 OK\r\ncontent-type: {MEDIA_TYPE}\r\nconnection: close\r\n\r\n".encode()


def header(name: str, value: str) -> bytes:
    text = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text


def message(payload: bytes = b"", headers: bytes = b"") -> bytes:
    """Frame a message as AWS does."""
    total = 16 + len(headers) + len(payload)
    prelude = struct.pack(">II", total, len(headers))
    framed = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return framed + struct.pack(">I", zlib.crc32(framed))


def event(name: str, data: Any) -> bytes:
    """One event of Converse."""
    named = (
        header(":event-type", name)
        + header(":content-type", "application/json")
        + header(":message-type", "event")
    )
    return message(json.dumps(data).encode(), named)


def fault(name: str, text: str) -> bytes:
    """An exception inside the stream."""
    named = header(":exception-type", name) + header(":message-type", "exception")
    return message(json.dumps({"message": text}).encode(), named)


def delta(index: int, **data: Any) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": data, "p": "abcd"})


def start(index: int, name: str) -> bytes:
    used = {"toolUse": {"toolUseId": f"tooluse_{index}", "name": name}}
    return event("contentBlockStart", {"contentBlockIndex": index, "start": used})


USED = {
    "inputTokens": 3, "outputTokens": 5, "totalTokens": 12, "cacheReadInputTokens": 4,
    "cacheWriteInputTokens": 0,
}  # fmt: skip
TURN = (
    event("messageStart", {"role": "assistant"}),
    delta(0, reasoningContent={"text": "hm"}),
    delta(0, reasoningContent={"signature": "zz"}),
    event("contentBlockStop", {"contentBlockIndex": 0}),
    delta(1, text="Let me "),
    delta(1, text="see\u2028."),
    start(2, "read_file"),
    delta(2, toolUse={"input": '{"pa'}),
    delta(2, toolUse={"input": 'th": "b"}'}),
    start(3, "mcp_files_read"),
    delta(3, toolUse={"input": "{broken"}),
    event("unheardOf", {"x": 1}),
    event("messageStop", {"stopReason": "tool_use"}),
    event("metadata", {"usage": USED, "metrics": {"latencyMs": 9}}),
)
EXPECTED = ModelTurn(
    text="Let me see\u2028.",
    calls=(
        ProposedCall(call_id="call_1", tool="read_file", arguments={"path": "b"}),
        ProposedCall(call_id="call_2", tool="mcp:files.read", arguments="{broken"),
    ),
    finish_reason="tool_calls",
    usage=Usage(input_tokens=7, output_tokens=5, cached_tokens=4, source="provider"),
    thought=Thought(model="m", items=({"text": "hm", "signature": "zz"},)),
)


def body(**changes: Any) -> Any:
    """Return the request body with these changes, as JSON has it."""
    made = BEDROCK.body(msgspec.structs.replace(REQUEST, **changes), "big", NAMES, 0)
    return json.loads(msgspec.json.encode(made))


# --- the framing

# Published with the AWS SDKs: an empty message, a payload, a payload with a header.
EMPTY = bytes.fromhex("000000100000000005c248eb7d98c8ff")
PLAIN = bytes.fromhex("0000001d00000000fd528c5a") + b"{'foo':'bar'}" + bytes.fromhex("c3653936")
NAMED = (
    bytes.fromhex("0000003d0000002007fd83960c") + b"content-type\x07\x00\x10application/json"
    b"{'foo':'bar'}" + bytes.fromhex("8d9c08b1")
)  # fmt: skip


def test_published_messages_are_read() -> None:
    """The published bytes are what the frames of these tests are made like."""
    assert (EMPTY, PLAIN) == (message(), message(b"{'foo':'bar'}"))
    assert message(b"{'foo':'bar'}", header("content-type", "application/json")) == NAMED
    found = EventStreamParser().feed(EMPTY + PLAIN + NAMED)
    assert ['{"type":"","data":{}}', *['{"type":"","data":{\'foo\':\'bar\'}}'] * 2] == found


def test_headers_of_every_type_are_passed_over() -> None:
    """Only texts are kept; all other types have their length."""
    data = b"".join(
        b"\x01" + name + bytes([kind]) + value
        for name, kind, value in (
            (b"a", 0, b""), (b"b", 1, b""), (b"c", 2, b"1"), (b"d", 3, b"12"), (b"e", 4, b"1234"),
            (b"f", 5, b"12345678"), (b"g", 6, b"\x00\x02xy"), (b"h", 7, b"\x00\x02xy"),
            (b"i", 8, b"12345678"), (b"j", 9, b"1234567890123456"), (b"k", 7, b"\x00\x00"),
        )
    )  # fmt: skip
    assert {"h": "xy", "k": ""} == read_headers(data)


@given(st.data())
def test_chunks_may_end_anywhere(data: st.DataObject) -> None:
    """The same events come out, however the bytes are cut."""
    whole = b"".join(TURN)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=9)))
    parser, found = EventStreamParser(), list[str]()
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += parser.feed(whole[begin:end])
    assert EventStreamParser().feed(whole) == found
    assert len(TURN) == len(found)


@given(st.integers(0, len(NAMED) - 1), st.integers(1, 255))
def test_a_damaged_byte_gives_no_event(at: int, flip: int) -> None:
    """Any changed byte is a broken connection, or a length for which more is awaited."""
    broken = bytearray(NAMED)
    broken[at] ^= flip
    with pytest.raises(ModelFailure, match="damaged") as caught:
        EventStreamParser().feed(bytes(broken))
    assert "transient" == caught.value.failure_class


@given(st.binary(max_size=40))
def test_hostile_headers_are_refused_or_read(data: bytes) -> None:
    """A block of any bytes raises no other error."""
    try:
        read_headers(data)
    except ModelFailure as failure:
        assert "transient" == failure.failure_class  # noqa: PT017 - most blocks are broken


def test_hostile_lengths() -> None:
    """Too large an event is refused before it is collected; impossible lengths are damage."""

    def prelude(total: int, headers: int) -> bytes:
        lengths = struct.pack(">II", total, headers)
        return lengths + struct.pack(">I", zlib.crc32(lengths))

    with pytest.raises(ModelFailure, match=str(MAX_EVENT_BYTES)):
        EventStreamParser().feed(prelude(MAX_EVENT_BYTES + 1, 0))
    for total, headers in ((0, 0), (15, 0), (16, 1), (200_000, 131_073)):
        with pytest.raises(ModelFailure, match="damaged"):
            EventStreamParser().feed(prelude(total, headers))


# --- the signature

AWS = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
EXAMPLE_MS = 1_440_938_160_000  # 2015-08-30T12:36:00Z
FORM = "application/x-www-form-urlencoded"


@every_row(
    ("method", "url", "kind", "data", "expected"),
    [
        ("GET", "https://example.amazonaws.com/", "", b"",
         "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "https://example.amazonaws.com/", "", b"",
         "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ("GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1", "", b"",
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
        ("POST", "https://example.amazonaws.com:443/", FORM, b"Param1=value1",
         "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
    ],
)  # fmt: skip
def test_published_signatures(method: str, url: str, kind: str, data: bytes, expected: str) -> None:
    """Vectors of AWS's own test suite."""
    headers = {"Content-Type": kind} if kind else {}
    found = sign(
        method, url, headers, data,
        credentials=AWS, scope=SigningScope("us-east-1", "service"), now_ms=EXAMPLE_MS,
    )  # fmt: skip
    names = "content-type;host;x-amz-date" if kind else "host;x-amz-date"
    assert (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={expected}"
    ) == found["authorization"]
    assert "20150830T123600Z" == found["x-amz-date"]


@every_row(
    ("url", "expected"),
    [
        ("https://a.b/x", "a.b"), ("https://a.b:443/", "a.b"), ("http://a.b:443/", "a.b:443"),
        ("http://127.0.0.1:81/v1", "127.0.0.1:81"), ("http://[::1]:81/", "[::1]:81"),
    ],
)  # fmt: skip
def test_the_host_is_signed_as_it_is_sent(url: str, expected: str) -> None:
    """The default port is left out, as HTTP clients do."""
    assert expected == host_of(url)


def test_the_path_is_encoded_twice() -> None:
    """Once on the wire and once more for the signature, as AWS's SDKs do for all but S3."""
    assert "/model/m-v1%253A0/x" == sigv4._canonical_path("https://h/model/m-v1%3A0/x")
    assert "/" == sigv4._canonical_path("https://h")


async def test_a_signed_request_over_sockets() -> None:
    """The signature covers what arrives; the secret does not; a session token is signed, too."""
    key = f"{AWS.key_id} {AWS.secret} token-of-the-session"
    dialect = signed_bedrock("eu-central-1")
    async with asked_over_sockets(HEAD, *TURN, dialect=dialect) as (served, model):
        model._exchange._find_key = lambda: found(key)
        model._exchange._endpoint = msgspec.structs.replace(
            model._exchange._endpoint, model="global.m-v1:0"
        )
        model._endpoint = model._exchange._endpoint
        assert await model.stream(REQUEST, lambda _: None) == EXPECTED
    head = served.heads[0]
    assert head.startswith("post /v1/model/global.m-v1%3a0/converse-stream http/1.1")
    sent = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    again = sign(
        "POST", f"{served.url}/model/global.m-v1%3A0/converse-stream",
        {"content-type": sent["content-type"], "accept": sent["accept"]},
        served.raw[0],
        credentials=AwsCredentials(*key.split(" ")),
        scope=SigningScope("eu-central-1", "bedrock"), now_ms=0,
    )  # fmt: skip
    assert again["authorization"].lower() == sent["authorization"]
    assert "accept;content-type;host;x-amz-date;x-amz-security-token" in sent["authorization"]
    assert AWS.secret.lower() not in head


async def found(key: str) -> str:
    """The key, as the keeper of secrets finds it."""
    await trio.lowlevel.checkpoint()
    return key


# --- the dialect


async def test_a_turn_arrives_over_sockets() -> None:
    """Text, reasoning, calls in pieces, and usage with the tokens of the cache."""
    deltas: list[Delta] = []
    async with asked_over_sockets(HEAD, *TURN, dialect=BEDROCK) as (served, model):
        assert await model.stream(REQUEST, deltas.append) == EXPECTED
    assert [("reasoning", "hm"), ("text", "Let me "), ("text", "see\u2028.")] == [
        (each.kind, each.text) for each in deltas
    ]
    assert f"authorization: bearer {KEY}" in served.heads[0]
    assert f"accept: {MEDIA_TYPE}" in served.heads[0]


async def test_every_cut_is_noticed() -> None:
    """Without a stop reason there is no answer; without usage it is estimated."""
    for kept in range(len(TURN) - 2):
        with pytest.raises(ModelFailure) as caught:
            await ask(HEAD, *TURN[:kept], dialect=BEDROCK)
        assert "transient" == caught.value.failure_class
    turn = await ask(HEAD, *TURN[:-1], dialect=BEDROCK)
    assert (EXPECTED.text, "estimate") == (turn.text, turn.usage.source)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"), ("max_tokens", "length"), ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"), ("stop_sequence", "stop"), ("new", "stop"),
    ],
)  # fmt: skip
async def test_stop_reasons(reason: str, expected: str) -> None:
    """A reason has its class; an unknown one is an end."""
    turn = await ask(
        HEAD, delta(0, text="x"), event("messageStop", {"stopReason": reason}), dialect=BEDROCK
    )
    assert expected == turn.finish_reason


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("throttlingException", "slow down", "rate_limited"),
        ("modelStreamErrorException", "broke", "transient"),
        ("internalServerException", "broke", "transient"),
        ("serviceUnavailableException", "busy", "unavailable"),
        ("validationException", "what?", "invalid_request"),
        ("validationException", "Input is too long for requested model.", "context_overflow"),
        ("newException", "what?", "transient"),
    ],
)
async def test_exceptions_of_the_stream(name: str, text: str, expected: str) -> None:
    """An exception ends the answer with its class and its words."""
    with pytest.raises(ModelFailure) as caught:
        await ask(HEAD, TURN[0], fault(name, text), dialect=BEDROCK)
    assert (expected, text) == (caught.value.failure_class, caught.value.message)


async def test_an_error_without_a_model() -> None:
    """A message of the type `error` has its words in a header."""
    named = header(":message-type", "error") + header(":error-code", "InternalServerException")
    with pytest.raises(ModelFailure, match="it broke"):
        await ask(HEAD, message(b"", named + header(":error-message", "it broke")), dialect=BEDROCK)


@pytest.mark.parametrize(
    ("status", "name", "text", "expected"),
    [
        (403, "UnrecognizedClientException", "The security token is invalid.", "auth"),
        (400, "ExpiredTokenException", "expired", "auth"),
        (
            400,
            "ValidationException:http://x/",
            "The model identifier is invalid.",
            "unknown_model",
        ),
        (400, "ValidationException", "Input is too long for requested model.", "context_overflow"),
        (400, "ServiceQuotaExceededException", "more", "quota"),
        (404, "ResourceNotFoundException", "no such model", "unknown_model"),
        (424, "ModelErrorException", "broke", "transient"),
        (429, "ThrottlingException", "Too many tokens, please wait", "rate_limited"),
        (503, "ServiceUnavailableException", "busy", "unavailable"),
    ],
)
async def test_refusals(status: int, name: str, text: str, expected: str) -> None:
    """The class follows from the status and the header that names the error."""
    answer = refusal(status, {"message": text}, f"x-amzn-ErrorType: {name}")
    with pytest.raises(ModelFailure, match=text) as caught:
        await ask(answer, dialect=BEDROCK)
    assert expected == caught.value.failure_class


def test_the_conversation() -> None:
    """User and assistant in turn; a failed result is marked; calls keep their ids."""
    found = body()["messages"]
    assert ["user", "assistant", "user"] == [each["role"] for each in found]
    used = {"toolUseId": "call_1", "name": "mcp_files_read", "input": {"path": "a"}}
    assert [{"toolUse": used}] == found[1]["content"]
    result, text = found[2]["content"]
    assert {
        "toolUseId": "call_1", "content": [{"text": "[failed]\ngone"}], "status": "error",
    } == result["toolResult"]  # fmt: skip
    assert "[the daemon, not the user:] look twice" == text["text"]


def test_a_history_with_calls_and_no_tools_is_text() -> None:
    """The API refuses blocks of tools without a list of tools."""
    found = body(tools=())
    assert "toolConfig" not in found
    assert "tool" not in json.dumps(
        [list(each) for m in found["messages"] for each in m["content"]]
    )
    assert '[called mcp:files.read] {"path":"a"}' == found["messages"][1]["content"][0]["text"]


def test_settings() -> None:
    """Limits, sampling, stops, instructions, a forced call; pictures by their format."""
    plain = body()
    assert ({}, [{"text": "Be brief."}]) == (plain["inferenceConfig"], plain["system"])
    sampling = Sampling(max_output_tokens=9, temperature=0.5, top_p=0.25, stop=("a",))
    found = body(sampling=sampling, must_call=True, instructions="")
    assert {
        "maxTokens": 9, "temperature": 0.5, "topP": 0.25, "stopSequences": ["a"],
    } == found["inferenceConfig"]  # fmt: skip
    assert ({"any": {}}, False) == (found["toolConfig"]["toolChoice"], "system" in found)
    picture = Picture(artifact="a1", session_id="s", size_bytes=3, media_type="image/jpeg")
    shown = body(messages=(UserMessage("look", (picture,)),), pictures={"a1": "iVBO"})
    image, text = shown["messages"][0]["content"]
    assert {"format": "jpeg", "source": {"bytes": "iVBO"}} == image["image"]
    assert {"text": "look"} == text
