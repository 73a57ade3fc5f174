"""What a redirect makes of a request (RFC 9110 §15.4, and stricter where a model is asking)."""

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
    headers: tuple[tuple[str, str], ...] = ()  # custom ones: bound to the origin
    credential: str = ""  # name of a configured one: bound to the origin
    body: bytes | None = None


def follow(request: WebRequest, status: int, location: str) -> WebRequest:
    """The request that a redirect asks for.

    301, 302 and 303 turn whatever had a body into GET.  Another origin gets neither custom headers
    nor credential nor body.  Raises InvalidParams for a location that cannot be read, Unreachable
    for one that is not followed.
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
