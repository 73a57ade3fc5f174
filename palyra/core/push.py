"""Web Push: which addresses are push services, and the claims that a request is signed with.  Pure.

A browser names an address of its vendor's push service, which the daemon posts to (RFC 8030).  The
address comes from a page, so only those of known services are taken: otherwise a caller could make
the daemon ask hosts of its own network.  A request has no content, so a push service learns only
that something waits.  It is signed for the service that it is sent to (RFC 8292).
"""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from palyra.core.outbound import is_loopback
from palyra.errors import InvalidParams

# Hosts of the push services of Chrome and Edge, Firefox, Safari, and Windows; `*.` is any name below.
SERVICES = (
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "*.push.apple.com",
    "*.notify.windows.com",
)
MAX_ENDPOINT_CHARS = 1024
MAX_DEVICES = 64  # of the daemon
SIGNED_FOR_S = 12 * 3600  # RFC 8292: at most 24 hours
KEPT_S = 3600  # by the service, for a device that is off
TOPIC = "question"  # a later request replaces one that was not delivered yet
CONTACT = "mailto:operator@palyra.invalid"  # where the console has no public address
_HTTPS_PORT = 443
_HEADERS = {"ttl": str(KEPT_S), "urgency": "high", "topic": TOPIC}


class PushKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key for a subscription of a browser."""

    public_key: str  # P-256, uncompressed, base64url
    endpoint: str = ""  # where this login rings already; "": nowhere


class PushDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The device of one login."""

    endpoint: str  # "": none


def check_endpoint(url: str, services: Iterable[str]) -> str:
    """Return the origin of a push service's address.

    Raises InvalidParams, without the address: who knows it can ring the device.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    # A client may read a backslash as the end of the host, which would be another one then.
    is_plain = url.isascii() and url.isprintable() and not {" ", "\\"}.intersection(url)
    is_plain = is_plain and "@" not in parts.netloc
    origin = f"{parts.scheme}://{parts.netloc}"
    is_known = (
        parts.scheme == "https"
        and port in {None, _HTTPS_PORT}
        and any(_covers(each, host) for each in services)
    ) or (parts.scheme == "http" and is_loopback(host) and origin in services)
    if not host or not is_plain or not is_known or len(url) > MAX_ENDPOINT_CHARS:
        raise InvalidParams(
            "the endpoint is not an https address of a push service in notify.push_services",
            field="endpoint",
        )
    return origin


def _covers(service: str, host: str) -> bool:
    return host.endswith(service[1:]) if service.startswith("*.") else host == service


def make_claims(origin: str, console_url: str, now_s: int) -> Mapping[str, str | int]:
    """Return what the daemon signs for a service (RFC 8292 section 2)."""
    contact = console_url if console_url.startswith("https:") else CONTACT
    return {"aud": origin, "exp": now_s + SIGNED_FOR_S, "sub": contact}


def make_headers(token: str, public_key: str) -> Mapping[str, str]:
    """Return the headers of a request without content."""
    signed = f"vapid t={token}, k={public_key}"
    return {**_HEADERS, "authorization": signed}
