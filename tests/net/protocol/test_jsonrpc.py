"""Strict decoding: each broken rule has its own answer, and nothing crashes the decoder."""

import json
import time
from contextlib import suppress

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given

from palyra.core.redaction.redactor import Redactor
from palyra.errors import (
    Forbidden,
    InvalidParams,
    InvariantBroken,
    Overloaded,
    PalyraError,
    TooLarge,
    Unavailable,
)
from palyra.net.protocol import jsonrpc
from palyra.net.protocol.jsonrpc import BadMessage, Request, decode
from palyra.net.protocol.params import Params, convert_params
from tests.rows import every_row

LIMIT = 1_048_576
REDACTOR = Redactor([])


def message(**changes: object) -> bytes:
    """A good request with some members changed; a value of ... removes the member."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}} | changes
    return json.dumps({name: value for name, value in body.items() if value is not ...}).encode()


def refusal(data: bytes) -> BadMessage:
    with pytest.raises(BadMessage) as caught:
        decode(data, max_bytes=LIMIT)
    return caught.value


NESTED = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}'

UNREADABLE = {
    "not JSON": (b"{", "not JSON"),
    "empty": (b"", "not JSON"),
    "trailing text": (message() + b"x", "not JSON"),
    "comment": (b"// hi", "not JSON"),
    "single quotes": (b"{'id':1}", "not JSON"),
    "invalid UTF-8": (b'{"id":"\xff"}', "invalid UTF-8 at byte 7"),
    "UTF-8 of a surrogate": (b'{"id":"\xed\xa0\x80"}', "invalid UTF-8"),
    "UTF-16": ("{}".encode("utf-16"), "invalid UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + message(), "not JSON"),
    "control character in a string": (b'{"id":"\x01"}', "not JSON"),
    "depth bomb": (b"[" * 100_000, "more than 20000 values"),
    "open depth": (b"[" * 1_000, "nested deeper than 64"),
    "closed depth": (NESTED % (b"[" * 65 + b"]" * 65), "nested deeper than 64"),
    "depth behind a string": (NESTED % (b'["]]]]",' + b"[" * 65 + b"]" * 66), "nested deeper"),
    "container flood": (NESTED % (b"[" + b"{}," * 50_000 + b"1]"), "more than 20000 values"),
    "value flood": (NESTED % (b"[" + b"1," * 50_000 + b"1]"), "more than 20000 values"),
    "duplicate name": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', 'name "id" occurs twice'),
    "duplicate below": (NESTED % b'[{"b":1,"b":1}]', 'name "b" occurs twice'),
    "duplicate by escape": (NESTED % b'{"b":1,"\\u0062":1}', 'name "b" occurs twice'),
    "NaN": (NESTED % b"NaN", "NaN is not JSON"),
    "Infinity": (NESTED % b"Infinity", "Infinity is not JSON"),
    "-Infinity": (NESTED % b"-Infinity", "-Infinity is not JSON"),
    "float overflow": (NESTED % b"1e999", 'number "1e999" is out of range'),
    "endless integer": (NESTED % (b"9" * 5_000), "too many digits"),
    "high surrogate": (NESTED % b'"\\ud800"', "half of a surrogate pair"),
    "low surrogate": (NESTED % b'"\\uDC00"', "half of a surrogate pair"),
    "surrogates swapped": (NESTED % b'"\\udc00\\ud800"', "half of a surrogate pair"),
    "surrogate in a name": (NESTED % b'{"\\ud800":1}', "half of a surrogate pair"),
}


@every_row(("data", "text"), UNREADABLE.values())
def test_unreadable_text_is_a_parse_error(data: bytes, text: str) -> None:
    """Text that is not strict JSON gets -32700, the violated rule, and no id."""
    error = refusal(data)
    assert (jsonrpc.PARSE_ERROR, None) == (error.rpc_code, error.request_id)
    assert text in error.message


INADMISSIBLE = {
    "batch": (b"[" + message() + b"]", None, "batches are not accepted"),
    "empty batch": (b"[]", None, "batches are not accepted"),
    "string": (b'"hi"', None, "a request is an object"),
    "null": (b"null", None, "a request is an object"),
    "no version": (message(jsonrpc=...), 1, 'jsonrpc must be "2.0", got null'),
    "old version": (message(jsonrpc="1.0"), 1, 'jsonrpc must be "2.0", got "1.0"'),
    "number as version": (message(jsonrpc=2.0), 1, "jsonrpc must be"),
    "no method": (message(method=...), 1, "method must be a string, got null"),
    "method of a wrong type": (message(method=7), 1, "method must be a string, got 7"),
    "no id": (message(id=...), None, "id must be a string or an integer, got none"),
    "null id": (message(id=None), None, "got null"),
    "true id": (message(id=True), None, "got true"),
    "fractional id": (message(id=1.5), None, "got 1.5"),
    "huge id": (message(id=2**53), None, "id may be an integer up to 9007199254740991"),
    "long id": (message(id="x" * 129), None, "id may have 128 characters, got 129"),
    "object id": (message(id={}), None, "got an object"),
    "unknown member": (message(params={}, extra=1), 1, 'unknown member "extra"'),
    "a reply": (message(method=..., params=..., result=1), 1, 'unknown member "result"'),
    "scalar params": (message(params=3), 1, "params must be an object, got 3"),
}


@every_row(("data", "request_id", "text"), INADMISSIBLE.values())
def test_other_json_is_an_invalid_request(data: bytes, request_id: int | None, text: str) -> None:
    """JSON that is no request answers -32600, with its id when that is usable."""
    error = refusal(data)
    assert (jsonrpc.INVALID_REQUEST, request_id) == (error.rpc_code, error.request_id)
    assert text in error.message


def test_positional_params_are_invalid_params() -> None:
    """Params by position are JSON-RPC, but not ours: -32602 with the id."""
    error = refusal(message(params=[1]))
    assert (jsonrpc.INVALID_PARAMS, 1) == (error.rpc_code, error.request_id)


def test_size_is_checked_before_anything_else() -> None:
    """A message over the limit is too large, whatever it says; one at the limit is not."""
    assert "ping" == decode(message(), max_bytes=len(message())).method
    with pytest.raises(TooLarge, match=f"has {len(message())} bytes, the limit is"):
        decode(message(), max_bytes=len(message()) - 1)


@every_row("request_id", [0, -1, 2**53 - 1, "", "a-b", "é" * 128])
def test_ids_come_back_as_they_were(request_id: int | str) -> None:
    """Integers and strings are ids, and a reply repeats them."""
    assert Request(request_id, "ping", {}) == decode(message(id=request_id), max_bytes=LIMIT)
    assert request_id == json.loads(jsonrpc.encode_result(request_id, None))["id"]


def test_good_unicode_passes() -> None:
    """Escaped pairs, an escaped backslash before `ud800`, and brackets in strings are harmless."""
    data = NESTED % rb'["\ud83d\ude00", "\\ud800", "[[[{{{"]'
    assert ["😀", "\\ud800", "[[[{{{"] == decode(data, max_bytes=LIMIT).params["a"]


def test_params_may_be_absent() -> None:
    """A request without params has none."""
    assert {} == decode(message(params=...), max_bytes=LIMIT).params


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode()))
@example(b'"' + b'\\"' * 50_000)
@example(b'"\\' * 50_000)
@example(b"-")
@example(b'{"a":1e}')
def test_arbitrary_bytes_never_crash(data: bytes) -> None:
    """Decoding ends in a request or in one of two errors."""
    try:
        decode(data, max_bytes=LIMIT)
    except (BadMessage, TooLarge):
        return


MEGABYTE = {
    "unclosed string": b'"' + b'\\"' * 524_000,
    "unclosed escape": b'"\\' * 524_000,
    "quotes": b'"' * 1_048_000,
    "brackets": b"[" * 1_048_000,
    "pairs of brackets": NESTED % (b"[" + b"[]," * 349_000 + b"1]"),
    "names": NESTED % (b"{" + b",".join(b'"%d":1' % n for n in range(19_000)) + b"}"),
    "long names": NESTED % (b"{" + b",".join(b'"%050d":1' % n for n in range(17_000)) + b"}"),
    "numbers": NESTED % (b"[" + b"1," * 520_000 + b"1]"),
    "surrogates": NESTED % (b'"' + b"\\ud800" * 170_000 + b'"'),
}


@pytest.mark.real
@pytest.mark.parametrize("data", MEGABYTE.values(), ids=MEGABYTE)
def test_a_hostile_megabyte_costs_little(data: bytes) -> None:
    """The time to decode grows with the size of the message and with nothing else."""
    began_s = time.thread_time()
    with suppress(BadMessage):
        decode(data, max_bytes=LIMIT)
    assert time.thread_time() - began_s < 1.0  # of work: ten times what it takes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON, st.data())
def test_mangled_json_never_crashes(value: object, data: st.DataObject) -> None:
    """JSON with one byte changed decodes or is refused."""
    text = bytearray(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": value}).encode()
    )
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(text), max_bytes=LIMIT)
    except (BadMessage, TooLarge):
        return


# --- errors on the wire ---


def sent(error: PalyraError) -> dict[str, object]:
    """The error member as a client gets it."""
    body: dict[str, object] = json.loads(jsonrpc.encode_error(1, error, REDACTOR.redact_bytes))[
        "error"
    ]
    return body


def test_application_errors_carry_their_code() -> None:
    """Everything without a JSON-RPC number of its own is -32000 with `data.code`."""
    expected = {
        "code": -32000,
        "message": "no",
        "data": {"code": "forbidden", "message": "no", "retryable": False},
    }
    assert expected == sent(Forbidden("no"))


def test_a_secret_is_not_repeated() -> None:
    """A bad value that is a secret, whole or cut to be shown, is named by its class."""
    secret = "ghp_" + "Canary0123456789" * 3
    for shown in (secret, jsonrpc.show(secret), jsonrpc.show(secret + "x" * 1_000)):
        told = str(sent(InvalidParams(f"no model {shown}", field=secret)))
        assert "Canary" not in told
        assert "[redacted:github]" in told


def test_back_off_is_in_milliseconds() -> None:
    """An overloaded daemon says that and when to try again."""
    data = sent(Overloaded("full", retry_after_ms=70))["data"]
    expected = {"code": "overloaded", "message": "full", "retryable": True, "retry_after_ms": 70}
    assert expected == data


def test_a_full_disk_error_has_the_retry_time() -> None:
    """Other errors have no retry time."""
    refusal = Unavailable("no room")
    expected = {"code": "unavailable", "message": "no room", "retryable": True}
    assert expected == sent(refusal)["data"]
    refusal.retry_after_ms = 500
    assert {**expected, "retry_after_ms": 500} == sent(refusal)["data"]


def test_a_bug_says_nothing_of_itself() -> None:
    """An internal error has its number and no detail."""
    expected = {
        "code": -32603,
        "message": "internal error",
        "data": {"code": "internal", "message": "internal error", "retryable": False},
    }
    assert expected == sent(InvariantBroken("seq 4 after 2 in /secret/path"))


@every_row(
    ("error", "number", "name"),
    [
        (BadMessage(jsonrpc.PARSE_ERROR, "x"), -32700, "parse_error"),
        (BadMessage(jsonrpc.INVALID_REQUEST, "x"), -32600, "invalid_request"),
        (jsonrpc.UnknownMethod("x"), -32601, "unknown_method"),
        (InvalidParams("x", field="a"), -32602, "invalid_params"),
        (TooLarge("x"), -32000, "too_large"),
    ],
)
def test_numbers_of_json_rpc_have_names_too(error: PalyraError, number: int, name: str) -> None:
    """Each JSON-RPC number comes with a code in words, so that clients need only one of them."""
    body = sent(error)
    assert number == body["code"]
    assert name == msgspec.convert(body["data"], dict[str, object])["code"]


# --- typed params ---


class Inner(Params, frozen=True, kw_only=True):
    size: int = 0


class Example(Params, frozen=True, kw_only=True):
    name: str
    inner: Inner = Inner()
    token: int = 0


@every_row(
    ("params", "field", "text"),
    [
        ({"name": "a", "nmae": 1}, "nmae", 'unknown field "nmae"'),
        ({"name": "a", "inner": {"sizes": 1}}, "inner.sizes", 'unknown field "inner.sizes"'),
        ({}, "name", 'missing field "name"'),
        ({"name": 5}, "name", "name: expected a text, got 5"),
        (
            {"name": "a", "inner": {"size": "x"}},
            "inner.size",
            'inner.size: expected a whole number, got "x"',
        ),
        ({"name": "a", "inner": 3}, "inner", "inner: expected an object, got 3"),
        ({"name": "a", "token": "s3cret"}, "token", "token: expected a whole number"),
        ({"name": "a", "x`y": 1}, "x`y", 'unknown field "x`y"'),
        ({"name": "a", "z" * 300: 1}, "z" * 128, 'unknown field "zzz'),
    ],
)
def test_bad_params_name_the_field(params: dict[str, object], field: str, text: str) -> None:
    """The error names the field, shows the value shortened, and never a secret."""
    with pytest.raises(InvalidParams) as caught:
        convert_params(Example, params)
    assert field == caught.value.field
    assert caught.value.message.startswith(text)
    assert "s3cret" not in caught.value.message
    assert len(caught.value.message) < 200


def test_good_params_are_typed() -> None:
    """Defaults are filled in."""
    assert Example(name="a", inner=Inner(size=2)) == convert_params(
        Example, {"name": "a", "inner": {"size": 2}}
    )
