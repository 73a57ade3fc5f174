"""The core of the client without an event loop: coroutines stepped by hand, in virtual time."""

import ast
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from types import coroutine
from typing import Any

import msgspec
import pytest

from palyra.client import Client, TapeEvent, waits
from palyra.client.connection import ClientConnection, Handshake, OnNotice
from palyra.client.reconnecting import MAX_READS, ClientOptions, Driver, ReconnectingConnection
from palyra.client.waits import SocketClosed
from palyra.errors import NotFound, TooLarge, Unauthenticated, Unavailable
from palyra.net.protocol.discovery import Endpoint
from tests.client.fake_daemon import HELLO, RUN, SESSION

CORE = Path(waits.__file__).parent
DRIVERS = {"aio", "asyncio_socket", "blocking", "client", "dial", "process", "socket", "__init__"}
LOOPS = {"asyncio", "h11", "socket", "ssl", "threading", "trio", "trio_websocket", "wsproto"}
WELCOME = {
    "principal": "owner",
    "role": "operator",
    "scopes": ["*"],
    "granted": [],
    "declined": [],
    "state": "ready",
}
ROUNDS = 100  # no scenario here takes more to come to rest

Json = dict[str, Any]


@coroutine
def pause() -> Generator[None]:
    """Let the other tasks run."""
    yield


