"""The proxy of jailed commands: granted hosts pass, others get a reason."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from palyra.actors.egress import carry
from palyra.tools.web.egress_policy import ReachRules, parse_opened
from palyra.tools.web.proxy import DIAL_S, HEAD_S, MAX_NOTED, ProxyGate
from tests.tools.web.internet import PUBLIC, Internet, a_page, replies


@pytest.fixture
def internet(nursery: trio.Nursery) -> Internet:
    """One where every name is public and every page says hello."""
    return Internet(nursery)


class Command:
    """A command's end of one connection to its proxy."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.refused: list[str] = []

    async def read_all(self) -> bytes:
        """Read until the proxy closes."""
        found = b""
        while more := await self.stream.receive_some():
            found += more
        return found

    async def say(self, text: bytes) -> bytes:
        """Send this and read until the proxy closes."""
        await self.stream.send_all(text)
        return await self.read_all()


@asynccontextmanager
async def a_command(
    internet: Internet, *granted: str, rules: ReachRules | None = None
) -> AsyncGenerator[Command]:
    """One connection of a command with these grants."""
    ours, theirs = memory_stream_pair()
    command = Command(ours)
    dialler = internet.dialler(rules or ReachRules())
    gate = ProxyGate(dialler.dial, granted, command.refused.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry, theirs, gate.admit)
        try:
            yield command
        finally:
            nursery.cancel_scope.cancel()


# --- plain requests --------------------------------------------------------------------------------


async def test_a_granted_host_is_reached(internet: Internet) -> None:
    """The server gets the path, its own Host, and nothing that was for the proxy."""
    async with a_command(internet, "e.example") as command:
        answer = await command.say(
            b"GET http://E.example/a?b HTTP/1.1\r\nHost: other.example\r\nProxy-Connection: x\r\n"
            b"Proxy-Authorization: x\r\nConnection: keep-alive\r\nX-Mine: 1\r\n\r\n"
        )
    assert answer.endswith(b"\r\n\r\nhello")
    lines = internet.requests[0].lower().split(b"\r\n")
    assert b"get /a?b http/1.1" == lines[0]
    assert {b"host: e.example", b"connection: close", b"x-mine: 1"} == set(lines[1:-2])
    assert [(PUBLIC, 80)] == internet.contacted


async def test_a_body_goes_along(internet: Internet) -> None:
    """With its length, or in chunks."""
    for framing, wire in (
        (b"Content-Length: 5", b"12345"),
        (b"Transfer-Encoding: chunked", b"5\r\n12345\r\n0\r\n\r\n"),
    ):
        async with a_command(internet, "e.example") as command:
            head = b"POST http://e.example/ HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n"
            answer = await command.say(head + wire)
        assert answer.endswith(b"hello")
        assert b"12345" in internet.requests[-1]


async def test_a_second_request_is_not_forwarded(
    internet: Internet, autojump_clock: MockClock
) -> None:
    """The connection is granted for the first request only."""
    heard: list[bytes] = []

    async def listen(stream: trio.abc.Stream, _request: bytes) -> None:
        await stream.send_all(a_page(b"hello"))
        with trio.move_on_after(1):
            heard.append(bytes(await stream.receive_some()))

    internet.serve = listen
    one = b"GET http://e.example/%d HTTP/1.1\r\nHost: x\r\n\r\n"
    async with a_command(internet, "e.example") as command:
        await command.stream.send_all(one % 1 + one % 2)
        assert (await command.stream.receive_some()).endswith(b"hello")
        await command.stream.send_all(one % 3)
        assert b"" == await command.read_all()
    assert [b"GET /1 HTTP/1.1"] == [request.split(b"\r\n")[0] for request in internet.requests]
    assert [] == heard


# --- tunnels ---------------------------------------------------------------------------------------


