"""The HTTP surface and clients that mean ill, leave early or do not read."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import make_token
from tests.e2e.wire import WITHIN_S
from tests.net.server.peers import RawPeer

pytestmark = pytest.mark.real

PATH = "/v1/chat/completions"
HELLO = {"model": "scripted", "messages": [{"role": "user", "content": "/say hello"}]}


def render(daemon: DaemonProcess, body: bytes, *headers: str, path: str = PATH) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{daemon.port}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    if not any(header.lower().startswith("authorization") for header in headers):
        lines.append(f"Authorization: Bearer {daemon.token}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def dial(daemon: DaemonProcess) -> AsyncGenerator[RawPeer]:
    peer = RawPeer(await trio.open_tcp_stream("127.0.0.1", daemon.port))
    async with peer.stream:
        yield peer


async def ask(
    daemon: DaemonProcess, body: bytes, *headers: str, path: str = PATH
) -> tuple[int, Any]:
    """Status and JSON of the answer to one request."""
    async with dial(daemon) as peer:
        await peer.send(render(daemon, body, "Connection: close", *headers, path=path))
        head, _, text = (await peer.read_to_end()).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(text)


NOT_JSON = [
    b"",
    b"{",
    b"nonsense",
    b"[]",
    b'"text"',
    b'{"model": "scripted", "model": "scripted"}',
    b'{"model": NaN}',
    b'{"model": "\xff"}',
    b'{"model": "\\ud800"}',
    b"[" * 100_000,
    b'{"a":' * 100 + b"1" + b"}" * 100,
    b'{"messages": [' + b"1," * 30_000 + b"1]}",
]


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
async def test_an_invalid_request_is_refused(daemon: DaemonProcess, body: bytes) -> None:
    """Each is a 400 in the API's own shape, and the daemon continues."""
    status, answer = await ask(daemon, body)
    assert 400 == status
    assert answer["error"]["code"] in {"invalid_json", "invalid_params"}
    assert 200 == (await ask(daemon, json.dumps(HELLO).encode()))[0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
            "messages[0].content[0].text",
        ),
        ({"model": 5}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"palyra": {"approval_mode": "always"}}, "palyra.approval_mode"),
        ({"palyra": {"budget": {"tokens": -1}}}, "palyra.budget.tokens"),
    ],
)
async def test_a_wrong_field_is_named(
    daemon: DaemonProcess, change: dict[str, Any], field: str
) -> None:
    """`param` says where, and nothing was started."""
    status, answer = await ask(daemon, json.dumps({**HELLO, **change}).encode())
    assert (400, "invalid_request_error", field) == (
        status,
        answer["error"]["type"],
        answer["error"]["param"],
    )


async def test_a_body_without_a_token_is_not_read(daemon: DaemonProcess) -> None:
    """The reply precedes the body, so an unknown client cannot fill the memory."""
    async with dial(daemon) as peer:
        request = render(daemon, b"", "Authorization: Basic eDp5")
        await peer.send(request.replace(b"Content-Length: 0", b"Content-Length: 9000000"))
        head = await peer.read_until(b"\r\n\r\n")
    assert b" 401 " in head
    assert b"www-authenticate: Bearer" in head


async def send_while_read(peer: RawPeer, data: bytes) -> None:
    """Send until the other side does not read on."""
    with suppress(trio.BrokenResourceError):
        await peer.send(data)


async def test_a_body_over_the_limit_is_refused(daemon: DaemonProcess) -> None:
    """One that says so is not read at all; one that does not say, up to the limit."""
    async with dial(daemon) as peer:
        request = render(daemon, b"x").replace(b"Content-Length: 1", b"Content-Length: 99999999")
        await peer.send(request)
        assert b" 413 " in await peer.read_until(b"\r\n\r\n")
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    async with dial(daemon) as peer, trio.open_nursery() as nursery:
        chunked = render(daemon, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        await peer.send(chunked)
        nursery.start_soon(send_while_read, peer, chunk * 17)
        assert b" 413 " in await peer.read_until(b"\r\n\r\n")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("status", "size", "header"),
    [(413, 20_000_000, None), (401, 4_000_000, "Authorization: Bearer pal_wrong")],
)
async def test_a_refusal_reaches_a_client_that_sends_its_whole_body(
    daemon: DaemonProcess, status: int, size: int, header: str | None
) -> None:
    """The connection is not reset under the reply, and serves the next request."""
    headers = [] if header is None else [header]
    async with dial(daemon) as peer:
        for _ in range(2):
            with trio.fail_after(WITHIN_S):
                await peer.send(render(daemon, b" " * size, *headers))
                head = await peer.read_until(b"\r\n\r\n")
            assert f" {status} ".encode() in head
            assert b'{"error":' in await peer.read_until(b"}}")


