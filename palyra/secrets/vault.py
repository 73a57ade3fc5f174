"""The vault: named secrets in one encrypted file of the data directory.

The file is one JSON object with four header fields (format, kdf, salt, cost), a nonce and the
encrypted entries.  The entries are encrypted with ChaCha20-Poly1305 (RFC 8439); the header is the
associated data, so a changed header fails the authentication.  A new random nonce is used for each
write.  The key is either 32 random bytes in `keys/vault.key` or derived from a passphrase with
scrypt (RFC 7914).  The threat model is in docs/security.md.
Owns: `vault.sealed`, replaced atomically, and its lock file.
Never: creates a new key while a vault exists that needs the old one.
"""

import base64
import fcntl
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from palyra.errors import InvalidParams, NotFound, Unavailable
from palyra.store.files import private_files

FILE_NAME = "vault.sealed"
KEY_NAME = "vault.key"
MAX_VALUE_BYTES = 65_536
MAX_ENTRIES = 1_000
_FORMAT = 1
_KEY_BYTES, _NONCE_BYTES, _SALT_BYTES = 32, 12, 16
_SCRYPT_COST = 2**16  # 64 MiB of memory and about 0.2 s per guess


class VaultEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One secret and the time it was set (Unix milliseconds)."""

    value: str
    set_ms: int


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    kdf: str  # key | scrypt
    salt: str  # base64; "" for kdf `key`
    cost: int  # scrypt parameter n; 0 for kdf `key`


class _Sealed(_Header, frozen=True, kw_only=True):
    nonce: str
    box: str


_DECODE = msgspec.json.Decoder(_Sealed)
_DECODE_ENTRIES = msgspec.json.Decoder(dict[str, VaultEntry])


class Vault:
    """Encrypted store of secrets.  All methods block; concurrent use by processes is safe."""

    def __init__(
        self, data: Path, keys: Path, find_passphrase: Callable[[], str] | None = None
    ) -> None:
        """`find_passphrase` returns the passphrase; None: the key is a file in `keys`."""
        self.path = data / FILE_NAME
        self._key_path = keys / KEY_NAME
        self._find_passphrase = find_passphrase

    def stamp(self) -> tuple[int, int, int] | None:
        """Return inode, size and mtime to detect changes; None if the file cannot be examined."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def read(self) -> dict[str, VaultEntry]:
        """Return all entries, {} if there is no vault yet.  Raises Unavailable."""
        sealed = self._read_sealed()
        return {} if sealed is None else self._unseal(sealed)

    def can_open(self, content: bytes) -> bool:
        """True if that is the content of a vault and the present key opens it."""
        try:
            self._unseal(_parse(self.path, content))
        except Unavailable:
            return False
        return True

    def get(self, name: str) -> str:
        """Return the value of an entry.  Raises NotFound or Unavailable."""
        entry = self.read().get(name)
        if entry is None:
            raise NotFound(f"the vault holds no {name!r}: set it with `palyra secrets set {name}`")
        return entry.value

    def put(self, name: str, value: str, now_ms: int) -> None:
        """Add or replace an entry, durably.  Raises InvalidParams or Unavailable."""
        size = len(value.encode("utf-8", "surrogatepass"))
        if not 0 < size <= MAX_VALUE_BYTES:
            raise InvalidParams(f"a secret has 1 to {MAX_VALUE_BYTES} bytes, this one {size}")
        with self._alone():
            entries = self.read()
            entries[name] = VaultEntry(value=value, set_ms=now_ms)
            if len(entries) > MAX_ENTRIES:
                raise InvalidParams(f"the vault is full: {MAX_ENTRIES} entries")
            self._write(entries)

    def remove(self, name: str) -> bool:
        """Remove an entry, durably; False if it did not exist.  Raises Unavailable."""
        with self._alone():
            entries = self.read()
            if entries.pop(name, None) is None:
                return False
            self._write(entries)
        return True

    # --- the file

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold an exclusive file lock, so that read and write form one transaction."""
        private_files.make_directory(self.path.parent)
        lock = self.path.with_suffix(".lock")
        try:
            private_files.touch_file(lock)
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"{lock}: cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read_sealed(self) -> _Sealed | None:
        text = private_files.read_secret(self.path)
        return None if text is None else _parse(self.path, text)

    def _unseal(self, sealed: _Sealed) -> dict[str, VaultEntry]:
        try:
            key = self._find_key(sealed)
            nonce, box = base64.b64decode(sealed.nonce), base64.b64decode(sealed.box)
            plain = ChaCha20Poly1305(key).decrypt(nonce, box, _bound(sealed))
            return _DECODE_ENTRIES.decode(plain)
        except (InvalidTag, ValueError):  # msgspec's errors and base64's are ValueErrors
            raise _damaged(self.path) from None

    def _write(self, entries: dict[str, VaultEntry]) -> None:
        header = self._read_sealed() or self._new_header()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        plain = msgspec.json.encode(entries)
        box = ChaCha20Poly1305(self._find_key(header)).encrypt(nonce, plain, _bound(header))
        sealed = _Sealed(
            format=header.format,
            kdf=header.kdf,
            salt=header.salt,
            cost=header.cost,
            nonce=base64.b64encode(nonce).decode("ascii"),
            box=base64.b64encode(box).decode("ascii"),
        )
        try:
            private_files.create_file(self.path, msgspec.json.encode(sealed))
        except OSError as error:
            raise Unavailable(f"{self.path}: cannot be written: {error.strerror}") from None

    # --- the key

    def _new_header(self) -> _Header:
        if self._find_passphrase is None:
            self._make_key()
            return _Header(format=_FORMAT, kdf="key", salt="", cost=0)
        salt = base64.b64encode(secrets.token_bytes(_SALT_BYTES)).decode("ascii")
        return _Header(format=_FORMAT, kdf="scrypt", salt=salt, cost=_SCRYPT_COST)

    def _make_key(self) -> None:
        private_files.make_directory(self._key_path.parent)
        if private_files.read_secret(self._key_path) is not None:
            return  # reuse the key of a removed vault
        try:
            private_files.create_file(self._key_path, secrets.token_hex(_KEY_BYTES).encode())
        except OSError as error:
            raise Unavailable(f"{self._key_path}: cannot be written: {error.strerror}") from None

    def _find_key(self, header: _Header) -> bytes:
        if header.kdf == "scrypt":
            if self._find_passphrase is None:
                raise Unavailable(f"{self.path}: sealed with a passphrase; set secrets.passphrase")
            return _derive(self._find_passphrase(), header.salt, header.cost)
        if self._find_passphrase is not None:
            raise Unavailable(
                f"{self.path}: sealed with a key file, and secrets.passphrase is set; remove the "
                "setting, or the vault, and set the secrets again"
            )
        text = private_files.read_secret(self._key_path)
        try:
            key = bytes.fromhex((text or b"").decode("ascii"))
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            raise Unavailable(f"{self._key_path}: the vault's key is missing or damaged")
        return key


def _parse(path: Path, text: bytes) -> _Sealed:
    try:
        sealed = _DECODE.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _damaged(path) from None
    if sealed.format != _FORMAT or sealed.cost > _SCRYPT_COST:
        raise Unavailable(f"{path}: format {sealed.format} is not known to this version")
    return sealed


def _damaged(path: Path) -> Unavailable:
    return Unavailable(
        f"{path}: damaged, or sealed with another key or passphrase; restore it with its "
        "key from a backup, or remove it and set the secrets again"
    )


def _bound(header: _Header) -> bytes:
    """Return the associated data of the encryption: the header, so that no field can be altered."""
    return msgspec.json.encode([header.format, header.kdf, header.salt, header.cost])


@lru_cache(maxsize=2)
def _derive(passphrase: str, salt: str, cost: int) -> bytes:
    kdf = Scrypt(salt=base64.b64decode(salt), length=_KEY_BYTES, n=cost, r=8, p=1)
    return kdf.derive(passphrase.encode("utf-8", "surrogatepass"))
