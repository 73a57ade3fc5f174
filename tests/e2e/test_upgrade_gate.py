"""The door of a real daemon, over raw sockets: who is let in, and how each breach of rules ends."""

import struct
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from tests.cpu import cpu_s
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import make_token
from tests.e2e.wire import WITHIN_S, Wire, connected, dial, open_wire, upgrade_request
from tests.net.server.peers import BINARY, CLOSE, CONTINUATION, MASK, TEXT, frame

pytestmark = pytest.mark.real

NOTICED_MS = 500  # of the daemon's work before another connection's ping is answered


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon with the default limits and one more name and origin."""
    with running(
        tmp_path_factory.mktemp("strict"),
        PALYRA_SERVER__REQUESTS_PER_S="100",
        PALYRA_SERVER__ALLOWED_HOSTS="palyra.example",
        PALYRA_SERVER__ALLOWED_ORIGINS="https://app.example",
    ) as process:
        yield process


# --- before the upgrade --------------------------------------------------------------------------


async def answer(port: int, request: bytes) -> int:
    """The HTTP status that the request gets."""
    peer = await dial(port)
    with trio.fail_after(WITHIN_S):
        async with peer.stream:
            await peer.send(request)
            line = await peer.read_until(b"\r\n")
    return int(line.split(b" ")[1])


def with_host(port: int, host: str) -> bytes:
    """A handshake with that Host header and no other."""
    return upgrade_request(port).replace(b"Host: 127.0.0.1:%d" % port, f"Host: {host}".encode())


@pytest.mark.parametrize(
    ("expected", "host"),
    [
        (101, "localhost:{port}"),
        (101, "127.0.0.1:{port}"),
        (101, "[::1]:{port}"),
        (101, "palyra.example"),
        (101, "localhost"),
        (101, "127.0.0.1"),
        (403, "localhost:1"),
        (403, "evil.example:{port}"),
        (403, "localhost.evil.example:{port}"),
        (403, "evil-localhost:{port}"),
        (403, "127.0.0.1.evil.example:{port}"),
        (403, "palyra.example.evil.example"),
        (403, "evilpalyra.example"),
        (403, "0.0.0.0:{port}"),
        (403, ""),
    ],
)
async def test_host(strict: DaemonProcess, expected: int, host: str) -> None:
    """Only loopback and configured names are let in; every other one is 403 before the upgrade."""
    port = strict.port
    assert expected == await answer(port, with_host(port, host.format(port=port)))


@pytest.mark.parametrize(
    ("expected", "origins"),
    [
        (101, []),
        (101, ["http://127.0.0.1:{port}"]),
        (101, ["https://app.example"]),
        (403, ["null"]),
        (403, [""]),
        (403, ["http://evil.example"]),
        (403, ["http://127.0.0.1:{port}.evil.example"]),
        (403, ["http://127.0.0.1:1"]),
        (403, ["https://127.0.0.1:{port}"]),
        (403, ["http://app.example"]),
        (403, ["https://app.example.evil.example"]),
        (403, ["https://evilapp.example"]),
        (403, ["http://127.0.0.1:{port}", "http://127.0.0.1:{port}"]),
        (403, ["https://app.example", "http://evil.example"]),
    ],
)
async def test_origin(strict: DaemonProcess, expected: int, origins: list[str]) -> None:
    """A page must be the daemon's own or a listed one, named once; a program names none."""
    port = strict.port
    lines = [f"Origin: {origin.format(port=port)}" for origin in origins]
    assert expected == await answer(port, upgrade_request(port, *lines))


