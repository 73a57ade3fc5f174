"""Addresses: every range that is refused, its edges, and what a configuration may open."""

import ipaddress
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.tool.hosts import RANGES, Range, find_range, find_refusal
from tests.rows import every_row

REFUSED = [
    ("0.0.0.0", "this network"),  # noqa: S104 - not bound, refused
    ("0.1.2.3", "this network"),
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.168.0.1", "private"),
    ("fc00::1", "private"),
    ("fdff:ffff::1", "private"),
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("::1", "loopback"),
    ("100.64.0.1", "carrier-grade NAT"),
    ("100.127.255.255", "carrier-grade NAT"),
    ("169.254.0.1", "link-local"),
    ("169.254.255.255", "link-local"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("febf:ffff::1", "link-local"),
    ("fec0::1", "site-local"),
    ("feff::1", "site-local"),
    ("192.0.0.1", "protocol assignments"),
    ("192.0.0.171", "protocol assignments"),
    ("192.0.2.1", "documentation"),
    ("198.51.100.7", "documentation"),
    ("203.0.113.255", "documentation"),
    ("2001:db8::1", "documentation"),
    ("3fff::1", "documentation"),
    ("3fff:fff:ffff::1", "documentation"),
    ("192.88.99.1", "6to4 relay"),
    ("198.18.0.1", "benchmark"),
    ("198.19.255.255", "benchmark"),
    ("2001:2::1", "benchmark"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("ff02::1", "multicast"),
    ("ff0e::1", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "reserved"),
    ("::", "unspecified"),
    ("::127.0.0.1", "IPv4-compatible"),
    ("::8.8.8.8", "IPv4-compatible"),
    ("::ffff:127.0.0.1", "IPv4-mapped"),
    ("::ffff:8.8.8.8", "IPv4-mapped"),
    ("::ffff:a9fe:a9fe", "IPv4-mapped"),
    ("::ffff:0:127.0.0.1", "IPv4-translated"),
    ("64:ff9b::a9fe:a9fe", "NAT64"),
    ("64:ff9b::8.8.8.8", "NAT64"),
    ("64:ff9b:1::1", "local-use NAT64"),
    ("64:ff9b:1:ffff::10.0.0.1", "local-use NAT64"),
    ("100::1", "discard-only"),
    ("2001::1", "Teredo"),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
    ("2001:10::1", "ORCHID"),
    ("2001:2f::1", "ORCHID"),
    ("2001:1::1", "protocol assignments"),
    ("2001:1ff::1", "protocol assignments"),
    ("2002:7f00:1::1", "6to4"),
    ("2002:808:808::1", "6to4"),
    ("5f00::1", "segment routing"),
    ("1::1", "reserved"),
    ("4000::1", "reserved"),
    ("8000::1", "reserved"),
    ("fe00::1", "reserved"),
    ("169.254.169.254", "metadata service"),
    ("169.254.170.2", "metadata service"),
    ("100.100.100.200", "metadata service"),
    ("168.63.129.16", "metadata service"),
    ("fd00:ec2::254", "metadata service"),
    ("fd20:ce::254", "metadata service"),
]
REACHED = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "168.63.129.15", "169.253.255.255", "169.255.0.0",
    "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.88.98.255", "192.167.255.255",
    "192.169.0.0", "198.17.255.255", "198.20.0.0", "203.0.112.255", "203.0.114.0",
    "223.255.255.255", "2000::1", "2001:200::1", "2001:db7::1", "2001:db9::1", "2003::1",
    "2606:4700::1111", "3ffe::1", "3fff:1000::1",
]  # fmt: skip
OPENABLE = {"private", "loopback", "carrier-grade NAT"}


@every_row(("text", "name"), REFUSED)
def test_a_special_address_is_refused(text: str, name: str) -> None:
    """Each range refuses its addresses and is named."""
    assert f"{name} addresses are not contacted" == find_refusal(text, is_opened=False)


@every_row("text", REACHED)
def test_an_ordinary_address_is_contacted(text: str) -> None:
    """Addresses next to a refused range are allowed."""
    assert find_refusal(text, is_opened=False) is None


@every_row(("text", "name"), REFUSED)
def test_a_configuration_opens_private_networks_only(text: str, name: str) -> None:
    """Metadata services and everything else stay closed, whatever is configured."""
    assert (find_refusal(text, is_opened=True) is None) == (name in OPENABLE)


@every_row("text", ["", "localhost", "1.2.3", "0x7f.0.0.1", "127.1", "1.1.1.1/32"])
def test_an_invalid_address_is_refused(text: str) -> None:
    """An invalid answer of a resolver leads to no connection."""
    assert find_refusal(text, is_opened=True) == "it is no address"


@every_row("refused", RANGES)
def test_a_range_holds_its_ends(refused: Range) -> None:
    """First and last address of every range are refused, by it or by one inside of it."""
    assert find_range(refused.network[0]) is not None
    assert find_range(refused.network[-1]) is not None


ADDRESSES = st.one_of(
    st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**128 - 1).map(IPv6Address)
)


@given(ADDRESSES)
def test_every_address_that_ipaddress_calls_not_global_is_refused(
    address: IPv4Address | IPv6Address,
) -> None:
    """Exceptions are the ranges that IANA has made global."""
    if address.is_private or address.is_multicast or address.is_link_local or address.is_reserved:
        assert find_range(address) is not None


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_only_global_unicast_is_reached_over_ipv6(address: IPv6Address) -> None:
    """Beyond 2000::/3 nothing is."""
    if address not in ipaddress.ip_network("2000::/3"):
        assert find_range(address) is not None


@every_row(
    "text",
    ["64:ff9b::a9fe:a9fe", "ff0e::1", "224.0.0.1"],
)
def test_the_library_alone_would_let_these_pass(text: str) -> None:
    """The control: `is_global` says yes to addresses that lead inside or everywhere."""
    assert ipaddress.ip_address(text).is_global
    assert find_refusal(text, is_opened=False) is not None
