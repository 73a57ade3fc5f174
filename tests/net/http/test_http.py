"""HTTP on the same port: pages, tokens, the gate on every request, and hostile clients."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio

from palyra.actors.kernel.child import ChildSnapshot
from palyra.core.access import Caller
from palyra.core.journal.records import Role
from palyra.errors import Unauthenticated
from palyra.net.http import late
from palyra.net.http.late import HttpSources, LateHttp
from palyra.net.http.metrics import Metric, read_state, read_tally, read_tree
from palyra.net.protocol.notifications import State
from palyra.net.server.accept import EdgeServer
from tests.net.server.edges import RunningEdge, running_edge, wait_for_connections
from tests.net.server.peers import TEXT, RawPeer, frame

WITHIN_S = 120.0  # a bound against hanging, not a promise

pytestmark = pytest.mark.real

ROLES: dict[str, Role] = {"pal_op": "operator", "pal_obs": "observer", "pal_cli": "client"}
GET = "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n{headers}\r\n"
TREE = ChildSnapshot(
    id="daemon",
    state="running",
    incarnation=1,
    restarts=0,
    children=(
        ChildSnapshot(id="run:1", state="running", incarnation=1, restarts=0, mailbox_depth=3),
        ChildSnapshot(id="run:2", state="running", incarnation=2, restarts=1, mailbox_depth=5),
    ),
)


@dataclass
class Daemon:
    """The sources of the pages, which a test changes while the edge runs."""

    state: State = "ready"
    is_writable: bool = True
    readings: list[Metric] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    incidents: int = 0

    async def authenticate(self, token: str) -> Caller:
        await trio.lowlevel.checkpoint()
        if token not in ROLES:
            raise Unauthenticated("the token is unknown, expired or revoked")
        return Caller(principal="ann", role=ROLES[token], token_id="tok")

    def make_http(self, find_edge: Callable[[], EdgeServer]) -> LateHttp:
        sources = HttpSources(
            version="1.2.3",
            state=lambda: self.state,
            is_writable=lambda: self.is_writable,
            authenticate=self.authenticate,
            names=lambda: find_edge().names(),
            asyncapi=lambda: b'{"asyncapi":"3.0.0"}',
            metrics=(
                lambda: read_state(self.state),
                lambda: read_tally(find_edge().counters),
                lambda: read_tree(TREE),
                lambda: self.readings,
            ),
            problems=lambda: self.problems,
            count_incidents=lambda: self.incidents,
        )
        return LateHttp(sources)


@dataclass
class Answer:
    """One HTTP response, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes


def split(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), headers, body)


@asynccontextmanager
async def serving(daemon: Daemon | None = None) -> AsyncGenerator[RunningEdge, None]:
    async with running_edge(make_http=(daemon or Daemon()).make_http) as running:
        yield running


async def get(running: RunningEdge, path: str, *headers: str) -> Answer:
    """The answer to one request; the connection is closed after it."""
    lines = "".join(f"{header}\r\n" for header in (*headers, "Connection: close"))
    return split(await running.ask(GET.format(path=path, headers=lines).encode()))


async def test_open_pages_need_no_token() -> None:
    """Liveness, readiness and the index are open to local clients."""
    async with serving() as running:
        assert (200, b"up\n") == _said(await get(running, "/healthz"))
        assert (200, b"ready\n") == _said(await get(running, "/readyz"))
        front = await get(running, "/")
        assert 200 == front.status
        assert f"ws://127.0.0.1:{running.port}/v1/ws".encode() in front.body
        assert b"1.2.3" in front.body


@pytest.mark.parametrize("path", ["/%68ealthz", "/v1%2fasyncapi.json", "/v1%2Fws", "/readyz%2F"])
async def test_a_page_has_one_spelling(path: str) -> None:
    """A percent-encoded path is not found, whether or not it decodes to a page; a query may be encoded."""
    async with serving() as running:
        assert 404 == (await get(running, path, "Authorization: Bearer pal_op")).status
        assert 200 == (await get(running, "/healthz?a=%2F")).status


def _said(answer: Answer) -> tuple[int, bytes]:
    return answer.status, answer.body


@pytest.mark.parametrize("state", ["starting", "draining"])
async def test_not_ready_while(state: State) -> None:
    """Readiness is 503 with the reason while starting or draining; the process is up anyway."""
    async with serving(Daemon(state=state)) as running:
        assert (503, f"not ready: {state}\n".encode()) == _said(await get(running, "/readyz"))
        assert 200 == (await get(running, "/healthz")).status