@pytest.mark.parametrize(
    ("status", "method", "path"),
    [(405, "GET", PATH), (405, "POST", "/v1/models"), (404, "GET", "/v1/models/none")],
)
async def test_unknown_paths_and_methods_are_errors(
    daemon: DaemonProcess, status: int, method: str, path: str
) -> None:
    """Both have errors of the same shape."""
    async with dial(daemon) as peer:
        request = render(daemon, b"", "Connection: close", path=path)
        await peer.send(request.replace(b"POST", method.encode(), 1))
        head, _, body = (await peer.read_to_end()).partition(b"\r\n\r\n")
    assert status == int(head.split()[1])
    assert {"message", "type", "code", "param", "palyra"} == set(json.loads(body)["error"])


async def test_another_host_is_refused(daemon: DaemonProcess) -> None:
    """The rules of the door hold here as well."""
    async with dial(daemon) as peer:
        request = render(daemon, json.dumps(HELLO).encode(), "Connection: close")
        port = str(daemon.port).encode()
        await peer.send(request.replace(b"127.0.0.1:" + port, b"evil.example", 1))
        assert b" 403 " in await peer.read_to_end()


async def begin_endless(peer: RawPeer, daemon: DaemonProcess, *headers: str) -> str:
    """A stream that says something and does not end; its run."""
    text = "/tokens 50\n/delay 3600000\n/say never"
    asked = {**HELLO, "messages": [{"role": "user", "content": text}], "stream": True}
    await peer.send(render(daemon, json.dumps(asked).encode(), *headers))
    head = await peer.read_until(b"\r\n\r\n")
    (run_id,) = [
        line.partition(b": ")[2] for line in head.splitlines() if b"x-palyra-run-id" in line
    ]
    await peer.read_until(b"data: ")
    return run_id.decode()


async def test_a_run_continues_without_its_client(daemon: DaemonProcess) -> None:
    """On request it is cancelled at the disconnect."""
    async with daemon.connect() as client:
        async with dial(daemon) as peer:
            left = await begin_endless(peer, daemon)
        async with dial(daemon) as peer:
            ended = await begin_endless(peer, daemon, "x-palyra-cancel-on-disconnect: true")
        assert "cancelled" == (await client.wait_run(ended)).state
        assert "in_progress" == (await client.get_run(left)).state
        await client.cancel(left)


async def test_a_revoked_token_ends_its_streams(daemon: DaemonProcess) -> None:
    """The stream ends; the run continues."""
    async with daemon.connect() as client:
        made = await client.create_token(principal="guest", role="client", name="guest")
        async with dial(daemon) as peer:
            header = f"Authorization: Bearer {made.token}"
            run_id = await begin_endless(peer, daemon, header)
            await client.revoke_token(made.token_id)
            with trio.fail_after(WITHIN_S):
                await peer.read_to_end()
        assert "in_progress" == (await client.get_run(run_id)).state
        await client.cancel(run_id)


async def test_foreign_sessions_are_not_found(daemon: DaemonProcess) -> None:
    """An object of another principal gets the same reply as a missing one."""
    status, answer = await ask(daemon, json.dumps(HELLO).encode())
    assert 200 == status
    async with daemon.connect() as client:
        header = f"Authorization: Bearer {await make_token(client, 'client', 'eve')}"
    body = {**HELLO, "palyra": {"session_id": answer["palyra"]["session_id"]}}
    status, answer = await ask(daemon, json.dumps(body).encode(), header)
    assert (404, "not_found") == (status, answer["error"]["code"])


