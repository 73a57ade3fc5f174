"""Fetching through a whole daemon: gate, person, credential, and what is left of them afterwards."""

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest
import trio

from palyra.client import Client
from palyra.core.tape import events as ev
from palyra.secrets.resolver import Resolver
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import find_events
from tests.e2e.tapes import read_whole
from tests.e2e.test_secrets import found_in_files, search
from tests.tools.web.internet import a_page

pytestmark = pytest.mark.real
SECRET = "canary-of-the-vault-0123456789"


class Server:
    """A web service of loopback that repeats what proves who asks."""

    def __init__(self, port: int) -> None:
        self.key = f"127.0.0.1:{port}"
        self.heads: list[bytes] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one request."""
        head = bytes(await stream.receive_some())
        self.heads.append(head)
        await stream.send_all(a_page(b"you said: " + head))


@pytest.fixture
async def server(nursery: trio.Nursery) -> Server:
    """Running."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    found = Server(listeners[0].socket.getsockname()[1])
    nursery.start_soon(trio.serve_listeners, found.serve, listeners)
    return found


@pytest.fixture
def daemon(tmp_path: Path) -> Generator[DaemonProcess]:
    """Not started yet."""
    process = DaemonProcess(tmp_path, PALYRA_LOGGING__LEVEL="debug")
    process.home.mkdir(parents=True, mode=0o700)
    yield process
    process.end()


def configure(daemon: DaemonProcess, server: Server, *, is_open: bool = True) -> None:
    """Open the server for requests, with a credential whose secret lies in the vault."""
    private = f'private = ["{server.key}"]' if is_open else ""
    text = f"""
[fetch]
{private}
[[fetch.credentials]]
name = "key"
secret = "vault:KEY"
host = "127.0.0.1"
"""
    (daemon.home / "palyra.toml").write_text(text, encoding="utf-8")
    Resolver(daemon.home, daemon.home / "keys").vault.put("KEY", SECRET, 5)
    daemon.start()


async def run(client: Client, tool: str, **arguments: str) -> tuple[str, str]:
    """A run with this call, allowed by a person; the call's status and output."""
    started = await client.start_run(f"/call {tool} {msgspec.json.encode(arguments).decode()}")
    await client.wait_run(started.run_id, until="attention")
    for asked in await client.list_approvals(run_id=started.run_id):
        await client.resolve_approval(asked.approval_id, decision="allow", digest=asked.digest)
    await client.wait_run(started.run_id)
    tape = await read_whole(client, started.run_id)
    (ended,) = find_events(tape, ev.ToolCompleted)
    assert isinstance(ended, ev.ToolCompleted)
    return ended.status, ended.output + (ended.error or "")


async def test_a_credential_is_used_and_seen_nowhere(daemon: DaemonProcess, server: Server) -> None:
    """The server gets it; tape, wire, files and log do not, though the server repeats it."""
    configure(daemon, server)
    url = f"http://{server.key}/"
    async with daemon.connect() as client:
        status, output = await run(client, "http_fetch", url=url, credential="key")
        assert "succeeded" == status
        assert "Bearer [redacted:" in output
        await run(client, "http_send", url=url, body="x", credential="key")
        # Also when a person gives it away, and the model repeats it.
        assert "[redacted:known]" in (await run(client, "echo", text=f"it is {SECRET} ok"))[1]
    assert all(SECRET.encode() in head for head in server.heads)
    assert [b"GET", b"POST"] == [head.split(b" ")[0] for head in server.heads]
    secrets = {"vault": SECRET}
    assert set() == search(daemon.said.encode(), secrets)
    assert {} == found_in_files(daemon.home, secrets)


async def test_without_the_setting_nothing_is_contacted(
    daemon: DaemonProcess, server: Server
) -> None:
    """The control of the one above; and a person is not even asked."""
    configure(daemon, server, is_open=False)
    async with daemon.connect() as client:
        started = await client.start_run(f'/call http_fetch {{"url": "http://{server.key}/"}}')
        ended = await client.wait_run(started.run_id)
        assert ended.state == "done"
        tape = await read_whole(client, started.run_id)
    assert [] == find_events(tape, ev.ApprovalRequested)
    assert [] == server.heads
    assert any("not contacted" in item.data.decode() for item in tape)
