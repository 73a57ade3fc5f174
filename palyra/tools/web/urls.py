"""Strict URL parsing for requests made for a model.

A URL is parsed once, and the request is built from the parsed parts, so no second parser can read
the text differently.  Forms that browsers repair (tabs, backslashes, credentials, empty hosts) are
refused.
"""

import re
from urllib.parse import quote, urljoin

import msgspec

from palyra.core.tool.hosts import normal_host
from palyra.errors import InvalidParams

MAX_URL_CHARS = 8_192
DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_PORT = 65_535

_URL = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_KEPT = "%/:?[]@!$&'()*+,;=~-._"  # RFC 3986: characters left unescaped in a path or query


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed http or https URL."""

    scheme: str
    host: str  # normalized, see `core.tool.hosts`
    port: int
    target: str  # path and query, percent-encoded

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: the scope of a credential."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The value of the Host header: the host, and the port unless it is the scheme's default."""
        is_usual = self.port == DEFAULT_PORTS[self.scheme]
        return self.host if is_usual else f"{self.host}:{self.port}"

    @property
    def text(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Url:
    """Parse a URL.  Raises InvalidParams; its message repeats nothing that may be a credential."""
    if len(text) > MAX_URL_CHARS:
        raise _bad(f"longer than {MAX_URL_CHARS} characters")
    if _UNSAFE.search(text):
        raise _bad("spaces, control characters and backslashes have no place in it")
    found = _URL.fullmatch(text)
    if found is None:
        raise _bad("it must begin with http:// or https://")
    scheme, authority, path, query = found.groups(default="")
    if "@" in authority:
        raise _bad("no user name or password in it: name a credential instead")
    host, port = _split_authority(authority)
    return Url(
        scheme=scheme.lower(),
        host=host,
        port=port if port is not None else DEFAULT_PORTS[scheme.lower()],
        target=quote((path or "/") + query, safe=_KEPT),
    )


def join_url(base: Url, location: str) -> Url:
    """Resolve a redirect location.  Raises InvalidParams without repeating the untrusted text."""
    try:
        return parse_url(urljoin(base.text, location))
    except (InvalidParams, ValueError):  # ValueError: urljoin parses brackets itself
        raise _bad("the location of a redirect cannot be read as one") from None


def _split_authority(authority: str) -> tuple[str, int | None]:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise _bad("the part between // and the path must be a host, or host:port")
    host, digits = found.groups(default="")
    port = int(digits) if digits else None
    if port is not None and not 0 < port <= MAX_PORT:
        raise _bad(f"the port must be 1 to {MAX_PORT}")
    return normal_host(host), port


def _bad(why: str) -> InvalidParams:
    return InvalidParams(f"url: {why}", field="url")