async def test_an_observer_starts_nothing(daemon: DaemonProcess) -> None:
    """An observer's token is refused for every request that does work, embeddings and counting included."""
    async with daemon.connect() as client:
        header = f"Authorization: Bearer {await make_token(client, 'observer')}"
    asked: dict[str, dict[str, Any]] = {
        PATH: HELLO,
        "/v1/responses": {"model": "scripted", "input": "hello"},
        "/v1/messages": {**HELLO, "max_tokens": 9},
        "/v1/messages/count_tokens": HELLO,
        "/v1/embeddings": {"model": "embedded/lexical-1", "input": "hello"},
    }
    for path, body in asked.items():
        status, answer = await ask(daemon, json.dumps(body).encode(), header, path=path)
        assert (403, "forbidden") == (status, answer["error"]["code"]), path


async def test_a_slow_reader_delays_no_run(daemon: DaemonProcess) -> None:
    """Its run ends on time although no byte of the stream is read."""
    text = "/tokens 20000"
    asked = {**HELLO, "messages": [{"role": "user", "content": text}], "stream": True}
    async with daemon.connect() as client, dial(daemon) as peer:
        await peer.send(render(daemon, json.dumps(asked).encode()))
        head = await peer.read_until(b"\r\n\r\n")
        (run_id,) = [
            line.partition(b": ")[2] for line in head.splitlines() if b"x-palyra-run-id" in line
        ]
        with trio.fail_after(WITHIN_S):
            assert "done" == (await client.wait_run(run_id.decode())).state


async def test_a_request_waits_for_an_approval(daemon: DaemonProcess) -> None:
    """It gets the result after the answer; an unattended one is denied."""
    call = '/call write_file {"path": "made.txt", "content": "x"}'
    asked = json.dumps({**HELLO, "messages": [{"role": "user", "content": call}]}).encode()
    answers: list[tuple[int, Any]] = []

    async def wait() -> None:
        answers.append(await ask(daemon, asked))

    async with daemon.connect() as client, trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        with trio.fail_after(WITHIN_S):
            while not (waiting := await client.list_approvals()):
                await trio.lowlevel.checkpoint()
        await client.resolve_approval(waiting[0].approval_id, "allow", waiting[0].digest)
    status, answer = answers[0]
    assert (200, ["succeeded"]) == (status, [c["status"] for c in answer["palyra"]["tool_calls"]])
    status, answer = await ask(daemon, asked, "x-palyra-approval-mode: deny")
    assert (200, ["denied"]) == (status, [c["status"] for c in answer["palyra"]["tool_calls"]])


async def test_a_path_that_is_none_is_an_error_of_the_api(daemon: DaemonProcess) -> None:
    """SDKs read the reason where all errors have it."""
    async with dial(daemon) as peer:
        await peer.send(render(daemon, b"{}", "Connection: close", path="/v1/completions"))
        head, _, text = (await peer.read_to_end()).partition(b"\r\n\r\n")
    error = json.loads(text)["error"]
    assert (404, "not_found") == (int(head.split()[1]), error["code"])
    assert "/v1/completions" in error["message"]


@pytest.mark.parametrize("path", ["/v1/asyncapi.json", "/v1/ws"])
async def test_the_daemons_own_paths_are_separate(daemon: DaemonProcess, path: str) -> None:
    """They are not part of these APIs."""
    async with dial(daemon) as peer:
        request = render(daemon, b"", "Connection: close", path=path).replace(b"POST", b"GET", 1)
        await peer.send(request)
        head = await peer.read_until(b"\r\n\r\n")
    assert b" 404 " not in head


async def test_a_too_large_member_is_named(daemon: DaemonProcess) -> None:
    """By the member of the request, not by the event on the tape."""
    messages = [{"role": "user", "content": "x" * 800_000}]
    status, answer = await ask(daemon, json.dumps({**HELLO, "messages": messages}).encode())
    assert (413, "too_large") == (status, answer["error"]["code"])
    assert "the last user message: 800" in answer["error"]["message"]
    assert "message.received" not in answer["error"]["message"]
