"""Requests that two parsers may read apart, as raw bytes over sockets: refused, and the end."""

import re

import h11
import pytest
from h11._receivebuffer import ReceiveBuffer  # noqa: PLC2701 - what is replaced must still be there

from palyra.net.server.strict import MAX_HEAD_BYTES, StrictBuffer, harden
from tests.net.http.test_http import serving
from tests.net.server.edges import RunningEdge
from tests.rows import every_row

pytestmark = pytest.mark.real

HOST = b"Host: 127.0.0.1:PORT\r\n"
GOOD = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /healthz HTTP/1.1\r\n" + HOST
SMUGGLED = b"GET /readyz HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def get(headers: bytes = b"", *, target: bytes = b"/healthz", version: bytes = b"1.1") -> bytes:
    return b"GET " + target + b" HTTP/" + version + b"\r\n" + HOST + headers + b"\r\n"


def post(headers: bytes, body: bytes = b"") -> bytes:
    return POST + headers + b"\r\n" + body


BAD = {
    "length and coding": post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "coding and length": post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n"),
    "length 0 and coding": post(b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
    "two lengths": post(b"Content-Length: 1\r\nContent-Length: 2\r\n", b"x"),
    "the same length twice": post(b"Content-Length: 1\r\nContent-Length: 1\r\n", b"x"),
    "lengths in a list": post(b"Content-Length: 5,5\r\n", b"hello"),
    "signed length": post(b"Content-Length: +5\r\n", b"hello"),
    "negative length": post(b"Content-Length: -5\r\n"),
    "hexadecimal length": post(b"Content-Length: 0x5\r\n", b"hello"),
    "underscored length": post(b"Content-Length: 1_0\r\n", b"hello"),
    "empty length": post(b"Content-Length: \r\n"),
    "endless length": post(b"Content-Length: " + b"9" * 30 + b"\r\n"),
    "coding and identity": post(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    "identity": post(b"Transfer-Encoding: identity\r\n"),
    "xchunked": post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "chunked twice": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    "chunked in a list": post(b"Transfer-Encoding: chunked, chunked\r\n"),
    "gzip, chunked": post(b"Transfer-Encoding: gzip, chunked\r\n"),
    "chunked with a tab inside": post(b"Transfer-Encoding: chun\tked\r\n"),
    "coding over 1.0": b"POST /healthz HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
    "folded value": get(b"X-A: 1\r\n 2\r\n"),
    "folded with a tab": get(b"X-A: 1\r\n\t2\r\n"),
    "folded coding": post(b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n"),
    "folded first header": b"GET /healthz HTTP/1.1\r\n " + HOST + b"\r\n",
    "blank before the colon": get(b"X-A : 1\r\n"),
    "blank before the length's colon": post(b"Content-Length : 5\r\n", b"hello"),
    "bare line feeds": GOOD.replace(b"\r\n", b"\n"),
    "one bare line feed": get(b"X-A: 1\nX-B: 2\r\n"),
    "bare line feed at the end": GOOD[:-2] + b"\n",
    "bare carriage return": get(b"X-A: 1\rX-B: 2\r\n"),
    "two carriage returns": get(b"X-A: 1\r\r\n"),
    "NUL in a value": get(b"X-A: 1\x002\r\n"),
    "control byte in a value": get(b"X-A: 1\x012\r\n"),
    "vertical tab in a value": get(b"X-A: 1\x0b2\r\n"),
    "delete in a value": get(b"X-A: 1\x7f2\r\n"),
    "high byte in a name": get(b"X-\xc3\xa9: 1\r\n"),
    "bracket in a name": get(b"X[A]: 1\r\n"),
    "no name": get(b": 1\r\n"),
    "no colon": get(b"nothing\r\n"),
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": get(HOST),
    "another host in the target": get(target=b"http://evil.example/healthz"),
    "a user in the target": get(target=b"http://me@127.0.0.1:PORT/healthz"),
    "another scheme in the target": get(target=b"ftp://127.0.0.1:PORT/healthz"),
    "authority as target": b"CONNECT 127.0.0.1:PORT HTTP/1.1\r\n" + HOST + b"\r\n",
    "target without a slash": get(target=b"healthz"),
    "fragment": get(target=b"/healthz#x"),
    "blanks in the request line": b"GET  /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "tab in the request line": b"GET\t/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "something behind the version": b"GET /healthz HTTP/1.1 x\r\n" + HOST + b"\r\n",
    "leading blank line": b"\r\n" + GOOD,
    "leading bare line feed": b"\n" + GOOD,
    "leading blank": b" " + GOOD,
}
BAD_CHUNKS = {
    "no number": b"x\r\n",
    "no size": b"\r\n",
    "signed": b"+5\r\nhello\r\n0\r\n\r\n",
    "negative": b"-5\r\nhello\r\n0\r\n\r\n",
    "prefixed": b"0x5\r\nhello\r\n0\r\n\r\n",
    "underscored": b"0_5\r\nhello\r\n0\r\n\r\n",
    "over 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "leading blank": b" 5\r\nhello\r\n0\r\n\r\n",
    "trailing blank": b"5 \r\nhello\r\n0\r\n\r\n",
    "bare line feed": b"5\nhello\r\n0\r\n\r\n",
    "bare line feed in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "bare carriage return in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "NUL in an extension": b"5;a\x00\r\nhello\r\n0\r\n\r\n",
    "endless extension": b"5;" + b"a" * 2_000 + b"\r\nhello\r\n0\r\n\r\n",
    "longer than it says": b"5\r\nhello!\r\n0\r\n\r\n",
    "bare line feed in the trailer": b"0\r\nX-A: 1\n\r\n\r\n",
    "folded trailer": b"0\r\nX-A: 1\r\n 2\r\n\r\n",
    "bare end": b"0\r\n\n",
}
GOOD_ONES = {
    "plain": GOOD,
    "values with blanks and tabs": get(b"X-A: \t 1\t2 \r\n"),
    "high bytes in a value": get(b"X-A: \xc3\xa9\r\n"),
    "empty value": get(b"X-A:\r\n"),
    "length 0": get(b"Content-Length: 0\r\n"),
    "the same host in the target": get(target=b"http://127.0.0.1:PORT/healthz"),
    "the same host without a path": get(target=b"http://127.0.0.1:PORT"),
    "query": get(target=b"/healthz?after=run_01981b2c3d4e7f8090a1b2c3d4e5f607&limit=3"),
}
GOOD_BODIES = {
    "length": post(b"Content-Length: \t5 \r\n", b"hello"),
    "chunks": CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    "extensions": CHUNKED + b'5;a=b ; c="d"\r\nhello\r\n0\r\n\r\n',
    "trailer": CHUNKED + b"5\r\nhello\r\n000\r\nX-A: 1\r\n\r\n",
    "no chunk": CHUNKED + b"0\r\n\r\n",
    "upper case": post(b"TRANSFER-ENCODING: CHUNKED\r\n", b"A\r\nhellohello\r\n0\r\n\r\n"),
}


def statuses(answer: bytes) -> list[int]:
    """The status of each response in what was read."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answer)]


async def check_still_serving(running: RunningEdge) -> None:
    assert [200] == statuses(await running.ask(GOOD[:-2] + b"Connection: close\r\n\r\n"))


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_an_ambiguous_head_is_refused_and_the_connection_ends(bad: bytes) -> None:
    """Bytes after it are not served, also after a valid request; other connections continue."""
    async with serving() as running:
        assert [400] == statuses(await running.ask(bad + SMUGGLED))
        found = statuses(await running.ask(GOOD + bad + SMUGGLED))
        assert found in ([200, 400], [200, 403]), found
        await check_still_serving(running)


@pytest.mark.parametrize("method", [b"get", b"Get", b"gET", b"post"])
async def test_a_method_in_lower_case_is_another_method(method: bytes) -> None:
    """It is refused with 405, as the first request of a connection and as a later one."""
    async with serving() as running:
        bad = GOOD.replace(b"GET", method)
        assert [405] == statuses(await running.ask(bad + SMUGGLED))
        assert [200, 405] == statuses(await running.ask(GOOD + bad + SMUGGLED))
        await check_still_serving(running)


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
async def test_ambiguous_chunks_end_the_connection(chunks: bytes) -> None:
    """One answer at most, and what follows is no request."""
    async with serving() as running:
        assert 1 >= len(statuses(await running.ask(CHUNKED + chunks + SMUGGLED)))
        await check_still_serving(running)


@every_row("chunks", BAD_CHUNKS.values())
def test_ambiguous_chunks_are_errors_of_the_peer(chunks: bytes) -> None:
    """The parser says so with 400."""
    connection = h11.Connection(h11.SERVER)
    harden(connection)
    connection.receive_data(CHUNKED.replace(b"PORT", b"1") + chunks + GOOD)
    with pytest.raises(h11.RemoteProtocolError) as refused:  # noqa: PT012 - any event may be the one
        for _ in range(9):
            assert connection.next_event() is not h11.NEED_DATA
    assert 400 == refused.value.error_status_hint


@pytest.mark.parametrize("good", GOOD_ONES.values(), ids=GOOD_ONES.keys())
async def test_a_plain_head_is_served_and_the_connection_stays_open(good: bytes) -> None:
    """Twice on one connection, then a third request that ends it."""
    last = GOOD[:-2] + b"Connection: close\r\n\r\n"
    async with serving() as running:
        assert [200, 200, 200] == statuses(await running.ask(good + good + last))


async def test_nothing_is_served_after_connection_close() -> None:
    """Bytes after `Connection: close` are not a request."""
    async with serving() as running:
        last = GOOD[:-2] + b"Connection: close\r\n\r\n"
        assert 1 == len(statuses(await running.ask(last + SMUGGLED)))
        assert 1 == len(statuses(await running.ask(get(version=b"1.0") + SMUGGLED)))


@every_row("good", GOOD_BODIES.values())
@every_row("step", [1, 7, 1_000])
def test_a_plain_body_is_read_however_it_is_cut(good: bytes, step: int) -> None:
    """And the next request behind it."""
    connection, events = h11.Connection(h11.SERVER), []
    harden(connection)
    data = good.replace(b"PORT", b"1")
    for start in range(0, len(data), step):
        connection.receive_data(data[start : start + step])
        while (event := connection.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
            events.append(event)
    kinds = {type(event) for event in events}
    assert {h11.Request, h11.EndOfMessage} <= kinds <= {h11.Request, h11.Data, h11.EndOfMessage}
    body = b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data))
    assert body in {b"", b"hello", b"hellohello"}


@every_row("bad", BAD.values())
def test_a_head_that_drips_in_is_read_like_a_whole_one(bad: bytes) -> None:
    """Where it was cut hides nothing."""
    connection = h11.Connection(h11.SERVER)
    harden(connection)
    if bad == BAD["another host in the target"]:
        bad = bad.replace(b"PORT", b"1")
    with pytest.raises(h11.RemoteProtocolError):  # noqa: PT012 - any byte may be the one
        for byte in bad + GOOD:
            connection.receive_data(bytes([byte]))
            if isinstance(connection.next_event(), h11.Request):
                connection.next_event()


async def test_an_oversized_head_is_refused() -> None:
    """Endless lines and endless numbers of lines alike."""
    async with serving() as running:
        for bad in (get(b"X-A: " + b"a" * 17_000), get(b"X-A: 1\r\n" * 9_000)):
            assert [431] == statuses(await running.ask(bad))
        await check_still_serving(running)


def refusal(data: bytes, step: int) -> tuple[int, str] | None:
    """Status and reason of the parser's refusal of a request that arrives in such pieces."""
    connection = h11.Connection(h11.SERVER)
    harden(connection)
    try:
        for start in range(0, len(data), step):
            connection.receive_data(data[start : start + step])
            while not isinstance(connection.next_event(), type):
                pass
    except h11.RemoteProtocolError as error:
        return error.error_status_hint, str(error)
    return None


@pytest.mark.parametrize("step", [1, 100, 65_536])
@pytest.mark.parametrize("before", [b"GET / HTTP/1.1\r\nHost: a\r\n", CHUNKED + b"0\r\n"])
def test_the_limit_of_a_head_is_independent_of_how_it_is_cut(before: bytes, step: int) -> None:
    """A head of that size passes and one byte more does not; so does a trailer."""
    bounded = before.removeprefix(CHUNKED + b"0\r\n") + b"X: \r\n\r\n"
    spare = MAX_HEAD_BYTES - len(bounded)
    assert None is refusal(before + b"X: " + b"a" * spare + b"\r\n\r\n", step)
    expected = (431, f"a head may have {MAX_HEAD_BYTES} bytes")
    assert expected == refusal(before + b"X: " + b"a" * (spare + 1) + b"\r\n\r\n", step)


UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


async def test_an_upgrade_needs_http_1_1() -> None:
    """RFC 6455 section 4.2.1; the same head over 1.1 is answered with 101."""
    async with serving() as running:
        old = get(UPGRADE, target=b"/v1/ws", version=b"1.0")
        assert [400] == statuses(await running.ask(old + SMUGGLED))
        peer = await running.open_websocket()
        assert peer.answer.startswith(b"HTTP/1.1 101")
        await peer.stream.aclose()


TOKEN = "pal_" + "aB3-_xY9" * 5
TOKENS = {
    "ours": TOKEN,
    "encoded": TOKEN.replace("a", "%61").replace("p", "%70"),
    "encoded twice": TOKEN.replace("p", "%2570"),
    "encoded often": TOKEN.replace("p", "%252525252570"),
    "behind a scheme": f"Bearer%20{TOKEN}",
    "a scheme and anything": "Bearer+abc",
    "amid others": f"x{TOKEN}x",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "of a provider": "sk-proj-" + "aB3dE5gH7jK9" * 4,
    "of a forge": "ghp_" + "aB3dE5gH7jK9mN1pQ3rS5tU7wX9yZ1bD3fG5",
    "hexadecimal": "0123456789abcdef" * 4,
    "random": "q7Rk2VbT9xLw4ZcN8mPd3HsJ6yGf1KaE",
}
PLACES = [
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/models",
    "/v1/ws",
    "/v1/asyncapi.json",
    "/nowhere",
]


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS.keys())
@pytest.mark.parametrize("query", ["x={}", "state={}&a=b", "a=b&c={}", "{}", "{}=x", "a=b;c={}"])
async def test_a_token_in_any_parameter_is_refused(
    token: str, query: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """On every path and on a WebSocket's, first and later; neither answered back nor logged."""
    target = query.format(token).encode()
    async with serving() as running:
        for path in PLACES[:1] if query != "x={}" else PLACES:
            bad = get(UPGRADE if path == "/v1/ws" else b"", target=path.encode() + b"?" + target)
            answer = await running.ask(bad)
            assert ([400], False) == (statuses(answer), token.encode() in answer)
        answer = await running.ask(GOOD + get(target=b"/healthz?" + target))
        assert ([200, 400], False) == (statuses(answer), token.encode() in answer)
    assert token not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "token", [TOKENS[name] for name in ("ours", "encoded", "encoded often", "JWT", "of a forge")]
)
@pytest.mark.parametrize("path", ["/{}", "/v1/models/{}", "/v1/{}/ws", "//{}", "/healthz;x={}"])
async def test_a_token_in_the_path_is_refused(
    token: str, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Like one in a parameter, as the first request and as a later one."""
    async with serving() as running:
        for before, expected in ((b"", [400]), (GOOD, [200, 400])):
            answer = await running.ask(before + get(target=path.format(token).encode()))
            assert (expected, False) == (statuses(answer), token.encode() in answer)
    assert token not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/agent/Qwen2-5-Coder-32B-Instruct-128K-Context",
        "/v1/models/pal_assistant1",
        "/v1/responses/resp_01a204b9-72aa-75f6-98a3-e446752652a4/input_items",
    ],
)
async def test_other_paths_pass(path: str) -> None:
    """Names of models and ids are no tokens, however mixed."""
    async with serving() as running:
        answer = await running.ask(get(b"Connection: close\r\n", target=path.encode()))
        assert [400] != statuses(answer)


@pytest.mark.parametrize(
    "query",
    [
        "limit=20&after=run_01981b2c3d4e7f8090a1b2c3d4e5f607",
        "after=chatcmpl-01981b2c3d4e7f8090a1b2c3d4e5f607",
        "order=desc",
        "q=a+bearer%20of+news",
        "name=some-very-long-name-in-lower-case-with-words",
        "a=%E2%82%AC",
        "",
    ],
)
async def test_other_queries_pass(query: str) -> None:
    """Ids, names, numbers and words are no tokens."""
    async with serving() as running:
        target = b"/healthz?" + query.encode()
        assert [200] == statuses(await running.ask(get(b"Connection: close\r\n", target=target)))


def test_the_buffer_of_h11_is_still_what_is_replaced() -> None:
    """The release of h11 is one we know."""
    assert isinstance(h11.Connection(h11.SERVER)._receive_buffer, ReceiveBuffer)
    assert {"_data", "_extract"} <= {*dir(ReceiveBuffer()), *vars(ReceiveBuffer())}
    assert issubclass(StrictBuffer, ReceiveBuffer)
