"""The daemon's keys: Ed25519 for signed roots, attestations and exports; the operator's token.

Owns: the files below `keys/`.  Never: returns a private key, or writes a token anywhere but into
the operator's own file; the journal stores its SHA-256.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

SEED_BYTES = 32  # an Ed25519 private key (RFC 8032)

BOND_NAME = "journal.id"
NO_JOURNAL = "none"  # content of the file before the key is bound to a journal

MIN_TOKEN_CHARS = 32
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{MIN_TOKEN_CHARS},}}")


class KeyRing:
    """The signing key of one data directory."""

    __slots__ = ("_private", "bond_path", "key_id", "public_key")

    def __init__(self, seed: bytes, bond_path: Path | None = None) -> None:
        """`bond_path` is the file with the id of the key's journal; see `sqlite.key_binding`."""
        self.bond_path = bond_path
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = self._private.public_key().public_bytes_raw()  # 32 bytes
        self.key_id = hashlib.sha256(self.public_key).hexdigest()[:16]

    @classmethod
    def open(cls, directory: Path) -> "KeyRing":
        """Load the key ring from `directory`, creating it at the first call.

        Raises Unavailable for a directory or key that cannot be read, is damaged, or is readable by
        others.
        """
        private_files.make_directory(directory)
        path = directory / "signing.key"
        text = private_files.read_secret(path)
        if text is None:
            return cls._create(directory, path)
        try:
            return cls(bytes.fromhex(text.decode("ascii")), directory / BOND_NAME)
        except ValueError:
            raise Unavailable(f"{path}: not a signing key; restore it from a backup") from None

    @classmethod
    def _create(cls, directory: Path, path: Path) -> "KeyRing":
        ring = cls(secrets.token_bytes(SEED_BYTES), directory / BOND_NAME)
        try:
            private_files.create_file(directory / BOND_NAME, f"{NO_JOURNAL}\n".encode())
            private_files.create_file(
                directory / "signing.pub", ring.public_key.hex().encode() + b"\n"
            )
            private_files.create_file(path, ring._private.private_bytes_raw().hex().encode())
        except OSError as error:
            raise cannot_write(path, error) from error
        return ring

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature, 64 bytes."""
        return self._private.sign(message)


def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """True if `signature` over `message` is valid for `public_key`."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_operator_token(directory: Path, new_token: Callable[[], str]) -> str:
    """Read the token in `directory/operator.token`, creating it with `new_token` if absent.

    The caller commits the token's record if the journal has none: after a crash in between, the next
    start commits it.  Raises Unavailable.
    """
    private_files.make_directory(directory)
    path = directory / "operator.token"
    text = private_files.read_secret(path)
    if text is not None:
        return _checked(path, text.decode("ascii", "replace").strip())
    token = new_token()
    try:
        private_files.create_file(path, token.encode() + b"\n")
    except OSError as error:
        raise cannot_write(path, error) from error
    return token


def _checked(path: Path, token: str) -> str:
    """Refuse a token that is too short to be secret or not allowed in an HTTP header."""
    if not _TOKEN.fullmatch(token):
        raise Unavailable(
            f"{path} does not hold a token ({MIN_TOKEN_CHARS} or more letters, digits, - and _): "
            "remove it and start again for a fresh one"
        )
    return token