async def test_plain_requests_are_checked_too(strict: DaemonProcess) -> None:
    """A foreign Host or Origin gets 403 from every page, not just from the WebSocket."""
    port = strict.port
    good = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port
    assert 200 == await answer(port, good + b"\r\n")
    assert 403 == await answer(port, good + b"Origin: http://evil.example\r\n\r\n")
    assert 403 == await answer(port, b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n")


async def test_token_in_the_url(strict: DaemonProcess) -> None:
    """A token in the URL is refused, wherever it would have worked."""
    request = upgrade_request(strict.port).replace(
        b"/v1/ws", b"/v1/ws?token=" + strict.token.encode()
    )
    assert 400 == await answer(strict.port, request)
    assert strict.token not in strict.said


async def test_token_on_the_upgrade(strict: DaemonProcess) -> None:
    """A program without Origin may give its token as a header; `connect` then needs none."""
    async with open_wire(strict.port, f"Authorization: Bearer {strict.token}") as wire:
        await wire.named("hello")
        assert "operator" == (await wire.call("connect"))["role"]


# --- hello and connect ---------------------------------------------------------------------------


async def test_hello_comes_first(strict: DaemonProcess) -> None:
    """The daemon speaks first, and says what it is and what it takes."""
    async with open_wire(strict.port) as wire:
        first = await wire.notice()
    hello = first["params"]
    assert ("hello", "palyra", "palyra.v1") == (first["method"], hello["server"], hello["protocol"])
    assert "ready" == hello["state"]
    assert 1_048_576 == hello["limits"]["max_message_bytes"]


async def test_request_before_connect(strict: DaemonProcess) -> None:
    """A request before `connect` gets an error and closes the connection with 4401."""
    async with open_wire(strict.port) as wire:
        reply = await wire.request("run.list")
        assert "unauthenticated" == reply["error"]["data"]["code"]
        assert 4401 == (await wire.closed()).code


async def test_bad_token(strict: DaemonProcess) -> None:
    """An unknown token is 4401, in the request or on the upgrade, and nowhere in the log."""
    bad = "pal_this-token-was-never-made-0123456789"
    async with open_wire(strict.port) as wire:
        await wire.ask("connect", token=bad)
        assert 4401 == (await wire.closed()).code
    async with open_wire(strict.port, f"Authorization: Bearer {bad}") as wire:
        await wire.ask("connect")
        assert 4401 == (await wire.closed()).code
    assert bad not in strict.said


@pytest.mark.slow
async def test_silence_instead_of_connect(strict: DaemonProcess) -> None:
    """A connection without `connect` is closed with 4401 after ten seconds."""
    began_s = trio.current_time()
    async with open_wire(strict.port) as wire:
        closed = await wire.closed()
    assert 4401 == closed.code
    assert trio.current_time() - began_s >= 9


async def test_revoked_token(strict: DaemonProcess) -> None:
    """Revoking a token closes its connections with 4403, and it opens no more."""
    async with strict.connect() as operator:
        token = await make_token(operator, "client", "soon-gone")
        async with connected(strict.port, token) as wire:
            assert "now_ms" in await wire.call("ping")
            found = next(
                one for one in await operator.list_tokens() if one.principal == "soon-gone"
            )
            await operator.revoke_token(found.token_id)
            assert 4403 == (await wire.closed()).code
        async with open_wire(strict.port) as wire:
            await wire.ask("connect", token=token)
            assert 4401 == (await wire.closed()).code
    assert token not in strict.said


async def test_expired_token(strict: DaemonProcess) -> None:
    """A token that expires closes its connections with 4403."""
    for ttl_ms in (300, 3_000, 30_000):  # the first that lasts until the connection is made
        async with strict.connect() as operator:
            made = await operator.create_token(
                principal="mayfly", role="client", name="e2e", ttl_ms=ttl_ms
            )
        async with open_wire(strict.port) as wire:
            await wire.named("hello")
            said = await wire.request("connect", token=made.token or "", client={"name": "e2e"})
            ended = await wire.closed()
        if "error" not in said:
            break
        assert 4401 == ended.code
    assert 4403 == ended.code


# --- hostile frames ------------------------------------------------------------------------------

# What is sent -> the JSON-RPC error it gets; the connection goes on.
BAD_MESSAGES: dict[str, tuple[bytes, int]] = {
    "no JSON": (b"{", -32700),
    "nothing": (b"", -32700),
    "NaN": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
    "infinite": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e999}}', -32700),
    "twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
    "lone surrogate": (rb'{"jsonrpc":"2.0","id":1,"method":"\ud800"}', -32700),
    "depth bomb": (b"[" * 100_000, -32700),
    "width bomb": (b"[" + b"[]," * 100_000 + b"[]]", -32700),
    "many digits": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 9_000 + b"}}",
        -32700,
    ),
    "batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "no object": (b'"ping"', -32600),
    "no method": (b'{"jsonrpc":"2.0","id":1}', -32600),
    "no version": (b'{"id":1,"method":"ping"}', -32600),
    "notification": (b'{"jsonrpc":"2.0","method":"ping"}', -32600),
    "odd id": (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    "unknown method": (b'{"jsonrpc":"2.0","id":1,"method":"no.such"}', -32601),
    "unknown field": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1}}', -32602),
    "wrong type": (b'{"jsonrpc":"2.0","id":1,"method":"run.get","params":{"run_id":1}}', -32602),
    "missing field": (b'{"jsonrpc":"2.0","id":1,"method":"run.get"}', -32602),
    "positional": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602),
}

# Bytes on the wire -> the close code; the connection is over.
BAD_FRAMES: dict[str, tuple[bytes, int]] = {
    "binary": (frame(BINARY, b"{}"), 1003),
    "bad UTF-8": (frame(TEXT, b'"\xff\xfe"'), 1007),
    "reserved bit": (frame(TEXT, b"{}", first=0xC0), 1002),
    "reserved opcode": (frame(0x3, b"{}"), 1002),
    "unmasked": (frame(TEXT, b"{}", masked=False), 1002),
    "stray continuation": (frame(CONTINUATION, b"{}"), 1002),
    "half a close": (frame(CLOSE, b"\x03"), 1002),
    "too big": (struct.pack("!BBQ", 0x81, 0xFF, 1_048_577) + MASK + b" " * 1_048_577, 1009),
}


