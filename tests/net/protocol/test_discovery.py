"""Finding the daemon: what is announced, what is given, and whom a token may be sent to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.errors import InvalidParams, Unauthenticated, Unavailable
from palyra.net.protocol.discovery import (
    Discovery,
    find_discovery,
    find_endpoint,
    find_home,
    read_token,
    write_discovery,
)


@pytest.fixture
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PALYRA_HOME", "PALYRA_TOKEN"):
        monkeypatch.delenv(name, raising=False)


pytestmark = pytest.mark.usefixtures("_no_variables")


def make_discovery(pid: int) -> Discovery:
    return Discovery(
        url="http://127.0.0.1:5",
        ws_url="ws://127.0.0.1:5/v1/ws",
        pid=pid,
        instance_id="i",
        version="1",
    )


def write_token(home: Path, token: str = "secret") -> None:
    (home / "keys").mkdir()
    (home / "keys" / "operator.token").write_text(f"{token}\n")


def dead_pid() -> int:
    """The pid of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_a_written_announcement_is_found(tmp_path: Path) -> None:
    """It is read back completely, and no temporary file is left."""
    write_discovery(tmp_path, make_discovery(7))
    assert make_discovery(7) == find_discovery(tmp_path)
    assert ["daemon.json"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"url":1}'])
def test_damaged_announcement_is_none(tmp_path: Path, content: bytes) -> None:
    """A file that is no announcement counts as none."""
    (tmp_path / "daemon.json").write_bytes(content)
    assert None is find_discovery(tmp_path)


def test_the_announced_endpoint_is_the_default(tmp_path: Path) -> None:
    """Without an address the announced one is used, with the token of its directory."""
    write_discovery(tmp_path, make_discovery(os.getpid()))
    write_token(tmp_path)
    endpoint = find_endpoint(home=tmp_path)
    assert ("ws://127.0.0.1:5/v1/ws", "secret") == (endpoint.ws_url, endpoint.token)
    assert "secret" not in repr(endpoint)


def test_the_announcement_of_a_dead_daemon_is_not_used(tmp_path: Path) -> None:
    """The error says that its process is no longer running."""
    write_discovery(tmp_path, make_discovery(dead_pid()))
    write_token(tmp_path)
    with pytest.raises(Unavailable, match=r"no longer running.*palyra up"):
        find_endpoint(home=tmp_path)


def test_no_announcement_names_the_remedy(tmp_path: Path) -> None:
    """Without an announcement the error names the directory and the command."""
    with pytest.raises(Unavailable, match=rf"{tmp_path}.*palyra up"):
        find_endpoint(home=tmp_path)


@pytest.mark.parametrize(
    ("given", "ws_url"),
    [
        ("ws://127.0.0.1:5/v1/ws", "ws://127.0.0.1:5/v1/ws"),
        ("http://localhost:5", "ws://localhost:5/v1/ws"),
        ("127.0.0.1:5", "ws://127.0.0.1:5/v1/ws"),
        ("http://[::1]:5/", "ws://[::1]:5/v1/ws"),
        ("wss://localhost/agent/ws", "wss://localhost/agent/ws"),
    ],
)
def test_address_may_be_short(tmp_path: Path, given: str, ws_url: str) -> None:
    """An address for a browser, or host and port alone, leads to the WebSocket."""
    write_token(tmp_path)
    assert ws_url == find_endpoint(given, home=tmp_path).ws_url


@pytest.mark.parametrize("url", ["ws://example.org/v1/ws", "http://127.0.0.1.example.org:5"])
def test_operator_token_stays_here(tmp_path: Path, url: str) -> None:
    """The operator's token file is never used for another machine."""
    write_token(tmp_path)
    with pytest.raises(Unauthenticated, match="another machine"):
        find_endpoint(url, home=tmp_path)
    assert "mine" == find_endpoint(url, "mine", home=tmp_path).token


def test_variable_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$PALYRA_TOKEN is used instead of the file, and for other machines too."""
    write_token(tmp_path)
    monkeypatch.setenv("PALYRA_TOKEN", "from-variable\n")
    assert "from-variable" == read_token(tmp_path)
    assert "from-variable" == find_endpoint("wss://example.org", home=tmp_path).token


def test_missing_token_names_the_file(tmp_path: Path) -> None:
    """Without a token the error names the file and the variable."""
    with pytest.raises(Unauthenticated, match=r"operator\.token.*PALYRA_TOKEN"):
        read_token(tmp_path)


def test_home_is_given_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argument goes before $PALYRA_HOME, which goes before the platform's directory."""
    assert "palyra" == find_home().name
    monkeypatch.setenv("PALYRA_HOME", str(tmp_path))
    assert tmp_path == find_home()
    assert Path("/elsewhere") == find_home("/elsewhere")


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "ws://", "127.0.0.1:99999", "127.0.0.1:0", "h:port", "ws://["]
)
def test_other_addresses_are_refused(tmp_path: Path, url: str) -> None:
    """An address that is not a WebSocket address is named in the error."""
    with pytest.raises(InvalidParams, match="no WebSocket address"):
        find_endpoint(url, "token", home=tmp_path)
