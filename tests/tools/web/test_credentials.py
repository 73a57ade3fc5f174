"""Credentials: each for its own host, over https."""

import pytest

from palyra.errors import NotFound
from palyra.tools.web.credentials import Credential, find_credential
from palyra.tools.web.egress_policy import EgressRefused, ReachRules, parse_opened
from palyra.tools.web.urls import parse_url
from tests.rows import every_row

KEY = Credential(name="key", secret="env:KEY", host="e.example")
RULES = ReachRules(opened=parse_opened(["e.example:8080"]))


@every_row("url", ["https://e.example/", "https://E.example:443", "http://e.example:8080/"])
def test_it_goes_to_its_host(url: str) -> None:
    """Over https, or to a port that is opened by name."""
    assert KEY == find_credential("key", parse_url(url), {"key": KEY}, RULES)


@every_row(
    "url",
    ["https://x.e.example/", "https://example/", "http://e.example/", "http://e.example:443/"],
)
def test_it_goes_nowhere_else(url: str) -> None:
    """Not to a subdomain, not in the clear."""
    with pytest.raises(EgressRefused):
        find_credential("key", parse_url(url), {"key": KEY}, RULES)


def test_an_unknown_one_is_named() -> None:
    """With those there are."""
    with pytest.raises(NotFound, match="configured: key"):
        find_credential("kee", parse_url("https://e.example/"), {"key": KEY}, RULES)
    with pytest.raises(NotFound, match="configured: none"):
        find_credential("kee", parse_url("https://e.example/"), {}, RULES)
