"""Redirects: methods, bodies, headers and credentials, by status and origin."""

import pytest

from palyra.errors import InvalidParams
from palyra.tools.web.egress_policy import EgressRefused
from palyra.tools.web.request import WebRequest, follow
from palyra.tools.web.urls import parse_url
from tests.rows import every_row


def a_request(method: str = "GET", url: str = "https://e.example/a") -> WebRequest:
    """A request with everything that is bound to its origin."""
    return WebRequest(
        method=method,
        url=parse_url(url),
        headers=(("x-custom", "1"),),
        credential="key",
        body=None if method in {"GET", "HEAD"} else b"body",
    )


@every_row("status", [301, 302, 303])
@every_row("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_body_is_not_sent_again(status: int, method: str) -> None:
    """301, 302 and 303 turn it into GET, without the body."""
    found = follow(a_request(method), status, "/b")
    assert ("GET", None) == (found.method, found.body)


@every_row("status", [301, 302, 303, 307, 308])
@every_row("method", ["GET", "HEAD"])
def test_reading_stays_reading(status: int, method: str) -> None:
    """GET and HEAD stay what they are, on the same origin and on another."""
    assert method == follow(a_request(method), status, "/b").method
    assert method == follow(a_request(method), status, "https://other.example/").method


@pytest.mark.parametrize("status", [307, 308])
def test_307_and_308_repeat_the_request(status: int) -> None:
    """With method, body, headers and credential, on the same origin."""
    expected = WebRequest(
        method="POST",
        url=parse_url("https://e.example/b"),
        headers=(("x-custom", "1"),),
        credential="key",
        body=b"body",
    )
    assert expected == follow(a_request("POST"), status, "/b")


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_never_goes_to_another_origin(status: int) -> None:
    """The person who allowed it allowed one host."""
    with pytest.raises(EgressRefused, match=r"other\.example"):
        follow(a_request("POST"), status, "https://other.example/")


@every_row("location", ["https://other.example/", "https://e.example:8443/", "//sub.e.example/"])
def test_another_origin_gets_nothing_of_ours(location: str) -> None:
    """Neither custom headers nor the credential: another host, another port, a subdomain."""
    found = follow(a_request(), 302, location)
    assert ((), "") == (found.headers, found.credential)


def test_the_same_origin_keeps_them() -> None:
    """However its URL is spelled."""
    found = follow(a_request(), 302, "HTTPS://E.example:443/b")
    assert ((("x-custom", "1"),), "key") == (found.headers, found.credential)


def test_another_scheme_is_another_origin() -> None:
    """From http to https is followed, without what was meant for http."""
    found = follow(a_request(url="http://e.example/"), 301, "https://e.example/")
    assert ("https", (), "") == (found.url.scheme, found.headers, found.credential)


def test_https_does_not_become_http() -> None:
    """Not even on the same host."""
    with pytest.raises(EgressRefused, match="https to http"):
        follow(a_request(), 302, "http://e.example/")


def test_a_bad_location_is_refused() -> None:
    """A location that is not a valid URL is not followed."""
    with pytest.raises(InvalidParams):
        follow(a_request(), 302, "gopher://e.example/")
