"""Requests made for a model: parsed from the arguments of a web tool, and followed over redirects.

The functions are pure, so the policy check and the execution see the same request.
Source of the redirects: RFC 9110 §15.4, with stricter rules.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from palyra.core.policy.grants import MAX_KEY_CHARS
from palyra.core.tool.spec import NO_FACETS, CallFacts
from palyra.errors import InvalidParams
from palyra.tools.web.egress_policy import EgressRefused
from palyra.tools.web.urls import DEFAULT_PORTS, Url, join_url, parse_url

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
MAX_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD = frozenset({307, 308})


class WebRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request made for a model."""

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...] = ()  # set by the model; dropped on another origin
    credential: str = ""  # name of a configured credential; dropped on another origin
    body: bytes | None = None


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

    A grant covers reading one host, or sending by one method to one address, query included; and one
    credential if the call names one.  Invalid arguments give no
    facts; the call is refused before an approval is requested.
    """
    try:
        request = read_request(arguments)
    except InvalidParams:
        return NO_FACETS
    host, key = request.url.host, grant_key(request.url)
    if request.method not in {"GET", "HEAD"}:
        key = _sending_key(request)
    if not request.credential:
        return CallFacts(host=host, grant_key=key)
    with_credential = f"{key} with {request.credential}" if key else ""
    return CallFacts(host=host, grant_key=with_credential, secrets=(request.credential,))


def grant_key(url: Url) -> str:
    """Return the host, with the port unless it is 80 or 443."""
    return url.host if url.port in DEFAULT_PORTS.values() else f"{url.host}:{url.port}"


def _sending_key(request: WebRequest) -> str:
    """Return method and address; "" for an address that is too long to be read."""
    key = f"{request.method} {request.url.scheme}://{request.url.authority}{request.url.target}"
    return key if key.isprintable() and len(key) <= MAX_KEY_CHARS else ""


def follow(request: WebRequest, status: int, location: str) -> WebRequest:
    """Return the next request for a redirect response.

    301, 302 and 303 change a request with a body to GET.  A redirect to another origin drops
    custom headers, credential and body.  Raises InvalidParams for an invalid location, and
    EgressRefused for a downgrade from https to http and for a 307 or 308 that would repeat a
    method other than GET and HEAD at another origin.
    """
    url = join_url(request.url, location)
    if request.url.scheme == "https" and url.scheme == "http":
        raise EgressRefused(f"a redirect from https to http is not followed: {url.host}")
    is_same = url.origin == request.url.origin
    keeps = status in _KEEPS_METHOD or request.method in {"GET", "HEAD"}
    if keeps and not is_same and request.method not in {"GET", "HEAD"}:
        raise EgressRefused(
            f"a redirect that takes the {request.method} to another origin is not followed: "
            f"{url.host}"
        )
    return WebRequest(
        method=request.method if keeps else "GET",
        url=url,
        headers=request.headers if is_same else (),
        credential=request.credential if is_same else "",
        body=request.body if keeps else None,
    )


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