async def test_bad_messages(strict: DaemonProcess) -> None:
    """Each bad message gets its own error, and the connection serves the next request."""
    async with connected(strict.port, strict.token) as wire:
        for name, (data, code) in BAD_MESSAGES.items():
            await wire.peer.send(frame(TEXT, data))
            request_id = 1 if code in {-32601, -32602} or b'"id":1' in data else None
            reply = await _any_reply(wire, request_id)
            assert code == reply["error"]["code"], name
            assert "Traceback" not in str(reply), name
        assert "now_ms" in await wire.call("ping")


async def _any_reply(wire: Wire, request_id: int | None) -> dict[str, dict[str, int]]:
    """The next reply to that id, or to a message whose id could not be read."""
    while True:
        for name in (request_id, None):
            if name in wire._replies:
                return wire._replies.pop(name)
        await wire._read()


@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_bad_frames(strict: DaemonProcess, name: str) -> None:
    """Each broken frame ends its own connection, with the code that says why."""
    data, code = BAD_FRAMES[name]
    async with connected(strict.port, strict.token) as wire:
        await _send_all(wire, data)
        assert code == (await wire.closed()).code


async def _send_all(wire: Wire, data: bytes) -> None:
    """Send what the daemon may stop reading half-way."""
    with suppress(trio.BrokenResourceError):
        await wire.peer.send(data)


async def test_fragments_and_empty_frames(strict: DaemonProcess) -> None:
    """A request in many fragments, some of them empty, with pings between, is one request."""
    request = b'{"jsonrpc":"2.0","id":"whole","method":"ping"}'
    pieces = [bytes([byte]) for byte in request] + [b""] * 50
    async with connected(strict.port, strict.token) as wire:
        await wire.peer.send(frame(TEXT, b"", first=0))
        for piece in pieces:
            await wire.peer.send(frame(CONTINUATION, piece, first=0) + frame(0x9, b"hey"))
        await wire.peer.send(frame(CONTINUATION, b""))
        assert "now_ms" in (await wire.reply("whole"))["result"]


async def test_bytes_sent_with_the_upgrade(strict: DaemonProcess) -> None:
    """Frames that come in one piece with the handshake are frames like any other."""
    request = b'{"jsonrpc":"2.0","id":0,"method":"connect","params":{"token":"%b"}}'
    early = frame(TEXT, request % strict.token.encode())
    async with open_wire(strict.port, early=early) as wire:
        assert "operator" == (await wire.reply(0))["result"]["role"]


async def test_flood(strict: DaemonProcess) -> None:
    """Too many requests get `rate_limited`; very many end the connection with 4429."""
    ping = frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    async with connected(strict.port, strict.token) as wire, trio.open_nursery() as nursery:
        nursery.start_soon(_send_for_ever, wire, ping * 100)
        closed = await wire.closed()
        nursery.cancel_scope.cancel()
    assert 4429 == closed.code
    assert any(b'"rate_limited"' in message for message in wire.seen)


async def _send_for_ever(wire: Wire, data: bytes) -> None:
    """Send again and again, until the daemon has enough."""
    with suppress(trio.BrokenResourceError):
        while True:
            await wire.peer.send(data)


# --- the neighbours ------------------------------------------------------------------------------


@asynccontextmanager
async def steady_ping(daemon: DaemonProcess) -> AsyncGenerator[list[float]]:
    """Another connection asks all the time; what the daemon did before each answer, CPU seconds.

    Not how long that took: the machine may be busy with other things.
    """
    taken_s: list[float] = []

    async def ask(wire: Wire) -> None:
        while True:
            began_s = cpu_s(daemon.pid)
            reply = await wire.request("ping")
            if "result" in reply:
                taken_s.append(cpu_s(daemon.pid) - began_s)

    async with connected(daemon.port, daemon.token) as wire, trio.open_nursery() as nursery:
        nursery.start_soon(ask, wire)
        try:
            yield taken_s
        finally:
            nursery.cancel_scope.cancel()


async def misbehave(port: int, token: str) -> None:
    """Everything of the above at once, on connections of its own."""
    for data, _ in BAD_FRAMES.values():
        async with connected(port, token) as wire:
            await _send_all(wire, data)
            await wire.closed()
    for data, _ in BAD_MESSAGES.values():
        async with connected(port, token) as wire:
            await _send_all(wire, frame(TEXT, data) * 20)
            wire.vanish()
    for cut in range(0, len(upgrade_request(port)), 40):
        peer = await dial(port)
        async with peer.stream:
            await peer.send(upgrade_request(port)[:cut])


async def test_neighbours_never_notice(daemon: DaemonProcess) -> None:
    """While peers misbehave in every way, another connection's requests are answered promptly."""
    async with steady_ping(daemon) as taken_s, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(misbehave, daemon.port, daemon.token)
    slowest_ms = round(1000 * max(taken_s), 1)
    sys.stdout.write(
        f"{len(taken_s)} pings, the slowest {slowest_ms} ms\n"
    )  # `pytest -rP` shows it
    assert len(taken_s) > 20
    assert slowest_ms < NOTICED_MS
