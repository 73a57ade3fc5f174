"""Host names: one form each, and no spelling of an address but the usual one."""

import socket

import pytest

from palyra.core.tool.hosts import may_be_opened, normal_host
from palyra.errors import InvalidParams
from tests.rows import every_row

NORMAL = [
    ("example.com", "example.com"),
    ("EXAMPLE.Com.", "example.com"),
    ("localhost", "localhost"),
    ("a_b.example", "a_b.example"),
    ("bücher.example", "xn--bcher-kva.example"),
    ("BÜCHER.example", "xn--bcher-kva.example"),
    ("faß.de", "xn--fa-hia.de"),
    ("example。com", "example.com"),  # an ideographic full stop
    ("ｅｘａｍｐｌｅ.com", "example.com"),  # noqa: RUF001
    ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ("8.8.8.8", "8.8.8.8"),
    ("127.0.0.1.", "127.0.0.1"),
    ("１２７.０.０.１", "127.0.0.1"),  # noqa: RUF001 - the address check sees what it is
    ("①②⑦.0.0.1", "127.0.0.1"),
    ("[::1]", "[::1]"),
    ("[0:0:0:0:0:0:0:1]", "[::1]"),
    ("[2001:DB8::1]", "[2001:db8::1]"),
    ("[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    ("1password.example", "1password.example"),
    ("0x7f.example", "0x7f.example"),
    ("x" * 63 + ".example", "x" * 63 + ".example"),
]
REFUSED = [
    "", ".", "..", "a..b", ".example", "-a.example", "a-.example", "a b", "a\x00b", "a%2eb",
    "a/b", "a\\b", "a@b", "a:b", "a#b", "a?b", "<a>", "x" * 64 + ".example", "x." * 127 + "ab",
    "x" * 300, "\u202e.example", "a\u200d.example", "xn--\u00e9.example", "[]", "[::1", "::1]",
    "[::1%eth0]", "[::1%25eth0]", "[1.2.3.4]", "[::12345]", "[v1.x]", "[[::1]]",
]  # fmt: skip
SPELLINGS = [
    "127.1", "127.0.1", "2130706433", "0x7f000001", "0X7F000001", "0x7f.0.0.1", "0x7f.1",
    "0177.0.0.1", "017700000001", "127.0.0.01", "127.0.0.001", "0127.0.0.1", "127.0.0.0x1", "0",
    "0x", "1.2.3.4.5", "256.0.0.1", "1.2.3.256", "1.2.3", "127.0.0.1..", "1..2", "foo.0x1",
    "169.254.43518", "0xa9fea9fe", "0251.0376.0251.0376", "２１３０７０６４３３",  # noqa: RUF001
]  # fmt: skip


@every_row(("text", "expected"), NORMAL)
def test_a_host_has_one_form(text: str, expected: str) -> None:
    """Case, IDNA, full-width letters, trailing dots and IPv6 spellings all meet in one form."""
    assert expected == normal_host(text)


@every_row("host", [host for _, host in NORMAL])
def test_the_form_is_final(host: str) -> None:
    """The form of a form is itself."""
    assert host == normal_host(host)


@every_row("text", REFUSED)
def test_what_is_no_host_is_refused(text: str) -> None:
    """With the offending text, shortened."""
    with pytest.raises(InvalidParams, match="host "):
        normal_host(text)


@every_row("text", SPELLINGS)
def test_an_unusual_spelling_of_an_address_is_refused(text: str) -> None:
    """Octal, hexadecimal, short and whole-number forms of IPv4 never reach a resolver."""
    with pytest.raises(InvalidParams, match="host "):
        normal_host(text)


@every_row("text", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1"])
def test_a_resolver_would_read_them_as_loopback(text: str) -> None:
    """The control: the C library takes each of these for 127.0.0.1."""
    found = socket.getaddrinfo(text, 80, type=socket.SOCK_STREAM)
    assert "127.0.0.1" in {str(address[0]) for *_, address in found}


@every_row(
    ("text", "expected"),
    [
        ("10.0.0.1", True),
        ("169.254.169.254", False),
        ("93.184.216.34", False),
        ("example.com", False),
    ],
)
def test_private_addresses_may_be_opened(text: str, expected: bool) -> None:  # noqa: FBT001 - a case
    """The configuration can allow private addresses; no metadata service, and no name."""
    assert expected == may_be_opened(text)
