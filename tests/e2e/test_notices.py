"""A real daemon tells addresses outside that a question waits, and nothing of what it is about."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
import trio

from palyra.client import Client
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, write_call
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real
SECRET = "opal4-canary-0f-an-addr-9e71"  # in the address, which is a secret of the vault
CANARY = "canary-of-the-arguments-51c0"


@dataclass
class Receiver:
    """A web server that records requests and answers with the next status, 200 at the end."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)  # head, body
    came: trio.Event = field(default_factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, one request."""
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
            head, _, body = received.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            while len(body) < length:
                body += await stream.receive_some()
            self.requests.append((head.decode(), body.decode()))
            status = self.statuses.pop(0) if self.statuses else 200
            await stream.send_all(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % status)
        self.came.set()

    async def wait(self, count: int) -> None:
        """Return when so many requests have come."""
        with trio.fail_after(WITHIN_S):
            while len(self.requests) < count:
                self.came = trio.Event()
                await self.came.wait()


@asynccontextmanager
async def receiver(*statuses: int) -> AsyncGenerator[Receiver]:
    """A receiver on a port of its own."""
    made = Receiver(statuses=list(statuses))
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        made.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        await nursery.start(trio.serve_listeners, made.serve, listeners)
        try:
            yield made
        finally:
            nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon without notices, which each test sets; a question is sent after a second."""
    with running(tmp_path_factory.mktemp("notices"), PALYRA_NOTIFY__AFTER_S="1") as started:
        yield started


@asynccontextmanager
async def telling(daemon: DaemonProcess, **addresses: str) -> AsyncGenerator[Client]:
    """A client while these addresses are set."""
    async with daemon.connect() as client:
        for name, address in addresses.items():
            await client.set_config(f"notify.{name}", address)
        try:
            yield client
        finally:
            for name in addresses:
                await client.set_config(f"notify.{name}", None)


async def test_a_question_is_told_and_nothing_of_it(daemon: DaemonProcess) -> None:
    """JSON for a webhook, text for a topic, both with a link to the question; no word of the call."""
    async with receiver() as hook, receiver() as topic:
        await palyra(
            "secrets", "set", "TOPIC", home=daemon.home, stdin=f"{topic.url}/{SECRET}".encode()
        )
        async with telling(daemon, webhook=f"{hook.url}/in", topic="vault:TOPIC") as client:
            asked = await ask_for(client, write_call("a.txt", CANARY))
            await hook.wait(1)
            await topic.wait(1)
            status = await client.status()
            await client.resolve_approval(asked.approval_id, "deny", asked.digest)
    link = f"http://127.0.0.1:{daemon.port}/#/inbox/{asked.approval_id}"
    ((head, body),) = hook.requests
    assert {"text": "a question waits", "count": 1, "url": link} == msgspec.json.decode(body)
    assert head.startswith("POST /in HTTP/1.1\r\n")
    ((topic_head, text),) = topic.requests
    assert f"a question waits\n{link}" == text
    assert topic_head.startswith(f"POST /{SECRET} HTTP/1.1\r\n")
    assert f"click: {link}" in topic_head
    said = f"{head}{body}{topic_head}{text}"
    for kept in (CANARY, "write_file", "a.txt", asked.run_id, asked.digest, daemon.token, "login"):
        assert kept not in said, kept
    assert asked.approval_id in said  # what is searched for would be found
    assert not [each for each in status.problems if "notify" in each]
    assert SECRET not in daemon.said


async def test_a_failure_is_named_and_delays_no_run(daemon: DaemonProcess) -> None:
    """By the log, the status and the doctor, without the address; the run goes on at the answer."""
    async with receiver(404, 302) as hook:
        address = f"{hook.url}/{SECRET}"
        await palyra("secrets", "set", "HOOK", home=daemon.home, stdin=address.encode())
        async with telling(daemon, webhook="vault:HOOK") as client:
            asked = await ask_for(client, write_call("b.txt"))
            await hook.wait(1)
            tried = await palyra("notify", "test", home=daemon.home)
            assert (
                1,
                "notify.webhook: the answer was HTTP 302: name the address that it redirects to",
            ) == (
                tried.code,
                tried.out.strip(),
            )
            doctor = await palyra("doctor", home=daemon.home)
            assert "notify.webhook: the answer was HTTP 302" in doctor.out
            assert "`palyra notify test`" in doctor.out
            await client.resolve_approval(asked.approval_id, "allow", asked.digest)
            with trio.fail_after(WITHIN_S):
                assert "done" == (await client.wait_run(asked.run_id)).state
            worked = await palyra("notify", "test", home=daemon.home)
            assert (0, "notify.webhook: sent") == (worked.code, worked.out.strip())
            assert not [each for each in (await client.status()).problems if "notify" in each]
    assert 1 == daemon.said.count("HTTP 404")
    assert 1 == daemon.said.count("HTTP 302")
    assert SECRET not in daemon.said + doctor.out + tried.out


async def test_an_address_is_checked_before_it_is_set(daemon: DaemonProcess) -> None:
    """No address, another scheme, a credential in it; the message does not repeat it."""
    for wrong in (
        "there.example/x",
        "ftp://there.example",
        "https://u:hunter2hunter2@there.example",
    ):
        refused = await palyra("config", "set", "notify.webhook", wrong, home=daemon.home)
        assert refused.code != 0, refused
        assert "vault:NAME" in refused.err, refused
        assert "hunter2" not in refused.err + refused.out
    unset = await palyra("notify", "test", home=daemon.home)
    assert "no address is set: `palyra config set notify.webhook URL`" in unset.err.replace(
        "\nremedy", ""
    )
