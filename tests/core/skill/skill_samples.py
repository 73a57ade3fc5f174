"""Skills for tests: a description, a key, packages."""

from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palyra.core.skill.manifest import MODULE, SkillDescription
from palyra.core.skill.package import build_package, sign_package

ANN = Ed25519PrivateKey.from_private_bytes(b"a" * 32)
EVE = Ed25519PrivateKey.from_private_bytes(b"e" * 32)
EMPTY_MODULE = b"\0asm\x01\0\0\0"

PLAIN: dict[str, Any] = {
    "id": "words",
    "version": "1.2.0",
    "publisher": "example.org",
    "description": "Counts words.",
    "capabilities": [],
    "tools": [
        {
            "name": "count",
            "description": "Count.",
            "tool_class": "read_only_safe",
            "risk": "low",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        }
    ],
}


def description(**changes: Any) -> SkillDescription:
    """The description with these changes."""
    return msgspec.convert({**PLAIN, **changes}, SkillDescription)


def public_key(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def package(module: bytes = EMPTY_MODULE, key: Ed25519PrivateKey = ANN, **changes: Any) -> bytes:
    """A signed package."""
    unsigned = build_package(description(**changes), {MODULE: module})
    return sign_package(unsigned, public_key(key), key.sign)
