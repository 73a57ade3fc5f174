"""Attestations: canonical, signed, linked."""

import base64
import hashlib
from typing import Any

import msgspec
import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.text.canonical_json import MAX_SAFE_INTEGER
from palyra.core.tool.attestation import (
    FIRST,
    Attestation,
    Sealed,
    attestation_bytes,
    attestation_digest,
    find_broken_link,
    seal_attestation,
    verify_attestation,
)
from palyra.core.tool.spec import OutcomeStatus
from tests.rows import every_row

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TIMES = st.integers(0, MAX_SAFE_INTEGER)


def verify(message: bytes, signature: bytes) -> bool:
    """Whether KEY signed the message."""
    try:
        KEY.public_key().verify(signature, message)
    except InvalidSignature:
        return False
    return True


def an_attestation(**changes: object) -> Attestation:
    """The attestation of a call that went well."""
    plain = Attestation(
        call_id="call_1", tool="echo", arguments_sha256="a" * 64, output_sha256="b" * 64,
        raw_output_sha256="c" * 64, status="succeeded", executor="inline", enforcement="none",
        policy_hash="d" * 64, started_ms=1, finished_ms=2, prev=FIRST,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def a_chain() -> list[Sealed]:
    """Three attestations of one run."""
    chain: list[Sealed] = []
    for number in range(3):
        prev = chain[-1].digest if chain else FIRST
        chain.append(seal_attestation(an_attestation(finished_ms=number, prev=prev), KEY.sign))
    return chain


@settings(derandomize=True, max_examples=200)
@given(
    st.fixed_dictionaries(
        dict.fromkeys(["call_id", "tool", "executor", "enforcement", "policy_hash", "prev"], TEXT)
        | {"started_ms": TIMES, "finished_ms": TIMES, "approval_id": st.none() | TEXT}
        | {"status": st.sampled_from(OutcomeStatus.__args__)}  # type: ignore[attr-defined]  # Literal has it
    )
)
def test_bytes_are_canonical_json(changes: dict[str, Any]) -> None:
    """The document's bytes are those of RFC 8785, whatever its fields hold."""
    attestation = an_attestation(**changes)
    assert rfc8785.dumps(msgspec.to_builtins(attestation)) == attestation_bytes(attestation)


def test_the_digest_is_framed() -> None:
    """What is signed is the SHA-256 of domain, length and canonical document."""
    canonical = attestation_bytes(an_attestation())
    framed = b"palyra.attestation.v1\0" + len(canonical).to_bytes(8, "big") + canonical
    sealed = seal_attestation(an_attestation(), KEY.sign)
    assert hashlib.sha256(framed).hexdigest() == sealed.digest
    assert bytes.fromhex(sealed.digest) == attestation_digest(canonical)


def test_a_sealed_document_verifies_after_a_round_trip() -> None:
    """A document read back from JSON verifies under the key that sealed it."""
    sealed = seal_attestation(an_attestation(approval_id="apr_1"), KEY.sign)
    document = msgspec.json.decode(msgspec.json.encode(sealed.document))
    assert verify_attestation(document, sealed.signature, verify)


def test_nobody_asked_nothing_said() -> None:
    """A call without approval has no approval field."""
    assert "approval_id" not in seal_attestation(an_attestation(), KEY.sign).document


@every_row("name", sorted(set(Attestation.__struct_fields__) - {"approval_id"}))
def test_any_changed_field_breaks_the_signature(name: str) -> None:
    """No field can change under a signature."""
    sealed = seal_attestation(an_attestation(), KEY.sign)
    assert not verify_attestation(sealed.document | {name: "other"}, sealed.signature, verify)


@every_row("addition", [{"approval_id": "apr_1"}, {"extra": 1}, {"extra": 1e999}])
def test_an_added_field_breaks_the_signature(addition: dict[str, Any]) -> None:
    """Nothing can be added under a signature, canonical or not."""
    sealed = seal_attestation(an_attestation(), KEY.sign)
    assert not verify_attestation(sealed.document | addition, sealed.signature, verify)


@every_row("signature", ["", "****", base64.b64encode(bytes(64)).decode()])
def test_a_wrong_signature_is_just_wrong(signature: str) -> None:
    """A signature of another shape or key answers no, it does not raise."""
    document = seal_attestation(an_attestation(), KEY.sign).document
    assert not verify_attestation(document, signature, verify)


def test_a_whole_chain_holds() -> None:
    """Attestations in the order they were made follow one another."""
    assert find_broken_link(sealed.document for sealed in a_chain()) is None


def test_a_missing_link_is_found() -> None:
    """The one after a removed attestation does not follow."""
    first, _, third = a_chain()
    assert find_broken_link([first.document, third.document]) == 1


def test_an_edited_document_breaks_the_link_after_it() -> None:
    """An edit shows at the next attestation."""
    first, second, third = a_chain()
    edited = first.document | {"status": "failed"}
    assert find_broken_link([edited, second.document, third.document]) == 1


def test_a_document_without_canonical_form_breaks_its_own_link() -> None:
    """What cannot have been signed is itself the break."""
    first, second, _ = a_chain()
    assert find_broken_link([first.document, second.document | {"extra": 1e999}]) == 1


def test_a_document_without_prev_is_not_first() -> None:
    """A missing `prev` is not the same as an empty one."""
    assert find_broken_link([{"tool": "echo"}]) == 0
