"""Hosts: their canonical form, and the addresses that are refused.

Canonical form: IDNA, lower case, no trailing dot; canonical addresses.  A resolver reads `0x7f.1`,
`0177.0.0.1` and `2130706433` as 127.0.0.1, a person and a rule do not.  So a name whose last label
looks like a number is refused unless it is an IPv4 address in its usual spelling (the test is that
of the WHATWG URL standard, `ends in a number`).

Refused addresses: `ipaddress.is_global` is no such list.  It lets NAT64, IPv4-compatible, site-local
and multicast addresses pass, and its answer changes between patch releases of Python.  Sources: the
IANA special purpose registries (RFC 6890 and what updates it) and the metadata services of the
clouds.  Everything in the list is refused.  The kind of a range decides whether a configuration may
open it for one host and port: private networks yes, anything else (metadata services above all)
never.
"""

import re
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Literal, NamedTuple

import idna

from palyra.core.text.excerpt import truncate_safely
from palyra.errors import InvalidParams

Address = IPv4Address | IPv6Address
HostMark = Literal["metadata", "internal", "odd"]
MAX_HOST_CHARS = 253  # RFC 1035
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")

# --- canonical form ------------------------------------------------------------------------------


def normal_host(text: str) -> str:
    """Return the canonical host; an IPv6 address is passed and returned in brackets.

    Raises InvalidParams for what is not a host or not its usual spelling.
    """
    if text.startswith("[") and text.endswith("]"):
        return f"[{_ipv6(text[1:-1])}]"
    if not text or len(text) > MAX_HOST_CHARS + 1:
        raise _bad(text, f"a host has 1 to {MAX_HOST_CHARS} characters")
    name = _ascii(text).lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    if len(name) > MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise _bad(text, "its labels must be of letters, digits, - and _")
    return name


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise _bad(text, "it is no international domain name") from None


def _ipv4(name: str) -> str:
    try:
        return str(IPv4Address(name))  # accepts only four decimal numbers without leading zeros
    except AddressValueError:
        raise _bad(name, "write an IPv4 address as four decimal numbers") from None


def _hexadecimal(address: IPv6Address) -> str:
    """Shorten eight groups; Python 3.13 writes a mapped address with dots, older versions do not."""
    mapped = address.ipv4_mapped
    if mapped is None:
        return str(address)
    return f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}"


def _ipv6(text: str) -> str:
    try:
        if "%" not in text:
            return _hexadecimal(IPv6Address(text))
    except AddressValueError:
        pass
    raise _bad(f"[{text}]", "it is no IPv6 address")


def _bad(text: str, why: str) -> InvalidParams:
    return InvalidParams(f"host {truncate_safely(text, 80)!r}: {why}", field="url")


# --- the list: the first range that holds an address names it ------------------------------------


class Range(NamedTuple):
    """A range of refused addresses."""

    network: IPv4Network | IPv6Network
    name: str
    is_openable: bool = False  # by an explicit host and port of the configuration


_METADATA = (
    "169.254.169.254/32",  # AWS, Azure, Google, Oracle, DigitalOcean, OpenStack
    "169.254.170.2/32",  # AWS container credentials
    "169.254.170.23/32",  # AWS pod identity
    "169.254.42.42/32",  # Scaleway
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure's wire server; otherwise a public address
    "192.0.0.192/32",  # Oracle
    "fd00:ec2::254/128",  # AWS
    "fd00:ec2::23/128",  # AWS pod identity
    "fd20:ce::254/128",  # Google
    "fd00:c1::a9fe:a9fe/128",  # Oracle
    "fd00:42::42/128",  # Scaleway
)
_OPENABLE = {
    "10.0.0.0/8": "private",
    "172.16.0.0/12": "private",
    "192.168.0.0/16": "private",
    "fc00::/7": "private",
    "127.0.0.0/8": "loopback",
    "::1/128": "loopback",
    "100.64.0.0/10": "carrier-grade NAT",
}
_CLOSED = {
    "0.0.0.0/8": "this network",
    "169.254.0.0/16": "link-local",
    "192.0.0.0/24": "protocol assignments",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relay",
    "198.18.0.0/15": "benchmark",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/128": "unspecified",
    "::/96": "IPv4-compatible",
    "::ffff:0:0/96": "IPv4-mapped",
    "::ffff:0:0:0/96": "IPv4-translated",
    "64:ff9b::/96": "NAT64",
    "64:ff9b:1::/48": "local-use NAT64",
    "100::/64": "discard-only",
    "2001::/32": "Teredo",
    "2001:2::/48": "benchmark",
    "2001:10::/28": "ORCHID",
    "2001:20::/28": "ORCHID",
    "2001:db8::/32": "documentation",
    "2001::/23": "protocol assignments",
    "2002::/16": "6to4",
    "3fff::/20": "documentation",
    "5f00::/16": "segment routing",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
    # Global unicast is 2000::/3 only; the ranges below and above it.
    "::/3": "reserved",
    "4000::/2": "reserved",
    "8000::/1": "reserved",
}
RANGES: tuple[Range, ...] = (
    *(Range(ip_network(text), "metadata service") for text in _METADATA),
    *(Range(ip_network(text), name, is_openable=True) for text, name in _OPENABLE.items()),
    *(Range(ip_network(text), name) for text, name in _CLOSED.items()),
)


def find_range(address: Address) -> Range | None:
    """Return the refused range that contains the address; None if it may be contacted."""
    return next((found for found in RANGES if address in found.network), None)


def may_be_opened(text: str) -> bool:
    """True if the configuration can allow that address for one host and port."""
    try:
        found = find_range(ip_address(text))
    except ValueError:
        return False
    return found is not None and found.is_openable


def find_refusal(text: str, *, is_opened: bool) -> str | None:
    """Return why an address, as a resolver writes it, is refused; None if it is allowed.

    `is_opened`: the configuration opens private networks for the host and port in question.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return "it is no address"
    found = find_range(address)
    if found is None or (found.is_openable and is_opened):
        return None
    return f"{found.name} addresses are not contacted"


# --- marks for the rules -------------------------------------------------------------------------

# Names of the metadata services of clouds, at any address.
_METADATA_NAMES = frozenset(
    {
        "metadata", "metadata.google.internal", "metadata.goog", "instance-data",
        "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
        "metadata.platformequinix.com",
    }
)  # fmt: skip


def host_marks(host: str) -> frozenset[HostMark]:
    """Return the marks of a host by its spelling; none for "" and for names that need a resolver."""
    if not host:
        return frozenset()
    try:
        name = normal_host(host if ":" not in host or host.startswith("[") else f"[{host}]")
    except InvalidParams:
        return frozenset({"odd"})
    if name in _METADATA_NAMES:
        return frozenset({"metadata"})
    try:
        found = find_range(ip_address(name.strip("[]")))
    except ValueError:  # a name
        return frozenset()
    if found is None:
        return frozenset()
    return frozenset({"metadata" if found.name == "metadata service" else "internal"})
