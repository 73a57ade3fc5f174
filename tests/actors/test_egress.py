"""The egress branch: one listener for each command, gone with it."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from palyra.actors.egress import MAX_CONNECTIONS, PORT, EgressBranch, Stream
from palyra.errors import ActorGone, Overloaded

pytestmark = pytest.mark.real


def a_listener() -> tuple[socket.socket, int]:
    """A listening socket of loopback and its port, as a jail hands one out."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0)
    return listener, listener.getsockname()[1]


@asynccontextmanager
async def running(branch: EgressBranch) -> AsyncGenerator[None]:
    """The branch's supervisor, while the block lasts."""
    async with trio.open_nursery() as nursery:
        await nursery.start(branch.child_spec().start)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


async def refuse(client: Stream) -> None:
    """Admit no connection."""
    await client.send_all(b"no")


async def echo_server(nursery: trio.Nursery) -> int:
    """A server that returns its input; its port."""

    async def echo(stream: trio.SocketStream) -> None:
        async for chunk in stream:
            await stream.send_all(chunk)

    listeners = await nursery.start(trio.serve_tcp, echo, 0)
    return int(listeners[0].socket.getsockname()[1])


def test_programs_get_the_proxy_variables() -> None:
    """Both spellings are set, and nothing but the loopback of the jail is exempt."""
    egress = EgressBranch().open(refuse)
    assert f"http://127.0.0.1:{PORT}" == egress.environment["HTTPS_PROXY"]
    assert egress.environment["http_proxy"] == egress.environment["HTTP_PROXY"]
    assert "localhost,127.0.0.1,::1" == egress.environment["no_proxy"]
    assert egress.environment["NO_PROXY"] == egress.environment["no_proxy"]
    assert PORT == egress.port


async def test_connections_are_served_while_the_command_runs() -> None:
    """Afterwards the listener is closed, and open connections are cut."""
    branch = EgressBranch()
    listener, port = a_listener()
    async with running(branch):
        with branch.open(_silent).attach(listener):
            client = await trio.open_tcp_stream("127.0.0.1", port)
            await client.send_all(b"x")
        assert b"" == await _read(client)
        with pytest.raises(OSError, match=r"refused|failed|connect"):
            await trio.open_tcp_stream("127.0.0.1", port)
        await client.aclose()


async def test_an_admitted_connection_is_carried(nursery: trio.Nursery) -> None:
    """Data and the end of either side pass in both directions."""
    server = await echo_server(nursery)

    async def admit(_client: Stream) -> tuple[Stream, bool]:
        return await trio.open_tcp_stream("127.0.0.1", server), True

    branch = EgressBranch()
    listener, port = a_listener()
    async with running(branch):
        with branch.open(admit).attach(listener):
            for _ in range(3):
                client = await trio.open_tcp_stream("127.0.0.1", port)
                await client.send_all(b"hello")
                assert b"hello" == await client.receive_some()
                await client.send_eof()
                assert b"" == await _read(client)
                await client.aclose()


async def test_two_commands_have_separate_proxies() -> None:
    """A host granted to one is not granted to the other."""
    branch = EgressBranch()
    first, first_port = a_listener()
    second, second_port = a_listener()

    async def say_yes(client: Stream) -> None:
        await client.send_all(b"yes")

    async with running(branch):
        with branch.open(refuse).attach(first), branch.open(say_yes).attach(second):
            for port, expected in ((first_port, b"no"), (second_port, b"yes")):
                client = await trio.open_tcp_stream("127.0.0.1", port)
                assert expected == await _read(client)
                await client.aclose()


async def test_connections_are_counted() -> None:
    """One more than there may be waits until another ends."""
    branch = EgressBranch()
    listener, port = a_listener()
    served: list[Stream] = []

    async def hold(client: Stream) -> None:
        served.append(client)
        await client.receive_some()

    async with running(branch):
        with branch.open(hold).attach(listener):
            clients = [
                await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MAX_CONNECTIONS + 1)
            ]
            while len(served) < MAX_CONNECTIONS:
                await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked(0.01)
            assert MAX_CONNECTIONS == len(served)
            for client in clients:
                await client.aclose()
            while len(served) <= MAX_CONNECTIONS:
                await trio.lowlevel.checkpoint()


async def test_a_broken_connection_affects_no_other(nursery: trio.Nursery) -> None:
    """The listener continues."""
    branch = EgressBranch()
    listener, port = a_listener()
    server = await echo_server(nursery)

    async def admit(client: Stream) -> tuple[Stream, bool] | None:
        if await client.receive_some() == b"break":
            raise trio.BrokenResourceError
        upstream = await trio.open_tcp_stream("127.0.0.1", server)
        await client.send_all(b"the way stands")
        return upstream, True

    async with running(branch):
        with branch.open(admit).attach(listener):
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                await client.send_all(b"break")
                assert b"" == await _read(client)
            client = await trio.open_tcp_stream("127.0.0.1", port)
            await client.send_all(b"go on")
            assert b"the way stands" == await client.receive_some()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await client.aclose()  # with a reset
            async with await trio.open_tcp_stream("127.0.0.1", port) as client:
                await client.send_all(b"go on")
                assert b"the way stands" == await client.receive_some()
                await client.send_all(b"hello")
                assert b"hello" == await client.receive_some()


def test_no_egress_without_its_supervisor() -> None:
    """The listener is closed, and the command does not wait at it."""
    listener, _port = a_listener()
    with pytest.raises(ActorGone), EgressBranch().open(refuse).attach(listener):
        pass
    assert -1 == listener.fileno()


async def test_commands_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit there is no egress; nothing stays open."""
    monkeypatch.setattr("palyra.actors.egress.MAX_COMMANDS", 1)
    branch = EgressBranch()
    first, _ = a_listener()
    second, _ = a_listener()
    async with running(branch):
        with branch.open(refuse).attach(first):
            with pytest.raises(Overloaded), branch.open(refuse).attach(second):
                pass
            assert -1 == second.fileno()
            assert first.fileno() >= 0


async def _silent(_client: Stream) -> None:
    await trio.sleep_forever()


async def _read(client: trio.SocketStream) -> bytes:
    """Read until the end; a reset is one."""
    found = b""
    with suppress(trio.BrokenResourceError):
        while more := await client.receive_some():
            found += more
    return found
