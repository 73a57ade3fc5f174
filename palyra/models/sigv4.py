"""AWS Signature Version 4 of one request, for Bedrock with an access key.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html.  A signature
covers the method, the address, the given headers and the body; the receiver refuses a request that
differs in one of them, or is more than some minutes old.

Pure: the time is an argument, and the secret never leaves the HMAC.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class AwsCredentials(NamedTuple):
    """An access key; `session` is the token of a temporary one, else ""."""

    key_id: str
    secret: str
    session: str = ""


class SigningScope(NamedTuple):
    """Region and service that a signature is valid for."""

    region: str
    service: str


def sign(  # noqa: PLR0913 - the parts of a request
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    credentials: AwsCredentials,
    scope: SigningScope,
    now_ms: int,
) -> dict[str, str]:
    """Return the headers to add: `x-amz-date`, `authorization`, and a temporary key's token.

    The signature covers `headers` and the host.
    """
    moment = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": moment}
    if credentials.session:
        added["x-amz-security-token"] = credentials.session
    signed = {
        name.lower(): " ".join(value.split())
        for name, value in {**headers, **added, "host": host_of(url)}.items()
    }
    names = ";".join(sorted(signed))
    canonical = "\n".join([
        method,
        _canonical_path(url),
        _canonical_query(url),
        *(f"{name}:{signed[name]}" for name in sorted(signed)),
        "",
        names,
        hashlib.sha256(body).hexdigest(),
    ])  # fmt: skip
    day = moment[:8]
    granted = f"{day}/{scope.region}/{scope.service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"{ALGORITHM}\n{moment}\n{granted}\n{digest}"
    key = f"AWS4{credentials.secret}".encode()
    for part in (*granted.split("/"), to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    added["authorization"] = (
        f"{ALGORITHM} Credential={credentials.key_id}/{granted}, "
        f"SignedHeaders={names}, Signature={key.hex()}"
    )
    return added


def host_of(url: str) -> str:
    """Return the host header of the address: the default port of its scheme is left out."""
    parts = urlsplit(url)
    is_default = parts.port in {None, _DEFAULT_PORTS.get(parts.scheme)}
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return host if is_default else f"{host}:{parts.port}"


def _canonical_path(url: str) -> str:
    """Encode the path once more, as every service but S3 expects it."""
    return quote(urlsplit(url).path or "/", safe="/-_.~")


def _canonical_query(url: str) -> str:
    pairs = (each.partition("=") for each in urlsplit(url).query.split("&") if each)
    encoded = [
        (quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~"))
        for name, _, value in pairs
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))
