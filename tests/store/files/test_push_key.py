"""The key for push services: kept, private, and what it signs."""

from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature

from palyra.errors import Unavailable
from palyra.store.files.push_key import NAME, PushKeyPair
from tests.vapid import decode, read_claims

CLAIMS: dict[str, str | int] = {"aud": "https://a", "exp": 5, "sub": "mailto:a@b.example"}


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    """A second opening has the same public key; only the owner may read the file."""
    first, second = PushKeyPair(tmp_path), PushKeyPair(tmp_path)
    assert first.public_key == second.public_key
    assert 65 == len(decode(first.public_key))
    assert 0o600 == (tmp_path / NAME).stat().st_mode & 0o777
    (tmp_path / NAME).chmod(0o640)
    with pytest.raises(Unavailable, match="chmod 600"):
        PushKeyPair(tmp_path)


@pytest.mark.parametrize("content", [b"", b"zz", b"0" * 64, b"f" * 64, b"\xff"])
def test_a_damaged_key_is_named(tmp_path: Path, content: bytes) -> None:
    """And is not replaced: the message says what to do."""
    (tmp_path / NAME).write_bytes(content)
    (tmp_path / NAME).chmod(0o600)
    with pytest.raises(Unavailable, match="not a key: remove it"):
        PushKeyPair(tmp_path)
    assert content == (tmp_path / NAME).read_bytes()


def test_a_signature_is_of_the_key(tmp_path: Path) -> None:
    """The public key verifies it, and that of another home does not."""
    pair, other = PushKeyPair(tmp_path / "a"), PushKeyPair(tmp_path / "b")
    for _ in range(20):  # a half of a signature may begin with zeros
        assert CLAIMS == read_claims(pair.sign(CLAIMS), pair.public_key)
    with pytest.raises(InvalidSignature):
        read_claims(pair.sign(CLAIMS), other.public_key)
