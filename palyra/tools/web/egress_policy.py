"""Egress rules for requests made for a model: allowed hosts, ports and addresses.

`check_url` runs before a name is resolved; `check_addresses` runs on the resolved addresses before
any connection is made.  One refused address refuses the whole answer, because a later DNS answer
may contain only that address.
"""

from collections.abc import Iterable

import msgspec

from palyra.core.tool.hosts import find_refusal, may_be_opened, normal_host
from palyra.errors import InvalidParams, Rejected
from palyra.tools.web.urls import MAX_PORT, Url

USUAL_PORTS = frozenset({80, 443})


class EgressRefused(Rejected):
    """The egress rules refuse this host, port or address."""

    code = "unreachable"


class ReachRules(msgspec.Struct, frozen=True, kw_only=True):
    """Configured ports and private hosts.  No setting allows a cloud metadata service."""

    ports: frozenset[int] = USUAL_PORTS
    opened: frozenset[tuple[str, int]] = frozenset()  # (host, port) that may be private

    def is_opened(self, host: str, port: int) -> bool:
        """True if this host and port may be at a private address."""
        return (host, port) in self.opened

    def check_port(self, host: str, port: int) -> None:
        """Raise EgressRefused for a port that is neither 80, 443 nor configured."""
        if port not in self.ports and not self.is_opened(host, port):
            listed = ", ".join(map(str, sorted(self.ports)))
            is_near = host == "localhost" or may_be_opened(host.strip("[]"))
            how = _how_to_open(host, port) if is_near else "the setting is fetch.ports"
            raise EgressRefused(f"port {port} of {host} is not contacted, only {listed}; {how}")

    def check_url(self, url: Url) -> None:
        """Check the port and a literal address, before DNS.  Raises EgressRefused."""
        self.check_port(url.host, url.port)
        literal = url.host.strip("[]")
        if ":" in literal or literal.replace(".", "").isdigit():
            self.check_addresses(url.host, url.port, [literal])

    def check_addresses(self, host: str, port: int, addresses: Iterable[str]) -> list[str]:
        """Return the addresses as a list.  Raises EgressRefused if one is refused or none is given."""
        found = list(addresses)
        if not found:
            raise EgressRefused(f"{host} has no address")
        for address in found:
            refusal = find_refusal(address, is_opened=self.is_opened(host, port))
            if refusal is not None:
                how = f"; {_how_to_open(host, port)}" if may_be_opened(address) else ""
                raise EgressRefused(f"{host} is at {address}, and {refusal}{how}")
        return found


def _how_to_open(host: str, port: int) -> str:
    return f'fetch.private = ["{host}:{port}"] opens this one'


def parse_opened(entries: Iterable[str]) -> frozenset[tuple[str, int]]:
    """Parse the `host:port` entries of `fetch.private`.  Raises InvalidParams for other forms."""
    return frozenset(_opened(entry) for entry in entries)


def _opened(entry: str) -> tuple[str, int]:
    host, _, digits = entry.rpartition(":")
    if not host or not digits.isascii() or not digits.isdigit() or not 0 < int(digits) <= MAX_PORT:
        raise InvalidParams(
            f"fetch.private holds {entry!r}: expected host:port, such as localhost:8080",
            field="fetch.private",
        )
    return normal_host(host), int(digits)