async def test_not_ready_when_the_journal_cannot_be_written() -> None:
    """A full disk makes the daemon unready, and ready again when it is over."""
    daemon = Daemon(is_writable=False)
    async with serving(daemon) as running:
        assert 503 == (await get(running, "/readyz")).status
        daemon.is_writable = True
        assert 200 == (await get(running, "/readyz")).status


async def test_problems_are_counted_and_not_described() -> None:
    """Without a token the page has their number and the command to list them."""
    async with serving(Daemon(problems=["the jail leaks: a keyring"])) as running:
        answer = await get(running, "/readyz")
    assert (200, b"ready\n1 problem(s); `palyra doctor` lists them\n") == _said(answer)


async def test_open_incidents_are_counted_and_not_described() -> None:
    """They have a line of their own; the daemon is still ready."""
    async with serving(Daemon(problems=["x"], incidents=2)) as running:
        answer = await get(running, "/readyz")
    assert 200 == answer.status
    assert b"2 open incident(s); `palyra incidents list --open` lists them" in answer.body
    assert b"1 problem(s)" in answer.body


@pytest.mark.parametrize("path", ["/metrics", "/v1/asyncapi.json"])
async def test_other_pages_need_a_token(path: str) -> None:
    """No token or a wrong one is 401; the challenge names the scheme, the token is not shown."""
    async with serving() as running:
        for headers in ([], ["Authorization: Bearer pal_wrong"], ["Authorization: Basic cGFs"]):
            answer = await get(running, path, *headers)
            assert (401, "bearer") == (answer.status, answer.headers["www-authenticate"])
            assert b"pal_wrong" not in answer.body


async def test_asyncapi_with_a_token() -> None:
    """Any role that may read the system gets the document."""
    async with serving() as running:
        answer = await get(running, "/v1/asyncapi.json", "Authorization: Bearer pal_cli")
    assert (200, b'{"asyncapi":"3.0.0"}') == _said(answer)
    assert "application/json" == answer.headers["content-type"]


async def test_metrics_are_for_those_who_see_everybody() -> None:
    """A client, confined to its own principal, gets 403; an observer the numbers."""
    async with serving() as running:
        assert 403 == (await get(running, "/metrics", "Authorization: Bearer pal_cli")).status
        answer = await get(running, "/metrics", "Authorization: Bearer pal_obs")
    assert 200 == answer.status
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_metrics_show_readings_without_ids() -> None:
    """State, counters and tree are included; actors are counted by kind."""
    extra = Metric("palyra_turns", "Model requests.", 7, (("provider", "x"),), is_total=True)
    async with serving(Daemon(readings=[extra])) as running:
        page = (await get(running, "/metrics", "Authorization: Bearer pal_op")).body.decode()
    lines = page.splitlines()
    assert 'palyra_state{state="ready"} 1.0' in lines
    assert 'palyra_state{state="draining"} 0.0' in lines
    assert "palyra_http_connections_total 1.0" in lines
    assert 'palyra_actors{kind="run"} 2.0' in lines
    assert 'palyra_mailbox_depth{kind="run"} 8.0' in lines
    assert 'palyra_turns_total{provider="x"} 7.0' in lines
    assert "run:1" not in page
    assert "process_resident_memory_bytes" in page


@pytest.mark.parametrize(
    ("status", "path"), [(404, "/nothing"), (404, "/v1/"), (404, "/%2e%2e/etc/passwd")]
)
async def test_errors_are_short_plain_text(status: int, path: str) -> None:
    """An unknown page is one line, without markup and without the path."""
    async with serving() as running:
        answer = await get(running, path)
    assert (status, b"Not Found\n") == _said(answer)
    assert answer.headers["content-type"].startswith("text/plain")


async def test_websocket_without_an_upgrade() -> None:
    """The WebSocket's address says what it wants, also on a connection that is kept alive."""
    async with serving() as running:
        answer = await get(running, "/v1/ws")
        assert (426, "websocket") == (answer.status, answer.headers["upgrade"])
        assert b"WebSocket" in answer.body
        assert [200, 426] == await converse(running, HEALTHZ, GET.format(path="/v1/ws", headers=""))


