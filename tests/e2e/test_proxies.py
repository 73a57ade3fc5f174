"""The proxies of docs/recipes.md in front of a real daemon: their blocks, but for name, port and files."""

import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import DEVNULL

import httpx
import msgspec
import pytest
import trio

from tests.docs_blocks import ROOT
from tests.e2e.daemon_process import DaemonProcess, running
from tests.forked import run_forked
from tests.optional import needs
from tests.tools.web.certificates import Authority

pytestmark = pytest.mark.real
WITHIN_S = 120.0  # a bound against hanging, not a promise
NAME = "localhost"
ASKING = '/say first\n/call sleep {"seconds": 60}'
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {block}
}}
"""


def find_block(start: str) -> str:
    """The block of the page that begins so."""
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    found = re.search(rf"```\w+\n({re.escape(start)}.*?)\n```", page, re.DOTALL)
    assert found is not None
    return found[1].replace("palyra.example", NAME)


def nginx(folder: Path, port: int, daemon: int) -> list[str]:
    """Write the configuration; return the command."""
    block = find_block("map $http_upgrade")
    for printed, ours in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "127.0.0.1:7467": f"127.0.0.1:{daemon}",
        f"/etc/letsencrypt/live/{NAME}/fullchain.pem": f"{folder}/{NAME}.pem",
        f"/etc/letsencrypt/live/{NAME}/privkey.pem": f"{folder}/{NAME}.pem",
    }.items():
        assert printed in block
        block = block.replace(printed, ours)
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, block=block), encoding="utf-8")
    return ["nginx", "-c", str(file), "-p", str(folder), "-e", "stderr"]


def caddy(folder: Path, port: int, daemon: int) -> list[str]:
    """As `nginx`; the certificate is named, because no public authority signs for this name."""
    block = find_block("palyra.example {").replace("127.0.0.1:7467", f"127.0.0.1:{daemon}")
    block = block.replace(
        f"{NAME} {{", f"https://{NAME}:{port} {{\n\ttls {folder}/{NAME}.pem {folder}/{NAME}.pem", 1
    )
    file = folder / "Caddyfile"
    file.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{block}\n")
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


async def free_port() -> int:
    """A port that nobody listens on."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        return int(listener.socket.getsockname()[1])


@asynccontextmanager
async def standing(command: list[str], port: int) -> AsyncGenerator[None]:
    """The proxy for the length of the block."""
    start = partial(trio.run_process, command, check=False, stdout=DEVNULL, stderr=DEVNULL)
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(start)
        with trio.fail_after(WITHIN_S):
            while not await is_open(port):
                assert process.poll() is None, "the proxy has ended"
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


async def is_open(port: int) -> bool:
    """True if somebody listens there."""
    try:
        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "configure",
    [pytest.param(nginx, marks=needs("nginx")), pytest.param(caddy, marks=needs("caddy"))],
)
async def test_a_proxy_as_documented(
    tmp_path: Path, configure: Callable[[Path, int, int], list[str]]
) -> None:
    """The command line over wss, pages, and an answer that streams while its run is open."""
    authority = Authority(tmp_path)
    authority.server_context(NAME)  # writes key and certificate
    port = await free_port()
    with running(tmp_path, PALYRA_SERVER__ALLOWED_HOSTS=NAME) as daemon:
        command = configure(tmp_path, port, daemon.port)
        async with standing(command, port):
            await check_command_line(daemon, port, authority.ca_file)
            await check_pages(daemon, port, authority.ca_file, has_metrics=configure is caddy)


async def check_pages(
    daemon: DaemonProcess, port: int, ca_file: Path, *, has_metrics: bool
) -> None:
    """Plain pages, and a streamed answer; nginx hides the metrics."""
    context = ssl.create_default_context(cafile=ca_file)
    base = f"https://{NAME}:{port}"
    async with httpx.AsyncClient(verify=context, base_url=base, timeout=WITHIN_S) as web:
        assert 200 == (await web.get("/healthz")).status_code
        assert has_metrics is ((await web.get("/metrics")).status_code != 404)
        await check_stream(daemon, web)


async def check_command_line(daemon: DaemonProcess, port: int, ca_file: Path) -> None:
    """A run over the proxy; without the authority the error names the certificate."""
    where = {"PALYRA_TOKEN": daemon.token, "PALYRA_HOME": "/nonexistent"}
    asked = ("run", "--url", f"wss://{NAME}:{port}", "hello")
    with trio.fail_after(WITHIN_S):
        code, out, err = await run_forked(asked, {**where, "SSL_CERT_FILE": str(ca_file)})
        assert (0, True) == (code, b"You said" in out), err.decode()
        code, _, err = await run_forked(asked, where)
        assert code != 0
        assert b"certificate" in err


async def check_stream(daemon: DaemonProcess, web: httpx.AsyncClient) -> None:
    """The first piece comes while the run goes on; a proxy that buffers keeps it back."""
    asked = {
        "model": "agent/default",
        "stream": True,
        "messages": [{"role": "user", "content": ASKING}],
    }
    headers = {"Authorization": f"Bearer {daemon.token}"}
    async with (
        daemon.connect() as client,
        web.stream("POST", "/v1/chat/completions", json=asked, headers=headers) as answer,
    ):
        assert 200 == answer.status_code
        text, stopped = "", ""
        async for line in answer.aiter_lines():
            text += delta_of(line)
            if "first" in text and not stopped:
                page = await client.list_runs()
                [stopped] = [each.run_id for each in page.runs if each.state == "in_progress"]
                await client.cancel(stopped)
    assert stopped


def delta_of(line: str) -> str:
    """The text of a line of the stream."""
    if not line.startswith("data: {"):
        return ""
    chunk = msgspec.json.decode(line.removeprefix("data: "))
    choices = chunk.get("choices") or [{"delta": {}}]  # an error has none: the run is cancelled
    return choices[0]["delta"].get("content") or ""
