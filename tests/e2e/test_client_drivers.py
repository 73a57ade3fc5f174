"""One contract of the client on its three drivers (trio, asyncio, blocking), against a real daemon.

Each scenario is written once, as a coroutine over a `Face`.  The face of the blocking client makes
coroutines of its calls, which never wait.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction, signature
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trio

from palyra import client as trio_client
from palyra.client import Client, TapeEvent, aio, blocking
from palyra.errors import InvalidParams, NotFound, TooSlow, Unauthenticated, Unavailable
from tests.e2e.daemon_process import DaemonProcess, running

pytestmark = pytest.mark.real

CALLS = "\n/then\n".join(f'/call echo {{"text": "x{n}"}}' for n in range(10))
ANOTHER = "run_01890a5d-ac96-774b-bcce-b302099a8057"
ENDLESS = "/delay 3600000\n/say late"


@dataclass(frozen=True)
class Face:
    """One driver: how to run a scenario, connect, and wait for a run with a deadline."""

    run: Callable[[Callable[[], Any]], object]
    connect: Callable[..., AbstractAsyncContextManager[Any]]
    wait_run: Callable[[Any, str, float], Awaitable[object]]


Scenario = Callable[[Face, DaemonProcess], Awaitable[None]]


async def wait_in_trio(client: Client, run_id: str, seconds: float) -> object:
    with trio.fail_after(seconds):
        return await client.wait_run(run_id)


async def wait_in_asyncio(client: Client, run_id: str, seconds: float) -> object:
    return await asyncio.wait_for(client.wait_run(run_id), seconds)


async def wait_blocking(client: "Unblocked", run_id: str, seconds: float) -> object:  # noqa: RUF029 - looks like the others
    return client.inner.within(seconds).wait_run(run_id)


class Unblocked:
    """The blocking client with coroutines for methods."""

    def __init__(self, inner: blocking.BlockingClient) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.inner, name)
        if not callable(member):
            return member

        async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: RUF029 - looks like the others
            return member(*args, **kwargs)

        return call

    @asynccontextmanager
    async def events(self, *args: Any, **kwargs: Any) -> AsyncGenerator[AsyncIterator[Any]]:
        with self.inner.events(*args, **kwargs) as items:

            async def each() -> AsyncGenerator[Any]:  # noqa: RUF029 - looks like the others
                for item in items:
                    yield item

            yield each()


@asynccontextmanager
async def connect_unblocked(*args: Any, **kwargs: Any) -> AsyncGenerator[Unblocked]:
    with blocking.connect(*args, **kwargs) as client:
        yield Unblocked(client)


def run_asyncio(main: Callable[[], Any]) -> object:
    return asyncio.run(main())


FACES = {
    "trio": Face(trio.run, trio_client.connect, wait_in_trio),
    "asyncio": Face(run_asyncio, aio.connect, wait_in_asyncio),
    "blocking": Face(run_asyncio, connect_unblocked, wait_blocking),
}


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that all scenarios use that do not end it."""
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def endpoint(daemon: DaemonProcess) -> dict[str, Any]:
    return {"home": daemon.home, "token": daemon.token}


async def enter(opening: Any) -> None:
    async with opening:
        pass


async def follow(items: Any) -> list[int]:
    return [item.seq async for item in items if isinstance(item, TapeEvent)]


async def runs_and_reads(face: Face, daemon: DaemonProcess) -> None:
    """The events of a run are those of its tape, and pages of the tape agree."""
    async with face.connect(daemon.ws_url, token=daemon.token) as client:
        assert client.hello.instance_id
        assert client.is_connected
        started = await client.start_run(CALLS, session_key="drivers")
        async with client.events(started.run_id) as items:
            seen = await follow(items)
        page = await client.read_tape(started.run_id, limit=500)
        assert [event.seq for event in page.events] == seen
        assert list(range(len(seen))) == seen
        assert "done" == (await client.wait_run(started.run_id)).state


async def raises_typed_errors(face: Face, daemon: DaemonProcess) -> None:
    """Errors of the daemon and of the client's own have the same classes."""
    async with face.connect(daemon.ws_url, token=daemon.token) as client:
        with pytest.raises(NotFound, match=ANOTHER):
            await client.get_run(ANOTHER)
        with pytest.raises(InvalidParams, match="not a character"):
            await client.start_run("\ud800")
        with pytest.raises(NotFound):
            await enter(client.events(ANOTHER))
        assert (await client.ping()).now_ms


async def is_refused(face: Face, daemon: DaemonProcess) -> None:
    """A wrong token is Unauthenticated; no daemon, and a malformed address, say so at once."""
    with pytest.raises(Unauthenticated):
        async with face.connect(daemon.ws_url, token="wrong"):
            pass
    with pytest.raises(Unavailable, match="not reachable"):
        async with face.connect("ws://127.0.0.1:9/v1/ws", token="t"):
            pass
    with pytest.raises(InvalidParams, match="WebSocket address"):
        async with face.connect("ftp://here", token="t"):
            pass
    with pytest.raises(Unavailable, match="refused the WebSocket upgrade"):
        async with face.connect(f"ws://127.0.0.1:{daemon.port}/elsewhere", token="t"):
            pass


