"""URLs of requests made for a model: one strict reading, so that no two parsers can disagree.

What browsers repair (tabs, backslashes, credentials, empty hosts) is refused here.  The request is
built from the parts below and never from the text again.
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
_KEPT = "%/:?[]@!$&'()*+,;=~-._"  # of RFC 3986: may stand in a path or query as they are


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """One http or https URL in parts."""

    scheme: str
    host: str  # in its one form, see `hosts`
    port: int
    target: str  # path and query, percent-encoded

    @property
    def origin(self) -> tuple[str, str, int]:
        """What credentials are bound to."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The host, and the port where it is not the scheme's own: the Host header."""
        is_usual = self.port == DEFAULT_PORTS[self.scheme]
        return self.host if is_usual else f"{self.host}:{self.port}"

    @property
    def text(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Url:
    """The URL in parts.  Raises InvalidParams, which never repeats what may be a credential."""
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
    """Where a redirect goes.  Raises InvalidParams, which does not repeat a stranger's words."""
    try:
        return parse_url(urljoin(base.text, location))
    except (InvalidParams, ValueError):  # the latter by urljoin, which reads brackets before we can
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