async def test_a_tunnel_carries_both_ways(internet: Internet) -> None:
    """Bytes as they are, until either side ends."""

    async def echo(stream: trio.abc.Stream, request: bytes) -> None:
        await stream.send_all(b"got " + request)
        await stream.send_all(b"and " + bytes(await stream.receive_some()))

    internet.serve = echo
    async with a_command(internet, "e.example") as command:
        await command.stream.send_all(b"CONNECT e.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200 Connection established\r\n\r\n" == await command.stream.receive_some()
        await command.stream.send_all(b"hello\r\n\r\n")
        assert b"got hello\r\n\r\n" == await command.stream.receive_some()
        await command.stream.send_all(b"more")
        assert b"and more" == await command.read_all()
    assert [(PUBLIC, 443)] == internet.contacted


async def test_early_data_is_not_lost(internet: Internet) -> None:
    """A client may send before the tunnel is confirmed."""
    async with a_command(internet, "e.example") as command:
        answer = await command.say(
            b"CONNECT e.example:443 HTTP/1.1\r\nHost: x\r\n\r\nearly\r\n\r\n"
        )
    assert answer.endswith(b"hello")
    assert [b"early\r\n\r\n"] == internet.requests


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "key"),
    [
        (b"GET http://other.example/ HTTP/1.1", "other.example"),
        (b"CONNECT other.example:443 HTTP/1.1", "other.example"),
        (b"CONNECT sub.e.example:443 HTTP/1.1", "sub.e.example"),
        (b"CONNECT e.example:22 HTTP/1.1", "e.example:22"),
        (b"CONNECT 127.0.0.1:443 HTTP/1.1", "127.0.0.1"),
        (b"GET http://169.254.169.254/latest/ HTTP/1.1", "169.254.169.254"),
        (b"GET http://[::1]/ HTTP/1.1", "[::1]"),
    ],
)
async def test_a_host_that_is_not_granted_is_refused(
    internet: Internet, request_line: bytes, key: str
) -> None:
    """It is neither resolved nor contacted, and the refusal is reported."""
    async with a_command(internet, "e.example") as command:
        answer = await command.say(request_line + b"\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert key.encode() in answer
    assert ([key], [], []) == (command.refused, internet.resolved, internet.contacted)


async def test_each_refused_host_is_reported_once(internet: Internet) -> None:
    """The number of reports is bounded."""
    told: list[str] = []
    gate = ProxyGate(internet.dialler(ReachRules()).dial, (), told.append)
    for number in [*range(MAX_NOTED + 5), 0]:
        ours, theirs = memory_stream_pair()
        await ours.send_all(b"CONNECT %d.example:443 HTTP/1.1\r\nHost: x\r\n\r\n" % number)
        assert await gate.admit(theirs) is None
    assert [f"{number}.example" for number in range(MAX_NOTED)] == told


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_a_granted_name_does_not_lead_inside(internet: Internet, address: str) -> None:
    """The addresses of a granted host are checked like any other; the control is a public one."""
    internet.names = {"e.example": [[address]]}
    async with a_command(internet, "e.example") as command:
        answer = await command.say(b"CONNECT e.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert (["e.example"], []) == (command.refused, internet.contacted)


async def test_an_opened_host_must_be_granted_too(internet: Internet) -> None:
    """A host that the configuration opens is not granted to every command."""
    rules = ReachRules(opened=parse_opened(["inside.example:8080"]))
    internet.names = {"inside.example": [["10.0.0.1"]]}
    line = b"GET http://inside.example:8080/ HTTP/1.1\r\nHost: x\r\n\r\n"
    async with a_command(internet, "inside.example", rules=rules) as command:
        assert (await command.say(line)).startswith(b"HTTP/1.1 403 ")
    async with a_command(internet, "inside.example:8080", rules=rules) as command:
        assert (await command.say(line)).endswith(b"hello")


async def test_a_granted_port_must_be_allowed_too(internet: Internet) -> None:
    """A grant is for a host; ports are the configuration's."""
    line = b"CONNECT e.example:22 HTTP/1.1\r\nHost: x\r\n\r\n"
    async with a_command(internet, "e.example:22") as command:
        answer = await command.say(line)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"fetch.ports" in answer
    assert ([], []) == (internet.resolved, internet.contacted)


@pytest.mark.parametrize(
    "text",
    [
        b"GET / HTTP/1.1\r\nHost: e.example\r\n\r\n",
        b"GET https://e.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://u:p@e.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://127.1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT e.example HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT u@e.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT e.example:443/x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET http://e.example/ HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000,
    ],
)
async def test_an_invalid_proxy_request_is_refused(internet: Internet, text: bytes) -> None:
    """Another protocol, an invalid URL, an endless head."""
    async with a_command(internet, "e.example") as command:
        assert (await command.say(text)).startswith(b"HTTP/1.1 400 ")
    assert [] == internet.contacted


async def test_an_incomplete_body_is_an_error(internet: Internet) -> None:
    """The server is disconnected, and the command gets an error."""
    async with a_command(internet, "e.example") as command:
        await command.stream.send_all(
            b"POST http://e.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"
        )
        await command.stream.send_eof()
        assert (await command.read_all()).startswith(b"HTTP/1.1 400 ")
    assert [] == internet.requests


async def test_a_host_that_is_down_is_a_gateway_error(internet: Internet) -> None:
    """The proxy answers with a gateway error."""
    internet.dead = {PUBLIC}
    async with a_command(internet, "e.example") as command:
        answer = await command.say(b"CONNECT e.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")


async def test_silent_connections_end(internet: Internet, autojump_clock: MockClock) -> None:
    """A connection without a request, and a host that never answers."""
    async with a_command(internet, "e.example") as command:
        assert (await command.read_all()).startswith(b"HTTP/1.1 400 ")
        assert HEAD_S == pytest.approx(trio.current_time())

    async def hang(_host: str, _port: int) -> list[str]:
        await trio.sleep_forever()
        raise AssertionError

    internet.resolve = hang  # type: ignore[method-assign, assignment]
    async with a_command(internet, "e.example") as command:
        answer = await command.say(b"CONNECT e.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert HEAD_S + DIAL_S == pytest.approx(trio.current_time())


async def test_pages_of_any_size_pass(internet: Internet) -> None:
    """The proxy has no cap; the command's own limits hold."""
    internet.serve = replies(a_page(b"x" * 3_000_000))
    async with a_command(internet, "e.example") as command:
        answer = await command.say(b"GET http://e.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.endswith(b"x" * 3_000_000)
