"""The daemon's egress as the configuration defines it."""

from pathlib import Path

import pytest
import trio

from palyra.config.load import Config
from palyra.config.paths import Paths
from palyra.config.sections import Fetch, FetchCredential, Secrets
from palyra.core.redaction.redactor import Redactor
from palyra.errors import InvalidParams, Unavailable
from palyra.tools.skills.host_functions import FetchRequest
from palyra.tools.web.egress_policy import ReachRules
from palyra.wiring.host import Host
from palyra.wiring.web import build_webset, reach_rules, read_credentials
from tests.tools.web.internet import Internet, a_page, a_redirect, a_web, replies

GOOD = FetchCredential(name="key", secret="env:KEY", host="E.example.", header="X-Key", prefix="")


def a_config(home: Path, fetch: Fetch | None = None, passphrase: str = "") -> Config:
    """With these settings."""
    paths = Paths(config_file=home / "palyra.toml", data_dir=home)
    return Config(paths=paths, fetch=fetch or Fetch(), secrets=Secrets(passphrase=passphrase))


def test_rules(tmp_path: Path) -> None:
    """Ports and opened hosts."""
    fetch = Fetch(ports=(80, 8080), private=("LocalHost:9000",))
    expected = ReachRules(ports=frozenset({80, 8080}), opened=frozenset({("localhost", 9000)}))
    assert expected == reach_rules(a_config(tmp_path, fetch))


def test_credentials() -> None:
    """By name, with the host in its one form."""
    found = read_credentials([GOOD])["key"]
    assert ("e.example", "x-key", "", "env:KEY") == (
        found.host, found.header, found.prefix, found.secret,
    )  # fmt: skip


@pytest.mark.parametrize(
    "credentials",
    [
        (GOOD, GOOD),
        (FetchCredential(name="", secret="env:KEY", host="e.example"),),
        (FetchCredential(name="a", secret="hunter2hunter2", host="e.example"),),
        (FetchCredential(name="a", secret="env:KEY", host="127.1"),),
    ],
)
def test_a_bad_credential_stops_the_start(
    tmp_path: Path, credentials: tuple[FetchCredential, ...]
) -> None:
    """Two of one name, none, a secret in the place of its reference, no host."""
    with pytest.raises(InvalidParams) as caught:
        build_webset(a_config(tmp_path, Fetch(credentials=credentials)), Host(), print)
    assert "hunter2" not in caught.value.message


def test_a_bad_passphrase_stops_the_start(tmp_path: Path) -> None:
    """A passphrase is a reference, and not into the vault."""
    for passphrase, error in (("hunter2", InvalidParams), ("vault:PASS", Unavailable)):
        with pytest.raises(error) as caught:
            build_webset(a_config(tmp_path, passphrase=passphrase), Host(), print)
        assert "hunter2" not in caught.value.message


def test_a_bad_file_of_authorities_stops_the_start(tmp_path: Path) -> None:
    """Not the first request."""
    with pytest.raises(InvalidParams, match=r"fetch\.ca_file"):
        build_webset(a_config(tmp_path, Fetch(ca_file="/nonexistent.pem")), Host(), print)


async def test_a_credential_reaches_the_redactor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start of the daemon on."""
    monkeypatch.setenv("KEY", "the-value-of-the-key")
    redactor = Redactor([])
    config = a_config(tmp_path, Fetch(credentials=(GOOD,)))
    services = build_webset(config, Host(), redactor.learn).services
    async with trio.open_nursery() as nursery:
        for service in services:
            await nursery.start(service.start)
        nursery.cancel_scope.cancel()
    assert "[redacted:known]" == redactor.redact_text("the-value-of-the-key")[0]


async def test_the_doors_of_skills(tmp_path: Path, nursery: trio.Nursery) -> None:
    """One answer for one request: a redirect is shown and not followed, rules hold."""
    internet = Internet(nursery)
    webset = build_webset(a_config(tmp_path), Host(), print)
    doors = webset._replace(web=a_web(internet)).doors()
    assert doors.fetch is not None
    internet.serve = replies(a_redirect("/b"), a_page(b"hello"))
    first = await doors.fetch(FetchRequest(url="http://e.example/"))
    assert (302, "/b", "") == (first.status, first.headers["location"], first.body)
    second = await doors.fetch(FetchRequest(url="http://e.example/", method="POST", body="x"))
    assert (200, "hello", False) == (second.status, second.body, second.is_cut)
    assert internet.requests[1].startswith(b"POST / ")
    for request in (
        FetchRequest(url="http://e.example/", headers={"Authorization": "x"}),
        FetchRequest(url="http://u:p@e.example/"),
    ):
        with pytest.raises(InvalidParams):
            await doors.fetch(request)
