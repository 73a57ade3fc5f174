"""Canonical form of hosts: IDNA, lower case, no trailing dot; canonical addresses.

A resolver reads `0x7f.1`, `0177.0.0.1` and `2130706433` as 127.0.0.1, a person and a rule do not.
So a name whose last label looks like a number is refused unless it is an IPv4 address in its usual
spelling (the test is that of the WHATWG URL standard, `ends in a number`).
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import idna

from palyra.core.text.excerpt import truncate_safely
from palyra.errors import InvalidParams

MAX_HOST_CHARS = 253  # RFC 1035
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")


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
