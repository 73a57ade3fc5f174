"""`palyra env`: the running daemon's address and token, as a shell takes them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from palyra.cli.host.env import variables, write_fish, write_posix
from palyra.net.protocol.discovery import Discovery, Endpoint, http_address, write_discovery
from tests.cli.command import palyra, start_palyra
from tests.client.fake_daemon import TOKEN, FakeDaemon, fake_daemon
from tests.net.protocol.test_discovery import dead_pid
from tests.rows import every_row

NASTY = [
    "plain",
    "a b",
    "it's",
    '"$(touch x)`id`"',
    "back\\slash\\",
    "!*?[~",
    "ünï",
    "two\nlines",
    "",
]
STATUS = {
    "state": "ready", "version": "0.1.0", "instance_id": "i", "protocol": "palyra.v1", "now_ms": 1,
    "is_writable": True,
}  # fmt: skip


def announce(home: Path, ws_url: str, *, pid: int | None = None, token: str | None = TOKEN) -> None:
    """Make the home of a daemon that listens there."""
    (home / "keys").mkdir()
    if token is not None:
        (home / "keys" / "operator.token").write_text(f"{token}\n")
    http = http_address(ws_url)
    found = Discovery(url=http, ws_url=ws_url, pid=pid or os.getpid(), instance_id="i", version="1")
    write_discovery(home, found)


def ready(daemon: FakeDaemon) -> FakeDaemon:
    """One that says how it is."""
    daemon.reply_with("system.status", STATUS)
    return daemon


@pytest.mark.real
@pytest.mark.parametrize("value", NASTY)
def test_a_shell_reads_what_was_written(value: str) -> None:
    """Whatever the value holds, nothing in it is run, and the program gets it unchanged."""
    show = f"exec {sys.executable} -c 'import os; print(ascii(os.environ[\"V\"]))'"
    script = f"{write_posix('V', value)}\n{show}"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert ascii(value) == done.stdout.strip()


@every_row(
    ("value", "written"),
    [
        ("plain", "set -gx V 'plain'"),
        ("it's", "set -gx V 'it\\'s'"),
        ("back\\slash", "set -gx V 'back\\\\slash'"),
        ('"$x" (id)', "set -gx V '\"$x\" (id)'"),
    ],
)
def test_fish_has_two_escapes(value: str, written: str) -> None:
    """Between single quotes fish knows the quote and the backslash; all else is itself."""
    assert written == write_fish("V", value)


@every_row(
    ("ws_url", "http"),
    [
        ("ws://127.0.0.1:7467/v1/ws", "http://127.0.0.1:7467"),
        ("wss://agent.example/v1/ws", "https://agent.example"),
        ("wss://agent.example/palyra/v1/ws", "https://agent.example/palyra"),
        ("ws://[::1]:7467/v1/ws/", "http://[::1]:7467"),
    ],
)
def test_the_http_address_follows_from_the_endpoint(ws_url: str, http: str) -> None:
    """Scheme and path fit; a prefix of a proxy stays."""
    assert http == http_address(ws_url)


def test_sdks_get_their_variables_only_on_request() -> None:
    """A provider's key is never replaced by accident."""
    endpoint = Endpoint("ws://h:1/v1/ws", "t")
    own = {"PALYRA_URL": "http://h:1", "PALYRA_WS_URL": endpoint.ws_url, "PALYRA_TOKEN": "t"}
    openai = {"OPENAI_BASE_URL": "http://h:1/v1", "OPENAI_API_KEY": "t"}
    anthropic = {"ANTHROPIC_BASE_URL": "http://h:1", "ANTHROPIC_API_KEY": "t"}
    assert own == variables(endpoint, ())
    assert own | openai == variables(endpoint, ("openai",))
    assert own | openai | anthropic == variables(endpoint, ("openai", "anthropic"))


@pytest.mark.real
async def test_env_prints_the_daemon_that_runs(tmp_path: Path) -> None:
    """As exports, as JSON, and nothing else where a shell evaluates it."""
    async with fake_daemon() as daemon:
        announce(tmp_path, ready(daemon).url)
        text = await palyra("env", home=tmp_path)
        data = await palyra("env", "--json", "--sdk", "openai", home=tmp_path)
    url = http_address(daemon.url)
    assert (0, "") == (text.code, text.err)
    assert [
        f"export PALYRA_URL={url}",
        f"export PALYRA_WS_URL={daemon.url}",
        f"export PALYRA_TOKEN={TOKEN}",
    ] == text.out.splitlines()
    assert (f"{url}/v1", TOKEN) == (data.json["OPENAI_BASE_URL"], data.json["OPENAI_API_KEY"])


@pytest.mark.real
async def test_a_terminal_is_warned(tmp_path: Path) -> None:
    """On a terminal the output warns of the token and names a way without showing it."""
    async with fake_daemon() as daemon:
        announce(tmp_path, ready(daemon).url)
        ours, theirs = os.openpty()
        process = start_palyra("env", terminal=theirs, home=tmp_path)
        os.close(theirs)
        with process.until_killed():
            await process.ended()
            shown = await trio.to_thread.run_sync(os.read, ours, 65_536)
        os.close(ours)
    assert b"This shows a token" in shown
    assert b'eval "$(palyra env)"' in shown


@pytest.mark.real
async def test_nothing_is_printed_without_a_daemon(tmp_path: Path) -> None:
    """None announced, or one that is gone: exit code 69 and no assignment."""
    never = await palyra("env", home=tmp_path)
    announce(tmp_path, "ws://127.0.0.1:5/v1/ws", pid=dead_pid())
    gone = await palyra("env", home=tmp_path)
    assert [(69, ""), (69, "")] == [(never.code, never.out), (gone.code, gone.out)]
    assert "palyra up" in never.err
    assert "is no longer running" in gone.err


@pytest.mark.real
@pytest.mark.parametrize("token", [None, "tökèn"], ids=["absent", "not ASCII"])
async def test_nothing_is_printed_without_a_token(tmp_path: Path, token: str | None) -> None:
    """A token file that cannot be read: exit code 77, its path, and no assignment."""
    async with fake_daemon() as daemon:
        announce(tmp_path, ready(daemon).url, token=token)
        found = await palyra("env", home=tmp_path)
    assert (77, "") == (found.code, found.out)
    assert str(tmp_path / "keys" / "operator.token") in found.err
