"""A model's arguments as a request; pure, and the same before the gate and after it."""

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
# Whose they are: the client's, the connection's, a credential's, or a metadata service's.
_KEPT_BACK = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
        "trailer", "expect", "accept-encoding", "authorization", "cookie", "cookie2", "x-api-key",
        "api-key", "metadata", "metadata-flavor",
    }
)  # fmt: skip
_KEPT_BACK_PREFIXES = ("proxy-", "x-aws-", "x-forwarded-", "x-google-metadata")


def read_request(arguments: Mapping[str, Any]) -> WebRequest:
    """The request.  Raises InvalidParams for what cannot be one."""
    body = arguments.get("body")
    return WebRequest(
        method=arguments.get("method", "GET" if body is None else "POST"),
        url=parse_url(arguments["url"]),
        headers=tuple(_headers(arguments.get("headers", {}))),
        credential=arguments.get("credential", ""),
        body=None if body is None else body.encode("utf-8"),
    )


def find_facets(arguments: Mapping[str, Any]) -> CallFacts:
    """Host and secret for the rules; a grant is for one host, and with it one credential.

    What cannot be a request has none: it is refused before anybody is asked.
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
    """The host, and its port where it is not one of the two usual ones."""
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
