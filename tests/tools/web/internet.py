"""An internet in memory: names, addresses, servers that follow a script, and who contacted whom."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import trio
from trio.testing import memory_stream_pair

from palyra.core.tool.spec import ToolCall
from palyra.tools.web.credentials import Credential
from palyra.tools.web.dialler import Dialler, Stream
from palyra.tools.web.egress_policy import ReachRules
from palyra.tools.web.fetch import Web
from palyra.tools.web.request import WebRequest
from palyra.tools.web.urls import parse_url

T = TypeVar("T")
PUBLIC = "93.184.216.34"
Serve = Callable[[trio.abc.Stream, bytes], Awaitable[None]]


async def here(function: Callable[..., T], *arguments: object) -> T:
    """In place of a thread: the call itself."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


class Internet:
    """Answers of the resolver in turn, the last one for ever; every contact is written down."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.names: dict[str, list[Sequence[str]]] = {}
        self.resolved: list[str] = []
        self.contacted: list[tuple[str, int]] = []
        self.dead: set[str] = set()
        self.requests: list[bytes] = []
        self.serve: Serve = replies(a_page(b"hello"))

    def dialler(self, rules: ReachRules) -> Dialler:
        """Checked connections into this internet."""
        return Dialler(rules, resolve=self.resolve, connect=self.connect)

    async def resolve(self, host: str, _port: int) -> Sequence[str]:
        """The resolver's present answer for the host."""
        await trio.lowlevel.checkpoint()
        self.resolved.append(host)
        answers = self.names.get(host, [[PUBLIC]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def connect(self, address: str, port: int) -> Stream:
        """A connection to the one server there is."""
        await trio.lowlevel.checkpoint()
        self.contacted.append((address, port))
        if address in self.dead:
            raise OSError(113, "No route to host")
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._answer, theirs)
        return ours

    async def _answer(self, stream: trio.abc.Stream) -> None:
        request = b""
        while not _is_whole(request):
            more = bytes(await stream.receive_some())
            if not more:
                return
            request += more
        self.requests.append(request)
        async with stream:
            with suppress(trio.BrokenResourceError):  # the client had enough
                await self.serve(stream, request)


def _is_whole(request: bytes) -> bool:
    head, separator, body = request.partition(b"\r\n\r\n")
    if not separator:
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return not lengths or len(body) >= int(lengths[0].partition(b":")[2])


def a_page(
    body: bytes, content_type: str = "text/plain", *headers: str, status: int = 200
) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode("latin-1") + body


def a_redirect(location: str, status: int = 302) -> bytes:
    """An answer that sends elsewhere."""
    return f"HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()


def replies(*answers: bytes) -> Serve:
    """A server that gives these answers in turn, the last one for ever."""
    waiting = list(answers)

    async def serve(stream: trio.abc.Stream, _request: bytes) -> None:
        await stream.send_all(waiting.pop(0) if len(waiting) > 1 else waiting[0])

    return serve


def a_web(
    internet: Internet,
    rules: ReachRules | None = None,
    credentials: Sequence[Credential] = (),
    secrets: dict[str, str] | None = None,
) -> Web:
    """The client over that internet."""
    return Web(
        internet.dialler(rules or ReachRules()),
        here,
        credentials={credential.name: credential for credential in credentials},
        find_secret=partial(here, (secrets or {}).__getitem__),
    )


def get(url: str, **more: object) -> WebRequest:
    """A request for the URL."""
    return WebRequest(**{"method": "GET", "url": parse_url(url), **more})  # type: ignore[arg-type]


def a_call(tool: str, **arguments: object) -> ToolCall:
    """An allowed call."""
    return ToolCall(
        call_id="call_1", run_id="run_1", session_id="ses_1", principal="alice", tool=tool,
        tool_version="1", arguments=arguments,
    )  # fmt: skip
