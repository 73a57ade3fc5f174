"""Cost of the checks of a fetch: http_fetch against a plain httpx client, one loopback server.

Both ask for the same small page over connections of their own, one after the other, in alternating
rounds: a fresh connection per request on both sides, since the checked client keeps none.  The
server runs in a thread with plain sockets.  `wanted`: at most 2 ms more than httpx at the median.
Also: a page of HTML, redirects, a tunnel through the egress proxy, and a gzip bomb's time.

Prints one JSON line.
"""

import argparse
import gzip
import json
import socket
import statistics
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import trio

from palyra.actors.egress import EgressBranch
from palyra.actors.kernel.threads import run_sync
from palyra.tools.web.dialler import Dialler
from palyra.tools.web.egress_policy import ReachRules, parse_opened
from palyra.tools.web.fetch import Web
from palyra.tools.web.http_client import tls_context
from palyra.tools.web.proxy import ProxyGate
from palyra.tools.web.request import WebRequest
from palyra.tools.web.urls import parse_url

WANTED_MS = 2.0
ROUNDS = 10
TLS = tls_context()  # shared: httpx would read the authorities for each client
HTML = b"<html><body>" + b"<p>Some words and <a href='/x'>a link</a>.</p>\n" * 400 + b"</body>"
BOMB = gzip.compress(bytes(256 << 20), 1)


def page(body: bytes, kind: str = "text/plain", *headers: str) -> bytes:
    """Return a whole response that closes its connection."""
    lines = ["HTTP/1.1 200 OK", f"content-type: {kind}", *headers, "connection: close"]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def redirect(to: str) -> bytes:
    """Return a redirect to another path."""
    head = f"HTTP/1.1 302 X\r\nlocation: {to}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    return head.encode()


PAGES = {
    b"/": page(b"hello " * 200),
    b"/html": page(HTML, "text/html"),
    b"/1": redirect("/2"),
    b"/2": redirect("/3"),
    b"/3": redirect("/"),
    b"/bomb": page(BOMB, "text/plain", "content-encoding: gzip"),
}


def serve(listener: socket.socket) -> None:
    """Answer requests forever, one connection after the other."""
    while True:
        client, _ = listener.accept()
        with client, suppress(OSError):  # of a client that closed early
            client.sendall(PAGES[read_path(client)])


def read_path(client: socket.socket) -> bytes:
    """Read a whole request head; return its path."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(65_536)
    return head.split(b" ")[1]


def start_server() -> int:
    """Start the server in a thread; return its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return int(listener.getsockname()[1])


async def measure(act: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Return the milliseconds of each of `count` calls."""
    taken = []
    for _ in range(count):
        begun_s = time.perf_counter()
        await act()
        taken.append((time.perf_counter() - begun_s) * 1000)
    return taken


class Bench:
    """Both clients with one server."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.key = f"127.0.0.1:{port}"
        self.dialler = Dialler(ReachRules(opened=parse_opened([self.key])))
        self.web = Web(self.dialler, run_sync, find_secret=self._no_secret)

    @staticmethod
    async def _no_secret(reference: str) -> str:
        raise LookupError(reference)

    async def by_web(self, path: str = "/") -> None:
        """Send one request as http_fetch does."""
        url = parse_url(f"{self.base}{path}")
        output = await self.web.fetch(WebRequest(method="GET", url=url))
        assert output.text.startswith("status: 200"), output.text

    async def by_httpx(self) -> None:
        """Send one request with a new plain client, on its own connection."""
        async with httpx.AsyncClient(trust_env=False, verify=TLS) as client:
            answer = await client.get(self.base)
        assert answer.text.startswith("hello"), answer

    async def by_kept_httpx(self, client: httpx.AsyncClient) -> None:
        """Send one request with an existing client: the cost of httpx without its construction."""
        answer = await client.get(self.base)
        assert answer.text.startswith("hello"), answer

    async def by_proxy(self, port: int) -> None:
        """Send one request through the egress proxy, as a sandboxed program does."""
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(f"GET {self.base}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            text = b""
            while more := await stream.receive_some():
                text += more
        assert text.startswith(b"HTTP/1.1 200"), text


async def compare(bench: Bench, count: int) -> dict[str, float]:
    """Return medians of alternating rounds."""
    async with httpx.AsyncClient(trust_env=False, verify=TLS) as client, open_proxy(bench) as proxy:
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "fetch_ms": bench.by_web,
            "httpx_ms": lambda: bench.by_kept_httpx(client),
            "httpx_with_its_start_ms": bench.by_httpx,
            "html_20_kb_ms": lambda: bench.by_web("/html"),
            "three_redirects_ms": lambda: bench.by_web("/1"),
            "proxied_ms": lambda: bench.by_proxy(proxy),
        }
        found: dict[str, list[float]] = {name: [] for name in acts}
        for name, act in [*acts.items()] * ROUNDS:
            found[name] += await measure(act, count // ROUNDS)
        found["bomb_256_mib_ms"] = await measure(lambda: bench.by_web("/bomb"), 3)
    return {name: statistics.median(each) for name, each in found.items()}


@asynccontextmanager
async def open_proxy(bench: Bench) -> AsyncGenerator[int]:
    """Run the egress proxy of a command with a grant for the server; yield its port."""
    branch = EgressBranch()
    gate = ProxyGate(bench.dialler.dial, {bench.key}, print)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0)
    async with trio.open_nursery() as nursery:
        await nursery.start(branch.child_spec().start)
        with branch.open(gate.admit).attach(listener):
            yield listener.getsockname()[1]
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=300)
    count = parser.parse_args().count
    found = trio.run(compare, Bench(start_server()), count)
    added_ms = found["fetch_ms"] - found["httpx_ms"]
    print(
        json.dumps(
            {
                "bench": "fetch",
                **{name: round(value, 3) for name, value in found.items()},
                "added_to_httpx_ms": round(added_ms, 3),
                "wanted_ms": WANTED_MS,
            }
        )
    )


if __name__ == "__main__":
    main()