class World:
    """Tasks, a clock and the daemon's side of each connection."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.tasks: list[Coroutine[Any, Any, Any]] = []
        self.results: dict[str, object] = {}
        self.links: list[Link] = []
        self.is_down = False

    def spawn(self, run: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        self.tasks.append(run(*args))

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run work whose result or error is kept under that name."""

        async def keep() -> None:
            try:
                self.results[name] = await work
            except (Unavailable, NotFound, TooLarge, Unauthenticated) as error:
                self.results[name] = error

        self.spawn(keep)

    def rest(self) -> None:
        """Step every task until none has anything to do."""
        for _ in range(ROUNDS):
            for task in list(self.tasks):
                try:
                    task.send(None)
                except StopIteration:
                    self.tasks.remove(task)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.rest()

    def end(self) -> None:
        for task in self.tasks:
            task.close()

    async def sleep(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            await pause()

    async def run_connection(
        self,
        endpoint: Endpoint,
        handshake: Handshake,
        on_notice: OnNotice,
        on_open: Callable[[ClientConnection], None],
    ) -> None:
        if self.is_down:
            raise Unavailable("no daemon")
        link = Link()
        self.links.append(link)
        connection = ClientConnection(link, self.spawn, on_notice, self.driver())
        await connection.open(endpoint.token, handshake)
        on_open(connection)
        await connection.closed.wait()
        verdict = connection.verdict()
        if verdict is not None:
            raise verdict

    def driver(self) -> Driver:
        return Driver(
            make_event=Flag,
            make_slots=lambda _count: Slots(),
            now_s=lambda: self.now_s,
            sleep=self.sleep,
            checkpoint=pause,
            run_connection=self.run_connection,
        )


class Flag:
    """An event."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self) -> None:
        while not self._is_set:
            await pause()


class Slots:
    """Slots without a limit."""

    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


class Link:
    """A connection as the daemon has it; greets, answers `connect`, and keeps the rest."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.closed: SocketClosed | None = None
        self._texts = deque([_notice("hello", {**HELLO, "instance_id": "one"})])

    async def receive(self) -> str | bytes:
        while not self._texts:
            if self.closed is not None:
                raise self.closed
            await pause()
        return self._texts.popleft()

    async def send(self, text: str, _within_s: float) -> None:
        request = msgspec.json.decode(text)
        if request["method"] == "connect":
            self.answer(request, WELCOME)
        else:
            self.asked.append(request)

    async def ping(self, _within_s: float) -> None: ...

    async def close(self, _within_s: float) -> None:
        self.cut()

    def cut(self, code: int | None = None) -> None:
        self.closed = SocketClosed(code, "cut")

    def answer(self, request: Json, result: object) -> None:
        self._put({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def refuse(self, request: Json, code: str) -> None:
        error = {"code": -32000, "message": "no", "data": {"code": code, "message": "no"}}
        self._put({"jsonrpc": "2.0", "id": request["id"], "error": error})

    def publish(self, seq: int, *, committed: int) -> None:
        item = {"run_id": RUN, "session_id": SESSION, "seq": seq, "at_ms": 1, "kind": "odd"}
        more = {"data": {}, "subscription": "sub_1", "committed": committed}
        self._texts.append(_notice("tape.event", {**item, **more}))

    def _put(self, frame: Json) -> None:
        self._texts.append(msgspec.json.encode(frame).decode())


def _notice(method: str, params: Json) -> str:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}).decode()


@pytest.fixture
def world() -> Generator[World]:
    world = World()
    yield world
    world.end()


def open_client(world: World) -> tuple[Client, ReconnectingConnection]:
    options = ClientOptions(
        find_endpoint=lambda: Endpoint("ws://fake/v1/ws", "t"),
        handshake=Handshake(name="test", want=()),
        patience_s=30,
        rng=lambda: 1.0,
    )
    connection = ReconnectingConnection(options, world.driver())
    world.start("keeper", connection.keep_open(lambda: None))
    world.rest()
    return Client(connection), connection


def test_the_core_imports_no_event_loop() -> None:
    """Only drivers import an event loop, a socket or a thread."""
    seen = set()
    for path in CORE.glob("*.py"):
        if path.stem not in DRIVERS:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [
                    alias.name
                    for alias in getattr(node, "names", [])
                    if isinstance(node, ast.Import)
                ]
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not {name.split(".")[0] for name in names} & LOOPS, path
                assert not {f"palyra.client.{driver}" for driver in DRIVERS - {"client"}} & {
                    *names
                }, path
            seen.add(path.stem)
    assert {"connection", "reconnecting", "subscription", "feed", "frames"} <= seen


def test_replies_find_their_requests(world: World) -> None:
    """Replies are matched by id, in whatever order they come; an error reply is raised."""
    client, _ = open_client(world)
    world.start("first", client.call("a", {}))
    world.start("second", client.call("b", {}))
    world.start("third", client.call("c", {}))
    world.rest()
    link = world.links[0]
    link.answer(link.asked[1], 2)
    link.refuse(link.asked[2], "not_found")
    link.answer(link.asked[0], 1)
    world.rest()
    assert (1, 2) == (world.results["first"], world.results["second"])
    assert isinstance(world.results["third"], NotFound)


def test_an_interrupted_read_is_asked_again(world: World) -> None:
    """A read is sent on the next connection, and given up after MAX_READS lost ones."""
    client, _ = open_client(world)
    world.start("read", client.call("run.list", {}))
    world.rest()
    world.links[0].cut()
    world.rest()
    assert "read" not in world.results
    world.advance(10)
    world.links[1].answer(world.links[1].asked[0], "rows")
    world.rest()
    assert "rows" == world.results["read"]
    world.start("poison", client.call("run.list", {}))
    for number in range(MAX_READS):
        world.rest()
        world.links[1 + number].cut()
        world.rest()
        world.advance(10)
    assert "may or may not" in str(world.results["poison"])


def test_only_a_request_with_a_key_is_sent_again(world: World) -> None:
    """A lost connection repeats a mutation under its key and fails a question."""
    client, _ = open_client(world)
    world.start("question", client.call("a", {}))
    world.start("mutation", client.call("b", {"idempotency_key": "k"}))
    world.rest()
    world.links[0].cut()
    world.rest()
    assert "may or may not" in str(world.results["question"])
    world.advance(10)
    (again,) = world.links[1].asked
    assert {"idempotency_key": "k"} == again["params"]
    world.links[1].answer(again, "done")
    world.rest()
    assert "done" == world.results["mutation"]


def test_a_subscription_resumes_at_what_is_durable(world: World) -> None:
    """The next connection subscribes after the last durable event, and suppresses duplicates."""
    _, connection = open_client(world)
    items = connection.subscribe(RUN, -1, progress=False)
    world.rest()
    first = world.links[0]
    reply = {"subscription": "sub_1", "from": 0, "floor": 0, "through": -1}
    first.answer(first.asked[0], reply)
    first.publish(0, committed=0)
    first.publish(1, committed=0)
    world.rest()
    first.cut()
    world.rest()
    world.advance(10)
    second = world.links[1]
    assert 0 == second.asked[0]["params"]["after_seq"]
    second.answer(second.asked[0], {**reply, "from": 1, "through": 1})
    second.publish(1, committed=1)
    second.publish(2, committed=2)
    world.rest()

    async def take() -> list[int]:
        got = [await anext(items) for _ in range(3)]
        return [item.seq for item in got if isinstance(item, TapeEvent)]

    world.start("taken", take())
    world.rest()
    assert [0, 1, 2] == world.results["taken"]


def test_patience_ends(world: World) -> None:
    """A call waits for the next connection until the patience ends, then raises Unavailable."""
    client, _ = open_client(world)
    world.is_down = True
    world.links[0].cut()
    world.rest()
    world.start("call", client.ping())
    world.rest()
    assert "call" not in world.results
    for _ in range(20):
        world.advance(5)
    assert "no daemon for" in str(world.results["call"])


def test_a_revoked_token_is_not_tried_again(world: World) -> None:
    """A close code that rules out a retry ends every call with its error."""
    client, _ = open_client(world)
    world.start("call", client.call("a", {"idempotency_key": "k"}))
    world.rest()
    world.links[0].cut(4401)
    world.rest()
    assert isinstance(world.results["call"], Unauthenticated)
    world.advance(60)
    assert 1 == len(world.links)


def test_a_request_over_the_limit_is_not_sent(world: World) -> None:
    """A request that the daemon would refuse by its size raises TooLarge here."""
    client, _ = open_client(world)
    world.start("call", client.call("a", {"text": "x" * 1_048_576}))
    world.rest()
    assert isinstance(world.results["call"], TooLarge)
    assert [] == world.links[0].asked
