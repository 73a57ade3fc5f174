"""Fetching over real sockets: TLS, the system's resolver, memory under a bomb."""

import json
import ssl
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from palyra.actors.kernel.threads import run_sync
from palyra.errors import InvalidParams, Unavailable
from palyra.tools.web.dialler import Dialler, connect, resolve
from palyra.tools.web.egress_policy import EgressRefused, ReachRules, parse_opened
from palyra.tools.web.fetch import Web
from palyra.tools.web.http_client import tls_context
from tests.tools.web.certificates import Authority
from tests.tools.web.internet import a_page, a_redirect, get

pytestmark = pytest.mark.real


def open_web(port: int, ca_file: str = "") -> Web:
    """A client that may contact localhost at that port."""
    rules = ReachRules(opened=parse_opened([f"localhost:{port}", f"127.0.0.1:{port}"]))
    return Web(
        Dialler(rules),
        run_sync,
        find_secret=partial(run_sync, str),
        trust=partial(tls_context, ca_file),
    )


async def say_hello(stream: trio.abc.Stream) -> None:
    """A server of one page; a client that does not like it may leave."""
    try:
        await stream.receive_some()
        await stream.send_all(a_page(b"hello"))
    except trio.BrokenResourceError:
        return


async def listen(nursery: trio.Nursery, tls: ssl.SSLContext | None = None) -> int:
    """Serve one page on a free port of loopback; the port."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = int(listener.socket.getsockname()[1])
    if tls is None:
        nursery.start_soon(trio.serve_listeners, say_hello, [listener])
    else:
        secured = trio.SSLListener(listener, tls, https_compatible=True)
        nursery.start_soon(trio.serve_listeners, say_hello, [secured])
    return port


async def test_plain(nursery: trio.Nursery) -> None:
    """A page from a real server, by name through the system's resolver."""
    port = await listen(nursery)
    output = await open_web(port).fetch(get(f"http://localhost:{port}/"))
    assert output.text.endswith("hello")


async def test_a_server_on_loopback_is_closed_by_default(nursery: trio.Nursery) -> None:
    """The name of loopback resolves and is refused; the listener accepts no connection."""
    accepted: list[object] = []

    async def note(stream: trio.abc.Stream) -> None:
        accepted.append(stream)
        await stream.aclose()

    listeners = await nursery.start(partial(trio.serve_tcp, note, 0, host="127.0.0.1"))
    port = listeners[0].socket.getsockname()[1]
    web = Web(
        Dialler(ReachRules(ports=frozenset({port}))), run_sync, find_secret=partial(run_sync, str)
    )
    for host in ("localhost", "127.0.0.1"):
        with pytest.raises(EgressRefused, match="loopback"):
            await web.fetch(get(f"http://{host}:{port}/"))
    await (await connect("127.0.0.1", port)).aclose()  # the control, and it comes last
    while not accepted:
        await trio.lowlevel.checkpoint()
    assert 1 == len(accepted)


