"""Where requests may go: ports, literal addresses, answers of a resolver, what is opened."""

import pytest

from palyra.errors import InvalidParams
from palyra.tools.web.egress_policy import EgressRefused, ReachRules, parse_opened
from palyra.tools.web.urls import parse_url
from tests.rows import every_row

RULES = ReachRules()
OPENED = ReachRules(opened=parse_opened(["localhost:8080", "127.0.0.1:9000", "[::1]:9000"]))


@every_row(
    "text", ["http://e.example/", "https://e.example/", "http://e.example:443/", "http://8.8.8.8/"]
)
def test_usual_ports_are_contacted(text: str) -> None:
    """80 and 443, whatever the scheme."""
    RULES.check_url(parse_url(text))


@every_row("port", [22, 25, 8080, 6379])
def test_another_port_is_not(port: int) -> None:
    """The refusal names the setting."""
    with pytest.raises(EgressRefused, match=r"fetch\.ports"):
        RULES.check_url(parse_url(f"http://e.example:{port}/"))


def test_how_a_near_host_is_opened() -> None:
    """The refusal of a server of one's own names the setting with this very host and port."""
    for url, how in (
        ("http://localhost:3000/", r'fetch.private = ["localhost:3000"]'),
        ("http://127.0.0.1:3000/", r'fetch.private = ["127.0.0.1:3000"]'),
        ("http://192.168.1.7/", r'fetch.private = ["192.168.1.7:80"]'),
    ):
        with pytest.raises(EgressRefused) as refused:
            RULES.check_url(parse_url(url))
        assert how in refused.value.message
    with pytest.raises(EgressRefused) as refused:
        RULES.check_addresses("e.example", 80, ["10.0.0.1"])
    assert "fetch.private" in refused.value.message
    with pytest.raises(EgressRefused) as refused:
        RULES.check_addresses("e.example", 80, ["169.254.169.254"])
    assert "fetch.private" not in refused.value.message


def test_a_configured_port_is() -> None:
    """Ports can be added."""
    ReachRules(ports=frozenset({80, 443, 8080})).check_url(parse_url("http://e.example:8080/"))


@every_row("host", ["127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "[ff02::1]"])
def test_a_literal_address_is_checked_at_once(host: str) -> None:
    """No resolver is needed to refuse it."""
    with pytest.raises(EgressRefused, match="not contacted"):
        RULES.check_url(parse_url(f"http://{host}/"))


def test_every_address_of_an_answer_counts() -> None:
    """One private address among public ones refuses the host."""
    assert ["8.8.8.8", "1.1.1.1"] == RULES.check_addresses("e", 80, ["8.8.8.8", "1.1.1.1"])
    with pytest.raises(EgressRefused, match=r"10\.0\.0\.1"):
        RULES.check_addresses("e", 80, ["8.8.8.8", "10.0.0.1"])


def test_an_empty_answer_is_a_refusal() -> None:
    """The error says that the name has no address."""
    with pytest.raises(EgressRefused, match="no address"):
        RULES.check_addresses("e", 80, [])


@every_row("text", ["http://localhost:8080/", "http://127.0.0.1:9000/", "http://[::1]:9000/"])
def test_a_host_and_port_can_be_opened(text: str) -> None:
    """With its port, which need not be among the usual ones."""
    url = parse_url(text)
    OPENED.check_url(url)
    assert ["127.0.0.1"] == OPENED.check_addresses(url.host, url.port, ["127.0.0.1"])


@every_row(
    "text", ["http://localhost/", "http://127.0.0.1:8080/", "http://localhost.evil.example:8080/"]
)
def test_nothing_else_is_opened_with_it(text: str) -> None:
    """Neither another port of the host nor another host of the port."""
    url = parse_url(text)
    with pytest.raises(EgressRefused, match="loopback"):
        OPENED.check_addresses(url.host, url.port, ["127.0.0.1"])


@every_row("address", ["169.254.169.254", "fd00:ec2::254", "::ffff:127.0.0.1"])
def test_an_opened_name_does_not_lead_to_a_metadata_service(address: str) -> None:
    """Whatever the name resolves to."""
    with pytest.raises(EgressRefused):
        OPENED.check_addresses("localhost", 8080, [address])


def test_a_metadata_address_cannot_be_opened() -> None:
    """Naming it in the configuration changes nothing."""
    rules = ReachRules(opened=parse_opened(["169.254.169.254:80", "[fd00:ec2::254]:80"]))
    for text in ("http://169.254.169.254/", "http://[fd00:ec2::254]/"):
        with pytest.raises(EgressRefused, match="metadata"):
            rules.check_url(parse_url(text))


@every_row(
    "entry", ["", "localhost", ":80", "localhost:", "localhost:x", "localhost:0", "a:70000", "a:²"]
)
def test_a_bad_entry_is_named(entry: str) -> None:
    """The error names its setting."""
    with pytest.raises(InvalidParams, match=r"fetch\.private"):
        parse_opened([entry])


def test_a_bad_host_of_an_entry_is_named() -> None:
    """A spelling that no request could have is refused when it is configured."""
    with pytest.raises(InvalidParams, match="IPv4"):
        parse_opened(["127.1:80"])
