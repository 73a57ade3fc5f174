"""The attestation of every proposed call: the execution, its rules and its result, signed.

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

from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.text.canonical_json import NotCanonical, canonical_json, digest_of_any
from palyra.core.tool.spec import OutcomeStatus, ToolCall


def execution_object(
    call: ToolCall, policy_version: str, covers: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the execution object; `covers`: ids of identical calls of the turn in the same question.

    A call among `covers` has the object of the call that was asked about first.
    """
    seen = call.inspection
    is_elsewhere = call.workspace != DEFAULT_WORKSPACE  # other digests are older than the field
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
        **({"workspace": call.workspace} if is_elsewhere else {}),
    }


def execution_digest(call: ToolCall, policy_version: str, covers: tuple[str, ...] = ()) -> str:
    """Return the SHA-256 of the canonical execution object, hex."""
    return digest_of_any(execution_object(call, policy_version, covers))


Verify = Callable[[bytes, bytes], bool]  # (message, signature) -> True if the key made it

FIRST = ""  # `prev` of a run's first attestation
_DOMAIN = b"palyra.attestation.v1\0"
# Sorted ASCII names and no floats: the bytes equal RFC 8785 (checked by a property test).
_ENCODER = msgspec.json.Encoder(order="sorted")


class Attestation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The unsigned document."""

    call_id: str
    tool: str
    arguments_sha256: str
    output_sha256: str  # of the output as recorded: redacted, possibly cut
    raw_output_sha256: str  # of the output as returned by the tool
    status: OutcomeStatus
    executor: str
    enforcement: str
    policy_hash: str
    started_ms: int
    finished_ms: int
    prev: str  # digest of the previous attestation, hex; FIRST for none
    approval_id: str | None = None  # left out without an approval


class Sealed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A signed attestation, as stored on the tape."""

    document: dict[str, Any]
    digest: str  # hex; `prev` of the next attestation
    signature: str  # base64 of 64 bytes


def attestation_bytes(attestation: Attestation) -> bytes:
    """Return the canonical JSON of the document."""
    return _ENCODER.encode(attestation)


def attestation_digest(canonical: bytes) -> bytes:
    """Return the 32 bytes to sign."""
    framed = b"".join((_DOMAIN, len(canonical).to_bytes(8, "big"), canonical))
    return hashlib.sha256(framed).digest()


def seal_attestation(attestation: Attestation, sign: Callable[[bytes], bytes]) -> Sealed:
    """Return the document with digest and signature."""
    digest = attestation_digest(attestation_bytes(attestation))
    return Sealed(
        document=msgspec.to_builtins(attestation),
        digest=digest.hex(),
        signature=base64.b64encode(sign(digest)).decode("ascii"),
    )


def verify_attestation(document: Mapping[str, Any], signature: str, verify: Verify) -> bool:
    """True if the key of `verify` signed exactly this document, as read from a tape."""
    try:
        raw = base64.b64decode(signature, validate=True)
        digest = _document_digest(document)
    except (binascii.Error, NotCanonical):
        return False
    return verify(digest, raw)


def find_broken_link(documents: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the index of the first attestation that does not continue the chain; None if all do."""
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
