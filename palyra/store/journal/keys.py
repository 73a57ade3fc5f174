"""The daemon's keys: Ed25519 for signed roots, attestations and exports; the operator's token.

A signing key is bound to its journal: `keys/journal.id` names the journal that the key signs for.  A
journal that was deleted, emptied or replaced by a newer one shows no trace of that in itself, and
perhaps none in the roots file.  The binding is written with a new key, as "none", and completed when
the first journal has been opened.  A key without the file was created by an older version or lost
it; then only a journal that this opening created is suspect.

Owns: the files below `keys/`.  Never: returns a private key, or writes a token anywhere but into
the operator's own file; the journal stores its SHA-256.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from palyra.core.journal.changes import ChainViolation
from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

SEED_BYTES = 32  # an Ed25519 private key (RFC 8032)

BOND_NAME = "journal.id"
_NO_JOURNAL = "none"  # content of the file before the key is bound to a journal

_MAX_SHOWN = 64  # characters of a journal's id; it has 32

MIN_TOKEN_CHARS = 32
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{MIN_TOKEN_CHARS},}}")


class KeyRing:
    """The signing key of one data directory."""

    __slots__ = ("_bond_path", "_private", "key_id", "public_key")

    def __init__(self, seed: bytes, bond_path: Path | None = None) -> None:
        """`bond_path` is the file with the id of the key's journal; None if it is not checked."""
        self._bond_path = bond_path
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
            private_files.create_file(directory / BOND_NAME, f"{_NO_JOURNAL}\n".encode())
            private_files.create_file(
                directory / "signing.pub", ring.public_key.hex().encode() + b"\n"
            )
            private_files.create_file(path, ring._private.private_bytes_raw().hex().encode())
        except OSError as error:
            raise cannot_write(path, error) from error
        return ring

    def find_mismatch(
        self, journal_id: str, *, is_new: bool, is_blank: bool
    ) -> ChainViolation | None:
        """Return a violation if the key is bound to another journal.  Raises OSError.

        `is_new`: this opening created the journal; `is_blank`: it has neither rows nor roots.
        """
        bound = self._read_bond()
        if self._bond_path is None or bound == journal_id:
            return None
        if bound is None:
            if not is_new:
                return None
            detail = (
                "the journal is new, but the signing key is not: "
                "its database was deleted or emptied"
            )
        elif bound == _NO_JOURNAL:
            if is_blank:
                return None
            detail = (
                "the signing key is newer than the journal: it cannot check what was signed before"
            )
        else:
            kind = "new" if is_new else "another one"
            detail = (
                f"the signing key belongs to journal {bound}, and this one is {kind}: "
                "its database was deleted, emptied or replaced"
            )
        return ChainViolation(kind="missing", position=None, run_id=None, seq=None, detail=detail)

    def bind(self, journal_id: str) -> None:
        """Bind the key to this journal, durably.  Raises OSError."""
        if self._bond_path is not None and self._read_bond() != journal_id:
            private_files.create_file(self._bond_path, f"{journal_id}\n".encode())

    def _read_bond(self) -> str | None:
        if self._bond_path is None:
            return None
        try:
            descriptor = private_files.open_regular(self._bond_path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
            return file.read().strip()[:_MAX_SHOWN]

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
