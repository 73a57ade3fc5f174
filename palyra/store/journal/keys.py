"""The daemon's keys: Ed25519 for signed roots, attestations and exports; the operator's token.

A signing key is bound to its journal: `keys/journal.id` names the journal that the key signs for.  A
journal that was deleted, emptied or replaced by a newer one shows no trace of that in itself, and
perhaps none in the roots file.  The binding is written with a new key, as "none", and completed when
the first journal has been opened.  A key without the file was created by an older version or lost
it; then only a journal that this opening created is suspect.

A journal and its roots file that are both replaced by earlier copies agree with each other.  So
`keys/journal.mark` has the epoch and the last position of the last clean shutdown: a journal that is
older was rolled back.  A restored home has no such file; its roots file has a line about it.

A home that was restored without its key has a new one.  `keys/signing.former` names the public keys
of the signatures before.

Owns: the files below `keys/`.  Never: returns a private key, or writes a token anywhere but into
the operator's own file; the journal stores its SHA-256.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from palyra.core.journal.changes import ChainViolation
from palyra.errors import Unavailable
from palyra.store.files import private_files
from palyra.store.files.free_space import cannot_write

SEED_BYTES = 32  # an Ed25519 private key (RFC 8032)

BOND_NAME = "journal.id"
_NO_JOURNAL = "none"  # content of the file before the key is bound to a journal

MARK_NAME = "journal.mark"
FORMER_NAME = "signing.former"
KEY_NAME = "signing.key"
PUBLIC_NAME = "signing.pub"
KEY_CHARS = 64  # hex digits of a public key

_MAX_SHOWN = 64  # characters of a journal's id; it has 32
_MARK = re.compile(r"([0-9a-f]{1,64}) (\d{1,18}) (\d{1,18})")

MIN_TOKEN_CHARS = 32
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{MIN_TOKEN_CHARS},}}")


class KeyRing:
    """The signing key of one data directory."""

    __slots__ = ("_bond_path", "_private", "former", "key_id", "public_key")

    def __init__(
        self, seed: bytes, bond_path: Path | None = None, former: Sequence[bytes] = ()
    ) -> None:
        """`bond_path` is the file with the id of the key's journal; None if it is not checked.

        `former` are the public keys that signed before this one.
        """
        self._bond_path = bond_path
        self.former = tuple(former)
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = self._private.public_key().public_bytes_raw()  # 32 bytes
        self.key_id = key_id_of(self.public_key)

    @classmethod
    def open(cls, directory: Path) -> "KeyRing":
        """Load the key ring from `directory`, creating it at the first call.

        Raises Unavailable for a directory or key that cannot be read, is damaged, or is readable by
        others.
        """
        private_files.make_directory(directory)
        path = directory / KEY_NAME
        text = private_files.read_secret(path)
        if text is None:
            return cls._create(directory, path)
        former = read_former(directory)
        try:
            return cls(bytes.fromhex(text.decode("ascii")), directory / BOND_NAME, former)
        except ValueError:
            raise Unavailable(f"{path}: not a signing key; restore it from a backup") from None

    @classmethod
    def verifier(cls, public_keys: Sequence[bytes]) -> "KeyRing":
        """Return a key ring that trusts these keys and whose own key is forgotten with it."""
        return cls(secrets.token_bytes(SEED_BYTES), None, public_keys)

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """The public keys whose signatures over this journal are valid."""
        return (self.public_key, *self.former)

    @classmethod
    def _create(cls, directory: Path, path: Path) -> "KeyRing":
        ring = cls(secrets.token_bytes(SEED_BYTES), directory / BOND_NAME)
        try:
            private_files.create_file(directory / BOND_NAME, f"{_NO_JOURNAL}\n".encode())
            private_files.create_file(
                directory / PUBLIC_NAME, ring.public_key.hex().encode() + b"\n"
            )
            private_files.create_file(path, ring._private.private_bytes_raw().hex().encode())
        except OSError as error:
            raise cannot_write(path, error) from error
        return ring

    def files(self) -> list[Path]:
        """Return the files that a restart needs."""
        if self._bond_path is None:
            return []
        return [self._bond_path.with_name(name) for name in (KEY_NAME, PUBLIC_NAME, BOND_NAME)]

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

    def find_rollback(self, journal_id: str, *, epoch: int, position: int) -> "Rollback | None":
        """Return the last clean shutdown if the journal is older than that.  Raises OSError.

        `epoch` is that of this opening, `position` the last one that the journal knows.
        """
        if self._bond_path is None:
            return None
        mark = _MARK.fullmatch(_read_line(self._bond_path.with_name(MARK_NAME)) or "")
        if mark is None or mark[1] != journal_id:
            return None
        found = Rollback(int(mark[2]), int(mark[3]))
        return found if epoch <= found.epoch or position < found.position else None

    def mark(self, journal_id: str, *, epoch: int, position: int) -> None:
        """Record a journal that is closed and durable.  Raises OSError."""
        if self._bond_path is not None:
            text = f"{journal_id} {epoch} {position}\n"
            private_files.create_file(self._bond_path.with_name(MARK_NAME), text.encode())

    def _read_bond(self) -> str | None:
        found = None if self._bond_path is None else _read_line(self._bond_path)
        return None if found is None else found[:_MAX_SHOWN]

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature, 64 bytes."""
        return self._private.sign(message)


class Rollback(NamedTuple):
    """The last clean shutdown that the keys know of; the journal is older."""

    epoch: int
    position: int


def _read_line(path: Path) -> str | None:
    """Return the text of a small file, None if there is none.  Raises OSError."""
    try:
        descriptor = private_files.open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        return file.read().strip()


def read_former(directory: Path) -> tuple[bytes, ...]:
    """Return the public keys of `signing.former`.  Raises Unavailable for a damaged file."""
    path = directory / FORMER_NAME
    try:
        lines = (_read_line(path) or "").split()
        keys = tuple(bytes.fromhex(line) for line in lines)
    except OSError as error:
        raise Unavailable(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError:
        keys = (b"",)
    if any(len(key) * 2 != KEY_CHARS for key in keys):
        raise Unavailable(f"{path}: not a list of public keys; restore it from a backup")
    return keys


def write_former(directory: Path, keys: Sequence[bytes]) -> None:
    """Replace `signing.former`.  Raises OSError."""
    lines = "".join(f"{key.hex()}\n" for key in keys)
    private_files.create_file(directory / FORMER_NAME, lines.encode())


def key_id_of(public_key: bytes) -> str:
    """Return the id of a key: 16 hex digits of the SHA-256 of its public half."""
    return hashlib.sha256(public_key).hexdigest()[:16]


def is_signed_by(public_keys: Sequence[bytes], message: bytes, signature: bytes) -> bool:
    """True if `signature` over `message` is valid for one of the keys."""
    return any(is_signed(key, message, signature) for key in public_keys)


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
