"""Outbound connections: the proxy for an address, and the authorities that are trusted.  Pure.

A company network often reaches the world through a proxy only, and its certificates are of an authority
of its own.  Both are settings (`network`, and of a provider or a server), or else the variables that
other programs use: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR, the
proxies also in lower case.  HTTP_PROXY is not read where REQUEST_METHOD is set: a header of a CGI
request could have set it.  Loopback addresses are never sent to a proxy.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

import msgspec

from palyra.errors import InvalidParams

DIRECT = "none"  # value of a setting: no proxy, whatever the environment says
_PORTS = {"http": 80, "https": 443}


class Outbound(msgspec.Struct, frozen=True, kw_only=True):
    """Proxies and trusted authorities of connections that leave this machine."""

    http: str = ""  # URL of the proxy for http addresses; "": none
    https: str = ""
    direct: tuple[str, ...] = ()  # hosts that are reached without a proxy, as NO_PROXY has them
    roots_file: str = ""  # PEM file in place of the usual authorities
    roots_dir: str = ""
    ca_file: str = ""  # PEM file with additional ones

    def replaced(self, proxy: str, ca_file: str, field: str) -> "Outbound":
        """Return it with the settings of one peer; "" leaves what is.  Raises InvalidParams."""
        changed = {"ca_file": ca_file} if ca_file else {}
        if proxy:
            url = "" if proxy == DIRECT else check_proxy(proxy, field)
            changed |= {"http": url, "https": url}
        return msgspec.structs.replace(self, **changed) if changed else self


def read_outbound(
    environ: Mapping[str, str],
    *,
    proxy: str = "",
    direct: Iterable[str] = (),
    ca_file: str = "",
    field: str = "network.proxy",
) -> Outbound:
    """Return the settings, completed from the environment.

    Raises InvalidParams for a setting that is no address of a proxy.
    """

    def variable(name: str) -> str:
        return environ.get(name.lower()) or environ.get(name, "")

    everything = variable("ALL_PROXY")
    plain = environ.get("http_proxy", "") if "REQUEST_METHOD" in environ else variable("HTTP_PROXY")
    found = Outbound(
        http=_with_scheme(plain or everything),
        https=_with_scheme(variable("HTTPS_PROXY") or everything),
        direct=(*direct, *variable("NO_PROXY").split(",")),
        roots_file=environ.get("SSL_CERT_FILE", ""),
        roots_dir=environ.get("SSL_CERT_DIR", ""),
    )
    return found.replaced(proxy, ca_file, field)


def _with_scheme(url: str) -> str:
    """Return the proxy of a variable; an address without a scheme is one of http."""
    url = url.strip()
    return url if not url or "://" in url else f"http://{url}"


def check_proxy(url: str, field: str) -> str:
    """Return the address of a proxy from a setting.  Raises InvalidParams."""
    if "@" in url:
        why = "a password does not belong into a setting: leave it empty and set HTTPS_PROXY"
        raise InvalidParams(f"{field}: {why}", field=field)
    return _checked(url, field)


def _checked(url: str, field: str) -> str:
    """Return the URL.  Raises InvalidParams, without a password that the URL may have."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        if parts.scheme in _PORTS and parts.hostname and not parts.path.strip("/"):
            return url
    except ValueError:
        pass
    kind = url.partition("://")[0][:16] if "://" in url else "no scheme"
    raise InvalidParams(
        f"{field}: a proxy is http://HOST:PORT or https://HOST:PORT, or `none`; this one has {kind}",
        field=field,
    )


def find_proxy(outbound: Outbound, url: str) -> str:
    """Return the URL of the proxy for an address; "" for a direct connection.

    Raises InvalidParams for a proxy of the environment that is of no kind that can be used.
    """
    parts = urlsplit(url)
    host, proxy = (parts.hostname or "").rstrip("."), getattr(outbound, parts.scheme, "")
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if not proxy or is_loopback(host):
        return ""
    if any(_covers(entry.strip().lower(), host, port) for entry in outbound.direct):
        return ""
    return _checked(proxy, "network.proxy, or HTTPS_PROXY, HTTP_PROXY and ALL_PROXY")


def is_loopback(host: str) -> bool:
    """True for an address of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def _covers(entry: str, host: str, port: int) -> bool:
    """True if an entry of NO_PROXY names the host, its domain, its network, or all hosts."""
    if entry == "*":
        return True
    name, _, own_port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
    if own_port and own_port != str(port):
        return False
    name = name.strip("[]")
    try:
        return ip_address(host) in ip_network(name, strict=False)
    except ValueError:
        suffix = name.lstrip("*").lstrip(".").rstrip(".")
        return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def place_of(proxy: str) -> str:
    """Return host and port of a proxy for people, without its password."""
    parts = urlsplit(proxy)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"


UNTRUSTED = (
    "name the PEM file of its authority in `network.ca_file`, or in SSL_CERT_FILE of the daemon's "
    "environment"
)
