"""Parse the arguments of a web tool into a request.

The functions are pure, so the policy check and the execution see the same request.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from palyra.core.tool.spec import NO_FACETS, CallFacts
from palyra.errors import InvalidParams
from palyra.tools.web.redirects import WebRequest
from palyra.tools.web.urls import DEFAULT_PORTS, Url, parse_url

MAX_HEADERS = 32
MAX_HEADER_CHARS = 4_096
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # RFC 9110
_VALUE = re.compile(r"[\x20-\x7e]*")
# Headers reserved for the client, the connection, credentials, or metadata services.
_KEPT_BACK = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
        "trailer", "expect", "accept-encoding", "authorization", "cookie", "cookie2", "x-api-key",
        "api-key", "metadata", "metadata-flavor",
    }
)  # fmt: skip
_KEPT_BACK_PREFIXES = ("proxy-", "x-aws-", "x-forwarded-", "x-google-metadata")


def read_request(arguments: Mapping[str, Any]) -> WebRequest:
    """Parse tool arguments into a request.  Raises InvalidParams."""
    body = arguments.get("body")
    return WebRequest(
        method=arguments.get("method", "GET" if body is None else "POST"),
        url=parse_url(arguments["url"]),
        headers=tuple(_headers(arguments.get("headers", {}))),
        credential=arguments.get("credential", ""),
        body=None if body is None else body.encode("utf-8"),
    )


def find_facets(arguments: Mapping[str, Any]) -> CallFacts:
    """Return the host and secret for the policy rules, and the key of a grant.

    A grant covers one host, and one credential if the call names one.  Invalid arguments give no
    facts; the call is refused before an approval is requested.
    """
    try:
        request = read_request(arguments)
    except InvalidParams:
        return NO_FACETS
    host, key = request.url.host, grant_key(request.url)
    if not request.credential:
        return CallFacts(host=host, grant_key=key)
    with_credential = f"{key} with {request.credential}"
    return CallFacts(host=host, grant_key=with_credential, secrets=(request.credential,))


def grant_key(url: Url) -> str:
    """Return the host, with the port unless it is 80 or 443."""
    return url.host if url.port in DEFAULT_PORTS.values() else f"{url.host}:{url.port}"


def _headers(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if len(given) > MAX_HEADERS:
        raise InvalidParams(f"headers: {len(given)}; at most {MAX_HEADERS}", field="headers")
    for name, value in given.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise InvalidParams("headers: a name is made of letters, digits and -", field="headers")
        if lower in _KEPT_BACK or lower.startswith(_KEPT_BACK_PREFIXES):
            raise InvalidParams(
                f"headers: {lower} is not yours to set; for what proves who asks, name a credential",
                field="headers",
            )
        is_text = isinstance(value, str) and len(value) <= MAX_HEADER_CHARS
        if not is_text or not _VALUE.fullmatch(value):
            raise InvalidParams(f"headers: {lower} must be a line of ASCII text", field="headers")
        yield lower, value
