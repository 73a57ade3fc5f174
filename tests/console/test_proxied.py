"""The console behind a proxy: its public address, below a path, over TLS, and from nowhere else."""

import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palyra.client import blocking
from tests.console.logins import ask, log_in
from tests.e2e.daemon_process import running
from tests.e2e.test_proxies import NGINX
from tests.optional import needs, reason_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.real
PUBLIC = "https://palyra.example"
BLOCK = """
server {{
    listen 127.0.0.1:{port};
    location /agent/ {{
        proxy_pass http://127.0.0.1:{daemon}/;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection "upgrade";
    }}
}}
"""


def find_port() -> int:
    """A port that is free now."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@contextmanager
def nginx(folder: Path, port: int, daemon: int) -> Generator[None]:
    """The proxy for the length of the block."""
    file = folder / "nginx.conf"
    block = BLOCK.format(port=port, daemon=daemon)
    file.write_text(NGINX.format(folder=folder, block=block), encoding="utf-8")
    command = ["nginx", "-c", str(file), "-p", str(folder), "-e", "stderr"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while not is_open(port):
                assert process.poll() is None, "the proxy has ended"
            yield
        finally:
            process.terminate()


def is_open(port: int) -> bool:
    """True if somebody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_the_public_address_is_the_daemons_own(tmp_path: Path) -> None:
    """Links begin with it, its host and origin are accepted, and its cookie has its path and is for TLS."""
    with (
        running(tmp_path, PALYRA_SERVER__PUBLIC_URL=f"{PUBLIC}/agent") as daemon,
        blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=60) as client,
    ):
        address, _, code = client.make_console_link().url.partition("#login=")
        assert f"{PUBLIC}/agent/" == address
        for origin in (
            "https://evil.example",
            f"{PUBLIC}.evil.example",
            "https://palyra.example:8443",
        ):
            assert 403 == log_in(daemon, code, Host="palyra.example", Origin=origin).status
        login = log_in(daemon, code, Host="palyra.example", Origin=PUBLIC)
        assert 200 == login.status
        assert {"Secure", "Path=/agent/v1/"} <= set(login.headers["set-cookie"].split("; "))
        code = client.make_console_link().url.partition("#login=")[2]
        direct = log_in(daemon, code).headers["set-cookie"].split("; ")  # on the machine itself
        assert "Path=/v1/" in direct
        assert "Secure" not in direct
        assert 403 == ask(daemon, "GET", "/", Host="elsewhere.example").status


@needs("nginx")
def test_the_console_works_below_a_path(browser: "Browser", tmp_path: Path) -> None:
    """Behind a proxy that removes a path, the page loads, logs in, connects and reloads."""
    sync = pytest.importorskip("playwright.sync_api", reason=reason_without("playwright"))
    port = find_port()
    public = f"http://127.0.0.1:{port}/agent"
    with (
        running(tmp_path, PALYRA_SERVER__PUBLIC_URL=public) as daemon,
        blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=60) as client,
        nginx(tmp_path, port, daemon.port),
    ):
        context = browser.new_context()
        page = context.new_page()
        page.goto(client.make_console_link().url)
        lamp = page.locator(".lamp b")
        sync.expect(lamp).to_have_text("live")
        page.reload()
        sync.expect(lamp).to_have_text("live")
        assert page.url.startswith(f"{public}/#/")
        context.close()
