"""Keys and tokens: made once, private, and never taken from a file that others may read."""

import hashlib
from functools import partial
from pathlib import Path

import pytest

from palyra.errors import Unavailable
from palyra.store.journal.keys import KeyRing, is_signed, read_operator_token
from tests.rows import every_row

# RFC 8032, section 7.1, test 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_signatures_match_the_published_vector() -> None:
    """Public key and signature are those of RFC 8032."""
    ring = KeyRing(SEED)
    assert (PUBLIC, SIGNATURE) == (ring.public_key, ring.sign(b"r"))
    assert hashlib.sha256(PUBLIC).hexdigest().startswith(ring.key_id)


@every_row(
    ("key", "message", "signature", "expected"),
    [
        (PUBLIC, b"r", SIGNATURE, True),
        (PUBLIC, b"s", SIGNATURE, False),
        (PUBLIC, b"r", bytes(64), False),
        (PUBLIC, b"r", b"short", False),
        (KeyRing(bytes(32)).public_key, b"r", SIGNATURE, False),
        (b"short", b"r", SIGNATURE, False),
    ],
)
def test_only_the_right_signature_holds(
    key: bytes, message: bytes, signature: bytes, *, expected: bool
) -> None:
    """Another key, message or signature does not verify, however malformed."""
    assert expected == is_signed(key, message, signature)


def test_a_key_ring_is_made_once(tmp_path: Path) -> None:
    """The second opening finds the key of the first; another directory has another key."""
    first, second = KeyRing.open(tmp_path / "keys"), KeyRing.open(tmp_path / "keys")
    other = KeyRing.open(tmp_path / "other")
    assert first.public_key == second.public_key
    assert first.public_key != other.public_key


def test_key_files_are_private(tmp_path: Path) -> None:
    """The directory is 0700 and each file 0600, also below an open directory."""
    directory = tmp_path / "keys"
    directory.mkdir(mode=0o755)
    KeyRing.open(directory)
    read_operator_token(directory, lambda: "fresh" * 8)
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    names = ("journal.id", "signing.key", "signing.pub", "operator.token")
    assert dict.fromkeys(names, 0o600) == modes
    assert 0o700 == directory.stat().st_mode & 0o777


def test_the_public_key_can_be_handed_out(tmp_path: Path) -> None:
    """`signing.pub` holds what verifies."""
    ring = KeyRing.open(tmp_path)
    key = bytes.fromhex((tmp_path / "signing.pub").read_text())
    assert is_signed(key, b"message", ring.sign(b"message"))


@pytest.mark.parametrize("name", ["signing.key", "operator.token"])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, name: str) -> None:
    """A key or token with an open mode is a secret no more; the remedy is named."""
    KeyRing.open(tmp_path)
    read_operator_token(tmp_path, lambda: "fresh" * 8)
    (tmp_path / name).chmod(0o640)
    read = (
        partial(KeyRing.open, tmp_path)
        if name == "signing.key"
        else partial(read_operator_token, tmp_path, lambda: "fresh" * 8)
    )
    with pytest.raises(Unavailable, match="chmod 600"):
        read()


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """A key is a file of its own."""
    KeyRing.open(tmp_path / "real")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "signing.key").symlink_to(tmp_path / "real" / "signing.key")
    with pytest.raises(Unavailable, match="cannot be read"):
        KeyRing.open(tmp_path / "keys")


@pytest.mark.parametrize("content", [b"", b"00", b"\xff" * 64, b"g" * 64])
def test_a_damaged_key_is_refused(tmp_path: Path, content: bytes) -> None:
    """A key that cannot be right is not replaced: old signatures would no longer verify."""
    path = tmp_path / "signing.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(Unavailable, match="backup"):
        KeyRing.open(tmp_path)
    assert content == path.read_bytes()


def test_a_draft_left_by_a_crash_does_not_matter(tmp_path: Path) -> None:
    """A key half written under another name is written again."""
    (tmp_path / ".signing.key.draft").write_bytes(b"half")
    KeyRing.open(tmp_path)
    assert {"journal.id", "signing.key", "signing.pub"} == {
        path.name for path in tmp_path.iterdir()
    }


def test_keys_in_a_place_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    """Without a directory there are no keys, and the path is named."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="file/keys"):
        KeyRing.open(tmp_path / "file" / "keys")


def test_the_operators_token_is_made_once(tmp_path: Path) -> None:
    """The second start finds the token of the first, so that its record can be completed."""
    first = read_operator_token(tmp_path, lambda: "fresh" * 8)
    assert (first, f"{first}\n") == (
        read_operator_token(tmp_path, lambda: "another" * 8),
        (tmp_path / "operator.token").read_text(),
    )


@pytest.mark.parametrize("name", ["signing.key", "operator.token"])
def test_a_secret_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    """A key that could not be stored is not used."""
    (tmp_path / f".{name}.draft").mkdir()
    read = (
        partial(KeyRing.open, tmp_path)
        if name == "signing.key"
        else partial(read_operator_token, tmp_path, lambda: "fresh" * 8)
    )
    with pytest.raises(Unavailable, match="cannot be written"):
        read()
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("text", ["", "junk", "a" * 31, "a b" * 20])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    """A short or empty token file is an error that names the remedy."""
    read_operator_token(tmp_path, lambda: "fresh" * 8)
    (tmp_path / "operator.token").write_text(text)
    with pytest.raises(Unavailable, match="start again"):
        read_operator_token(tmp_path, lambda: "fresh" * 8)
