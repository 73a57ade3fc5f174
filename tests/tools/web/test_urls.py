"""URLs: one strict reading, rebuilt from its parts."""

from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import InvalidParams
from palyra.tools.web.urls import DEFAULT_PORTS, MAX_URL_CHARS, Url, join_url, parse_url
from tests.rows import every_row

READ = [
    ("http://example.com", "http://example.com/"),
    ("HTTP://Example.COM:80/A?b=C#frag", "http://example.com/A?b=C"),
    ("https://example.com:443/", "https://example.com/"),
    ("https://example.com:8443/x", "https://example.com:8443/x"),
    ("https://example.com:/x", "https://example.com/x"),
    ("http://example.com:443/", "http://example.com:443/"),
    ("http://example.com?x=1", "http://example.com/?x=1"),
    ("http://example.com#x", "http://example.com/"),
    ("http://[::1]:8080/x", "http://[::1]:8080/x"),
    ("http://bücher.example/ä?ö=ü", "http://xn--bcher-kva.example/%C3%A4?%C3%B6=%C3%BC"),
    ("http://e.example/%7Ex%zz", "http://e.example/%7Ex%zz"),
    ('http://e.example/a"<>^`{|}b', "http://e.example/a%22%3C%3E%5E%60%7B%7C%7Db"),
    ("http://e.example/a@b:c", "http://e.example/a@b:c"),
    ("http://e.example/../x", "http://e.example/../x"),
    ("http://e.example/a#b\u2028c", "http://e.example/a"),
]
REFUSED = [
    "", "example.com", "//example.com", "ftp://example.com/", "file:///etc/passwd",
    "javascript:alert(1)", "http:/example.com", "http:///x", "http://", "http://:80/",
    "http://user@example.com/", "http://user:pw@example.com/", "http://@example.com/",
    "http://example.com:0/", "http://example.com:65536/", "http://example.com:123456/",
    "http://example.com:+80/", "http://example.com:８０/", "http://example.com:8 0/",  # noqa: RUF001
    "http://example.com\\@evil.example/", "http://example.com\t/", "http://exam\nple.com/",
    " http://example.com/", "http://example.com/a b", "http://exa%6dple.com/",
    "http://127.1/", "http://0x7f.1/", "http://[::1", "http://::1/", "http://[::1]x/",
    "http://[::1]:x/", "http://a:80:80/", "http://a[::1]/", "http://example.com/" + "x" * 8192,
    "http://e.example/\ud800",
]  # fmt: skip


@every_row(("text", "expected"), READ)
def test_a_url_is_read_one_way(text: str, expected: str) -> None:
    """Scheme and host in their one form, path and query percent-encoded, no fragment."""
    assert expected == parse_url(text).text


@every_row("text", [text for _, text in READ])
def test_the_form_is_final(text: str) -> None:
    """The form of a form is itself."""
    assert text == parse_url(text).text


@every_row("text", REFUSED)
def test_a_url_that_a_browser_would_repair_is_refused(text: str) -> None:
    """A text that two parsers could read differently is not a valid URL."""
    with pytest.raises(InvalidParams):
        parse_url(text)


def test_a_password_is_not_repeated() -> None:
    """The refusal of a URL with credentials does not show them."""
    for text in ("https://user:hunter2secret@example.com/", "https://hunter2secret@example.com/"):
        with pytest.raises(InvalidParams, match="name a credential") as caught:
            parse_url(text)
        assert "hunter2" not in caught.value.message


def test_a_url_has_a_length() -> None:
    """The longest URL is read, one character more is not."""
    longest = "http://e.example/".ljust(MAX_URL_CHARS, "x")
    assert longest == parse_url(longest).text
    with pytest.raises(InvalidParams, match="longer"):
        parse_url(longest + "x")


def test_parts() -> None:
    """A URL knows its origin and its Host header."""
    url = parse_url("https://Example.com:8443/x?y")
    assert url == Url(scheme="https", host="example.com", port=8443, target="/x?y")
    assert url.origin == ("https", "example.com", 8443)
    assert url.authority == "example.com:8443"
    assert parse_url("https://example.com/").authority == "example.com"


@every_row(
    ("location", "expected"),
    [
        ("/b", "https://e.example/b"),
        ("b?c", "https://e.example/a/b?c"),
        ("../b", "https://e.example/b"),
        ("//other.example/x", "https://other.example/x"),
        ("http://other.example/x", "http://other.example/x"),
        ("?q", "https://e.example/a/?q"),
        ("", "https://e.example/a/"),
    ],
)
def test_a_redirect_is_joined(location: str, expected: str) -> None:
    """Relative locations start at the page they came from."""
    assert expected == join_url(parse_url("https://e.example/a/"), location).text


@every_row(
    "location", ["ftp://e.example/", "http://user@e.example/", "http://[::1", "//127.1/", "\\\\x"]
)
def test_a_redirect_is_parsed_as_strictly(location: str) -> None:
    """A text that is not a valid URL is not a valid location."""
    with pytest.raises(InvalidParams):
        join_url(parse_url("https://e.example/a/"), location)


PIECES = st.sampled_from(
    ["http://", "https://", "HTTP:", "//", "e.example", "127.0.0.1", "127.1", "[::1]", "bücher.example",
     "user", "@", ":", "80", "8080", "/", "\\", "?", "#", "%", "%2f", "%40", ".", "..", "a", "É", "\t",
     " ", ";", "&", "=", "[", "]", "\uff45", "。", "\u00ad", "\u2028", "|", "^", "'", '"', "<", "0x7f"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
def test_no_other_parser_reads_another_host(text: str) -> None:
    """Of what is read at all, two other parsers see the scheme, host and port that we see."""
    for candidate in (text, f"http://{text}", f"http://e.example{text}"):
        try:
            url = parse_url(candidate)
        except InvalidParams:
            continue
        split, other = urlsplit(url.text), httpx.URL(url.text)
        host = url.host.strip("[]")
        assert (url.scheme, host) == (split.scheme, split.hostname)
        assert (url.scheme, host) == (other.scheme, other.raw_host.decode("ascii"))
        assert url.port == (split.port or DEFAULT_PORTS[url.scheme])
        assert url.port == (other.port or DEFAULT_PORTS[url.scheme])
        # The text as it was given, too, where the others take it.
        assert httpx_host(candidate) in {None, host}


def httpx_host(text: str) -> str | None:
    """The host as httpx reads it, in ASCII; None for what it does not read."""
    try:
        return httpx.URL(text).raw_host.decode("ascii").removesuffix(".").strip("[]")
    except httpx.InvalidURL:
        return None
