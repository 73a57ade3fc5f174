"""Reading a request's head: grammar, limits, deadline, and giving the bytes back."""

import re
from contextlib import suppress
from http import HTTPStatus
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from palyra.core.redaction.redactor import Redactor
from palyra.net.server.request_head import (
    BadHead,
    HeadParser,
    HttpRefusal,
    RequestHead,
    read_head,
    replay_all,
    replay_rest,
)
from tests.net.server.peers import UPGRADE, open_pair
from tests.rows import every_row

GET = b"GET /healthz?x=1 HTTP/1.1\r\nHost: localhost\r\nX-Two: a\r\nx-two: B\r\n\r\n"


def parse(data: bytes) -> RequestHead:
    head = HeadParser().feed(data)
    assert head is not None
    return head


@given(st.lists(st.integers(min_value=1, max_value=len(GET) - 1)))
def test_a_head_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    """Arbitrary segmentation changes nothing, and the head appears with its last byte."""
    parser = HeadParser()
    places = sorted({0, *cuts, len(GET)})
    heads = [parser.feed(GET[a:b]) for a, b in pairwise(places)]
    assert [None] * (len(heads) - 1) == heads[:-1]
    assert parse(GET) == heads[-1]


def test_head_says_what_was_asked() -> None:
    """Method, target and headers come through; names are in lower case, repetition is kept."""
    head = parse(GET)
    assert (b"GET", b"/healthz?x=1", b"/healthz") == (head.method, head.target, head.path)
    assert [b"a", b"B"] == head.values(b"x-two")
    assert {b"a", b"b"} == head.tokens(b"x-two")
    assert [] == head.values(b"origin")


@every_row(
    ("expected", "connection", "upgrade"),
    [
        (True, b"Upgrade", b"websocket"),
        (True, b"keep-alive, upgrade", b"WebSocket"),
        (False, b"keep-alive", b"websocket"),
        (False, b"Upgrade", b"h2c"),
        (False, b"Upgrade", b"websocket/13"),
    ],
)
def test_an_upgrade_is_recognised(*, expected: bool, connection: bytes, upgrade: bytes) -> None:
    """Both headers must ask for it, as words of a list, in any case."""
    request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: %b\r\nUpgrade: %b\r\n\r\n"
    assert expected == parse(request % (connection, upgrade)).is_websocket


BAD = {
    "garbage": (b"\x00\xff\x13garbage\r\n\r\n", 400),
    "TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/0.9": (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "space before colon": (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "folded start": (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "NUL in value": (b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n", 400),
    "two lengths": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        400,
    ),
    "giant header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000, 431),
    "giant line": (b"GET /" + b"x" * 20_000, 431),
    "many headers": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 4_000, 431),
}


@every_row(("data", "status"), BAD.values())
def test_bad_head_is_refused(data: bytes, status: int) -> None:
    """A head that is not an HTTP/1 request gets a response that says so."""
    with pytest.raises(BadHead) as caught:
        HeadParser().feed(data)
    assert status == caught.value.refusal.status
    assert not re.search(r"\bb['\"]|bytearray", caught.value.refusal.text)


@given(st.binary(max_size=2_000))
def test_nothing_but_bad_head_comes_out_of_the_parser(data: bytes) -> None:
    """Any bytes are a head, the beginning of one, or refused."""
    with suppress(BadHead):
        HeadParser().feed(data)


def test_refusal_is_a_whole_response() -> None:
    """A refusal ends the connection and has a body of the announced length."""
    rendered = HttpRefusal(HTTPStatus.FORBIDDEN, "n\u00f6", (("Retry-After", "1"),)).render(
        Redactor([]).redact_bytes
    )
    expected = (
        b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: 4\r\nConnection: close\r\nRetry-After: 1\r\n\r\nn\xc3\xb6\n"
    )
    assert expected == rendered


async def read_back(data: bytes, *, is_whole: bool) -> bytes:
    """The bytes that a server behind the sniffer reads when the client sent `data` and closed."""
    near, far = open_pair()
    async with near, far:
        await near.send_all(data)
        _, parser = await read_head(far, timeout_s=5)
        await near.send_all(b"later")
        await near.send_eof()
        replay = (replay_all if is_whole else replay_rest)(far, parser)
        return b"".join([chunk async for chunk in replay])


async def test_replay_gives_everything_back() -> None:
    """The HTTP server reads the request from its first byte, then what came later."""
    assert GET + b"bodylater" == await read_back(GET + b"body", is_whole=True)


async def test_replay_of_the_rest_starts_after_the_head() -> None:
    """The WebSocket engine reads what follows the head."""
    assert b"\x81\x00later" == await read_back(UPGRADE + b"\x81\x00", is_whole=False)


async def test_slow_head_is_cut_off(autojump_clock: MockClock) -> None:
    """The deadline covers the whole head: a byte every second does not extend it."""
    near, far = open_pair()

    async def drip() -> None:
        for byte in GET:
            await near.send_all(bytes((byte,)))
            await trio.sleep_until(autojump_clock.current_time() + 1)

    began = autojump_clock.current_time()
    async with near, far, trio.open_nursery() as nursery:
        nursery.start_soon(drip)
        with pytest.raises(BadHead) as caught:
            await read_head(far, timeout_s=10)
        nursery.cancel_scope.cancel(reason="seen enough")
    assert HTTPStatus.REQUEST_TIMEOUT == caught.value.refusal.status
    assert pytest.approx(10, abs=0.1) == autojump_clock.current_time() - began


async def test_silent_peer_gets_no_answer(autojump_clock: MockClock) -> None:
    """A silent connection is closed at the deadline without a response."""
    near, far = open_pair()
    began = autojump_clock.current_time()
    async with near, far:
        with pytest.raises(EOFError):
            await read_head(far, timeout_s=10)
    assert pytest.approx(10, abs=0.1) == autojump_clock.current_time() - began


@pytest.mark.parametrize("sent", [b"", GET[:20]])
async def test_half_a_head_then_nothing(sent: bytes) -> None:
    """A peer that leaves before its head is whole is EOFError."""
    near, far = open_pair()
    async with near, far:
        await near.send_all(sent)
        await near.send_eof()
        with pytest.raises(EOFError):
            await read_head(far, timeout_s=5)
