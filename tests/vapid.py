"""A push service's view of a request: whose signature it has."""

from base64 import urlsafe_b64decode
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature


def decode(text: str) -> bytes:
    """Base64url without padding."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def read_claims(token: str, public_key: str) -> dict[str, Any]:
    """The claims of a JWT signed with ES256.  Raises InvalidSignature."""
    header, claims, signature = token.split(".")
    assert {"typ": "JWT", "alg": "ES256"} == msgspec.json.decode(decode(header))
    raw = decode(signature)
    assert len(raw) == 64
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(public_key))
    key.verify(der, f"{header}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
    found: dict[str, Any] = msgspec.json.decode(decode(claims))
    return found