@pytest.mark.parametrize("variable", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
async def test_the_environment_names_no_proxy(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A proxy that is not there changes nothing."""
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    port = await listen(nursery)
    output = await open_web(port).fetch(get(f"http://localhost:{port}/"))
    assert output.text.endswith("hello")


async def test_tls(nursery: trio.Nursery, tmp_path: Path) -> None:
    """A certificate of a configured authority, for the right name, is believed."""
    authority = Authority(tmp_path)
    port = await listen(nursery, authority.server_context("localhost"))
    web = open_web(port, str(authority.ca_file))
    output = await web.fetch(get(f"https://localhost:{port}/"))
    assert output.text.endswith("hello")


@pytest.mark.parametrize(
    ("name", "host", "is_known"),
    [("localhost", "localhost", False), ("other.example", "localhost", True),
     ("localhost", "127.0.0.1", True)],
)  # fmt: skip
async def test_tls_that_is_not_believed(
    nursery: trio.Nursery, tmp_path: Path, name: str, host: str, *, is_known: bool
) -> None:
    """An unknown authority, or a certificate for another name: the exchange does not begin."""
    authority = Authority(tmp_path)
    port = await listen(nursery, authority.server_context(name))
    web = open_web(port, str(authority.ca_file) if is_known else "")
    with pytest.raises(Unavailable, match="certificate"):
        await web.fetch(get(f"https://{host}:{port}/"))


@pytest.mark.parametrize("is_secure", [True, False], ids=["https", "the control"])
async def test_https_is_not_redirected_to_http(
    nursery: trio.Nursery, tmp_path: Path, *, is_secure: bool
) -> None:
    """An https request does not follow a redirect to http; an http request does."""
    authority, accepted = Authority(tmp_path), trio.Event()

    async def note(stream: trio.abc.Stream) -> None:
        accepted.set()
        await say_hello(stream)

    plain = await nursery.start(partial(trio.serve_tcp, note, 0, host="127.0.0.1"))
    there = plain[0].socket.getsockname()[1]

    async def send_on(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        await stream.send_all(a_redirect(f"http://localhost:{there}/"))

    tls = authority.server_context("localhost") if is_secure else None
    listeners: list[Any] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    if tls:
        listeners = [trio.SSLListener(listeners[0], tls, https_compatible=True)]
    nursery.start_soon(trio.serve_listeners, send_on, listeners)
    opened = parse_opened([f"localhost:{port}", f"localhost:{there}"])
    find_secret = partial(run_sync, str)
    ca_file = str(authority.ca_file)
    web = Web(
        Dialler(ReachRules(opened=opened)),
        run_sync,
        find_secret=find_secret,
        trust=partial(tls_context, ca_file),
    )
    url = f"{'https' if is_secure else 'http'}://localhost:{port}/"
    with pytest.raises(EgressRefused) if is_secure else nullcontext():
        await web.fetch(get(url))
    assert accepted.is_set() is not is_secure


def test_a_file_of_authorities_must_be_one(tmp_path: Path) -> None:
    """The setting is named."""
    for content in (None, "no certificate"):
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(InvalidParams, match=r"fetch\.ca_file"):
            tls_context(str(path))


async def test_the_systems_resolver() -> None:
    """Loopback by name; a name that cannot be is an error."""
    assert "127.0.0.1" in await resolve("localhost", 80)
    for host in ("no-such-host.invalid", "x" * 64 + ".invalid"):
        with pytest.raises(Unavailable, match="cannot be resolved"):
            await resolve(host, 80)


async def test_a_closed_port() -> None:
    """A refused connection is an error and leaves no open descriptor (-W error would report it)."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(Unavailable, match="refused"):
        await open_web(port).fetch(get(f"http://127.0.0.1:{port}/"))


BOMB = """
import gzip, json, re, sys, trio, zlib
from functools import partial
from palyra.actors.kernel.threads import run_sync
from palyra.tools.web.egress_policy import ReachRules, parse_opened
from palyra.tools.web.dialler import Dialler
from palyra.tools.web.fetch import Web
from tests.tools.web.internet import get

packer = zlib.compressobj(9, wbits=31)
bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(192)) + packer.flush()
head = (
    "HTTP/1.1 200 X\\r\\ncontent-type: text/plain\\r\\ncontent-encoding: gzip\\r\\n"
    f"content-length: {len(bomb)}\\r\\n\\r\\n"
).encode()

def peak_kb():  # since this program began; getrusage counts whoever started it as well
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

small = b"HTTP/1.1 200 X\\r\\ncontent-type: text/plain\\r\\ncontent-length: 1\\r\\n\\r\\nx"

async def serve(stream):
    asked = await stream.receive_some()
    try:
        await stream.send_all(head + bomb if b"/bomb" in asked else small)
    except trio.BrokenResourceError:
        pass

async def main():
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        rules = ReachRules(opened=parse_opened([f"localhost:{port}"]))
        web = Web(Dialler(rules), run_sync, find_secret=partial(run_sync, str))
        await web.fetch(get(f"http://localhost:{port}/"))  # what a first request loads, counts not
        before = peak_kb()
        for _ in range(10):
            output = await web.fetch(get(f"http://localhost:{port}/bomb"))
        after = peak_kb()
        whole = 0
        if sys.argv[1:] == ["control"]:
            whole = len(gzip.decompress(bomb))
            after = peak_kb()
        print(json.dumps({
            "bomb": len(bomb), "text": len(output.text), "cut": output.is_truncated,
            "grown_mb": (after - before) / 1024, "whole": whole,
        }))
        nursery.cancel_scope.cancel()

trio.run(main)
"""


def explode(*arguments: str) -> dict[str, float]:
    """Fetch the bomb in a process of its own; what it cost."""
    done = subprocess.run(
        [sys.executable, "-c", BOMB, *arguments], capture_output=True, check=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_a_bomb_does_not_grow_the_process() -> None:
    """192 MiB in a fifth of one: what is kept is the cap, what is used a few copies of it."""
    found = explode()
    assert found["cut"]
    assert found["grown_mb"] < 16


def test_inflated_whole_it_would() -> None:
    """The control: without a limit the same bytes are all there."""
    assert explode("control")["grown_mb"] > 100
