"""Outbound connections: settings, the environment, and what goes through a proxy."""

import pytest

from palyra.core.outbound import find_proxy, is_loopback, place_of, read_outbound
from palyra.errors import InvalidParams
from tests.rows import every_row

PROXY, OTHER = "http://proxy.corp:3128", "http://user:hidden@other.corp"


@every_row(
    ("environ", "settings", "url", "expected"),
    [
        ({}, {}, "https://api.example/v1", ""),
        ({"HTTPS_PROXY": PROXY}, {}, "https://api.example/v1", PROXY),
        ({"https_proxy": PROXY}, {}, "https://api.example/v1", PROXY),
        ({"HTTPS_PROXY": "proxy.corp:3128"}, {}, "https://api.example/v1", PROXY),
        ({"HTTPS_PROXY": PROXY}, {}, "http://api.example/v1", ""),
        ({"HTTP_PROXY": PROXY}, {}, "http://api.example/v1", PROXY),
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, {}, "http://api.example/v1", ""),
        ({"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, {}, "http://api.example/v1", PROXY),
        ({"ALL_PROXY": PROXY}, {}, "https://api.example/v1", PROXY),
        ({"ALL_PROXY": PROXY, "HTTPS_PROXY": OTHER}, {}, "https://api.example/v1", OTHER),
        ({"HTTPS_PROXY": OTHER}, {"proxy": PROXY}, "https://api.example/v1", PROXY),
        ({"HTTPS_PROXY": OTHER}, {"proxy": "none"}, "https://api.example/v1", ""),
        ({}, {"proxy": PROXY}, "http://api.example/v1", PROXY),
        ({}, {"proxy": PROXY, "direct": ("example",)}, "http://api.example/v1", ""),
    ],
)
def test_the_setting_and_then_the_environment_decide(
    environ: dict[str, str], settings: dict[str, str], url: str, expected: str
) -> None:
    """A setting is for both schemes; a variable is for its own."""
    assert expected == find_proxy(read_outbound(environ, **settings), url)


@every_row(
    ("no_proxy", "url", "is_direct"),
    [
        ("*", "https://api.example", True),
        ("example", "https://api.example", True),
        (".example", "https://api.example", True),
        ("*.example", "https://api.example", True),
        ("a.example, api.example ", "https://API.example.", True),
        ("pi.example", "https://api.example", False),
        ("api.example:443", "https://api.example", True),
        ("api.example:8443", "https://api.example", False),
        ("", "https://api.example", False),
        ("10.0.0.0/8", "https://10.1.2.3:8080", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("10.1.2.3", "https://10.1.2.3", True),
        ("fd00::/8", "https://[fd00::1]:80", True),
        ("[fd00::1]", "https://[fd00::1]", True),
    ],
)
def test_no_proxy_names_hosts_domains_and_networks(
    no_proxy: str, url: str, *, is_direct: bool
) -> None:
    """As other programs read it, and networks as well."""
    outbound = read_outbound({"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})
    assert is_direct == (not find_proxy(outbound, url))


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"]  # noqa: S104
)  # fmt: skip
def test_loopback_is_never_sent_to_a_proxy(host: str) -> None:
    """Whatever settings and variables say."""
    outbound = read_outbound({"ALL_PROXY": PROXY}, proxy=PROXY)
    for scheme in ("http", "https"):
        assert not find_proxy(outbound, f"{scheme}://{host}:11434/v1")
    assert is_loopback(host.strip("[]"))
    assert not is_loopback("localhost.example")


@every_row(
    "proxy",
    ["proxy.corp:3128", "socks5://proxy.corp", "http://", "http://p:port", "http://p/path", OTHER],
)
def test_a_setting_that_is_no_proxy_is_refused(proxy: str) -> None:
    """The field is named, and a password is not repeated."""
    with pytest.raises(InvalidParams) as caught:
        read_outbound({}, proxy=proxy)
    assert "network.proxy" == caught.value.field
    assert "hidden" not in caught.value.message


def test_a_variable_of_another_kind_is_refused_where_it_is_used() -> None:
    """Not at the start of a daemon that needs no proxy, and never by a direct connection instead."""
    outbound = read_outbound({"ALL_PROXY": "socks5://u:hidden@proxy.corp"})
    assert not find_proxy(outbound, "http://127.0.0.1:11434")
    with pytest.raises(InvalidParams, match=r"ALL_PROXY.*this one has socks5") as caught:
        find_proxy(outbound, "https://api.example")
    assert "hidden" not in caught.value.message


def test_authorities_and_the_settings_of_one_peer() -> None:
    """Variables replace the usual authorities, settings add one; a peer may have its own."""
    environ = {"SSL_CERT_FILE": "/a.pem", "SSL_CERT_DIR": "/certs", "HTTPS_PROXY": PROXY}
    outbound = read_outbound(environ, ca_file="/b.pem")
    assert ("/a.pem", "/certs", "/b.pem") == (
        outbound.roots_file, outbound.roots_dir, outbound.ca_file,
    )  # fmt: skip
    own = outbound.replaced("none", "/c.pem", "field")
    assert ("", "/c.pem") == (find_proxy(own, "https://api.example"), own.ca_file)
    assert outbound == outbound.replaced("", "", "field")
    assert ("other.corp:80", "p:8443") == (place_of(OTHER), place_of("https://p:8443"))
