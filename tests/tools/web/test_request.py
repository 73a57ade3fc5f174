"""A model's arguments as a request."""

from typing import Any

import pytest

from palyra.core.tool.spec import NO_FACETS, CallFacts
from palyra.errors import InvalidParams
from palyra.tools.web.request import MAX_HEADER_CHARS, MAX_HEADERS, find_facets, read_request
from tests.rows import every_row

URL = "https://e.example/"


@every_row(
    ("arguments", "method", "body"),
    [
        ({"url": URL}, "GET", None),
        ({"url": URL, "method": "HEAD"}, "HEAD", None),
        ({"url": URL, "body": "é"}, "POST", "é".encode()),
        ({"url": URL, "body": "", "method": "DELETE"}, "DELETE", b""),
    ],
)
def test_methods(arguments: dict[str, Any], method: str, body: bytes | None) -> None:
    """A body makes it a POST, unless the method is named."""
    request = read_request(arguments)
    assert (method, body) == (request.method, request.body)


def test_headers_are_lower_case() -> None:
    """In the order they were given."""
    request = read_request({"url": URL, "headers": {"X-B": "1", "Accept": "x/y; q=0.1"}})
    assert (("x-b", "1"), ("accept", "x/y; q=0.1")) == request.headers


@every_row(
    "name",
    ["Host", "Content-Length", "Transfer-Encoding", "Connection", "Authorization", "COOKIE",
     "X-API-Key", "Proxy-Authorization", "Proxy-Connection", "X-Forwarded-For", "Metadata",
     "Metadata-Flavor", "X-aws-ec2-metadata-token", "Accept-Encoding", "Upgrade", "TE", "Expect",
     "a b", "a:b", "a\r\nb", "", "é", "x" * 65],
)  # fmt: skip
def test_some_headers_are_not_a_models(name: str) -> None:
    """Those of the connection, of credentials and of metadata services; and what is no name."""
    with pytest.raises(InvalidParams, match="headers"):
        read_request({"url": URL, "headers": {name: "x"}})


@every_row("value", ["a\r\nb", "a\nb", "a\x00b", "é", 5, None, "x" * (MAX_HEADER_CHARS + 1)])
def test_a_value_is_a_line(value: object) -> None:
    """Nothing can end the header and begin another."""
    with pytest.raises(InvalidParams, match="headers"):
        read_request({"url": URL, "headers": {"x-a": value}})


def test_headers_are_counted() -> None:
    """Up to the limit."""
    headers = {f"x-{n}": "1" for n in range(MAX_HEADERS)}
    assert MAX_HEADERS == len(read_request({"url": URL, "headers": headers}).headers)
    with pytest.raises(InvalidParams, match="at most"):
        read_request({"url": URL, "headers": headers | {"x-more": "1"}})


@every_row(
    ("arguments", "expected"),
    [
        ({"url": "HTTPS://E.Example/x"}, CallFacts(host="e.example", grant_key="e.example")),
        ({"url": "http://e.example/"}, CallFacts(host="e.example", grant_key="e.example")),
        ({"url": "http://e.example:8080/"}, CallFacts(host="e.example", grant_key="e.example:8080")),
        ({"url": "http://bücher.example/"},
         CallFacts(host="xn--bcher-kva.example", grant_key="xn--bcher-kva.example")),
        ({"url": URL, "credential": "key"},
         CallFacts(host="e.example", grant_key="e.example with key", secrets=("key",))),
        ({"url": "https://e.example/a?b=1", "method": "DELETE"},
         CallFacts(host="e.example", grant_key="DELETE https://e.example/a?b=1")),
        ({"url": "https://e.example/" + "a" * 1_100, "method": "DELETE"}, CallFacts(host="e.example")),
        ({"url": "http://127.1/"}, NO_FACETS),
        ({"url": URL, "headers": {"host": "x"}}, NO_FACETS),
    ],
)  # fmt: skip
def test_facets(arguments: dict[str, Any], expected: CallFacts) -> None:
    """The host in its one form; a grant without a credential is none for one with it."""
    assert expected == find_facets(arguments)
