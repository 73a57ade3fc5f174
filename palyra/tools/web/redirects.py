"""Redirect handling: RFC 9110 §15.4, with stricter rules for requests of a model."""

import msgspec

from palyra.tools.web.egress_policy import EgressRefused
from palyra.tools.web.urls import Url, join_url

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
