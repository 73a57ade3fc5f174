"""The attestation that ends every proposed call: what ran, under which rules, with what result.

The signed bytes are the SHA-256 of `domain, length (8 bytes, big endian), canonical JSON`.  `prev`
links it to the attestation before it in the same run, so one that is left out is missed.

The execution object: everything the effect of a call depends on, and the digest that names it.

What a person approves is this digest.  The executor builds the object again from what it is about
to run and compares, so a change in any of it needs a new approval.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from palyra.core.text.canonical_json import NotCanonical, canonical_json, digest_of_any
from palyra.core.tool.spec import OutcomeStatus, ToolCall


def execution_object(
    call: ToolCall, policy_version: str, covers: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The object; `covers` are the ids of identical calls of the turn that were asked about at once.

    A call among `covers` has the object of the call that was asked about first.
    """
    seen = call.inspection
    return {
        "arguments": dict(call.arguments),
        "call_ids": list(covers) if call.call_id in covers else [call.call_id],
        "inspection": None if seen is None else msgspec.to_builtins(seen),
        "policy_version": policy_version,
        "principal": call.principal,
        "run_id": call.run_id,
        "session_id": call.session_id,
        "tool": call.tool,
        "tool_version": call.tool_version,
    }


def execution_digest(call: ToolCall, policy_version: str, covers: tuple[str, ...] = ()) -> str:
    """SHA-256 over the canonical execution object, hex."""
    return digest_of_any(execution_object(call, policy_version, covers))


Verify = Callable[[bytes, bytes], bool]  # (message, signature) -> whether the key made it

FIRST = ""  # `prev` of a run's first attestation
_DOMAIN = b"palyra.attestation.v1\0"
# Sorted ASCII names and no floats: the bytes are those of RFC 8785 (held by a property test).
_ENCODER = msgspec.json.Encoder(order="sorted")


class Attestation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The document, before it is signed."""

    call_id: str
    tool: str
    arguments_sha256: str
    output_sha256: str  # of the output as recorded: redacted, possibly cut
    raw_output_sha256: str  # of the output as the tool gave it
    status: OutcomeStatus
    executor: str
    enforcement: str
    policy_hash: str
    started_ms: int
    finished_ms: int
    prev: str  # digest of the attestation before, hex; FIRST for none
    approval_id: str | None = None  # left out when nobody was asked


class Sealed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A signed attestation, as the tape holds it."""

    document: dict[str, Any]
    digest: str  # hex; the next one's `prev`
    signature: str  # base64 of 64 bytes


def attestation_bytes(attestation: Attestation) -> bytes:
    """The canonical JSON of the document."""
    return _ENCODER.encode(attestation)


def attestation_digest(canonical: bytes) -> bytes:
    """The 32 bytes that are signed."""
    framed = b"".join((_DOMAIN, len(canonical).to_bytes(8, "big"), canonical))
    return hashlib.sha256(framed).digest()


def seal_attestation(attestation: Attestation, sign: Callable[[bytes], bytes]) -> Sealed:
    """The document with digest and signature."""
    digest = attestation_digest(attestation_bytes(attestation))
    return Sealed(
        document=msgspec.to_builtins(attestation),
        digest=digest.hex(),
        signature=base64.b64encode(sign(digest)).decode("ascii"),
    )


def verify_attestation(document: Mapping[str, Any], signature: str, verify: Verify) -> bool:
    """Whether the key behind `verify` signed exactly this document (as read from a tape)."""
    try:
        raw = base64.b64decode(signature, validate=True)
        digest = _document_digest(document)
    except (binascii.Error, NotCanonical):
        return False
    return verify(digest, raw)


def find_broken_link(documents: Iterable[Mapping[str, Any]]) -> int | None:
    """Index of the first attestation of a run that does not follow the one before it."""
    prev: str | None = FIRST
    for index, document in enumerate(documents):
        if document.get("prev", "missing") != prev:
            return index
        try:
            prev = _document_digest(document).hex()
        except NotCanonical:
            return index
    return None


def _document_digest(document: Mapping[str, Any]) -> bytes:
    return attestation_digest(canonical_json(dict(document)))