async def test_answers_forbid_framing_sniffing_and_caching() -> None:
    """Every page carries the headers that keep browsers out of trouble, and no CORS ones."""
    async with serving() as running:
        headers = (await get(running, "/")).headers
    assert "no-store" == headers["cache-control"]
    assert "nosniff" == headers["x-content-type-options"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert [] == [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


async def converse(running: RunningEdge, *requests: str) -> list[int]:
    """Statuses of several requests on one kept-alive connection, 0 for none."""
    peer = await running.dial()
    statuses = []
    async with peer.stream:
        for request in requests:
            await peer.send(request.replace("PORT", str(running.port)).encode())
            statuses.append(await read_status(peer))
    return statuses


async def read_status(peer: RawPeer) -> int:
    try:
        answer = split(await peer.read_until(b"\r\n\r\n"))
    except EOFError:
        return 0
    body = b""
    while len(body) < int(answer.headers.get("content-length", 0)):
        body += await peer.read_until(b"\n")
    return answer.status


HEALTHZ = GET.format(path="/healthz", headers="")


async def test_kept_alive_connection_serves_several_requests() -> None:
    """HTTP/1.1 keeps the connection."""
    async with serving() as running:
        assert [200, 200, 200] == await converse(running, HEALTHZ, HEALTHZ, HEALTHZ)


@pytest.mark.parametrize(
    ("statuses", "second"),
    [
        ({403}, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        ({403}, GET.format(path="/", headers="Origin: http://evil.example\r\n")),
        ({403}, GET.format(path="/", headers="Origin: null\r\n")),
        ({400}, GET.format(path="/?token=pal_x", headers="")),
        (
            {400, 403},
            GET.format(
                path="/v1/ws",
                headers="Upgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            ),
        ),
        ({400}, "nonsense\r\n\r\n"),
    ],
)
async def test_a_second_request_meets_the_same_gate(statuses: set[int], second: str) -> None:
    """A good first request opens nothing for what follows on the same connection."""
    async with serving() as running:
        first, then = await converse(running, HEALTHZ, second)
        assert 200 == first
        assert then in statuses
        assert 200 == (await get(running, "/healthz")).status


async def test_an_offer_of_http_2_is_ignored() -> None:
    """A later request that offers h2c is answered in HTTP/1.1, as if it had not."""
    offer = (
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    )
    async with serving() as running:
        second = GET.format(path="/healthz", headers=offer)
        assert [200, 200, 200] == await converse(running, HEALTHZ, second, HEALTHZ)


async def test_http_2_preface_is_refused() -> None:
    """A later request that begins HTTP/2 without asking gets 505."""
    async with serving() as running:
        assert [200, 505] == await converse(running, HEALTHZ, "PRI * HTTP/2.0\r\n\r\n")


async def test_a_closed_connection_is_forgotten_at_once() -> None:
    """When the client leaves between two requests, nothing waits for the idle timeout."""
    async with serving() as running:
        await converse(running, HEALTHZ)
        await wait_for_connections(running, 0)


async def test_websocket_and_http_share_the_port() -> None:
    """Both protocols are served at the same address at the same time."""
    async with serving() as running:
        peer = await running.open_websocket()
        async with peer.stream:
            assert 200 == (await get(running, "/healthz")).status
            await peer.send(frame(TEXT, b"hello"))
            assert (TEXT, b"hello") == await peer.read_frame()


async def test_a_body_over_the_limit_is_refused() -> None:
    """A request that announces more than the limit is 413 or 405, not read to its end."""
    request = "POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 99999999999\r\n\r\nx"
    async with serving() as running:
        assert (await converse(running, request))[0] in {405, 413}


async def test_cancelled_server_drops_http_connections_at_once() -> None:
    """A kept-alive connection, or one that is half served, does not hold up a stop."""
    peers = []
    with trio.fail_after(WITHIN_S):
        async with serving() as running:
            peers = [await running.dial() for _ in range(3)]
            for peer in peers:
                await peer.send(HEALTHZ.replace("PORT", str(running.port)).encode())
                assert 200 == await read_status(peer)
    for peer in peers:
        assert b"" == await peer.read_to_end()
        await peer.stream.aclose()


async def test_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that is not read ends at the write timeout, although the server shields its writes."""
    monkeypatch.setattr(late, "WRITE_TIMEOUT_S", 0.2)
    pages = [Metric(f"palyra_big_{number}", "x" * 1_000, 1) for number in range(20_000)]
    request = GET.format(path="/metrics", headers="Authorization: Bearer pal_op\r\n")
    with trio.fail_after(120):
        async with serving(Daemon(readings=pages)) as running:
            peer = await running.dial()
            async with peer.stream:
                await peer.send(request.replace("PORT", str(running.port)).encode())
                await peer.read_until(b"\r\n\r\n")
                await wait_for_connections(running, 0)


def test_web_stack_is_not_imported_with_the_edge() -> None:
    """Importing everything a WebSocket needs loads neither Quart nor Hypercorn."""
    code = (
        "import sys, palyra.net.server.accept, palyra.net.http.late, palyra.net.http.metrics\n"
        "print(sorted({'quart', 'hypercorn', 'flask', 'prometheus_client'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == run.stdout
