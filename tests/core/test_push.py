"""Addresses of push services, and what a request to one says."""

import pytest

from palyra.core.push import (
    CONTACT,
    MAX_ENDPOINT_CHARS,
    SERVICES,
    check_endpoint,
    make_claims,
    make_headers,
)
from palyra.errors import InvalidParams

LOOPBACK = "http://127.0.0.1:9999"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://fcm.googleapis.com/fcm/send/a:b-c_d", "https://fcm.googleapis.com"),
        (
            "https://updates.push.services.mozilla.com/wpush/v2/x",
            "https://updates.push.services.mozilla.com",
        ),
        ("https://web.push.apple.com/Q", "https://web.push.apple.com"),
        (
            "https://wns2-par02p.notify.windows.com/w/?token=x",
            "https://wns2-par02p.notify.windows.com",
        ),
        ("https://fcm.googleapis.com:443/a", "https://fcm.googleapis.com:443"),
    ],
)
def test_the_services_of_browsers_are_known(url: str, origin: str) -> None:
    """Each vendor's address is taken, and its origin is what a request is signed for."""
    assert origin == check_endpoint(url, SERVICES)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "https://[",
        "fcm.googleapis.com/a",
        "http://fcm.googleapis.com/a",
        "https://fcm.googleapis.com:8443/a",
        "https://fcm.googleapis.com.evil.example/a",
        "https://evil-fcm.googleapis.com/a",
        "https://evilpush.apple.com/a",
        "https://push.apple.com/a",
        "https://u:p@fcm.googleapis.com/a",
        "https://evil.example@fcm.googleapis.com/a",
        "https://fcm.googleapis.com@evil.example/a",
        "https://fcm.googleapis.com\\@evil.example/a",
        "https://evil.example\\.push.apple.com/a",
        "https://192.168.1.1/a",
        "https://localhost/a",
        "https://fcm.googleapis.com/a b",
        "https://fcm.googleapis.com/\n",
        "https://fcm.googleapis.com/ä",
        "https://fcm.googleapis.com/" + "a" * MAX_ENDPOINT_CHARS,
        f"{LOOPBACK}/a",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    """Another host, scheme, port or spelling; the message does not repeat the address."""
    with pytest.raises(InvalidParams) as refused:
        check_endpoint(url, SERVICES)
    assert len(url) < 10 or url not in refused.value.message


def test_a_plain_address_is_a_loopback_one_of_the_setting() -> None:
    """The exact origin counts, and a remote one is refused although the setting names it."""
    assert LOOPBACK == check_endpoint(f"{LOOPBACK}/a", (LOOPBACK,))
    for url, services in (
        ("http://127.0.0.1:9998/a", (LOOPBACK,)),
        ("http://there.example/a", ("http://there.example",)),
    ):
        with pytest.raises(InvalidParams):
            check_endpoint(url, services)


def test_a_request_says_nothing_of_a_question() -> None:
    """The claims name the service, an end within a day, and a contact; the headers are fixed."""
    claims = make_claims("https://web.push.apple.com", "https://palyra.example/agent/", 1_000)
    assert {
        "aud": "https://web.push.apple.com",
        "exp": 1_000 + 12 * 3600,
        "sub": "https://palyra.example/agent/",
    } == claims
    assert CONTACT == make_claims("https://a", "http://127.0.0.1:7467/", 0)["sub"]
    assert {
        "ttl": "3600",
        "urgency": "high",
        "topic": "question",
        "authorization": "vapid t=T, k=K",
    } == make_headers("T", "K")