async def keeps_the_client_after_a_deadline(face: Face, daemon: DaemonProcess) -> None:
    """A call out of time ends alone: the client can be used afterwards."""
    async with face.connect(daemon.ws_url, token=daemon.token) as client:
        started = await client.start_run(ENDLESS)
        with pytest.raises((TimeoutError, trio.TooSlowError, TooSlow)):
            await face.wait_run(client, started.run_id, 0.05)
        assert (await client.ping()).now_ms
        await client.cancel(started.run_id)
        assert "cancelled" == (await client.wait_run(started.run_id)).state


async def passes_on_the_error_of_the_body(face: Face, daemon: DaemonProcess) -> None:
    """An exception inside `connect` comes out as it is."""
    with pytest.raises(ValueError, match="mine"):
        async with face.connect(daemon.ws_url, token=daemon.token):
            raise ValueError("mine")


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "scenario",
    [
        runs_and_reads,
        raises_typed_errors,
        is_refused,
        keeps_the_client_after_a_deadline,
        passes_on_the_error_of_the_body,
    ],
)
def test_contract(face: str, scenario: Scenario, steady: DaemonProcess) -> None:
    """The same scenario holds on every driver."""
    driver = FACES[face]
    driver.run(partial(scenario, driver, steady))


async def continues_after_a_kill(face: Face, daemon: DaemonProcess) -> None:
    """A subscription and calls continue on the next process, without gap or duplicate."""
    async with face.connect(**endpoint(daemon)) as client:
        started = await client.start_run(CALLS)
        await client.wait_run(started.run_id)
        first = client.hello.instance_id
        async with client.events(started.run_id) as items:
            begin = (await anext(items)).seq
            daemon.kill()
            daemon.start()
            key = "once-only"
            again = await client.start_run("hello", idempotency_key=key)
            assert again == await client.start_run("hello", idempotency_key=key)
            rest = await follow(items)
        assert first != client.hello.instance_id
        page = await client.read_tape(started.run_id, limit=500)
        assert [event.seq for event in page.events] == [begin, *rest]


async def gives_up(face: Face, daemon: DaemonProcess) -> None:
    """Out of patience, calls and iterators raise Unavailable instead of waiting."""
    async with face.connect(**endpoint(daemon), patience_s=0.05) as client:
        started = await client.start_run(ENDLESS)
        async with client.events(started.run_id) as items:
            daemon.kill()
            with pytest.raises(Unavailable):
                await follow(items)
        with pytest.raises(Unavailable):
            await client.ping()


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("scenario", [continues_after_a_kill, gives_up])
def test_contract_when_the_daemon_ends(face: str, scenario: Scenario, tmp_path: Path) -> None:
    """The same scenario holds on every driver."""
    driver = FACES[face]
    with running(tmp_path) as daemon:
        driver.run(partial(scenario, driver, daemon))


def test_the_blocking_client_has_every_method() -> None:
    """Each coroutine method of the client has a blocking form with its parameters and docstring."""
    methods = {
        name: member
        for name, member in vars_of(Client).items()
        if iscoroutinefunction(member) and not name.startswith("_")
    }
    others = {name for name in vars_of(Client) if not name.startswith("_")} - set(methods)
    for name, member in methods.items():
        own = getattr(blocking.BlockingClient, name)
        assert signature(member) == signature(own)
        assert member.__doc__ == own.__doc__
        assert not iscoroutinefunction(own)
    assert others <= set(vars_of(blocking.BlockingClient))
    assert len(methods) > 100


def vars_of(kind: type) -> dict[str, Any]:
    """The members of a class and of its bases."""
    return {name: member for one in reversed(kind.__mro__) for name, member in vars(one).items()}


def test_a_blocking_client_that_was_closed(steady: DaemonProcess) -> None:
    """Calls after the end raise Unavailable instead of waiting for a thread that has ended."""
    with blocking.connect(steady.ws_url, token=steady.token) as client:
        client.ping()
    with pytest.raises(Unavailable, match="closed"):
        client.ping()


def test_a_blocking_iterator_out_of_time_loses_nothing(steady: DaemonProcess) -> None:
    """An iterator raises TooSlow while nothing comes, and continues with the next item."""
    with blocking.connect(steady.ws_url, token=steady.token) as client:
        run_id = client.start_run(ENDLESS).run_id
        seen: list[int] = []
        with client.within(0.2).events(run_id) as items:
            with pytest.raises(TooSlow):
                seen.extend(item.seq for item in items if isinstance(item, TapeEvent))
            client.cancel(run_id)
            client.wait_run(run_id)
            seen += [item.seq for item in items if isinstance(item, TapeEvent)]
        tape = client.read_tape(run_id, limit=500)
    assert [event.seq for event in tape.events] == seen


def test_threads_share_a_blocking_client(steady: DaemonProcess) -> None:
    """Many threads call at once; one that waits when the client is closed gets Unavailable."""
    answers: list[int] = []
    ended: list[str] = []

    def ask(client: blocking.BlockingClient) -> None:
        answers.append(client.ping().now_ms)

    def wait(client: blocking.BlockingClient, run_id: str) -> None:
        with pytest.raises(Unavailable, match="closed"):
            client.wait_run(run_id)
        ended.append(run_id)

    with blocking.connect(steady.ws_url, token=steady.token) as client:
        threads = [Thread(target=ask, args=(client,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run_id = client.start_run(ENDLESS).run_id
        waiter = Thread(target=wait, args=(client, run_id))
        waiter.start()
    waiter.join()
    assert (20, [run_id]) == (len(answers), ended)
