"""Host functions of a guest: exactly the granted ones."""

from typing import Any

import msgspec
import pytest
import trio

from palyra.errors import InvalidParams
from palyra.tools.skills.host_functions import (
    FetchReply,
    FetchRequest,
    HostFunctionGate,
    HostFunctions,
)
from palyra.tools.wasm.limits import LOG_BYTES
from palyra.tools.wasm.protocol import HostCall, HostReply

GRANTED = ("fetch:api.example.org", "secret:key", "log")


class Outside:
    """Answers every fetch and knows one secret."""

    def __init__(self) -> None:
        self.fetched: list[FetchRequest] = []
        self.heard: list[str] = []

    async def fetch(self, request: FetchRequest) -> FetchReply:
        await trio.lowlevel.checkpoint()
        self.fetched.append(request)
        if request.method == "POST":
            raise InvalidParams("refused by the rules")
        return FetchReply(status=200, headers={"a": "b"}, body="text")

    async def find_secret(self, name: str) -> str | None:
        await trio.lowlevel.checkpoint()
        return "s3cret" if name == "key" else None

    async def ask(
        self, function: str, argument: bytes, granted: tuple[str, ...] = GRANTED
    ) -> HostReply:
        keeper = HostFunctionGate(
            HostFunctions(self.fetch, self.find_secret), granted, self.heard.append
        )
        return await keeper.serve(HostCall(function=function, argument=argument))


def reply_of(reply: HostReply) -> Any:
    assert not reply.denied
    return msgspec.json.decode(reply.reply)


async def test_a_granted_host_is_fetched_from() -> None:
    """The request has the guest's parameters."""
    outside = Outside()
    found = await outside.ask("fetch", b'{"url":"https://API.example.org/x","headers":{"c":"d"}}')
    assert {"status": 200, "headers": {"a": "b"}, "body": "text", "is_cut": False} == reply_of(
        found
    )
    (request,) = outside.fetched
    assert ("https://API.example.org/x", {"c": "d"}) == (request.url, request.headers)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/",
        "https://api.example.org.evil.test/",
        "https://evil.test/?api.example.org",
        "https://xapi.example.org/",
        "http://127.0.0.1/",
    ],
)
async def test_another_host_ends_the_guest(url: str) -> None:
    """By the name of the grant that is missing; nothing is fetched."""
    outside = Outside()
    denied = await outside.ask("fetch", msgspec.json.encode({"url": url}))
    assert denied.denied.startswith("'fetch:")
    assert [] == outside.fetched


@pytest.mark.parametrize(
    "argument",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"url":"file:///etc/passwd"}',
        b'{"url":"https://u:p@api.example.org/"}',
        b'{"url":"https://api.example.org/","method":"CONNECT"}',
        b'{"url":"https://api.example.org/","surprise":1}',
        b'{"url":"https://api.example.org/","body":"' + b"x" * 300_000 + b'"}',
        b'{"url":"https://api.example.org/","method":"POST"}',
    ],
)
async def test_an_invalid_request_is_an_error_for_the_guest(argument: bytes) -> None:
    """The guest gets the reason and continues."""
    outside = Outside()
    assert {"error"} == reply_of(await outside.ask("fetch", argument)).keys()


async def test_a_secret_is_given_by_name() -> None:
    """Only a granted one; a granted one that does not exist is reported as missing."""
    outside = Outside()
    assert {"value": "s3cret"} == reply_of(await outside.ask("secret", b"key"))
    assert "'secret:other' is not granted" == (await outside.ask("secret", b"other")).denied
    missing = await outside.ask("secret", b"gone", ("secret:gone",))
    assert {"error": "there is no secret 'gone'"} == reply_of(missing)


@pytest.mark.parametrize("function", ["fetch", "secret", "log"])
async def test_without_a_grant_nothing_is_given(function: str) -> None:
    """Whatever the worker lets through."""
    denied = await Outside().ask(function, b'{"url":"https://api.example.org/"}', ())
    assert "is not granted" in denied.denied


async def test_an_unavailable_host_function_is_denied() -> None:
    """An unknown function is denied as well."""
    keeper = HostFunctionGate(HostFunctions(), GRANTED, lambda _: None)
    for function, argument in (
        ("fetch", b'{"url":"https://api.example.org/"}'),
        ("secret", b"key"),
        ("format_disk", b""),
    ):
        assert (await keeper.serve(HostCall(function=function, argument=argument))).denied


async def test_a_guest_can_say_only_so_much() -> None:
    """The rest of its log is dropped."""
    heard: list[str] = []
    keeper = HostFunctionGate(HostFunctions(), ("log",), heard.append)
    for _ in range(3):
        await keeper.serve(HostCall(function="log", argument=b"x" * (LOG_BYTES - 10)))
    assert [LOG_BYTES - 9, 11] == [len(text) for text in heard]
